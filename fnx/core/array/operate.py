"""The operators, indexing, ``x.at[...]`` and conversions of Array, attached to the class here.

``elementwise`` creates a public function from an entry of core/array/elementwise.py, and adds the
operand and result types to its docstring.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from fnx.core import build, dtypes, ops
from fnx.core.array import arguments, convert, indexing, scope
from fnx.core.array import elementwise as rows
from fnx.core.array.arguments import ReadMode, WriteMode
from fnx.core.array.array import Array, ArrayLike, set_methods
from fnx.core.array.convert import DTypeLike
from fnx.core.array.elementwise import OPERATORS, ElementwiseRow
from fnx.core.array.entries import index_entries
from fnx.core.array.promotion import as_node, operand, promoted, same_shape
from fnx.core.array.public import asarray, kind_of, public, strong_cast
from fnx.core.array.repeated import EagerCall, lift_numbers, numbers_as_data, repeat, take_apart
from fnx.core.errors import ArgumentError, DTypeError, MutationError, UnknownNameError
from fnx.core.expr import Expr, integer_power
from fnx.core.ops import Op
from fnx.core.process import load
from fnx.core.tracebacks import shorten

P = ParamSpec("P")


def apply(row: ElementwiseRow, *xs: Any) -> Array:
    """Apply an elementwise function to operands: promote, broadcast, build."""
    if row.domain == "truth":
        nodes = same_shape(row.name, [as_node(operand(x), dtypes.bool_) for x in xs])
        return Array(row.build(*nodes))
    nodes, weak = promoted(row.domain, row.name, xs)
    node = row.build(*nodes)
    if weak and row in _WEAKNESS:
        weak = _WEAKNESS[row](xs)
    return Array(node, weak and not node.dtype.is_bool)


def _never(xs: Sequence[Any]) -> bool:
    return False


def _of_floats(xs: Sequence[Any]) -> bool:
    return all(kind_of(operand(x))[0].is_float for x in xs)


def _without_strong(xs: Sequence[Any]) -> bool:
    return all(type(x) in convert.SCALARS or type(x) is Array and x.weak for x in xs)


def _weak_power(xs: Sequence[Any]) -> bool:
    (base, weak_base), (exponent, is_weak) = (kind_of(operand(x)) for x in xs)
    if not weak_base and not is_weak:  # uint64 and a signed type: a weak float
        return True
    if base.is_float or exponent.is_float:
        return is_weak or not exponent.is_integer
    return is_weak and not base.is_bool or xs[1] is True or xs[1] is False


# Functions with their own rule, as in JAX, for whether the result is weak if promotion says weak.
_WEAKNESS: dict[ElementwiseRow, Callable[[Sequence[Any]], bool]] = {
    rows.LOG2: _never, rows.LOG10: _never, rows.RINT: _of_floats, rows.HYPOT: _without_strong,
    rows.LOGADDEXP2: _without_strong, rows.POWER: _weak_power}


_TAKES = {
    "any": "of any dtype",
    "number": "integers or floats",
    "integer": "integers or floats; bool counts as int32",
    "float": "floats; bool and integers become the default float",
    "inexact": "floats; bool and integers become a float",
    "bits": "bool or integers",
    "whole": "integers; bool counts as int32",
    "truth": "of any dtype; what is not zero is true",
}
_ARITHMETIC = (rows.ADD, rows.SUBTRACT, rows.MULTIPLY, rows.DIVIDE)
_REFUSES = {"number": "bool", "bits": "floats", "whole": "floats"}


def elementwise(row: ElementwiseRow, result: str = "", *, at: str = "fnx.numpy as jnp"
                ) -> Callable[[Callable[P, Array]], Callable[P, Array]]:
    """Decorate the public function of an elementwise function.

    Args:
        result: the result dtype in words, if it differs from that of the operands.
        at: the import of the docstring's example.
    """
    def decorate(f: Callable[P, Array]) -> Callable[P, Array]:
        names = f.__code__.co_varnames[:f.__code__.co_argcount]
        f.__doc__ = described(f.__doc__ or "", row, names, result, at)
        made = public(f)
        if row in _ARITHMETIC:
            lift_numbers(made)
        return made
    return decorate


def described(doc: str, row: ElementwiseRow, names: Sequence[str], result: str, at: str) -> str:
    """Insert Args, Returns and Raises of an elementwise function before a docstring's example."""
    text, prompt, example = doc.partition(">>> ")
    one = len(names) == 1
    shape = f"of the shape of {names[0]}" if one else "of the shape that they broadcast to"
    takes = "" if one else "; numbers give way to the dtypes of arrays"
    wrong = f"{_REFUSES[row.domain]}, " if row.domain in _REFUSES else ""
    lines = [
        "Args:",
        f"    {', '.join(names)}: {'an Array' if one else 'Arrays'}, NumPy data or Python numbers"
        f" of any shape: {_TAKES[row.domain]}{takes}.", "",
        "Returns:",
        f"    An Array {shape}, of {result or 'the dtype of the operands'}.", "",
        "Raises:",
        f"    DTypeError: {wrong}lists (convert them with ``asarray``), text and objects.",
        *(() if one else ("    ShapeError: the shapes do not broadcast.",)), "",
        f">>> import {at}", prompt]
    return text + "\n    ".join(lines) + example


