"""Argmax, argmin and cumulative reductions."""

from __future__ import annotations

import math
from typing import Any

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, domain_node
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr, isnan, where
from fnx.core.ir.index_arrays import index_dtype
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.config import config
from fnx.core.support.process import lazy_import
from fnx.numpy.reductions import reduce_axes, require_nonempty

__all__ = ["argmax", "argmin", "cumprod", "cumsum"]

cumulative = lazy_import("fnx.core.formulas.cumulative", "cumulative")


def _arg_extreme(a: Any, axis: Any, keepdims: bool, monoid: Op) -> Array:
    """Return the first index of the extreme element, or of the first NaN if there is one."""
    arguments.check_bool("keepdims", keepdims)
    x = asarray(a)
    node = as_node(x, dtypes.int32) if x._dtype.is_bool else x._node
    if axis is None:
        flat = build.reshape(node, (x.size,))
        out = _first_extreme(flat, 0, monoid)
        return _as_index(build.reshape(out, (1,) * x.ndim) if keepdims else out)
    ax = axes.normalize_axis(axis, x.ndim)
    out = _first_extreme(node, ax, monoid)
    return _as_index(build.reshape(out, (*x.shape[:ax], 1, *x.shape[ax + 1:])) if keepdims else out)


def _as_index(node: UOp) -> Array:
    """Cast indices to the default int dtype."""
    return Array(build.cast(node, convert.default_int()))


def _first_extreme(x: UOp, ax: int, monoid: Op) -> UOp:
    """Return the first index of the extreme element.

    Lowered as one reduction of (value, index) pairs (lower/tensor/fuse_argreduce.py).
    """
    require_nonempty(x, ax, None)
    x = build.to_compute(x)
    extreme = build.expand(reduce_axes(x, monoid, ax, True), x.shape)
    is_extreme = Expr(x).eq(Expr(extreme))
    if x.dtype.is_float:
        is_extreme = is_extreme | isnan(Expr(x))
    n = x.shape[ax]
    count = build.iota(n, index_dtype(n) if config.x64 else dtypes.int32)
    axis_index = build.reshape(count, tuple(n if i == ax else 1 for i in range(len(x.shape))))
    candidates = where(is_extreme, Expr(build.expand(axis_index, x.shape)), n)
    return build.reduce(candidates.node, ops.MIN, (ax,))


@public_api
def argmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False
          ) -> Array:
    """Return the first index of the maximum, or of the first NaN if there is one.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis to search; None searches the flattened array.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.

    Returns:
        An Array of the default int dtype, without the reduced axis.

    Raises:
        ShapeError: the reduction is over zero elements.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> print(jnp.argmax(jnp.asarray([1, 5, 5])))
    1
    """
    arguments.check_no_out(out)
    return _arg_extreme(a, axis, keepdims, ops.MAX)


@public_api
def argmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False
          ) -> Array:
    """Return the first index of the minimum, or of the first NaN if there is one.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis to search; None searches the flattened array.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.

    Returns:
        An Array of the default int dtype, without the reduced axis.

    Raises:
        ShapeError: the reduction is over zero elements.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> print(jnp.argmin(jnp.asarray([5, 1, 1])))
    1
    """
    arguments.check_no_out(out)
    return _arg_extreme(a, axis, keepdims, ops.MIN)


def _cumulative(a: Any, axis: int | None, dtype: Any, monoid: Op, name: str) -> Array:
    operand = domain_node("integer", a, dtype)
    if dtype is None and asarray(a)._dtype.is_bool:
        operand = build.cast(operand, convert.default_int())
    node = build.to_compute(operand)
    if axis is None:
        node, axis = build.reshape(node, (math.prod(node.shape),)), 0
    out = cumulative(node, axes.normalize_axis(axis, len(node.shape)), monoid, name=name)
    return Array(build.cast(out, operand.dtype))


@public_api
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
          ) -> Array:
    """Return the cumulative sum along an axis.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis; None flattens a first.
        dtype: the dtype of the result; by default that of a, or int32 for bool.
        out: unsupported; must be None.

    Returns:
        An Array of the shape of a, or a vector if the axis is None.

    Raises:
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.cumsum(jnp.arange(4))
    Array([0, 1, 3, 6], dtype=int32)
    """
    arguments.check_no_out(out)
    return _cumulative(a, axis, dtype, ops.ADD, "cumsum")


@public_api
def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
           ) -> Array:
    """Return the cumulative product along an axis.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis; None flattens a first.
        dtype: the dtype of the result; by default that of a, or int32 for bool.
        out: unsupported; must be None.

    Returns:
        An Array of the shape of a, or a vector if the axis is None.

    Raises:
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.cumprod(jnp.arange(1, 4))
    Array([1, 2, 6], dtype=int32)
    """
    arguments.check_no_out(out)
    return _cumulative(a, axis, dtype, ops.MUL, "cumprod")
