"""Vector norms, and the matrix norms that need no singular values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core import build, ops
from fnx.core.array import arguments, axes
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.promotion import in_domain
from fnx.core.array.public import public
from fnx.core.errors import ArgumentError, NotBuiltError
from fnx.core.expr import Expr, sqrt, where
from fnx.core.uop import UOp
from fnx.numpy.reductions import fold

__all__ = ["norm"]


@public
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
    arguments.flag("keepdims", keepdims)
    node = in_domain("inexact", x)
    over = axes.several(axis, len(node.shape))
    if ord is None or (ord == "fro" and len(over) == 2) or (ord == 2 and len(over) == 1):
        return Array(_root_of_squares(node, over, keepdims))
    if len(over) == 1:
        return Array(_vector(node, ord, over, keepdims))
    if len(over) == 2 and ord in (1, -1, float("inf"), float("-inf")):
        order = axes.listed(axis, len(node.shape)) if isinstance(axis, Sequence) else over
        summed, kept = order if ord in (1, -1) else order[::-1]
        sums = fold(abs(Expr(node)).node, ops.ADD, summed, True)
        out = fold(sums, ops.MAX if ord > 0 else ops.MIN, kept, True)
        return Array(out if keepdims else build.reshape(
            out, tuple(n for i, n in enumerate(node.shape) if i not in over)))
    if len(over) == 2 and ord in (2, -2, "nuc"):
        raise NotBuiltError(f"norm: ord={ord!r} of a matrix needs singular values",
                            hint="use ord=None (Frobenius)")
    raise ArgumentError(f"norm: expected one or two axes and an ord for them, got ord={ord!r} "
                        f"over {len(over)} axes")


def _root_of_squares(node: UOp, over: tuple[int, ...], keepdims: bool) -> UOp:
    """Return sqrt(sum of squares), with a separate case at 0, where sqrt has infinite slope."""
    total = Expr(fold((Expr(node)**2).node, ops.ADD, over, keepdims))
    return where(total.eq(0), 0, sqrt(total)).node


def _vector(node: UOp, ord: Any, over: tuple[int, ...], keepdims: bool) -> UOp:
    size = abs(Expr(node))
    if ord == float("inf") or ord == float("-inf"):
        return fold(size.node, ops.MAX if ord > 0 else ops.MIN, over, keepdims)
    if ord == 0:
        return fold(Expr(node).ne(0).cast(node.dtype).node, ops.ADD, over, keepdims)
    if not isinstance(ord, (int, float)):
        raise ArgumentError(f"norm: expected a number as ord of a vector, got {ord!r}")
    if ord == 1:
        return fold(size.node, ops.ADD, over, keepdims)
    total = fold((size**float(ord)).node, ops.ADD, over, keepdims)
    return (Expr(total)**(1.0 / ord)).node
