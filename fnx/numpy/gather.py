"""Reading elements at indices: ``take`` and ``take_along_axis``."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array import arguments, array_operators, axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.arguments import ReadMode, TakeMode
from fnx.core.array.array import Array, ArrayLike
from fnx.core.ir import build
from fnx.core.support.errors import ShapeError
from fnx.numpy.binary_ufuncs import maximum
from fnx.numpy.shape_manipulation import ravel, wrap_like

__all__ = ["take", "take_along_axis"]


@public_api
def take(a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None,
         mode: TakeMode = None, unique_indices: bool = False, indices_are_sorted: bool = False,
         fill_value: ArrayLike | None = None) -> Array:
    """Return the elements, or the slices along an axis, at the given indices.

    Args:
        a: an Array or array-like of any shape and dtype.
        indices: integers of any shape; negative ones count from the end.
        axis: the axis; None flattens a first.
        out: unsupported; must be None.
        mode: how out-of-bounds indices read: "fill" (default; NaN, the smallest int, or
            ``fill_value``), "clip" or "wrap"; "promise_in_bounds" acts as "clip".
        unique_indices: a promise that has no effect.
        indices_are_sorted: a promise that has no effect.
        fill_value: the value of out-of-bounds elements in mode "fill".

    Returns:
        An Array of the dtype of a.

    Raises:
        ArgumentError: the mode is unknown.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.take(jnp.arange(10) * 2, jnp.asarray([1, 3]))
    Array([2, 6], dtype=int32)
    """
    arguments.check_no_out(out)
    arguments.check_index_promises(indices_are_sorted, unique_indices)
    arguments.check_choice("mode", mode, ("fill", "clip", "wrap", "promise_in_bounds", None))
    x = asarray(a)
    if axis is None:
        x, axis = ravel(x), 0
    ax = axes.normalize_axis(axis, x.ndim)
    index = asarray(np.asarray(indices) if isinstance(indices, (list, tuple)) else indices)
    if mode == "wrap":
        index = index % x.shape[ax]
    if mode == "clip":
        index = maximum(index, 0)
    read_mode: ReadMode = "fill" if mode in (None, "fill") else "clip"
    return array_operators.at_get(x, (slice(None),) * ax + (index,), read_mode, fill_value)


@public_api
def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: int | None = -1,
                    mode: ReadMode = None, fill_value: ArrayLike | None = None) -> Array:
    """Return the elements that an index array of the same rank selects along an axis.

    Args:
        arr: an Array or array-like of any shape and dtype.
        indices: integers of as many axes as arr; negative ones count from the end.
        axis: the axis; None flattens both first.
        mode: how out-of-bounds indices read: "fill" (default), "clip" or "promise_in_bounds".
        fill_value: the value of out-of-bounds elements in mode "fill".

    Returns:
        An Array of the shape that arr and indices broadcast to, with the length of indices along
        the axis.

    Raises:
        ShapeError: arr and indices differ in their number of axes.
        ArgumentError: the mode is unknown.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> x = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> jnp.take_along_axis(x, jnp.asarray([[1], [0]]), axis=1)
    Array([[2.],
           [3.]], dtype=float32)
    """
    arguments.check_choice("mode", mode, ("fill", "clip", "promise_in_bounds", None))
    x, index = asarray(arr), asarray(indices)
    if axis is None:
        x, index, axis = ravel(x), ravel(index), 0
    if x.ndim != index.ndim:
        raise ShapeError(f"take_along_axis: expected indices of {x.ndim} axes, got shape "
                         f"{index.shape}", hint="insert axes with indices[..., None]")
    ax = axes.normalize_axis(axis, x.ndim)
    shape = axes.broadcast_shapes(
        *[(*s[:ax], 1, *s[ax + 1:]) for s in (x.shape, index.shape)])
    entries: list[Any] = []
    for i, n in enumerate(shape):
        if i == ax:
            entries.append(index)
        elif x.shape[i] == 1:
            entries.append(0)
        else:
            iota = build.reshape(build.iota(n), tuple(n if j == i else 1 for j in range(x.ndim)))
            entries.append(Array(iota))
    out = array_operators.at_get(x, tuple(entries), mode or "fill", fill_value)
    out_shape = (*shape[:ax], index.shape[ax], *shape[ax + 1:])
    return wrap_like(x, build.expand(out._node, out_shape))
