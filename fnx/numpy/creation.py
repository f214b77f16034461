"""Functions of ``fnx.numpy`` that make arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx.core import build, dtypes, ops
from fnx.core.array import array as core
from fnx.core.array import axes, convert
from fnx.core.array.array import Array, ArrayLike, public
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, operand, promoted
from fnx.core.dtypes import DType
from fnx.core.errors import ArgumentError
from fnx.core.ops import Shape
from fnx.core.uop import UOp


@public
def asarray(a: ArrayLike, dtype: DTypeLike | None = None, order: str | None = None, *,
            copy: bool | None = None) -> Array:
    """Numbers, nested lists, NumPy data and Arrays as an Array.

    64-bit data becomes 32 bits wide unless ``dtype`` names a type (or ``config.x64``).

    Raises:
        DTypeError: data that are not numbers, such as NumPy object arrays.
        OverflowedError: an integer that does not fit.

    >>> import fnx.numpy as jnp
    >>> jnp.asarray([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    return core.asarray(a, dtype)


@public
def array(object: Any, dtype: DTypeLike | None = None, copy: bool = True, order: str | None = None,
          ndmin: int = 0) -> Array:
    """``asarray``, with at least ``ndmin`` axes and memory of its own.

    >>> import fnx.numpy as jnp
    >>> jnp.array(1.0, ndmin=1).shape
    (1,)
    """
    x = core.asarray(object, dtype)
    if x is object and copy:
        x = x.copy() if x._storage is not None else x
    if x.ndim < ndmin:
        x = Array(build.reshape(x._node, (1,) * (ndmin - x.ndim) + x.shape), x.weak)
    return x


def _type(dtype: Any, otherwise: DType | None = None) -> DType:
    if dtype is None:
        return convert.default_float() if otherwise is None else otherwise
    return convert.dtype_argument(dtype)


@public
def full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """An array of one value (or of values that broadcast to the shape).

    >>> import fnx.numpy as jnp
    >>> jnp.full((2,), 7)
    Array([7, 7], dtype=int32, weak_type=True)
    """
    value = operand(fill_value)
    t, weak = core.kind_of(value)
    node = as_node(value, _type(dtype, t))
    return Array(build.expand(node, axes.shape(shape)), weak and dtype is None)


@public
def zeros(shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """An array of zeros.

    >>> import fnx.numpy as jnp
    >>> jnp.zeros(2)
    Array([0., 0.], dtype=float32)
    """
    return Array(build.const(0, _type(dtype), axes.shape(shape)))


@public
def ones(shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """An array of ones.

    >>> import fnx.numpy as jnp
    >>> jnp.ones(2, int)
    Array([1, 1], dtype=int32)
    """
    return Array(build.const(1, _type(dtype), axes.shape(shape)))


@public
def empty(shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """An array of zeros (nothing is left undefined).

    >>> import fnx.numpy as jnp
    >>> jnp.empty((0, 2)).shape
    (0, 2)
    """
    return Array(build.const(0, _type(dtype), axes.shape(shape)))


@public
def full_like(a: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None,
              shape: ShapeLike | None = None) -> Array:
    """One value in the shape and dtype of ``a``.

    >>> import fnx.numpy as jnp
    >>> jnp.full_like(jnp.zeros(2), 7)
    Array([7., 7.], dtype=float32)
    """
    like, weak = _like(a)
    node = as_node(operand(fill_value), _type(dtype, like[1]))
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

    >>> import fnx.numpy as jnp
    >>> jnp.zeros_like(jnp.arange(2))
    Array([0, 0], dtype=int32)
    """
    return full_like(a, 0, dtype, shape)


@public
def ones_like(a: ArrayLike, dtype: DTypeLike | None = None, shape: ShapeLike | None = None
             ) -> Array:
    """Ones in the shape and dtype of ``a``.

    >>> import fnx.numpy as jnp
    >>> jnp.ones_like(jnp.arange(2))
    Array([1, 1], dtype=int32)
    """
    return full_like(a, 1, dtype, shape)


empty_like = zeros_like


def _known(name: str, x: Any) -> Any:
    """A number that decides a shape: Python's or NumPy's, or a concrete 0-d Array."""
    if type(x) is Array:
        x = x.item()
    if not isinstance(x, (int, float, np.generic)):
        raise ArgumentError(f"{name}: expected numbers known while tracing, got {x!r}")
    return x


@public
def arange(start: ArrayLike, stop: ArrayLike | None = None, step: Any = None,
           dtype: DTypeLike | None = None) -> Array:
    """start, start + step, ... below stop.

    >>> import fnx.numpy as jnp
    >>> jnp.arange(3), jnp.arange(1.0, 2.0, 0.5)
    (Array([0, 1, 2], dtype=int32), Array([1. , 1.5], dtype=float32))
    """
    if stop is None:
        start, stop = 0, start
    numbers = [_known("arange", x) for x in (start, stop, 1 if step is None else step)]
    (first, last, by) = numbers
    if by == 0:
        raise ArgumentError("arange: expected a step other than 0, got 0")
    t = _type(dtype, convert.default_float() if any(
        isinstance(x, (float, np.floating)) for x in numbers) else dtypes.int32)
    n = max(0, math.ceil((last - first) / by))
    if n == 0:
        return Array(build.const(0, t, (0,)))
    if float(first).is_integer() and float(by).is_integer() and abs(first) + n * abs(by) < 2**31:
        steps = build.mul(build.iota(n), build.const(int(by), dtypes.int32, (n,)))
        whole = build.add(steps, build.const(int(first), dtypes.int32, (n,)))
        return Array(build.cast(steps if first == 0 else whole, t))
    return core.asarray(np.arange(first, last, by), t)


@public
def linspace(start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True,
             retstep: bool = False, dtype: DTypeLike | None = None, axis: int = 0) -> Any:
    """``num`` evenly spaced numbers from start to stop, on a new axis.

    >>> import fnx.numpy as jnp
    >>> jnp.linspace(0.0, 1.0, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    n = int(_known("linspace", num))
    if n < 0:
        raise ArgumentError(f"linspace: expected num >= 0, got {n}")
    (a, b), _ = promoted("inexact", "linspace", (start, stop))
    gaps = n - 1 if endpoint else n
    shape = (n, *a.shape)
    share = build.div(build.cast(build.iota(n), a.dtype),
                      build.const(max(gaps, 1), a.dtype, (n,)))
    share = build.expand(build.reshape(share, (n,) + (1,) * len(a.shape)), shape)
    rest = build.sub(build.like(share, 1), share)
    low, high = build.expand(a, shape), build.expand(b, shape)
    out = build.add(build.mul(low, rest), build.mul(high, share))
    if endpoint and n > 1:  # exactly stop
        place = build.expand(build.reshape(build.iota(n), (n,) + (1,) * len(a.shape)), shape)
        out = build.where(build.eq(place, build.like(place, n - 1)), high, out)
    at = axes.one(axis, len(shape))
    out = build.permute(out, (*range(1, at + 1), 0, *range(at + 1, len(shape))))
    t = _type(dtype, a.dtype)
    if t.is_integer:
        out = build.elementwise(ops.FLOOR, out)
    result = Array(build.cast(out, t))
    if not retstep:
        return result
    width = build.sub(b, a)
    return result, Array(build.div(width, build.like(width, gaps if gaps else math.nan)))


def _diagonal_test(n: int, m: int, k: int, below: bool) -> UOp:
    """(n, m) of bool: column == row + k, or column <= row + k."""
    row = build.add(build.iota(n), build.const(k, dtypes.int32, (n,)))
    rows = build.expand(build.reshape(row, (n, 1)), (n, m))
    columns = build.expand(build.reshape(build.iota(m), (1, m)), (n, m))
    return (build.le if below else build.eq)(columns, rows)


@public
def eye(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> import fnx.numpy as jnp
    >>> jnp.eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    n, m = axes.shape((N, N if M is None else M))
    return Array(build.cast(_diagonal_test(n, m, int(k), False), _type(dtype)))


def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """The identity matrix.

    >>> import fnx.numpy as jnp
    >>> jnp.identity(1)
    Array([[1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


@public
def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Ones on and below the k-th diagonal, zeros elsewhere.

    >>> import fnx.numpy as jnp
    >>> jnp.tri(2)
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    n, m = axes.shape((N, N if M is None else M))
    return Array(build.cast(_diagonal_test(n, m, int(k), True), _type(dtype)))


def _triangle(name: str, x: Array, k: int, lower: bool) -> Array:
    if x.ndim < 2:
        raise ArgumentError(f"{name}: expected at least 2 axes, got shape {x.shape}")
    node = x._node
    n, m = node.shape[-2:]
    test = _diagonal_test(n, m, k if lower else k - 1, True)
    test = build.expand(test, node.shape)
    zero = build.like(node, 0)
    return Array(build.where(test, node, zero) if lower else build.where(test, zero, node),
                 x.weak)


@public
def tril(m: ArrayLike, k: int = 0) -> Array:
    """What is on and below the k-th diagonal of the last two axes; zeros elsewhere.

    >>> import fnx.numpy as jnp
    >>> jnp.tril(jnp.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    return _triangle("tril", core.asarray(m), int(k), True)


@public
def triu(m: ArrayLike, k: int = 0) -> Array:
    """What is on and above the k-th diagonal of the last two axes; zeros elsewhere.

    >>> import fnx.numpy as jnp
    >>> jnp.triu(jnp.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    return _triangle("triu", core.asarray(m), int(k), False)


@public
def meshgrid(*xi: ArrayLike, indexing: str = "xy") -> list[Array]:
    """Coordinate arrays of a grid.

    >>> import fnx.numpy as jnp
    >>> [g.shape for g in jnp.meshgrid(jnp.arange(2), jnp.arange(3))]
    [(3, 2), (3, 2)]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: expected indexing 'xy' or 'ij', got {indexing!r}")
    xs = [core.asarray(x) for x in xi]
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[:2] = [1, 0]
    shape = tuple(xs[i].size for i in order)
    out = []
    for i, x in enumerate(xs):
        line = [1] * len(xs)
        line[order.index(i)] = x.size
        out.append(Array(build.expand(build.reshape(x._node, tuple(line)), shape), x.weak))
    return out
