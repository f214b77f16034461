"""Static and dynamic slices of ``jax.lax``."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments, array_operators, axes, indexing
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.promotion import as_node
from fnx.core.ir import build
from fnx.core.ir.expr import Expr, maximum, minimum, where
from fnx.core.ir.index_arrays import index_dtype
from fnx.core.ir.op import other_axes
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.support.errors import ArgumentError, OutOfBoundsError, ShapeError

__all__ = [
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim",
    "index_in_dim", "slice", "slice_in_dim",
]


@public_api
def slice(operand: ArrayLike, start_indices: Sequence[int], limit_indices: Sequence[int],
          strides: Sequence[int] | None = None) -> Array:
    """Slice each axis: every stride-th element of start <= i < limit.

    Args:
        operand: an Array or array-like of any shape and dtype.
        start_indices: the start along each axis.
        limit_indices: the end along each axis, exclusive.
        strides: steps >= 1; by default 1.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        OutOfBoundsError: the bounds are outside of the array.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.slice(jnp.arange(6), (1,), (6,), (2,))
    Array([1, 3, 5], dtype=int32)
    """
    x = asarray(operand)
    steps = (1,) * x.ndim if strides is None else axes.normalize_shape(strides)
    bounds = list(zip(start_indices, limit_indices, steps, x.shape))
    if not len(start_indices) == len(limit_indices) == len(steps) == x.ndim \
            or any(not 0 <= lo <= hi <= n or s < 1 for lo, hi, s, n in bounds):
        raise OutOfBoundsError(f"slice: expected bounds inside {x.shape}, got "
                               f"{tuple(start_indices)} to {tuple(limit_indices)}",
                               hint="0 <= start <= limit <= length, stride >= 1")
    return array_operators.get_item(x, tuple(builtins.slice(lo, hi, s) for lo, hi, s, _ in bounds))


@public_api
def slice_in_dim(operand: ArrayLike, start_index: int | None, limit_index: int | None,
                 stride: int = 1, axis: int = 0) -> Array:
    """Slice one axis, as ``slice`` does.

    Args:
        operand: an Array or array-like of any shape and dtype.
        start_index: the start; negative ones count from the end, None means the beginning.
        limit_index: the end, exclusive, in the same way; None means the end of the axis.
        stride: a step >= 1.
        axis: the axis; negative ones count from the end.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        AxisError: the axis is out of range.
        OutOfBoundsError: the bounds are outside of the array.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.slice_in_dim(jnp.arange(6), 4, None)
    Array([4, 5], dtype=int32)
    """
    x = asarray(operand)
    at = axes.normalize_axis(axis, x.ndim)
    low, high, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for bounds, bound in (low, start_index), (high, limit_index):
        if bound is not None:
            i = arguments.check_int("a bound", bound)
            bounds[at] = i + x.shape[at] if i < 0 else i
    steps[at] = stride
    return slice(x, low, high, steps)


@public_api
def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """Take the elements at a static index of an axis.

    Args:
        operand: an Array or array-like of any shape and dtype.
        index: an int.
        axis: the axis; negative ones count from the end.
        keepdims: whether to keep the axis, with length 1.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        OutOfBoundsError: the index is outside of the axis.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.index_in_dim(jnp.arange(6), 4)
    Array([4], dtype=int32)
    """
    x = asarray(operand)
    at = axes.normalize_axis(axis, x.ndim)
    n, i = x.shape[at], arguments.check_int("index", index)
    if not -n <= i < n:
        raise OutOfBoundsError(f"expected {-n} <= index < {n} on axis {at} of shape {x.shape}, got "
                               f"{i}", hint="use dynamic_index_in_dim, which clamps")
    out = array_operators.get_item(x, (builtins.slice(None),) * at + (index,))
    return jnp.expand_dims(out, at) if keepdims else out


def _clamp_starts(name: str, x: Array, starts: Any, sizes: Sequence[int],
                  wraps: bool | Sequence[bool]) -> tuple[list[Any], list[UOp]]:
    """Return starts as ints or integer nodes, clamped so that the slice is within the axis; and
    as nodes that are not clamped, but count from the start of the axis.

    ``wraps``: whether negative ones count from the end, or that of each axis.
    """
    wrap_list = [wraps] * x.ndim if isinstance(wraps, bool) else list(wraps)
    start_list = list(starts) if isinstance(starts, (tuple, list)) else \
        [asarray(starts)[i] for i in range(asarray(starts).size)]
    if not len(start_list) == len(sizes) == len(wrap_list) == x.ndim:
        raise ShapeError(f"{name}: expected {x.ndim} indices and sizes, got {len(start_list)} and "
                         f"{len(sizes)}", hint="pass one per axis")
    out: list[Any] = []
    from_start: list[UOp] = []
    for start, size, n, wrap in zip(start_list, sizes, x.shape, wrap_list):
        if not 0 <= size <= n:
            raise ShapeError(f"{name}: expected a size of at most {n}, got {size}",
                             hint="a slice cannot be longer than its axis")
        if isinstance(start, int):
            if start < 0 and not wrap:
                raise ArgumentError(f"{name}: expected starts of at least 0, as "
                                    f"allow_negative_indices is False, got {start}")
            start = start + n if start < 0 else start
            out.append(min(max(start, 0), n - size))
            from_start.append(build.const(out[-1], index_dtype(n)))
            continue
        i = Expr(as_node(asarray(start), index_dtype(n)))
        if i.shape:
            raise ShapeError(f"{name}: expected 0-d indices, got shape {i.shape}")
        i = where(i < 0, i + n, i) if wrap else i
        from_start.append(i.node)
        out.append(0 if size == n else minimum(maximum(i, 0), n - size).node)
    return out, from_start


def _static_bounds(starts: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]
                   ) -> list[tuple[int, int]]:
    return [(0, n) if isinstance(s, UOp) else (s, s + size)
            for s, size, n in zip(starts, sizes, shape)]


@public_api
def dynamic_slice(operand: ArrayLike, start_indices: Any, slice_sizes: Sequence[int], *,
                  allow_negative_indices: bool | Sequence[bool] = True) -> Array:
    """Slice at computed starts with a static size; the slice is moved into the array if needed.

    Args:
        operand: an Array or array-like of any shape and dtype.
        start_indices: integer scalars, one for each axis; negative ones count from the end.
        slice_sizes: static ints.
        allow_negative_indices: whether negative starts count from the end; or that of each axis.

    Returns:
        An Array of shape ``slice_sizes``, of the dtype of the operand.

    Raises:
        ShapeError: a size exceeds its axis, or there is not one for each axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.dynamic_slice(jnp.arange(6), (jnp.asarray(5),), (2,))
    Array([4, 5], dtype=int32)
    """
    x = asarray(operand)
    sizes = axes.normalize_shape(slice_sizes)
    starts, from_start = _clamp_starts("dynamic_slice", x, start_indices, sizes,
                                       allow_negative_indices)
    node = build.shrink(x._node, _static_bounds(starts, sizes, x.shape))
    moving = [a for a, s in enumerate(starts) if isinstance(s, UOp)]
    if 0 in sizes:
        node = build.const(0, node.dtype, sizes)
    elif moving:
        node = indexing.dynamic_slice(node, {a: starts[a] for a in moving}, sizes)
    set_composite(node, "dynamic_slice", dynamic_slice_at, [x._node, *from_start],
                  slice_sizes=sizes)
    return Array(node, x.weak)


@public_api
def dynamic_update_slice(operand: ArrayLike, update: ArrayLike, start_indices: Any, *,
                         allow_negative_indices: bool | Sequence[bool] = True) -> Array:
    """Return a copy with a slice at computed starts replaced.

    Args:
        operand: an Array or array-like of any shape and dtype.
        update: an array of the rank of the operand; converted to its dtype.
        start_indices: integer scalars, one for each axis; negative ones count from the end.
        allow_negative_indices: whether they do; or that of each axis.

    Returns:
        An Array of the shape and dtype of the operand.

    Raises:
        ShapeError: a size exceeds its axis, or there is not one for each axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.dynamic_update_slice(jnp.arange(4), jnp.asarray([9, 9]), (jnp.asarray(1),))
    Array([0, 9, 9, 3], dtype=int32)
    """
    x, new = asarray(operand), asarray(update)
    if new.ndim != x.ndim:
        raise ShapeError(f"dynamic_update_slice: expected an update of {x.ndim} axes, got shape "
                         f"{new.shape}")
    starts, from_start = _clamp_starts("dynamic_update_slice", x, start_indices, new.shape,
                                       allow_negative_indices)
    value = as_node(new, x._dtype)
    if 0 in value.shape:
        return x
    if not any(isinstance(s, UOp) for s in starts):
        entries = tuple(builtins.slice(lo, hi)
                        for lo, hi in _static_bounds(starts, new.shape, x.shape))
        return _updated(x, value, from_start, indexing.write(x._node, entries, value))
    partial = [a for a, n in enumerate(x.shape) if new.shape[a] < n]
    index = indexing.slice_indices({a: starts[a] for a in partial}, new.shape, x.shape)
    rows = build.permute(value, (*partial, *other_axes(partial, x.ndim)))
    return _updated(x, value, from_start, build.scatter(x._node, index, rows, None, partial))


def _updated(x: Array, value: UOp, starts: Sequence[UOp], node: UOp) -> Array:
    set_composite(node, "dynamic_update_slice", dynamic_update_slice_at,
                  [x._node, value, *starts])
    return Array(node, x.weak)


def dynamic_slice_at(x: Any, *starts: Any, slice_sizes: Sequence[int]) -> Array:
    """Slice from starts that do not count from the end: the primitive."""
    return dynamic_slice(x, [asarray(s) for s in starts], slice_sizes,
                         allow_negative_indices=False)


def dynamic_update_slice_at(x: Any, update: Any, *starts: Any) -> Array:
    """Replace a slice from starts that do not count from the end: the primitive."""
    return dynamic_update_slice(x, update, [asarray(s) for s in starts],
                                allow_negative_indices=False)


@public_api
def dynamic_slice_in_dim(operand: ArrayLike, start_index: ArrayLike, slice_size: int,
                         axis: int = 0, *, allow_negative_indices: bool = True) -> Array:
    """Slice one axis at a computed start, as ``dynamic_slice`` does.

    Args:
        operand: an Array or array-like of any shape and dtype.
        start_index: an integer scalar.
        slice_size: a static int.
        axis: the axis; negative ones count from the end.
        allow_negative_indices: whether a negative start counts from the end.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ShapeError: a size exceeds its axis, or there is not one for each axis.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.dynamic_slice_in_dim(jnp.arange(6), jnp.asarray(1), 2)
    Array([1, 2], dtype=int32)
    """
    x = asarray(operand)
    at = axes.normalize_axis(axis, x.ndim)
    starts: list[Any] = [0] * x.ndim
    starts[at] = start_index
    return dynamic_slice(x, starts, (*x.shape[:at], slice_size, *x.shape[at + 1:]),
                         allow_negative_indices=_at_axis(x, at, allow_negative_indices))


def _at_axis(x: Array, at: int, wraps: bool) -> list[bool]:
    return [wraps if axis == at else True for axis in range(x.ndim)]


@public_api
def dynamic_index_in_dim(operand: ArrayLike, index: ArrayLike, axis: int = 0,
                         keepdims: bool = True, *, allow_negative_indices: bool = True) -> Array:
    """Take the elements at a computed index of an axis.

    Args:
        operand: an Array or array-like of any shape and dtype.
        index: an integer scalar.
        axis: the axis; negative ones count from the end.
        keepdims: whether to keep the axis, with length 1.
        allow_negative_indices: whether a negative start counts from the end.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.dynamic_index_in_dim(jnp.arange(6), jnp.asarray(4))
    Array([4], dtype=int32)
    """
    out = dynamic_slice_in_dim(operand, index, 1, axis,
                               allow_negative_indices=allow_negative_indices)
    return out if keepdims else jnp.squeeze(out, axis)


@public_api
def dynamic_update_slice_in_dim(operand: ArrayLike, update: ArrayLike, start_index: ArrayLike,
                                axis: int, *, allow_negative_indices: bool = True) -> Array:
    """Replace a slice of one axis at a computed start, as ``dynamic_update_slice`` does.

    Args:
        operand: an Array or array-like of any shape and dtype.
        update: an array of the rank of the operand; converted to its dtype.
        start_index: an integer scalar.
        axis: the axis; negative ones count from the end.
        allow_negative_indices: whether a negative start counts from the end.

    Returns:
        An Array of the shape and dtype of the operand.

    Raises:
        ShapeError: a size exceeds its axis, or there is not one for each axis.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.dynamic_update_slice_in_dim(jnp.arange(4), jnp.asarray([9]), jnp.asarray(2), 0)
    Array([0, 1, 9, 3], dtype=int32)
    """
    x = asarray(operand)
    starts: list[Any] = [0] * x.ndim
    at = axes.normalize_axis(axis, x.ndim)
    starts[at] = start_index
    return dynamic_update_slice(x, update, starts,
                                allow_negative_indices=_at_axis(x, at, allow_negative_indices))


@public_api
def dynamic_update_index_in_dim(operand: ArrayLike, update: ArrayLike, index: ArrayLike,
                                axis: int, *, allow_negative_indices: bool = True) -> Array:
    """Return a copy with the elements at a computed index of an axis replaced.

    Args:
        operand: an Array or array-like of any shape and dtype.
        update: an array of the shape of the operand, with or without the axis.
        index: an integer scalar.
        axis: the axis; negative ones count from the end.
        allow_negative_indices: whether a negative start counts from the end.

    Returns:
        An Array of the shape and dtype of the operand.

    Raises:
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.dynamic_update_index_in_dim(jnp.arange(3), 9, jnp.asarray(0), 0)
    Array([9, 1, 2], dtype=int32)
    """
    x, new = asarray(operand), asarray(update)
    at = axes.normalize_axis(axis, x.ndim)
    if new.ndim < x.ndim:
        new = jnp.expand_dims(new, at)
    return dynamic_update_slice_in_dim(x, new, index, at,
                                       allow_negative_indices=allow_negative_indices)