def alias(name: str, f: Callable[P, Array], module: str = "lax") -> Callable[P, Array]:
    """Return a public function under the name that it has in another module."""
    wrap = load("fnx.core.array.rounded").rounded_once if "rounds" in f.__dict__ else public
    made: Callable[P, Array] = wrap(inspect.unwrap(f), name)
    made.__doc__ = (f.__doc__ or "").replace(f"jnp.{f.__name__}(", f"{module}.{name}(").replace(
        "import fnx.numpy as jnp", f"import fnx.{module} as {module}")
    return made


_OPERANDS = (Array, bool, int, float, np.ndarray, np.generic)


def _operator(op: Op, operands: tuple[Any, ...]) -> Any:
    """Apply the Python operator that core/operators.py represents by an op."""
    call = _OPERATIONS[op] if op is not ops.POW or type(operands[1]) not in (int, float) else power
    if not scope.is_open():
        made = repeat(call, operands, {})
        if made.__class__ is not EagerCall:
            return made
    try:
        for x in operands:
            if not _is_operand(x):
                return _refused(OPERATORS[op].name, x)
        return call(*operands)
    except Exception as error:
        shorten(error)
        raise


def _is_operand(x: Any) -> bool:
    return type(x) is Array or isinstance(x, _OPERANDS) or hasattr(type(x), "__jax_array__")


def _refused(name: str, x: Any) -> Any:
    """Raise for a known bad operand, else return NotImplemented, as its type may handle arrays."""
    if type(x) in (list, tuple):
        raise DTypeError(f"{name}: expected an array or a number, got {type(x).__name__}",
                         hint="convert it with fnx.numpy.asarray(...)")
    if isinstance(x, complex):
        raise dtypes.no_complex("complex")
    if x is None and name not in _OF_EQUALITY:
        raise DTypeError(f"{name}: expected an array or a number, got None",
                         hint="a function without a return statement returns None")
    return NotImplemented


_OF_EQUALITY = (OPERATORS[ops.CMPEQ].name, OPERATORS[ops.CMPNE].name)


def as_operator(f: Callable[[Any, Any], Array]) -> Callable[[Any, Any], Any]:
    """Wrap a binary function as a Python operator: NotImplemented for operands it cannot take."""
    def call(a: Any, b: Any) -> Any:
        for x in (a, b):
            if not _is_operand(x):
                return _refused(f.__name__, x)
        return f(a, b)
    return call


_OPERATIONS = {op: public(functools.partial(apply, row), row.name)
               for op, row in OPERATORS.items()}


for _op, _call in _OPERATIONS.items():
    if OPERATORS[_op] in _ARITHMETIC:
        lift_numbers(_call)


