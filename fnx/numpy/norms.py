"""``norm`` of ``fnx.numpy.linalg``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.numpy.base as base
from fnx.core.array import axes
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.promotion import domain_node
from fnx.core.ir import build, ops
from fnx.core.ir.expr import Expr, imag, real, sqrt, where
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError
from fnx.core.support.process import lazy_import
from fnx.numpy.reductions import reduce_axes

decompositions = lazy_import("fnx.numpy.decompositions")

__all__ = ["norm"]


@public_api
def norm(x: ArrayLike, ord: Any = None, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Return a norm of vectors or of matrices.

    The derivative of the 2-norm at 0 is 0.

    Args:
        x: an Array or array-like of any shape; bool and integers become the default float.
        ord: None (the 2-norm over all axes), a number, inf, -inf, "fro", or "nuc" (the sum of
            singular values).
        axis: one axis for vector norms, two for matrix norms, None for all.
        keepdims: whether to keep the reduced axes, with length 1.

    Returns:
        An Array of a float dtype, without the reduced axes.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``ord`` is not valid for this number of axes.

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
        sums = reduce_axes(_size(node).node, ops.ADD, inner_axis, True)
        out = reduce_axes(sums, ops.MAX if ord > 0 else ops.MIN, outer_axis, True)
        return Array(out if keepdims else build.reshape(
            out, tuple(n for i, n in enumerate(node.shape) if i not in dims)))
    if len(dims) == 2 and ord in (2, -2, "nuc"):
        return _singular_value_norm(base.moveaxis(Array(node), dims, (-2, -1)), ord, dims, keepdims)
    raise ArgumentError(f"norm: expected one or two axes and a matching ord, got ord={ord!r} over "
                        f"{len(dims)} axes")


def _singular_value_norm(x: Array, ord: Any, dims: tuple[int, ...], keepdims: bool) -> Array:
    """Return the largest or the smallest singular value, or their sum."""
    s: Array = decompositions.svdvals(x)
    out = s.sum(-1) if ord == "nuc" else s.max(-1) if ord == 2 else s.min(-1)
    return base.expand_dims(out, dims) if keepdims else out


def _two_norm(node: UOp, dims: tuple[int, ...], keepdims: bool) -> UOp:
    """Return sqrt(sum of squares), with a separate case at 0, where sqrt has infinite slope."""
    x = Expr(node)
    squares = real(x)**2 + imag(x)**2 if node.dtype.is_complex else x**2
    total = Expr(reduce_axes(squares.node, ops.ADD, dims, keepdims))
    return where(total.eq(0), 0, sqrt(total)).node


def _size(node: UOp) -> Expr:
    """Return the absolute values."""
    return Expr(base.absolute(Array(node))._node)


def _vector_norm(node: UOp, ord: Any, dims: tuple[int, ...], keepdims: bool) -> UOp:
    size = _size(node)
    if ord == float("inf") or ord == float("-inf"):
        return reduce_axes(size.node, ops.MAX if ord > 0 else ops.MIN, dims, keepdims)
    if ord == 0:
        return reduce_axes(Expr(node).ne(0).cast(node.dtype.real).node, ops.ADD, dims, keepdims)
    if not isinstance(ord, (int, float)):
        raise ArgumentError(f"norm: expected a number as ord of a vector, got {ord!r}")
    if ord == 1:
        return reduce_axes(size.node, ops.ADD, dims, keepdims)
    total = reduce_axes((size**float(ord)).node, ops.ADD, dims, keepdims)
    return (Expr(total)**(1.0 / ord)).node
