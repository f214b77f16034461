"""What Arrays do: operators, indexing, ``x.at[...]``, conversions. Attached to the class here."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core import build, dtypes, ops
from fnx.core.array import convert, elementwise, indexing, storage
from fnx.core.array.array import Array, asarray, kind_of, public, set_methods, strong_cast
from fnx.core.array.elementwise import OPERATORS, Function
from fnx.core.array.promotion import as_node, operand, promoted, same_shape
from fnx.core.errors import ArgumentError, DTypeError
from fnx.core.ops import Op

NDArray = np.ndarray[Any, Any]


def _operator(op: Op, *operands: Any) -> Array:
    """Python's operator that core/operators.py names by an op."""
    if op is ops.POW and type(operands[1]) in (int, float):
        return static_power(*operands)
    return apply(OPERATORS[op], *operands)


@public
def apply(function: Function, *xs: Any) -> Array:
    """An elementwise function of operands: promote, broadcast, build."""
    if function.domain == "truth":
        nodes = same_shape(function.name, [as_node(operand(x), dtypes.bool_) for x in xs])
        return Array(function.build(*nodes))
    nodes, weak = promoted(function.domain, function.name, xs)
    node = function.build(*nodes)
    if function is elementwise.POWER:  # 2.5 ** integers is as strong as they are
        weak = weak and all(kind_of(operand(x))[1] for x in xs)
    return Array(node, weak and not node.dtype.is_bool)


@public
def static_power(x: Array, n: float) -> Array:
    """``x ** n`` for a Python number n: a whole one multiplies."""
    whole = type(n) is int or n == 2.0
    if type(n) is int and n < 0 and not x._dtype.is_float:
        raise DTypeError(f"power: expected a power >= 0 of integers, got {n}",
                         hint="convert to float first: x.astype(float32) ** n")
    (node, exponent), weak = promoted("integer", "power", (x, n))
    weak = weak and (x.weak or type(n) is float)
    if not whole or abs(n) > 1 << 16:
        return Array(elementwise.power(node, exponent), weak)
    return Array(elementwise.integer_power(node, int(n)), weak)


@public
def get_item(x: Array, index: Any) -> Array:
    """``x[index]``."""
    return Array(indexing.get(x._node, index_entries(index)), x.weak)


@public
def astype(x: Any, dtype: Any) -> Array:
    """The values of x as another dtype.

    >>> astype(1.5, "int32")
    Array(1, dtype=int32)
    """
    x = asarray(x)
    return strong_cast(x, convert.dtype_argument(dtype))


@public
def bitcast(x: Any, dtype: Any) -> Array:
    """The bits of x as another dtype of equal width."""
    return Array(build.bitcast(asarray(x)._node, convert.dtype_argument(dtype)))


def index_entries(index: Any) -> tuple[Any, ...]:
    """An index as a tuple of int, slice, None, Ellipsis, NumPy arrays and nodes."""
    return tuple([_entry(i) for i in (index if isinstance(index, tuple) else (index,))])


def _entry(i: Any) -> Any:
    if type(i) is int or i is None or i is Ellipsis or type(i) is slice:
        return i if type(i) is not slice else slice(*[_bound(b) for b in
                                                      (i.start, i.stop, i.step)])
    if type(i) is Array:
        return i._numpy() if i._dtype.is_bool and i._storage is not None else i._node
    if isinstance(i, (np.ndarray, np.generic)):
        return _array_entry(np.asarray(i))
    if isinstance(i, (list, tuple)):
        raise ArgumentError(f"expected an index that is no {type(i).__name__}",
                            hint="use x[np.array([...])]")
    if isinstance(i, bool):
        return np.asarray(i)
    if hasattr(i, "__index__"):
        return i.__index__()
    return i


def _array_entry(i: NDArray) -> Any:
    if i.dtype.kind == "b":
        return i
    if i.size == 0 and i.dtype.kind == "f":  # np.array([])
        i = i.astype(np.int32)
    if i.dtype.kind not in "iu":
        raise DTypeError(f"expected integer or bool arrays as an index, got {i.dtype}",
                         hint="convert it with .astype(np.int32)")
    return storage.buffer(convert.numpy_data(i, dtypes.int32)) if i.ndim else int(i)


def _bound(b: Any) -> int | None:
    if b is None or type(b) is int:
        return b
    if not hasattr(b, "__index__"):
        raise DTypeError(f"expected whole numbers in a slice, got {b!r}", hint="use int(...)")
    return int(b.__index__())


# ---- x.at[...] --------------------------------------------------------------------------------


class At:
    """``x.at``: index it, then say what to do there.

    >>> import fnx.numpy as jnp
    >>> jnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("_x", "_index")

    def __init__(self, x: Array, index: Any = None) -> None:
        self._x, self._index = x, index

    def __getitem__(self, index: Any) -> At:
        return At(self._x, index)

    def get(self, *, mode: str | None = None, fill_value: Any = None,
            indices_are_sorted: bool = False, unique_indices: bool = False) -> Array:
        """The elements there. ``mode``: "clip" (default), "fill" or "promise_in_bounds"."""
        return at_get(self._x, self._index, mode, fill_value)

    def set(self, value: Any, *, mode: str | None = None, **hints: bool) -> Array:
        """A copy with ``value`` there. Indices outside are dropped; ``mode="clip"`` clamps."""
        return at_write(self._x, self._index, value, "set", mode)

    def add(self, value: Any, *, mode: str | None = None, **hints: bool) -> Array:
        """A copy with ``value`` added there, once per occurrence of an index."""
        return at_write(self._x, self._index, value, "add", mode)

    def subtract(self, value: Any, *, mode: str | None = None, **hints: bool) -> Array:
        """A copy with ``value`` subtracted there."""
        return at_write(self._x, self._index, -asarray(value), "add", mode)

    def multiply(self, value: Any, *, mode: str | None = None, **hints: bool) -> Array:
        """A copy with what is there multiplied by ``value``."""
        return at_write(self._x, self._index, value, "mul", mode)

    mul = multiply

    def divide(self, value: Any, *, mode: str | None = None, **hints: bool) -> Array:
        """A copy with what is there divided by ``value``."""
        ones = Array(build.const(1, self._x._dtype, self._x._shape))
        return self._x / at_write(ones, self._index, value, "mul", mode)

    def min(self, value: Any, *, mode: str | None = None, **hints: bool) -> Array:
        """A copy with the smaller of what is there and ``value``."""
        return at_write(self._x, self._index, value, "min", mode)

    def max(self, value: Any, *, mode: str | None = None, **hints: bool) -> Array:
        """A copy with the larger of what is there and ``value``."""
        return at_write(self._x, self._index, value, "max", mode)


@public
def at_get(x: Array, index: Any, mode: str | None, fill_value: Any) -> Array:
    fill = None if fill_value is None else as_node(fill_value, x._dtype)
    return Array(indexing.get(x._node, index_entries(index), mode or "clip", fill), x.weak)


@public
def at_write(x: Array, index: Any, value: Any, how: str, mode: str | None) -> Array:
    update = as_node(operand(value), x._dtype)
    node = indexing.write(x._node, index_entries(index), update, how, mode or "drop")
    return Array(node, x.weak)


set_methods({"operator": _operator, "get_item": get_item, "astype": astype, "view": bitcast,
             "at": At})  # type: ignore[dict-item]