def static_power(x: Array, n: Any) -> Array:
    """``x ** n`` for a Python number n; an integer n (or 2.0) is expanded to multiplications."""
    whole = type(n) is int or n == 2.0
    if type(n) is int and n < 0 and not x._dtype.is_float:
        raise DTypeError(f"expected a power >= 0 of integers, got {n}",
                         hint="convert to float first: x.astype(float32) ** n")
    (node, exponent), weak = promoted("integer", "power", (x, n))
    weak = weak and (x.weak or type(n) is float)
    if not whole or abs(n) > 1 << 16:
        return Array(rows.POWER.build(node, exponent), weak)
    return Array(integer_power(Expr(node), int(n)).node, weak)


power = public(static_power, "power")


def _item(x: Array, index: Any) -> Array:
    """``x[index]``."""
    return Array(indexing.get(x._node, index_entries(index)), x.weak)


_get = public(_item, "index")


def get_item(x: Array, index: Any) -> Array:
    """``x[index]`` as users write it, with static ints turned into data for the eager cache."""
    return _get(x, numbers_as_data(x, index))


@public
def astype(x: ArrayLike, dtype: DTypeLike, copy: bool = False) -> Array:
    """Convert x to another dtype.

    Args:
        x: an Array or anything that ``asarray`` accepts, of any shape.
        dtype: the result dtype. Float to integer truncates towards zero; NaN and out-of-range
            values saturate as in JAX; nonzero values become True.
        copy: accepted for compatibility with NumPy; it has no effect, as Arrays are immutable.

    Returns:
        An Array of the shape of x.

    Raises:
        DTypeError: an unsupported dtype.

    >>> import fnx.numpy as jnp
    >>> jnp.astype(1.5, "int32")
    Array(1, dtype=int32)
    """
    arguments.flag("copy", copy)
    array, to = asarray(x), convert.dtype_argument(dtype)
    if "key" in (array._dtype.kind, to.kind) and to is not array._dtype:
        raise dtypes.not_numbers()
    return strong_cast(array, to)


# ---- x.at[...] --------------------------------------------------------------------------------

def _write(summary: str, call: str, result: str
           ) -> Callable[[Callable[P, Array]], Callable[P, Array]]:
    """Decorate a writing method of At: generate its docstring and make it public."""
    def decorate(f: Callable[P, Array]) -> Callable[P, Array]:
        f.__doc__ = f"""{summary}

        Args:
            value: what broadcasts to the shape of ``x[index]``; converted to the dtype of x.
            mode: of indices outside: "drop" (default; "fill" and
                "promise_in_bounds" do the same), or "clip" to the nearest inside.
            unique_indices, indices_are_sorted: promises, which nothing here needs.
            wrap_negative_indices: whether -1 is the last; else negative indices are outside.

        Returns:
            An Array of the shape and dtype of x; x stays as it is.

        Raises:
            OutOfBoundsError: an index outside, under ``config.check_index``.
            ShapeError: the value does not broadcast.

        >>> import fnx.numpy as jnp
        >>> jnp.asarray([1.0, 2.0, 3.0]).at[1].{call}
        {result}
        """
        return public(f)
    return decorate


