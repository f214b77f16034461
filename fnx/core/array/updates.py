"""``x.at[index]``: updated copies of an array.

    x.at[i].set(v)     SCATTER(x, i, v)
    x.at[i].add(v)     the same, combined with what is there, in the dtype that both promote to
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

from fnx.core.array import indexing
from fnx.core.array.api_boundary import asarray, dtype_and_weak, join_dtypes, public_api
from fnx.core.array.arguments import ReadMode, WriteMode
from fnx.core.array.array import Array, ArrayLike, set_methods
from fnx.core.array.array_operators import apply
from fnx.core.array.eager_cache import lift_indices, register_key_parts
from fnx.core.array.index_parsing import parse_index
from fnx.core.array.promotion import as_node, as_operand
from fnx.core.formulas import elementwise as rows
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.ops import Op
from fnx.core.support.errors import ArgumentError, MutationError, UnknownNameError

P = ParamSpec("P")


def _write_method(summary: str, call: str, result: str
                  ) -> Callable[[Callable[P, Array]], Callable[P, Array]]:
    """Decorate a writing method of At: generate its docstring and make it public."""
    def decorate(f: Callable[P, Array]) -> Callable[P, Array]:
        f.__doc__ = f"""{summary}

        Args:
            value: what broadcasts to the shape of ``x[index]``. It is combined in the dtype that
                both promote to; the result is converted to the dtype of x.
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
        return public_api(f)
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
        return At(self._x, lift_indices(self._x, index, False))

    def __setitem__(self, index: Any, value: Any) -> None:
        raise MutationError("expected no assignment to x.at[...]: an Array is immutable",
                            hint="write x = x.at[index].set(value)")

    def __call__(self, *args: Any) -> Any:
        raise ArgumentError("expected x.at[index], got x.at(index)",
                            hint="write x.at[index].set(value), with square brackets")

    def __getattr__(self, name: str) -> Any:
        raise UnknownNameError("x.at[...]", name, vars(At),
                               "use set, add, multiply or another update method")

    def _resolve_negative(self, wrap: bool) -> Any:
        """Return the index, in which negative numbers are out of bounds unless they wrap."""
        if wrap:
            return self._index
        entries = self._index if isinstance(self._index, tuple) else (self._index,)
        return tuple([_invalidate_negative(i) for i in entries])

    def _write(self, value: ArrayLike, monoid: Op | None, mode: WriteMode, wrap: bool,
               x: Array | None = None) -> Array:
        """Combine what is in x, by default the array, with the value; without a monoid replace it.

        It is combined in the dtype that both promote to, as in JAX: 3 + -1.5 is 1 in an int array.
        """
        target = self._x if x is None else x
        operand = asarray(value) if isinstance(value, (list, tuple, float)) else as_operand(value)
        t = target._dtype
        wide = t if monoid is None else join_dtypes(map(dtype_and_weak, (target, operand)))[0]
        index = parse_index(self._resolve_negative(wrap))
        node = indexing.write(as_node(target, wide), index, as_node(operand, wide), monoid, mode)
        return Array(as_node(Array(node), t), target.weak)

    def _write_product(self, value: ArrayLike, mode: WriteMode, wrap: bool) -> Array:
        """Return the product of the values for each element, 1 where there are none."""
        ones = Array(build.const(1, self._x._dtype, self._x._shape))
        return self._write(value, ops.MUL, mode, wrap, ones)

    @public_api
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
        return at_get(self._x, self._resolve_negative(wrap_negative_indices), mode, fill_value)

    @_write_method("A copy with ``value`` there.",
                   "set(5.0)", "Array([1., 5., 3.], dtype=float32)")
    def set(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._write(value, None, mode, wrap_negative_indices)

    @_write_method("A copy with ``value`` added there, once for each time that an index occurs.",
                   "add(5.0)", "Array([1., 7., 3.], dtype=float32)")
    def add(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._write(value, ops.ADD, mode, wrap_negative_indices)

    @_write_method("A copy with ``value`` subtracted there.",
                   "subtract(5.0)", "Array([ 1., -3.,  3.], dtype=float32)")
    def subtract(self, value: ArrayLike, *, mode: WriteMode = None,
                 indices_are_sorted: bool = False, unique_indices: bool = False,
                 wrap_negative_indices: bool = True) -> Array:
        return self._write(-asarray(value), ops.ADD, mode, wrap_negative_indices)

    @_write_method("A copy with what is there multiplied by ``value``.",
                   "multiply(5.0)", "Array([ 1., 10.,  3.], dtype=float32)")
    def multiply(self, value: ArrayLike, *, mode: WriteMode = None,
                 indices_are_sorted: bool = False, unique_indices: bool = False,
                 wrap_negative_indices: bool = True) -> Array:
        return self._write(value, ops.MUL, mode, wrap_negative_indices)

    @_write_method("A copy with what is there divided by ``value``.",
                   "divide(4.0)", "Array([1. , 0.5, 3. ], dtype=float32)")
    def divide(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
               unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._x / self._write_product(value, mode, wrap_negative_indices)

    @_write_method("A copy with the smaller of what is there and ``value``.",
                   "min(0.0)", "Array([1., 0., 3.], dtype=float32)")
    def min(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._write(value, ops.MIN, mode, wrap_negative_indices)

    @_write_method("A copy with the larger of what is there and ``value``.",
                   "max(5.0)", "Array([1., 5., 3.], dtype=float32)")
    def max(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._write(value, ops.MAX, mode, wrap_negative_indices)

    @_write_method("A copy with what is there raised to the power of ``value``.",
                   "power(2.0)", "Array([1., 4., 3.], dtype=float32)")
    def power(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
              unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        exponents = self._write_product(value, mode, wrap_negative_indices)
        return apply(rows.POWER, self._x, exponents)

    @public_api
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
        mask = self._write(True, None, mode, wrap_negative_indices,
                           Array(build.const(False, dtypes.bool_, x._shape)))
        new_values = as_node(as_operand(func(x)), x._dtype)
        if new_values.shape != x._shape:
            raise ArgumentError(f"expected an elementwise function, got shape {new_values.shape} "
                                f"of {x._shape}")
        return Array(build.where(mask._node, new_values, x._node), x.weak)

    mul = multiply


def _invalidate_negative(entry: Any) -> Any:
    """Return an index entry with negative numbers replaced by an out-of-bounds index."""
    if isinstance(entry, int) and not isinstance(entry, bool) and entry < 0:
        return Array(build.const(indexing.OUT_OF_BOUNDS, dtypes.int32))
    if isinstance(entry, slice) or entry is None or entry is Ellipsis:
        return entry
    x = asarray(entry)
    if not x._dtype.is_integer or x._dtype is dtypes.unsigned(x._dtype):
        return entry
    return Array(indexing.invalidate_negative(x._node))


def at_get(x: Array, index: Any, mode: ReadMode, fill_value: ArrayLike | None) -> Array:
    """``x.at[index].get(...)``."""
    fill = None if fill_value is None else as_node(as_operand(fill_value), x._dtype)
    return Array(indexing.get(x._node, parse_index(index), mode, fill), x.weak)


register_key_parts(At, lambda at: (at._x, at._index))


set_methods({"at": At})
