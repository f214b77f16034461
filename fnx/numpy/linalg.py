"""``fnx.numpy.linalg``: norms, products and diagonals. Factorizations are not implemented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import fnx.numpy.base as base
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import domain_node
from fnx.core.ir import build, ops
from fnx.core.ir.expr import Expr, sqrt, where
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, NotBuiltError, ShapeError, lazy_module
from fnx.core.support.process import lazy_import
from fnx.numpy.contraction import matmul, tensordot
from fnx.numpy.reductions import reduce_axes

vector_math = lazy_import("fnx.numpy.vector_math")

_HOMES = {"matrix_transpose": "fnx.numpy.manipulation", "vecdot": "fnx.numpy.vector_math"}

__all__ = [
    "cross", "diagonal", "matrix_norm", "matrix_power", "multi_dot", "norm", "outer", "trace",
    "vector_norm", "matmul", "tensordot", *_HOMES,
]

if not TYPE_CHECKING:  # __getattr__ would make every name exist for type checkers
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules=_HOMES)


@public_api
def norm(x: ArrayLike, ord: Any = None, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Return a vector norm, or the Frobenius, 1 or inf norm of matrices.

    The derivative of the 2-norm at 0 is 0.

    Args:
        x: an Array or array-like of any shape; bool and integers become the default float.
        ord: None (the 2-norm over all axes), a number, inf, -inf, or "fro".
        axis: one axis for vector norms, two for matrix norms, None for all.
        keepdims: whether to keep the reduced axes, with length 1.

    Returns:
        An Array of a float dtype, without the reduced axes.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``ord`` is not valid for this number of axes.
        NotBuiltError: ``ord`` needs singular values.

    >>> import fnx.numpy as jnp
    >>> print(jnp.linalg.norm(jnp.asarray([3.0, 4.0])))
    5.0
    """
    node = domain_node("inexact", x)
    dims = axes.sorted_axes(axis, len(node.shape))
    if ord is None or (ord == "fro" and len(dims) == 2) or (ord == 2 and len(dims) == 1):
        return Array(_two_norm(node, dims, keepdims))
    if len(dims) == 1:
        return Array(_vector_norm(node, ord, dims, keepdims))
    if len(dims) == 2 and ord in (1, -1, float("inf"), float("-inf")):
        order = axes.normalize_axis_tuple(axis, len(node.shape)) \
            if isinstance(axis, Sequence) else dims
        inner_axis, outer_axis = order if ord in (1, -1) else order[::-1]
        sums = reduce_axes(abs(Expr(node)).node, ops.ADD, inner_axis, True)
        out = reduce_axes(sums, ops.MAX if ord > 0 else ops.MIN, outer_axis, True)
        return Array(out if keepdims else build.reshape(
            out, tuple(n for i, n in enumerate(node.shape) if i not in dims)))
    if len(dims) == 2 and ord in (2, -2, "nuc"):
        raise NotBuiltError(f"norm: ord={ord!r} of a matrix needs singular values",
                            hint="use ord=None (Frobenius)")
    raise ArgumentError(f"norm: expected one or two axes and a matching ord, got ord={ord!r} over "
                        f"{len(dims)} axes")


def _two_norm(node: UOp, dims: tuple[int, ...], keepdims: bool) -> UOp:
    """Return sqrt(sum of squares), with a separate case at 0, where sqrt has infinite slope."""
    total = Expr(reduce_axes((Expr(node)**2).node, ops.ADD, dims, keepdims))
    return where(total.eq(0), 0, sqrt(total)).node


def _vector_norm(node: UOp, ord: Any, dims: tuple[int, ...], keepdims: bool) -> UOp:
    size = abs(Expr(node))
    if ord == float("inf") or ord == float("-inf"):
        return reduce_axes(size.node, ops.MAX if ord > 0 else ops.MIN, dims, keepdims)
    if ord == 0:
        return reduce_axes(Expr(node).ne(0).cast(node.dtype).node, ops.ADD, dims, keepdims)
    if not isinstance(ord, (int, float)):
        raise ArgumentError(f"norm: expected a number as ord of a vector, got {ord!r}")
    if ord == 1:
        return reduce_axes(size.node, ops.ADD, dims, keepdims)
    total = reduce_axes((size**float(ord)).node, ops.ADD, dims, keepdims)
    return (Expr(total)**(1.0 / ord)).node


_docstr = DocTemplate(
    x="an Array of at least two axes; the last two hold the matrices.", x1="an Array.",
    x2="an Array.", a="an Array of at least two axes; the last two hold the matrices.",
    offset="the diagonal: 0 is the main one, positive above, negative below.",
    ord="the order of the norm, as for ``norm``.", returns="An Array.",
    raises=("ShapeError: there are too few axes, or their lengths do not match.",))


@_docstr(axis="the axis that holds the vectors.",
         raises=("ShapeError: the length of the vectors is not 3.",))
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Return the cross product of vectors of length 3.

    >>> print(jnp.linalg.cross(jnp.asarray([1, 0, 0]), jnp.asarray([0, 1, 0])))
    [0 0 1]
    """
    a, b = asarray(x1), asarray(x2)
    for x in (a, b):
        if x.shape[axes.normalize_axis(axis, x.ndim)] != 3:
            raise ShapeError(f"expected vectors of length 3 along axis {axis}, got shape {x.shape}")
    product: Array = vector_math.cross(a, b, axis=axis)
    return product


@_docstr("An Array whose last axis is the diagonal.")
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Return the diagonals of matrices.

    >>> print(jnp.linalg.diagonal(jnp.asarray([[1, 2], [3, 4]])))
    [1 4]
    """
    return base.diagonal(x, offset, -2, -1)


