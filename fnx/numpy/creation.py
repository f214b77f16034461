"""Functions of ``fnx.numpy`` that make arrays."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np

from fnx.core import build, dtypes
from fnx.core.array import arguments, axes, convert
from fnx.core.array import public as core
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, operand, promoted
from fnx.core.array.public import public
from fnx.core.dtypes import DType
from fnx.core.errors import ArgumentError, ShapeError
from fnx.core.expr import Expr, floor, where
from fnx.core.ops import Shape
from fnx.core.process import deferred

__all__ = [
    "arange", "array", "asarray", "empty", "empty_like", "full", "full_like", "linspace",
    "ones", "ones_like", "zeros", "zeros_like",
]

MemoryOrder: TypeAlias = Literal["C", "K", "A"] | None
between = deferred("fnx.core.array.spaced", "between")
stepped = deferred("fnx.core.array.spaced", "stepped")


@public
def asarray(a: ArrayLike, dtype: DTypeLike | None = None, order: MemoryOrder = None, *,
            copy: bool | None = None) -> Array:
    """Numbers, nested lists, NumPy data and Arrays as an Array.

    64-bit data becomes 32 bits wide unless ``dtype`` names a type (or ``config.x64``).

    Args:
        a: numbers, nested lists of them, NumPy data or Arrays.
        dtype: of the result; by default that of the data.
        order: None, "C", "A" or "K"; memory is always row-major.
        copy: True for memory of its own; False and None take what there is.

    Returns:
        An Array.

    Raises:
        DTypeError: data that are not numbers, such as NumPy object arrays, or that are masked.
        ShapeError: rows of different lengths.
        OverflowedError: an integer that does not fit.

    >>> import fnx.numpy as jnp
    >>> jnp.asarray([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    _check_order(order)
    if copy is not None:
        arguments.flag_or_none("copy", copy)
    x = core.asarray(a, dtype)
    return x.copy() if copy and x is a and x._storage is not None else x


def _check_order(order: MemoryOrder) -> None:
    if order is not None:
        arguments.one_of("order", order, ("C", "K", "A", None))


@public
def array(object: Any, dtype: DTypeLike | None = None, copy: bool = True, order: MemoryOrder = None,
          ndmin: int = 0) -> Array:
    """``asarray``, with at least ``ndmin`` axes and memory of its own.

    Args:
        object: numbers, nested lists of them, NumPy data or Arrays.
        dtype: of the result; by default that of the data.
        copy: whether the result has memory of its own.
        order: None, "C", "A" or "K"; memory is always row-major.
        ndmin: leading axes of length 1 are added up to this many.

    Returns:
        An Array.

    Raises:
        DTypeError: data that are not numbers, or that are masked.
        ShapeError: rows of different lengths.
        OverflowedError: an integer that does not fit.

    >>> import fnx.numpy as jnp
    >>> jnp.array(1.0, ndmin=1).shape
    (1,)
    """
    _check_order(order)
    arguments.flag("copy", copy)
    least = arguments.integer("ndmin", ndmin)
    x = core.asarray(object, dtype)
    if x is object and copy:
        x = x.copy() if x._storage is not None else x
    if least > axes.MOST_AXES:
        raise ArgumentError(f"expected ndmin <= {axes.MOST_AXES}, got {least}")
    if x.ndim < least:
        x = Array(build.reshape(x._node, (1,) * (least - x.ndim) + x.shape), x.weak)
    return x


def dtype_or_default(dtype: Any, otherwise: DType | None = None) -> DType:
    if dtype is None:
        return convert.default_float() if otherwise is None else otherwise
    return convert.dtype_argument(dtype)


@public
def full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """An array of one value (or of values that broadcast to the shape).

    Args:
        shape: of the result: an int or ints, known while tracing.
        fill_value: a number, or values that broadcast to the shape.
        dtype: of the result; by default that of the value.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.
        ShapeError: the value does not broadcast.

    >>> import fnx.numpy as jnp
    >>> jnp.full((2,), 7)
    Array([7, 7], dtype=int32, weak_type=True)
    """
    value = operand(fill_value)
    t, weak = core.kind_of(value)
    node = as_node(value, dtype_or_default(dtype, t))
    return Array(build.expand(node, axes.shape(shape)), weak and dtype is None)


@public
def zeros(shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """An array of zeros.

    Args:
        shape: of the result: an int or ints, known while tracing.
        dtype: of the result; by default the default float.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.zeros(2)
    Array([0., 0.], dtype=float32)
    """
    return Array(build.const(0, dtype_or_default(dtype), axes.shape(shape)))


@public
def ones(shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """An array of ones.

    Args:
        shape: of the result: an int or ints, known while tracing.
        dtype: of the result; by default the default float.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.ones(2, int)
    Array([1, 1], dtype=int32)
    """
    return Array(build.const(1, dtype_or_default(dtype), axes.shape(shape)))


@public
def empty(shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """An array of zeros (nothing is left undefined).

    Args:
        shape: of the result: an int or ints, known while tracing.
        dtype: of the result; by default the default float.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.empty((0, 2)).shape
    (0, 2)
    """
    return Array(build.const(0, dtype_or_default(dtype), axes.shape(shape)))


@public
def full_like(a: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None,
              shape: ShapeLike | None = None) -> Array:
    """One value in the shape and dtype of ``a``.

    Args:
        a: an Array, or anything with a shape and a dtype.
        fill_value: a number, or values that broadcast to the shape.
        dtype: of the result; by default that of a.
        shape: of the result; by default that of a.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.full_like(jnp.zeros(2), 7)
    Array([7., 7.], dtype=float32)
    """
    like, weak = _like(a)
    node = as_node(operand(fill_value), dtype_or_default(dtype, like[1]))
    return Array(build.expand(node, like[0] if shape is None else axes.shape(shape)),
                 weak and dtype is None)


def _like(a: Any) -> tuple[tuple[Shape, DType], bool]:
    """Shape and dtype of an array or of what has a shape and a dtype."""
    if type(a) is not Array and hasattr(a, "shape") and hasattr(a, "dtype") \
            and not isinstance(a, (np.ndarray, np.generic)):
        return (tuple(a.shape), dtypes.as_dtype(a.dtype)), False
    x = core.asarray(a)
    return (x._shape, x._dtype), x.weak


@public
def zeros_like(a: ArrayLike, dtype: DTypeLike | None = None, shape: ShapeLike | None = None
              ) -> Array:
    """Zeros in the shape and dtype of ``a``.

    Args:
        a: an Array, or anything with a shape and a dtype.
        dtype: of the result; by default that of a.
        shape: of the result; by default that of a.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.zeros_like(jnp.arange(2))
    Array([0, 0], dtype=int32)
    """
    return full_like(a, 0, dtype, shape)


@public
def ones_like(a: ArrayLike, dtype: DTypeLike | None = None, shape: ShapeLike | None = None
             ) -> Array:
    """Ones in the shape and dtype of ``a``.

    Args:
        a: an Array, or anything with a shape and a dtype.
        dtype: of the result; by default that of a.
        shape: of the result; by default that of a.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.ones_like(jnp.arange(2))
    Array([1, 1], dtype=int32)
    """
    return full_like(a, 1, dtype, shape)


empty_like = zeros_like

def _known(name: str, x: Any) -> Any:
    """A number that decides a shape as Python's, from NumPy's or a concrete 0-d Array."""
    if type(x) is Array or isinstance(x, (np.ndarray, np.generic)) and not x.ndim:
        x = x.item()
    if isinstance(x, np.generic):  # of a type that NumPy lacks
        x = float(x)
    if not isinstance(x, (int, float)):
        raise ArgumentError(f"{name}: expected numbers known while tracing, got {x!r}")
    return x


_NUMPYS = 1 << 24  # elements up to which NumPy counts, in numbers of 64 bits
_MOST = 2**31 - 1


@public
def arange(start: ArrayLike, stop: ArrayLike | None = None, step: Any = None,
           dtype: DTypeLike | None = None) -> Array:
    """start, start + step, ... below stop.

    Args:
        start: the first number; alone it is ``stop``, and the first is 0.
        stop: the end, which is not reached.
        step: the difference; by default 1.
        dtype: of the result; by default what the numbers promote to.

    Returns:
        An Array of one axis, of max(0, ceil((stop - start) / step)) elements.

    Raises:
        ArgumentError: a step of 0.
        TracedValueError: a bound that is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.arange(3), jnp.arange(1.0, 2.0, 0.5)
    (Array([0, 1, 2], dtype=int32), Array([1. , 1.5], dtype=float32))
    """
    given = [x for x in (start, stop, step) if x is not None]
    if stop is None:
        start, stop = 0, start
    first, last, by = [_known("arange", x) for x in (start, stop, 1 if step is None else step)]
    if by == 0:
        raise ArgumentError("arange: expected a step other than 0, got 0",
                            hint="for equal elements use fnx.numpy.full(n, value)")
    t = convert.dtype_argument(dtype) if dtype is not None else \
        core.promoted_kind([core.kind_of(operand(x)) for x in given])[0]
    n = _steps(first, last, by)
    if n == 0:
        return Array(build.const(0, t, (0,)))
    if float(first).is_integer() and float(by).is_integer() and abs(first) + n * abs(by) < 2**31:
        steps = Expr(build.iota(n)) * int(by)
        return Array((steps if first == 0 else steps + int(first)).cast(t).node)
    if n <= _NUMPYS:
        return core.asarray(np.arange(first, last, by), t)
    wide = dtypes.float64 if t.is_integer or t.bits == 64 else dtypes.float32
    at = Expr(build.iota(n))
    return Array(stepped(float(first), float(first + by - first), at, wide).cast(t).node)


def _steps(first: Any, last: Any, by: Any) -> int:
    """How many numbers there are from first on below last."""
    try:
        n: int = max(0, math.ceil((last - first) / by))
    except (OverflowError, ValueError, TypeError):  # infinite, NaN or no numbers
        raise ArgumentError(f"arange: expected finite numbers, got {first!r}, {last!r} and "
                            f"{by!r}") from None
    if n > _MOST:
        raise ShapeError(f"arange: expected at most {_MOST:,} elements, got {n:,}",
                         hint="see whether start, stop and step are the numbers that are meant")
    return n


@public
def linspace(start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True,
             retstep: bool = False, dtype: DTypeLike | None = None, axis: int = 0) -> Any:
    """``num`` evenly spaced numbers from start to stop, on a new axis.

    Args:
        start: the first number; a float or an Array of floats.
        stop: the last number, or what follows the last.
        num: how many, known while tracing.
        endpoint: whether ``stop`` is the last.
        retstep: whether to return the width of a step, too.
        dtype: of the result; by default the default float.
        axis: where the axis of ``num`` stands in the result.

    Returns:
        An Array, or (Array, width of a step).

    Raises:
        ArgumentError: a negative ``num``.
        AxisError: an axis outside of the array.

    >>> import fnx.numpy as jnp
    >>> jnp.linspace(0.0, 1.0, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    arguments.flag("endpoint", endpoint)
    arguments.flag("retstep", retstep)
    n = int(_known("linspace", num))
    if n < 0:
        raise ArgumentError(f"linspace: expected num >= 0, got {n}",
                            hint="num is how many points; to go down, exchange start and stop")
    (a, b), _ = promoted("inexact", "linspace", (start, stop))
    gaps = n - 1 if endpoint else n
    shape = (n, *a.shape)
    t = dtype_or_default(dtype, a.dtype)
    place, low, high = (Expr(build.expand(x, shape)) for x in (
        build.reshape(build.iota(n), (n,) + (1,) * len(a.shape)), a, b))
    # what is rounded to whole numbers is not rounded before
    wide = dtypes.float64 if t.is_integer or a.dtype.bits == 64 else dtypes.float32
    out = between(low, high, place, max(gaps, 1), wide)
    if endpoint and n > 1:  # exactly stop
        out = where(place.eq(n - 1), high.cast(wide), out)
    out = (floor(out) if t.is_integer else out.cast(a.dtype)).cast(t)
    at = axes.one(axis, len(shape))
    result = Array(build.permute(out.node, (*range(1, at + 1), 0, *range(at + 1, len(shape)))))
    if not retstep:
        return result
    return result, Array(((Expr(b) - Expr(a)) / (gaps if gaps > 0 else math.nan)).node)
