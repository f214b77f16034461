"""NumPy's universal functions: reduce, accumulate, reduceat, outer and at.

``jnp.add``, ``jnp.maximum`` and their like have the same methods: ``jnp.add.reduce(x)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.numpy import base
from fnx.numpy.base import (
    arange,
    broadcast_to,
    concatenate,
    cumprod,
    cumsum,
    logical_and,
    moveaxis,
    reshape,
    take,
    where,
    zeros,
)
from fnx.numpy.vectorization import vectorize

scan = lazy_import("fnx.transforms.control_flow.scan")

__all__ = ["frompyfunc", "ufunc"]

# Reductions and updates that have an implementation of their own, which is faster.
_REDUCTIONS: dict[str, Callable[..., Array]] = {
    "add": base.sum, "multiply": base.prod, "maximum": base.max, "minimum": base.min}
_CUMULATIVE = {"add": cumsum, "multiply": cumprod}
_AT_METHODS = {"add": "add", "subtract": "subtract", "multiply": "multiply", "maximum": "max",
               "minimum": "min"}


class ufunc:
    """A universal function: an elementwise function with reductions, as ``frompyfunc`` makes it.

    Args:
        func: a function of Arrays, which must broadcast.
        nin: the number of arguments.
        nout: the number of results.
        name: the name of the ufunc; by default that of ``func``.
        nargs: accepted for JAX compatibility; by default ``nin``.
        identity: the identity element of the function; None if there is none.

    Raises:
        ArgumentError: ``func`` is not callable, or a number is not an int.

    >>> import fnx.numpy as jnp
    >>> x = jnp.asarray([3, 1, 2])
    >>> jnp.subtract.reduce(x), jnp.maximum.accumulate(x), jnp.add.nin
    (Array(0, dtype=int32), Array([3, 3, 3], dtype=int32), 2)
    >>> jnp.add.at(x, 0, 10, inplace=False), jnp.add.reduceat(x, jnp.asarray([0, 1]))
    (Array([13,  1,  2], dtype=int32), Array([3, 3], dtype=int32))
    """

    def __init__(self, func: Callable[..., Any], /, nin: int, nout: int, *,
                 name: str | None = None, nargs: int | None = None, identity: Any = None) -> None:
        if not callable(func):
            raise ArgumentError(f"expected a function, got {func!r}")
        self.nin, self.nout = arguments.check_int("nin", nin), arguments.check_int("nout", nout)
        self.nargs = self.nin if nargs is None else arguments.check_int("nargs", nargs)
        self.identity, self._func = identity, func
        self.__name__ = name or getattr(func, "__name__", "function")
        self.__doc__ = func.__doc__

    def __repr__(self) -> str:
        return f"<jnp.ufunc {self.__name__!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self._func, self.__name__, self.identity, self.nin, self.nout, self.nargs

    def __call__(self, *args: ArrayLike, out: None = None, where: None = None) -> Any:
        """Apply the function elementwise.

        Args:
            args: ``nin`` Arrays or array-likes that broadcast.
            out: unsupported; must be None.
            where: unsupported; must be None.

        Raises:
            ArgumentError: the number of arguments is wrong, or ``out`` or ``where`` is given.
        """
        arguments.check_no_out("out", out)
        if where is not None:
            raise ArgumentError(f"{self.__name__}: expected where=None",
                                hint="use fnx.numpy.where(condition, result, otherwise)")
        if len(args) != self.nin:
            raise ArgumentError(f"{self.__name__}: expected {self.nin} arguments, got {len(args)}")
        return self._func(*args)

    def reduce(self, a: ArrayLike, axis: Any = 0, dtype: DTypeLike | None = None,
               out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
               where: ArrayLike | None = None) -> Array:
        """Reduce axes with the function, from the first element to the last.

        Args:
            a: an Array or array-like.
            axis: the axis or axes to reduce; None reduces all.
            dtype: the dtype of the result.
            out: unsupported; must be None.
            keepdims: whether to keep the reduced axes, with length 1.
            initial: the start value; by default the identity, or the first element.
            where: a boolean mask, broadcast with a, of the elements to include.

        Returns:
            An Array without the reduced axes.

        Raises:
            ArgumentError: the function is not binary, or ``where`` has no start value.
            ShapeError: the reduction is over zero elements and has no start value.
            AxisError: the axis is out of range.
        """
        return _reduce(self, a, axis, dtype, out, keepdims, initial, where)

    def accumulate(self, a: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None,
                   out: None = None) -> Array:
        """Return the cumulative reduction along an axis.

        Args:
            a: an Array or array-like.
            axis: the axis.
            dtype: the dtype of the result.
            out: unsupported; must be None.

        Returns:
            An Array of the shape of a.

        Raises:
            ArgumentError: the function is not binary, or ``axis`` is not a single axis.
            AxisError: the axis is out of range.
        """
        return _accumulate(self, a, axis, dtype, out)

    def at(self, a: ArrayLike, indices: Any, b: ArrayLike | None = None, /, *,
           inplace: bool = True) -> Array:
        """Apply the function to the elements at indices; repeated indices apply it repeatedly.

        Args:
            a: an Array or array-like.
            indices: as in ``a[indices]``.
            b: second operands, which broadcast to ``a[indices]``.
            inplace: must be False, as Arrays are immutable.

        Returns:
            An Array of the shape of a.

        Raises:
            ArgumentError: ``inplace`` is not False, or b does not match the number of operands.
        """
        return _at(self, a, indices, b, inplace)

    def reduceat(self, a: ArrayLike, indices: ArrayLike, axis: int = 0,
                 dtype: DTypeLike | None = None, out: None = None) -> Array:
        """Reduce the segments of an axis that begin at the given indices, each up to the next one.

        Args:
            a: an Array or array-like.
            indices: a vector of segment starts; one that is not below the next gives its element.
            axis: the axis.
            dtype: the dtype of the result.
            out: unsupported; must be None.

        Returns:
            An Array with one reduction for each index.

        Raises:
            ArgumentError: the function is not binary, or ``axis`` is not a single axis.
            ShapeError: ``indices`` is not a vector, or a has no axes.
            AxisError: the axis is out of range.
        """
        return _reduceat(self, a, indices, axis, dtype, out)

    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Array:
        """Apply the function to all pairs of elements.

        Args:
            A: an Array or array-like.
            B: an Array or array-like.

        Returns:
            An Array of the axes of A, then of B.

        Raises:
            ArgumentError: the function is not binary.
        """
        return _outer(self, A, B)


def _require_binary(f: ufunc, out: None = None) -> None:
    if (f.nin, f.nout) != (2, 1):
        raise ArgumentError(f"{f.__name__}: expected two inputs and one output, got {f.nin} and "
                            f"{f.nout}")
    arguments.check_no_out("out", out)


def _single_axis(f: ufunc, axis: object, rank: int) -> int:
    if axis is None or isinstance(axis, tuple | list):
        raise ArgumentError(f"{f.__name__}: expected one axis, got {axis!r}")
    return axes.normalize_axis(axis, rank)


def _result_dtype(f: ufunc, x: Array, dtype: DTypeLike | None) -> Any:
    """Return the dtype of results: ``dtype``, or that of f applied to two elements."""
    zero = zeros((), x.dtype)
    return asarray(f(zero, zero)).dtype if dtype is None else dtype


def _scan(f: Callable[..., Any], init: Any, xs: Any) -> tuple[Any, Any]:
    result: tuple[Any, Any] = scan.scan(f, init, xs, None, False, 1, 0, False)
    return result


@partial(public_api, name="ufunc.reduce")
def _reduce(f: ufunc, a: ArrayLike, axis: Any, dtype: DTypeLike | None, out: None,
            keepdims: bool, initial: ArrayLike | None, mask: ArrayLike | None) -> Array:
    _require_binary(f, out)
    start = f.identity if initial is None else initial
    if mask is not None and start is None:
        raise ArgumentError(f"{f.__name__}: expected initial= with where=, as the function "
                            "has no identity")
    if f.__name__ in _REDUCTIONS and isinstance(f, _BuiltinUfunc):
        options = {} if f.__name__ in ("maximum", "minimum") else {"dtype": dtype}
        return _REDUCTIONS[f.__name__](a, axis=axis, keepdims=keepdims, initial=initial, where=mask,
                                       **options)
    x = asarray(a)
    dims = tuple(range(x.ndim)) if axis is None else axes.normalize_axis_tuple(
        axis if isinstance(axis, tuple) else (axis,), x.ndim)
    outer = tuple([n for i, n in enumerate(x.shape) if i not in dims])
    shape = tuple([1 if i in dims else n for i, n in enumerate(x.shape)]) if keepdims else outer
    out_dtype = _result_dtype(f, x, dtype)
    rows = _merge_axes(x, dims, outer)
    masks = () if mask is None else (_merge_axes(broadcast_to(mask, x.shape), dims, outer),)
    if start is None:
        if not rows.shape[0]:
            raise ShapeError(f"{f.__name__}: expected at least one element or initial=, got shape "
                             f"{x.shape}")
        first, rows = rows[0].astype(out_dtype), rows[1:]
    else:
        first = broadcast_to(asarray(start, out_dtype), outer)

    def step(carry: Array, row: tuple[Array, ...]) -> tuple[Array, None]:
        result = f(carry, row[0].astype(out_dtype)).astype(out_dtype)
        return (where(row[1], result, carry) if len(row) > 1 else result), None

    return reshape(_scan(step, first, (rows, *masks))[0], shape)


def _merge_axes(x: Array, dims: tuple[int, ...], outer: tuple[int, ...]) -> Array:
    """Return x with the reduced axes merged into one leading axis."""
    moved = moveaxis(x, dims, tuple(range(len(dims))))
    count = 1
    for i in dims:
        count *= x.shape[i]
    return reshape(moved, (count, *outer))


@partial(public_api, name="ufunc.accumulate")
def _accumulate(f: ufunc, a: ArrayLike, axis: Any, dtype: DTypeLike | None, out: None) -> Array:
    _require_binary(f, out)
    x = asarray(a)
    ax = _single_axis(f, axis, x.ndim)
    if f.__name__ in _CUMULATIVE and isinstance(f, _BuiltinUfunc):
        return _CUMULATIVE[f.__name__](x, axis=ax, dtype=dtype)
    out_dtype = _result_dtype(f, x, dtype)
    rows = moveaxis(x, ax, 0).astype(out_dtype)
    if not rows.shape[0]:
        return moveaxis(rows, 0, ax)

    def step(carry: Array, row: Array) -> tuple[Array, Array]:
        result = f(carry, row).astype(out_dtype)
        return result, result

    results = _scan(step, rows[0], rows[1:])[1]
    return moveaxis(concatenate([rows[:1], results]), 0, ax)


@partial(public_api, name="ufunc.at")
def _at(f: ufunc, a: ArrayLike, indices: Any, b: ArrayLike | None, inplace: bool) -> Array:
    if inplace:
        raise ArgumentError(f"{f.__name__}: expected inplace=False, as Arrays are immutable",
                            hint=f"x = jnp.{f.__name__}.at(x, indices, values, inplace=False)")
    values = () if b is None else (b,)
    if f.nin != 1 + len(values):
        raise ArgumentError(f"{f.__name__}: expected {f.nin - 1} operands besides the array, got "
                            f"{len(values)}")
    if f.__name__ in _AT_METHODS and isinstance(f, _BuiltinUfunc):
        x = asarray(a)
        result: Array = getattr(x.at[indices], _AT_METHODS[f.__name__])(*values)
        return result
    zeros_of_dtype = [zeros((), asarray(v).dtype) for v in (a, *values)]
    x = asarray(a).astype(asarray(f(*zeros_of_dtype)).dtype)
    flat_index = reshape(arange(x.size), x.shape)[indices]  # in the order of a[indices]
    operands = [reshape(broadcast_to(v, flat_index.shape), -1) for v in values]

    def step(flat: Array, row: tuple[Array, ...]) -> tuple[Array, None]:
        position, *others = row
        return flat.at[position].set(f(flat[position], *others).astype(flat.dtype)), None

    flat, _ = _scan(step, reshape(x, -1), (reshape(flat_index, -1), *operands))
    return reshape(flat, x.shape)


@partial(public_api, name="ufunc.reduceat")
def _reduceat(f: ufunc, a: ArrayLike, indices: ArrayLike, axis: Any, dtype: DTypeLike | None,
              out: None) -> Array:
    _require_binary(f, out)
    x, starts = asarray(a), asarray(indices)
    if not x.ndim or starts.ndim != 1:
        raise ShapeError(f"{f.__name__}: expected an array of rank >= 1 and a vector of indices, "
                         f"got shapes {x.shape} and {starts.shape}")
    ax = _single_axis(f, axis, x.ndim)
    rows = moveaxis(x, ax, 0).astype(_result_dtype(f, x, dtype))
    count = rows.shape[0]
    ends = concatenate([starts[1:], asarray([count], starts.dtype)])
    positions = arange(count, dtype=starts.dtype)

    def in_segment(i: Array) -> Array:
        mask = logical_and(i > starts, i < ends)
        return reshape(mask, (-1,) + (1,) * (rows.ndim - 1))

    def step(carry: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        return where(in_segment(row[0]), f(carry, row[1]).astype(carry.dtype), carry), None

    return moveaxis(_scan(step, take(rows, starts, axis=0), (positions, rows))[0], 0, ax)


@partial(public_api, name="ufunc.outer")
def _outer(f: ufunc, A: ArrayLike, B: ArrayLike) -> Array:
    _require_binary(f)
    a, b = asarray(A), asarray(B)
    result: Array = f(reshape(a, a.shape + (1,) * b.ndim), b)
    return result


@public_api
def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """Create a universal function from a function of scalars.

    Args:
        func: a function of ``nin`` scalars; it is traced once.
        nin: the number of arguments.
        nout: the number of results.
        identity: the identity element of the function; None if there is none.

    Returns:
        A ``ufunc``: an elementwise function that broadcasts, with the methods reduce, accumulate,
        at, reduceat and outer.

    Raises:
        ArgumentError: ``func`` is not callable, or a number is not an int.
        DTypeError: the identity is not a number.

    >>> import fnx.numpy as jnp
    >>> longer = jnp.frompyfunc(lambda x, y: (x * x + y * y) ** 0.5, 2, 1)
    >>> longer.outer(jnp.asarray([3.0, 0.0]), jnp.asarray([4.0]))
    Array([[5.],
           [4.]], dtype=float32)
    """
    if not callable(func):
        raise ArgumentError(f"expected a function, got {func!r}")
    if identity is not None and asarray(identity).ndim:
        raise ArgumentError(f"expected a scalar as identity, got {identity!r}")
    vectorized: Callable[..., Any] = vectorize(func)
    return ufunc(vectorized, nin, nout, name=getattr(func, "__name__", None), identity=identity)


class _BuiltinUfunc(ufunc):
    """A built-in function of ``fnx.numpy``, which may have a fast reduction."""


def method(f: Callable[..., Any], identity: Any, nin: int, name: str) -> Any:
    """Return a ufunc method of a function of ``fnx.numpy``."""
    return getattr(_BuiltinUfunc(f, nin, 1, identity=identity), name)