@_docstr("An Array without the last two axes.", dtype="the dtype of the sums.")
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Return the sums of the diagonals of matrices.

    >>> print(jnp.linalg.trace(jnp.asarray([[1, 2], [3, 4]])))
    5
    """
    return base.trace(x, offset, -2, -1, dtype)


@_docstr("A matrix.", x1="a vector.", x2="a vector.",
         raises=("ShapeError: an input is not a vector.",))
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the outer product of two vectors.

    >>> jnp.linalg.outer(jnp.asarray([1, 2]), jnp.asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    a, b = asarray(x1), asarray(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"expected two vectors, got shapes {a.shape} and {b.shape}")
    return a[:, None] * b


@_docstr("An Array of a float dtype, without the last two axes.",
         raises=("NotBuiltError: ``ord`` needs singular values.",
                 "ShapeError: there are fewer than two axes."))
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Return the norms of matrices.

    >>> print(jnp.linalg.matrix_norm(jnp.asarray([[3.0, 0.0], [0.0, 4.0]])))
    5.0
    """
    array = _require_matrices(x)
    return norm(array, ord, (array.ndim - 2, array.ndim - 1), keepdims)


@_docstr("An Array of a float dtype, without the reduced axes.",
         x="an Array or array-like of any shape.",
         axis="the axis or axes to reduce; None means all.",
         raises=("AxisError: the axis is out of range.",))
def vector_norm(x: ArrayLike, /, *, axis: AxisLike = None, keepdims: bool = False, ord: Any = 2
                ) -> Array:
    """Return the norms of vectors, which may extend over several axes.

    >>> print(jnp.linalg.vector_norm(jnp.asarray([[3.0], [4.0]])))
    5.0
    """
    array = asarray(x)
    dims = axes.sorted_axes(axis, array.ndim)
    batch = tuple([i for i in range(array.ndim) if i not in dims])
    shape = tuple([array.shape[i] for i in batch])
    vectors = base.transpose(array, (*batch, *dims)).reshape(*shape, _size_along(array, dims))
    out = norm(vectors, ord, -1)
    return out.reshape([1 if i in dims else n for i, n in enumerate(array.shape)]) if keepdims \
        else out


def _size_along(x: Array, dims: Sequence[int]) -> int:
    return base.size(x, tuple(dims))


def _require_matrices(x: ArrayLike) -> Array:
    array = asarray(x)
    if array.ndim < 2:
        raise ShapeError(f"expected matrices in the last two axes, got shape {array.shape}")
    return array


@_docstr("An Array of the shape of a.", n="an int >= 0.",
         raises=("ShapeError: the matrices are not square.", "NotBuiltError: n is negative."))
def matrix_power(a: ArrayLike, n: int) -> Array:
    """Raise square matrices to a non-negative integer power.

    Source: exponentiation by squaring.

    >>> jnp.linalg.matrix_power(jnp.asarray([[1, 1], [0, 1]]), 5)
    Array([[1, 5],
           [0, 1]], dtype=int32)
    """
    square = _require_matrices(a)
    if square.shape[-1] != square.shape[-2]:
        raise ShapeError(f"expected square matrices, got shape {square.shape}")
    exponent = arguments.check_int("n", n)
    if exponent < 0:
        raise NotBuiltError("expected n >= 0: matrix inverses are not implemented yet",
                            hint="pass concrete values to numpy.linalg.matrix_power")
    out: Array | None = None
    while exponent:
        if exponent & 1:
            out = square if out is None else base.matmul(out, square)
        exponent >>= 1
        square = base.matmul(square, square) if exponent else square
    return out if out is not None else base.broadcast_to(
        base.eye(square.shape[-1], dtype=square.dtype), square.shape)


@_docstr("The matrix product.", arrays="matrices; the first and the last may be vectors.",
         precision="accepted for JAX compatibility; products have full precision.",
         raises=("ArgumentError: there are no arrays.", "ShapeError: the shapes do not match."))
def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """Multiply several matrices, in the cheapest order.

    >>> a = jnp.ones((2, 3))
    >>> jnp.linalg.multi_dot([a, a.T, a]).shape
    (2, 3)
    """
    matrices = [asarray(x) for x in arrays]
    if not matrices:
        raise ArgumentError("expected at least one array, got none")
    for i, x in enumerate(matrices):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(matrices) - 1)):
            raise ShapeError("expected matrices, or vectors as first and last operand; got shape "
                             f"{x.shape}")
    if len(matrices) == 1:
        return matrices[0]
    terms: list[Any] = []
    for i, x in enumerate(matrices):
        terms += [x, [i, i + 1] if x.ndim == 2 else [i] if i else [1]]
    out_axes = [0] * (matrices[0].ndim == 2) + [len(matrices)] * (matrices[-1].ndim == 2)
    out: Array = base.einsum(*terms, out_axes, precision=precision)
    return out
