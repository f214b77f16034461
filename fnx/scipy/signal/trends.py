"""Removal of trends from signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import constant_array
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.float32_compute import compute_in_float32
from fnx.core.array.promotion import as_float
from fnx.core.support.errors import ArgumentError

__all__ = ["detrend"]


@compute_in_float32
def detrend(data: ArrayLike, axis: int = -1, type: Literal["linear", "constant"] = "linear",
            bp: int | Sequence[int] | np.ndarray = 0, overwrite_data: None = None) -> Array:
    """Subtract the mean, or the line of least squares, along an axis.

    Args:
        data: an Array or array-like.
        axis: the axis.
        type: "linear" or "constant".
        bp: breakpoints: between two of them is a line of its own. They must be known.
        overwrite_data: None: arrays are immutable.

    Returns:
        An Array of the shape of ``data``, of a float dtype.

    Raises:
        ArgumentError: unknown type, or a breakpoint is outside of the axis.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> print(detrend(jnp.asarray([1.0, 4.0, 8.0, 8.0, 9.0])).round(2) + 0.0)
    [-1.  0.  2.  0. -1.]
    """
    arguments.check_choice("type", type, ("linear", "constant"))
    arguments.check_no_out("overwrite_data", overwrite_data)
    x = as_float(data)
    at = axes.normalize_axis(axis, x.ndim)
    if type == "constant":
        return x - x.mean(at, keepdims=True)
    size = x.shape[at]
    breaks = np.asarray(bp).ravel()
    if breaks.size and (breaks.dtype.kind not in "iu" or breaks.min() < 0 or breaks.max() > size):
        raise ArgumentError(f"expected breakpoints as integers from 0 to {size}, got {bp!r}")
    points = np.unique(np.concatenate([[0, size], breaks]).astype(int))
    rows = jnp.moveaxis(x, at, -1)
    parts = [_subtract_line(rows[..., int(a):int(b)]) for a, b in zip(points, points[1:])]
    return jnp.moveaxis(jnp.concatenate(parts, -1), -1, at) if parts else x


def _subtract_line(rows: Array) -> Array:
    """Subtract the line of least squares along the last axis.

    Over centered positions t the mean and the slope sum(t y) / sum(t t) are independent.
    """
    n = rows.shape[-1]
    t = np.arange(n) - (n - 1) / 2
    centered = rows - rows.mean(-1, keepdims=True)
    basis = constant_array(t / (np.sqrt((t * t).sum()) or 1), rows.dtype)
    slope = (centered * basis).sum(-1, keepdims=True)
    return centered - slope * basis
