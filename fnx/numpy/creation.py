"""Array creation: from data, filled, ranges, and matrices such as ``eye``."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np

from fnx.core.array import api_boundary as core
from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.placement import placement_of
from fnx.core.array.promotion import as_node, as_operand, promote_operands
from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, floor, where
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.dimensions import Dim
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import

__all__ = [
    "arange", "array", "asarray", "empty", "empty_like", "eye", "full", "full_like", "identity",
    "linspace", "meshgrid", "ones", "ones_like", "tri", "tril", "triu", "zeros", "zeros_like",
]


MemoryOrder: TypeAlias = Literal["C", "K", "A"] | None
constraints = lazy_import("fnx.sharding.constraints")
linspace_at = lazy_import("fnx.core.formulas.linspace_exact", "linspace_at")
axis_lengths = lazy_import("fnx.core.rewriting.lengths")
arange_at = lazy_import("fnx.core.formulas.linspace_exact", "arange_at")


@public_api
def asarray(a: ArrayLike, dtype: DTypeLike | None = None, order: MemoryOrder = None, *,
            copy: bool | None = None) -> Array:
    """Convert numbers, nested lists, NumPy data or Arrays to an Array.

    64-bit data is narrowed to 32 bits unless ``dtype`` is given or ``config.x64`` is set.

    Args:
        a: numbers, nested lists of them, NumPy data or Arrays.
        dtype: the dtype of the result; by default that of the data.
        order: None, "C", "A" or "K"; memory is always row-major.
        copy: True to copy; False and None reuse existing memory.

    Returns:
        An Array.

    Raises:
        DTypeError: the data are not numbers (such as NumPy object arrays) or are masked.
        ShapeError: rows differ in length.
        OverflowedError: an integer does not fit the dtype.

    >>> import fnx.numpy as jnp
    >>> jnp.asarray([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    _check_order(order)
    if copy is not None:
        arguments.check_optional_bool("copy", copy)
    x = core.asarray(a, dtype)
    return x.copy() if copy and x is a and x._storage is not None else x


def _check_order(order: MemoryOrder) -> None:
    if order is not None:
        arguments.check_choice("order", order, ("C", "K", "A", None))


@public_api
def array(object: Any, dtype: DTypeLike | None = None, copy: bool = True, order: MemoryOrder = "K",
          ndmin: int = 0) -> Array:
    """Create an Array as ``asarray`` does, in memory of its own and with at least ``ndmin`` axes.

    Args:
        object: numbers, nested lists of them, NumPy data or Arrays.
        dtype: the dtype of the result; by default that of the data.
        copy: whether the result gets memory of its own.
        order: None, "C", "A" or "K"; memory is always row-major.
        ndmin: the minimum number of axes; axes of length 1 are prepended.

    Returns:
        An Array.

    Raises:
        DTypeError: the data are not numbers or are masked.
        ShapeError: rows differ in length.
        OverflowedError: an integer does not fit the dtype.

    >>> import fnx.numpy as jnp
    >>> jnp.array(1.0, ndmin=1).shape
    (1,)
    """
    _check_order(order)
    arguments.check_bool("copy", copy)
    min_rank = arguments.check_int("ndmin", ndmin)
    x = core.asarray(object, dtype)
    if x is object and copy:
        x = x.copy() if x._storage is not None else x
    if min_rank > axes.MAX_AXES:
        raise ArgumentError(f"expected ndmin <= {axes.MAX_AXES}, got {min_rank}")
    if x.ndim < min_rank:
        x = Array(build.reshape(x._node, (1,) * (min_rank - x.ndim) + x.shape), x.weak)
    return x


def dtype_or_default(dtype: Any, default: DType | None = None) -> DType:
    if dtype is None:
        return convert.default_float() if default is None else default
    return convert.parse_dtype(dtype)


@public_api
def full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """Create an array filled with one value, or with values that broadcast to its shape.

    Args:
        shape: the shape of the result: an int or ints, static under tracing.
        fill_value: a number, or values that broadcast to the shape.
        dtype: the dtype of the result; by default that of the value.

    Returns:
        An Array.

    Raises:
        ArgumentError: a length is negative or not an int.
        TracedValueError: a length is traced.
        ShapeError: the value does not broadcast.

    >>> import fnx.numpy as jnp
    >>> jnp.full((2,), 7)
    Array([7, 7], dtype=int32, weak_type=True)
    """
    value = as_operand(fill_value)
    t, weak = core.dtype_and_weak(value)
    node = as_node(value, dtype_or_default(dtype, t))
    return Array(build.expand(node, axes.normalize_shape(shape)), weak and dtype is None)


_docstr = DocTemplate(
    shape="the shape of the result: an int or ints, static under tracing.",
    fill_value="a number, or values that broadcast to the shape.",
    dtype="the dtype of the result; by default the default float.", n="the number of rows and "
    "columns.", N="the number of rows.", M="the number of columns; by default N.",
    k="the diagonal: 0 is the main one, positive above, negative below.",
    a="an Array, or anything with a shape and a dtype.", returns="An Array.",
    raises=("ArgumentError: a length is negative or not an int.",
            "TracedValueError: a length is traced."))


@_docstr.family()
def _filled(value: int, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    return Array(build.const(value, dtype_or_default(dtype), axes.normalize_shape(shape)))


zeros = _filled(0, "zeros", "Create an array of zeros.", "jnp.zeros(2)",
                "Array([0., 0.], dtype=float32)")
ones = _filled(1, "ones", "Create an array of ones.", "jnp.ones(2, int)",
               "Array([1, 1], dtype=int32)")
empty = _filled(0, "empty", "Create an array of zeros; nothing is left uninitialized.",
                "jnp.empty((0, 2)).shape", "(0, 2)")


_like_docstr = _docstr.replace(dtype="the dtype of the result; by default that of a.",
                               shape="the shape of the result; by default that of a.")


@_like_docstr()
def full_like(a: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None,
              shape: ShapeLike | None = None) -> Array:
    """Create an array filled with one value, with the shape and dtype of ``a``.

    >>> jnp.full_like(jnp.zeros(2), 7)
    Array([7., 7.], dtype=float32)
    """
    like, weak = _shape_dtype_of(a)
    node = as_node(as_operand(fill_value), dtype_or_default(dtype, like[1]))
    out = Array(build.expand(node, like[0] if shape is None else axes.normalize_shape(shape)),
                weak and dtype is None)
    return _sharded_like(a, out) if shape is None and config.placing else out


def _sharded_like(a: Any, x: Array) -> Array:
    """Return x with the sharding of an evaluated array of its shape."""
    if type(a) is not Array or a._storage is None or scope.is_open():
        return x
    placement = placement_of(a._storage)
    return x if placement is None or placement.sharding is None else \
        constraints.constrain(x, placement.sharding)


def _shape_dtype_of(a: Any) -> tuple[tuple[Shape, DType], bool]:
    """Return the (shape, dtype) of an array or of an object with both; and whether it is weak."""
    if type(a) is not Array and hasattr(a, "shape") and hasattr(a, "dtype") \
            and not isinstance(a, (np.ndarray, np.generic)):
        return (tuple(a.shape), dtypes.as_dtype(a.dtype)), False
    x = core.asarray(a)
    return (x._shape, x._dtype), x.weak


@_like_docstr.family()
def _filled_like(value: int, a: ArrayLike, dtype: DTypeLike | None = None,
                 shape: ShapeLike | None = None) -> Array:
    return full_like(a, value, dtype, shape)


zeros_like = _filled_like(
    0, "zeros_like", "Create an array of zeros with the shape and dtype of ``a``.",
    "jnp.zeros_like(jnp.arange(2))", "Array([0, 0], dtype=int32)")
ones_like = _filled_like(
    1, "ones_like", "Create an array of ones with the shape and dtype of ``a``.",
    "jnp.ones_like(jnp.arange(2))", "Array([1, 1], dtype=int32)")


@_like_docstr(prototype="an Array, or any object with a shape and a dtype.")
def empty_like(prototype: ArrayLike, dtype: DTypeLike | None = None,
               shape: ShapeLike | None = None) -> Array:
    """Create an array with the shape and dtype of another; its contents are unspecified: here 0.

    >>> jnp.empty_like(jnp.arange(2)).shape
    (2,)
    """
    return zeros_like(prototype, dtype, shape)


def _static(name: str, x: Any) -> Any:
    """Return a NumPy scalar or concrete 0-d Array, which determines a shape, as a Python number."""
    if type(x) is Array or isinstance(x, (np.ndarray, np.generic)) and not x.ndim:
        x = x.item()
    if isinstance(x, np.generic):  # of a dtype that NumPy lacks
        x = float(x)
    if not isinstance(x, (int, float, Dim)):
        raise ArgumentError(f"{name}: expected concrete numbers, got {x!r}")
    return x


_MAX_NUMPY_ELEMENTS = 1 << 24  # most elements that NumPy computes, in 64 bits
_MAX_ELEMENTS = 2**31 - 1


@public_api
def arange(start: ArrayLike, stop: ArrayLike | None = None, step: Any = None,
           dtype: DTypeLike | None = None) -> Array:
    """Return start, start + step, ... below stop.

    Args:
        start: the first number; a single argument is ``stop``, and the range starts at 0.
        stop: the end of the range, exclusive.
        step: the difference between neighbors; by default 1.
        dtype: the dtype of the result; by default the one that the arguments promote to.

    Returns:
        An Array of one axis, of max(0, ceil((stop - start) / step)) elements.

    Raises:
        ArgumentError: the step is 0.
        TracedValueError: an argument is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.arange(3), jnp.arange(1.0, 2.0, 0.5)
    (Array([0, 1, 2], dtype=int32), Array([1. , 1.5], dtype=float32))
    """
    operands = [x for x in (start, stop, step) if x is not None]
    if stop is None:
        start, stop = 0, start
    first, last, dx = [_static("arange", x) for x in (start, stop, 1 if step is None else step)]
    if dx == 0:
        raise ArgumentError("arange: expected a step other than 0, got 0",
                            hint="use fnx.numpy.full(n, value) for equal elements")
    t = convert.parse_dtype(dtype) if dtype is not None else \
        core.join_dtypes([core.dtype_and_weak(as_operand(x)) for x in operands])[0]
    n = _range_length(first, last, dx)
    if n == 0:
        return Array(build.const(0, t, (0,)))
    if _is_whole(first) and _is_whole(dx) and abs(first) + n * abs(dx) < 2**31:
        offsets = Expr(build.iota(n)) * build.as_length(dx)
        shifted = offsets if first == 0 else offsets + build.as_length(first)
        return Array(shifted.cast(t).node)
    if n <= _MAX_NUMPY_ELEMENTS:
        return core.asarray(np.arange(first, last, dx), t)
    wide_t = dtypes.float64 if t.is_integer or t.bits == 64 else dtypes.float32
    i = Expr(build.iota(n))
    return Array(arange_at(float(first), float(first + dx - first), i, wide_t).cast(t).node)


def _is_whole(x: Any) -> bool:
    return type(x) is Dim or float(x).is_integer()


def _range_length(first: Any, last: Any, step: Any) -> int:
    """Return the number of elements of a range."""
    try:
        n: int = axis_lengths.range_length(first, last, step) \
            if Dim in (type(first), type(last), type(step)) else \
            max(0, math.ceil((last - first) / step))
    except (OverflowError, ValueError, TypeError):  # infinite, NaN or not numbers
        raise ArgumentError(f"arange: expected finite numbers, got {first!r}, {last!r} and "
                            f"{step!r}") from None
    if n > _MAX_ELEMENTS:
        raise ShapeError(f"arange: expected at most {_MAX_ELEMENTS:,} elements, got {n:,}",
                         hint="check start, stop and step")
    return n


@public_api
def linspace(start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True,
             retstep: bool = False, dtype: DTypeLike | None = None, axis: int = 0) -> Any:
    """Return ``num`` evenly spaced numbers from start to stop, on a new axis.

    Args:
        start: the first number; numbers or Arrays, which become floats or stay complex.
        stop: the last number; without ``endpoint``, the one after the last.
        num: how many numbers; static under tracing, or a dimension.
        endpoint: whether ``stop`` is included.
        retstep: whether to also return the step.
        dtype: the dtype of the result; by default the default float.
        axis: the position of the new axis in the result.

    Returns:
        An Array, or (Array, step).

    Raises:
        ArgumentError: ``num`` is negative.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.linspace(0.0, 1.0, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    n: Any = _static("linspace", num)
    n = n if type(n) is Dim else int(n)
    if n < 0:
        raise ArgumentError(f"linspace: expected num >= 0, got {n}",
                            hint="num is the number of points; to count down, swap start and stop")
    (a, b), _ = promote_operands("inexact", "linspace", (start, stop))
    n_steps = n - 1 if endpoint else n
    shape = (n, *a.shape)
    t = dtype_or_default(dtype, a.dtype)
    if a.dtype.is_complex:
        parts = [linspace(Array(part(a)), Array(part(b)), n, endpoint, True, None, axis)
                 for part in (build.real, build.imag)]
        result, step = (Array(build.complex_number(*[x._node for x in pair]))
                        for pair in zip(*parts))
        result = Array(build.cast(result._node, t))
        return (result, step) if retstep else result
    index, low, high = (Expr(build.expand(x, shape)) for x in (
        build.reshape(build.iota(n), (n,) + (1,) * len(a.shape)), a, b))
    # integer results must not be rounded twice
    compute_dtype = dtypes.float64 if t.is_integer or a.dtype.bits == 64 or type(n) is Dim else \
        dtypes.float32
    steps = max(n_steps, 1) if type(n) is not Dim else Expr(build.expand(
        as_node(as_operand(axis_lengths.maximum(n_steps, 1)), compute_dtype), shape))
    out = linspace_at(low, high, index, steps, compute_dtype)
    if endpoint and n > 1:  # the last element is exactly stop
        out = where(index.eq(build.as_length(n - 1)), high.cast(compute_dtype), out)
    out = (floor(out) if t.is_integer else out.cast(a.dtype)).cast(t)
    ax = axes.normalize_axis(axis, len(shape))
    result = Array(build.permute(out.node, (*range(1, ax + 1), 0, *range(ax + 1, len(shape)))))
    if not retstep:
        return result
    return result, Array(((Expr(b) - Expr(a)) / (n_steps if n_steps > 0 else math.nan)).node)


def _diagonal_mask(n: int, m: int, k: int, below: bool) -> UOp:
    """Return an (n, m) bool mask: column == row + k, or column <= row + k if ``below``."""
    k = arguments.check_int("k", k)
    rows = Expr(build.expand(build.reshape(build.iota(n), (n, 1)), (n, m))) + k
    columns = Expr(build.expand(build.reshape(build.iota(m), (1, m)), (n, m)))
    return (columns <= rows if below else columns.eq(rows)).node


@_docstr.family("An Array of shape (N, M).")
def _diagonal_ones(below: bool, N: int, M: int | None = None, k: int = 0,
                   dtype: DTypeLike | None = None) -> Array:
    n, m = axes.normalize_shape((N, N if M is None else M))
    return Array(build.cast(_diagonal_mask(n, m, k, below), dtype_or_default(dtype)))


eye = _diagonal_ones(
    False, "eye", "Create a matrix with ones on the k-th diagonal and zeros elsewhere.",
    "jnp.eye(2)", "Array([[1., 0.],\n           [0., 1.]], dtype=float32)")
tri = _diagonal_ones(
    True, "tri", "Create a matrix with ones on and below the k-th diagonal and zeros elsewhere.",
    "jnp.tri(2)", "Array([[1., 0.],\n           [1., 1.]], dtype=float32)")


@_docstr("An Array of shape (n, n).")
def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """Create an identity matrix.

    >>> jnp.identity(1)
    Array([[1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


@_docstr.family("An Array of the shape and dtype of m.",
                ("ArgumentError: m has fewer than 2 axes.",),
                m="an Array or array-like of shape (..., n, m), of any dtype.")
def _triangle(name: str, m: ArrayLike, k: int = 0) -> Array:
    x, is_lower = core.asarray(m), name == "tril"
    if x.ndim < 2:
        raise ArgumentError(f"{name}: expected at least 2 axes, got shape {x.shape}")
    node, k = x._node, arguments.check_int("k", k)
    rows, columns = node.shape[-2:]
    mask = _diagonal_mask(rows, columns, k if is_lower else k - 1, True)
    mask = build.expand(mask, node.shape)
    zero = build.const_like(node, 0)
    return Array(build.where(mask, node, zero) if is_lower else build.where(mask, zero, node),
                 x.weak)


tril = _triangle(
    "tril", "tril",
    "Return the lower triangle of the last two axes; elements above the k-th diagonal are zero.",
    "jnp.tril(jnp.ones((2, 2)))", "Array([[1., 0.],\n           [1., 1.]], dtype=float32)")
triu = _triangle(
    "triu", "triu",
    "Return the upper triangle of the last two axes; elements below the k-th diagonal are zero.",
    "jnp.triu(jnp.ones((2, 2)))", "Array([[1., 1.],\n           [0., 1.]], dtype=float32)")


@public_api
def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False,
             indexing: Literal["xy", "ij"] = "xy") -> list[Array]:
    """Return the coordinate arrays of a grid.

    Args:
        xi: the coordinates along each axis: Arrays of one axis, or numbers.
        copy: must be True; the results never share memory with ``xi``.
        sparse: whether each result keeps length 1 along the other axes, so that they broadcast.
        indexing: "xy" (the first input varies along axis 1) or "ij" (along axis 0).

    Returns:
        A list with one Array for each of xi, of its dtype; all of one shape unless ``sparse``.

    Raises:
        ArgumentError: ``indexing`` is unknown, or ``copy`` is False.
        ShapeError: an input has more than one axis.

    >>> import fnx.numpy as jnp
    >>> [g.shape for g in jnp.meshgrid(jnp.arange(2), jnp.arange(3))]
    [(3, 2), (3, 2)]
    """
    arguments.check_choice("indexing", indexing, ("xy", "ij"))
    arguments.check_choice("copy", copy, (True,))
    xs = [core.asarray(x) for x in xi]
    for x in xs:
        if x.ndim > 1:
            raise ShapeError(f"meshgrid: expected 1-d coordinates, got shape {x.shape}")
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[:2] = [1, 0]
    shape = tuple(xs[i].size for i in order)
    out = []
    for i, x in enumerate(xs):
        axis_shape = [1] * len(xs)
        axis_shape[order.index(i)] = x.size
        coordinates = build.reshape(x._node, tuple(axis_shape))
        out.append(Array(coordinates if sparse else build.expand(coordinates, shape), x.weak))
    return out
