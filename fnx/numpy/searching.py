"""Argmax, argmin and cumulative reductions."""

from __future__ import annotations

import math
from typing import Any

from fnx.core import build, dtypes, ops
from fnx.core.array import arguments, axes, convert
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, in_domain
from fnx.core.array.public import asarray, public
from fnx.core.config import config
from fnx.core.expr import Expr, isnan, where
from fnx.core.index_arrays import index_type
from fnx.core.ops import Op
from fnx.core.process import deferred
from fnx.core.uop import UOp
from fnx.numpy.reductions import fold, nonempty

__all__ = ["argmax", "argmin", "cumprod", "cumsum"]

running = deferred("fnx.core.array.running", "running")


def _place(a: Any, axis: Any, keepdims: bool, monoid: Op) -> Array:
    """Return the first index of the extreme element, or of the first NaN if there is one."""
    arguments.flag("keepdims", keepdims)
    x = asarray(a)
    node = as_node(x, dtypes.int32) if x._dtype.is_bool else x._node
    if axis is None:
        flat = build.reshape(node, (x.size,))
        out = _first_extreme(flat, 0, monoid)
        return _index(build.reshape(out, (1,) * x.ndim) if keepdims else out)
    at = axes.one(axis, x.ndim)
    out = _first_extreme(node, at, monoid)
    return _index(build.reshape(out, (*x.shape[:at], 1, *x.shape[at + 1:])) if keepdims else out)


def _index(node: UOp) -> Array:
    """Cast indices to the default int dtype."""
    return Array(build.cast(node, convert.default_int()))


def _first_extreme(x: UOp, at: int, monoid: Op) -> UOp:
    """Return the first index of the extreme element.

    Lowered as one reduction of (value, index) pairs (lower/tensor/pair_folds.py).
    """
    nonempty(x, at, None)
    x = build.wide(x)
    extreme = build.expand(fold(x, monoid, at, True), x.shape)
    hit = Expr(x).eq(Expr(extreme))
    if x.dtype.is_float:
        hit = hit | isnan(Expr(x))
    n = x.shape[at]
    count = build.iota(n, index_type(n) if config.x64 else dtypes.int32)
    line = build.reshape(count, tuple(n if i == at else 1 for i in range(len(x.shape))))
    places = where(hit, Expr(build.expand(line, x.shape)), n)
    return build.reduce(places.node, ops.MIN, (at,))


@public
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
    arguments.no_out(out)
    return _place(a, axis, keepdims, ops.MAX)


@public
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
    arguments.no_out(out)
    return _place(a, axis, keepdims, ops.MIN)


def _running(a: Any, axis: int | None, dtype: Any, monoid: Op, name: str) -> Array:
    given = in_domain("integer", a, dtype)
    if dtype is None and asarray(a)._dtype.is_bool:
        given = build.cast(given, convert.default_int())
    node = build.wide(given)
    if axis is None:
        node, axis = build.reshape(node, (math.prod(node.shape),)), 0
    out = running(node, axes.one(axis, len(node.shape)), monoid, name=name)
    return Array(build.cast(out, given.dtype))


@public
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
    arguments.no_out(out)
    return _running(a, axis, dtype, ops.ADD, "cumsum")


@public
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
    arguments.no_out(out)
    return _running(a, axis, dtype, ops.MUL, "cumprod")