class At:
    """``x.at``: index it, then call an update method.

    Args:
        x: the array.
        index: an index as in ``x[index]``.

    >>> import fnx.numpy as jnp
    >>> jnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("_x", "_index")

    def __init__(self, x: Array, index: Any = None) -> None:
        self._x, self._index = x, index

    def __getitem__(self, index: Any) -> At:
        return At(self._x, numbers_as_data(self._x, index, False))

    def __setitem__(self, index: Any, value: Any) -> None:
        raise MutationError("expected no assignment to x.at[...]: an Array is immutable",
                            hint="write x = x.at[index].set(value)")

    def __call__(self, *args: Any) -> Any:
        raise ArgumentError("expected x.at[index], got x.at(index)",
                            hint="write x.at[index].set(value), with square brackets")

    def __getattr__(self, name: str) -> Any:
        raise UnknownNameError("x.at[...]", name, vars(At), "it has set, add, multiply and others")

    def _meant(self, wrap: bool) -> At:
        """Return self if negative indices wrap, else a copy in which they are out of bounds."""
        arguments.flag("wrap_negative_indices", wrap)
        if wrap:
            return self
        entries = self._index if isinstance(self._index, tuple) else (self._index,)
        return At(self._x, tuple([_outside_if_negative(i) for i in entries]))

    @public
    def get(self, *, mode: ReadMode = None, fill_value: ArrayLike | None = None,
            indices_are_sorted: bool = False, unique_indices: bool = False,
            wrap_negative_indices: bool = True) -> Array:
        """Return the elements at the index.

        Args:
            mode: for out-of-bounds indices: "promise_in_bounds" (default) reads the nearest
                element, which gets no gradient if the index is traced; "clip" reads the nearest
                element; "fill" reads ``fill_value``.
            fill_value: the value for "fill"; by default NaN, the smallest int, the largest
                unsigned int, or True.
            unique_indices, indices_are_sorted: promises; accepted but not used.
            wrap_negative_indices: whether -1 is the last element; else negative indices are out of
                bounds.

        Returns:
            An Array of the shape of ``x[index]`` and the dtype of x.

        Raises:
            OutOfBoundsError: an out-of-bounds index, if ``config.check_index`` is set.

        >>> import fnx.numpy as jnp
        >>> jnp.arange(3).at[jnp.asarray([2, 9])].get(mode="fill", fill_value=-1)
        Array([ 2, -1], dtype=int32)
        """
        arguments.promises(indices_are_sorted, unique_indices)
        return at_get(self._x, self._meant(wrap_negative_indices)._index, mode, fill_value)

    @_write("A copy with ``value`` there.",
            "set(5.0)", "Array([1., 5., 3.], dtype=float32)")
    def set(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        at = self._meant(wrap_negative_indices)
        return _written(at, value, None, mode, indices_are_sorted, unique_indices)

    @_write("A copy with ``value`` added there, once for each time that an index occurs.",
            "add(5.0)", "Array([1., 7., 3.], dtype=float32)")
    def add(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        at = self._meant(wrap_negative_indices)
        return _written(at, value, ops.ADD, mode, indices_are_sorted, unique_indices)

    @_write("A copy with ``value`` subtracted there.",
            "subtract(5.0)", "Array([ 1., -3.,  3.], dtype=float32)")
    def subtract(self, value: ArrayLike, *, mode: WriteMode = None,
                 indices_are_sorted: bool = False, unique_indices: bool = False,
                 wrap_negative_indices: bool = True) -> Array:
        less = -asarray(value)
        at = self._meant(wrap_negative_indices)
        return _written(at, less, ops.ADD, mode, indices_are_sorted, unique_indices)

    @_write("A copy with what is there multiplied by ``value``.",
            "multiply(5.0)", "Array([ 1., 10.,  3.], dtype=float32)")
    def multiply(self, value: ArrayLike, *, mode: WriteMode = None,
                 indices_are_sorted: bool = False, unique_indices: bool = False,
                 wrap_negative_indices: bool = True) -> Array:
        at = self._meant(wrap_negative_indices)
        return _written(at, value, ops.MUL, mode, indices_are_sorted, unique_indices)

    @_write("A copy with what is there divided by ``value``.",
            "divide(4.0)", "Array([1. , 0.5, 3. ], dtype=float32)")
    def divide(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
               unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        ones = At(Array(build.const(1, self._x._dtype, self._x._shape)),
                  self._meant(wrap_negative_indices)._index)
        return self._x / _written(ones, value, ops.MUL, mode, indices_are_sorted, unique_indices)

    @_write("A copy with the smaller of what is there and ``value``.",
            "min(0.0)", "Array([1., 0., 3.], dtype=float32)")
    def min(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        at = self._meant(wrap_negative_indices)
        return _written(at, value, ops.MIN, mode, indices_are_sorted, unique_indices)

    @_write("A copy with the larger of what is there and ``value``.",
            "max(5.0)", "Array([1., 5., 3.], dtype=float32)")
    def max(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        at = self._meant(wrap_negative_indices)
        return _written(at, value, ops.MAX, mode, indices_are_sorted, unique_indices)

    @_write("A copy with what is there raised to the power of ``value``.",
            "power(2.0)", "Array([1., 4., 3.], dtype=float32)")
    def power(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
              unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        ones = At(Array(build.const(1, self._x._dtype, self._x._shape)),
                  self._meant(wrap_negative_indices)._index)
        by = _written(ones, value, ops.MUL, mode, indices_are_sorted, unique_indices)
        return apply(rows.POWER, self._x, by)

    @public
    def apply(self, func: Callable[[Array], Any], *, mode: WriteMode = None,
              indices_are_sorted: bool = False, unique_indices: bool = False,
              wrap_negative_indices: bool = True) -> Array:
        """Return a copy with a function applied to the elements; repeated indices apply it once.

        Args:
            func: an elementwise function of an Array; its results are cast to the dtype of x.
            mode: for out-of-bounds indices: "drop" (default), or "clip" to the nearest element.
            unique_indices, indices_are_sorted: promises; accepted but not used.
            wrap_negative_indices: whether -1 is the last element; else negative indices are out of
                bounds.

        Returns:
            An Array of the shape and dtype of x; x is unchanged.

        Raises:
            OutOfBoundsError: an out-of-bounds index, if ``config.check_index`` is set.

        >>> import fnx.numpy as jnp
        >>> jnp.asarray([1.0, 2.0, 3.0]).at[1].apply(jnp.square)
        Array([1., 4., 3.], dtype=float32)
        """
        if not callable(func):
            raise ArgumentError(f"expected a function, got {func!r}", hint="use .set(value)")
        x = self._x
        there = At(Array(build.const(False, dtypes.bool_, x._shape)),
                   self._meant(wrap_negative_indices)._index)
        chosen = _written(there, True, None, mode, indices_are_sorted, unique_indices)
        made = as_node(operand(func(x)), x._dtype)
        if made.shape != x._shape:
            raise ArgumentError(f"expected an elementwise function, got shape {made.shape} of "
                                f"{x._shape}")
        return Array(build.where(chosen._node, made, x._node), x.weak)

    mul = multiply


def _outside_if_negative(entry: Any) -> Any:
    """Return an index entry with negative numbers replaced by an out-of-bounds index."""
    if isinstance(entry, int) and not isinstance(entry, bool) and entry < 0:
        return Array(build.const(indexing.BEFORE, dtypes.int32))
    if isinstance(entry, slice) or entry is None or entry is Ellipsis:
        return entry
    x = asarray(entry)
    if not x._dtype.is_integer or x._dtype is dtypes.unsigned(x._dtype):
        return entry
    return Array(indexing.outside_if_negative(x._node))


def at_get(x: Array, index: Any, mode: ReadMode, fill_value: ArrayLike | None) -> Array:
    """``x.at[index].get(...)``."""
    fill = None if fill_value is None else as_node(operand(fill_value), x._dtype)
    return Array(indexing.get(x._node, index_entries(index), mode, fill), x.weak)


def _written(at: At, value: ArrayLike, monoid: Op | None, mode: WriteMode, indices_are_sorted: bool,
             unique_indices: bool) -> Array:
    arguments.promises(indices_are_sorted, unique_indices)
    x = at._x
    update = as_node(asarray(value) if isinstance(value, (list, tuple)) else operand(value),
                     x._dtype)
    node = indexing.write(x._node, index_entries(at._index), update, monoid, mode)
    return Array(node, x.weak)


take_apart(At, lambda at: (at._x, at._index))
set_methods({"_operator": _operator, "_get_item": get_item, "astype": astype, "at": At})
