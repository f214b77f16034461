"""``pad``: add elements before and after each axis.

    pad([1, 2, 3], 2)                 -> 0 0 1 2 3 0 0
    pad([1, 2, 3], 2, "reflect")      -> 3 2 1 2 3 2 1      by index, as edge, symmetric and wrap;
                                                            consecutive indices on a side are one
                                                            slice
    pad([1, 2, 3], 2, "mean")         -> 2 2 1 2 3 2 2      axis by axis, over what is padded so far
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import get_item
from fnx.core.array.promotion import as_node, as_operand
from fnx.core.ir import build
from fnx.core.rewriting.dimensions import Dim
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.numpy.base import (
    arange,
    concatenate,
    flip,
    linspace,
    mean,
    minimum,
    rint,
)
from fnx.numpy.base import (
    max as largest,
)
from fnx.numpy.base import (
    min as least,
)
from fnx.numpy.quantiles import median
from fnx.numpy.selection import apply_along_axis

__all__ = ["pad"]

axis_lengths = lazy_import("fnx.core.rewriting.lengths")

PadMode: TypeAlias = Literal["constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp",
                             "maximum", "minimum", "mean", "median", "empty"]
_STATISTICS: dict[str, Callable[..., Array]] = {
    "maximum": largest, "minimum": least, "mean": mean, "median": median}
_KWDS = {"constant": ("constant_values",), "reflect": ("reflect_type",),
         "symmetric": ("reflect_type",), "linear_ramp": ("end_values",), "edge": (), "wrap": (),
         "empty": (), **dict.fromkeys(_STATISTICS, ("stat_length",))}


@public_api
def pad(array: ArrayLike, pad_width: Any, mode: PadMode | Callable[..., Any] = "constant",
        **kwargs: Any) -> Array:
    """Pad an array before and after each axis.

    Args:
        array: an Array or array-like of any shape and dtype.
        pad_width: n, (before, after), or such a pair for each axis.
        mode: "constant", "edge" (repeat the edge value), "reflect", "symmetric", "wrap",
            "linear_ramp", "maximum", "minimum", "mean", "median" or "empty" (zeros). Or a function
            of (vector padded with zeros, pair, axis, kwargs) that returns the padded vector.
        kwargs: ``constant_values`` for "constant" and ``end_values`` for "linear_ramp": a number,
            a pair, or a pair for each axis; by default 0. ``stat_length`` for "maximum",
            "minimum", "mean" and "median": the number of elements at the edge to use, by default
            all. ``reflect_type`` for "reflect" and "symmetric": "even", or "odd" (2 * edge - x).

    Returns:
        An Array of the dtype of the array.

    Raises:
        ArgumentError: the mode is unknown, it does not take a keyword, or a width is negative.
        ShapeError: an axis has no elements, in a mode that repeats them.

    >>> import fnx.numpy as jnp
    >>> jnp.pad(jnp.arange(2), 1)
    Array([0, 0, 1, 0], dtype=int32)
    >>> jnp.pad(jnp.asarray([1.0, 3.0]), 1, "linear_ramp", end_values=(0, 5))
    Array([0., 1., 3., 5.], dtype=float32)
    """
    x = asarray(array)
    widths = _pair_per_axis("pad_width", pad_width, x.ndim)
    if any(type(w) not in (int, Dim) or w < 0 for pair in widths for w in pair):
        raise ArgumentError(f"expected widths as integers >= 0, got {pad_width}",
                            hint="slice the array instead of using negative widths")
    if callable(mode):
        return _pad_by_function(x, widths, mode, kwargs)
    arguments.check_choice("mode", mode, tuple(_KWDS))
    unknown = [name for name in kwargs if name not in _KWDS[mode]]
    if unknown:
        raise ArgumentError(f"expected keywords of mode {mode!r} "
                            f"({', '.join(_KWDS[mode]) or 'none'}), got {unknown[0]!r}")
    if mode == "constant" or mode == "empty":
        return _pad_constant(x, widths, kwargs.get("constant_values", 0))
    for ax, width in enumerate(widths):
        if any(width):
            if not x.shape[ax]:
                raise ShapeError(f"expected at least one element along axis {ax} in mode {mode!r}, "
                                 f"got shape {x.shape}")
            x = _pad_axis(x, ax, width, mode, kwargs)
    return x


def _pair_per_axis(name: str, value: Any, rank: int) -> list[list[Any]]:
    """Broadcast a value, a pair, or a pair for each axis to a pair for each axis."""
    try:
        return [list(pair) for pair in np.broadcast_to(np.asarray(value), (rank, 2)).tolist()]
    except ValueError:
        raise ArgumentError(f"expected {name} as one value, a pair, or a pair for each of {rank} "
                            f"axes; got {value}",
                            hint="pairs are (before, after)") from None


def _pad_constant(x: Array, widths: Sequence[Any], value: Any) -> Array:
    fill = as_node(as_operand(asarray(value)), x._dtype)
    if not fill.shape:
        return Array(build.pad(x._node, widths, fill), x.weak)
    if len(fill.shape) > 2 or fill.shape[-1] not in (1, 2) or \
            len(fill.shape) == 2 and fill.shape[0] not in (1, x.ndim):
        raise ArgumentError(f"expected one, a pair, or a pair for each of {x.ndim} axes as "
                            f"constant_values; got shape {fill.shape}")
    table = Array(build.expand(fill, (x.ndim, 2)))
    for ax, width in enumerate(widths):
        for side, n in enumerate(width):
            pad_widths = [(0, 0)] * x.ndim
            pad_widths[ax] = (0, n) if side else (n, 0)
            x = Array(build.pad(x._node, pad_widths, table[ax, side]._node), x.weak) if n else x
    return x


def _pad_by_function(x: Array, widths: Sequence[Sequence[int]], f: Callable[..., Any],
                     kwargs: dict[str, Any]) -> Array:
    out = _pad_constant(x, widths, 0)
    for ax, width in enumerate(widths):
        out = apply_along_axis(f, ax, out, tuple(width), ax, kwargs)
    return out


def _pad_axis(x: Array, ax: int, width: Sequence[int], mode: Any, kwargs: dict[str, Any]) -> Array:
    if mode in _STATISTICS:
        return _pad_statistic(x, ax, width, _STATISTICS[mode], kwargs.get("stat_length"))
    if mode == "linear_ramp":
        ends = kwargs.get("end_values", 0)
        before, after = _pair_per_axis("end_values", ends, x.ndim)[ax]
        edges = _slice(x, ax, 0, 1), _slice(x, ax, x.shape[ax] - 1, x.shape[ax])
        low, high = (linspace(end, edge.squeeze(ax), n, endpoint=False, dtype=x.dtype, axis=ax)
                     for end, edge, n in zip((before, after), edges, width))
        return _copy_weak_type(concatenate([low, x, flip(high, ax)], ax), x)
    kind = kwargs.get("reflect_type", "even")
    arguments.check_choice("reflect_type", kind, ("even", "odd"))
    length: Any = x.shape[ax]
    if kind == "odd":
        if type(length) is Dim:
            raise ArgumentError(f"expected reflect_type 'even' along the dimension {length}, "
                                "got 'odd'", hint="concatenate 2 * edge - x, or make this length "
                                "static")
        low, high = width
        return flip(_mirror(flip(_mirror(x, ax, low, mode), ax), ax, high, mode, x.shape[ax]), ax)
    if type(length) is Dim:
        return _copy_weak_type(_pad_dimension(x, ax, width, mode), x)
    positions = np.pad(np.arange(x.shape[ax]), width, mode=mode)
    sides = positions[:width[0]], positions[width[0] + x.shape[ax]:]
    low, high = (_take_positions(x, ax, side) for side in sides)
    return _copy_weak_type(concatenate([low, x, high], ax), x)


def _pad_dimension(x: Array, ax: int, width: Sequence[int], mode: str) -> Array:
    """Pad an axis whose length is known at the call, by the positions of all elements."""
    n = asarray(x.shape[ax])
    position = arange(-width[0], x.shape[ax] + width[1])
    if mode == "edge":
        position = position.clip(0, n - 1)
    elif mode == "wrap":
        position = position % n
    else:  # forward and back, with or without the last element twice
        back = 2 * n - 2 if mode == "reflect" else 2 * n - 1
        position = position % (back + (mode == "symmetric")).clip(1)
        position = minimum(position, back - position)
    return get_item(x, (slice(None),) * ax + (position,))


def _take_positions(x: Array, ax: int, positions: np.ndarray[Any, Any]) -> Array:
    """Return the elements at positions along an axis.

    Consecutive positions become a slice, reversed positions a flipped slice, and a repeated
    position a broadcast; anything else is a gather.
    """
    steps = set(np.diff(positions).tolist())
    if len(steps) > 1 or not steps <= {-1, 0, 1}:
        return get_item(x, (slice(None),) * ax + (positions,))
    bounds = (int(positions.min()), int(positions.max()) + 1) if positions.size else (0, 0)
    part = _slice(x, ax, *bounds)
    if steps == {0}:
        shape = (*x.shape[:ax], positions.size, *x.shape[ax + 1:])
        return Array(build.expand(part._node, shape), x.weak)
    return flip(part, ax) if steps == {-1} else part


def _slice(x: Array, ax: int, low: int, high: int) -> Array:
    return x[(slice(None),) * ax + (slice(low, high),)]


def _copy_weak_type(out: Array, x: Array) -> Array:
    """Return ``out`` with the weak type of x."""
    return Array(out._node, x.weak)


def _mirror(x: Array, ax: int, width: int, mode: str, period: int | None = None) -> Array:
    """Prepend ``width`` elements to x: repeated point reflections through its first element."""
    n = period or x.shape[ax]
    skip = 1 if mode == "reflect" and n > 1 else 0
    edge = _slice(x, ax, 0, 1)
    while width:
        step = min(width, n - skip)
        image = 2 * edge - flip(_slice(x, ax, skip, skip + step), ax)
        edge = _slice(image, ax, 0, 1) if n > 1 else edge
        x, width = concatenate([image, x], ax), width - step
    return x


def _pad_statistic(x: Array, ax: int, width: Sequence[int], f: Callable[..., Array], lengths: Any
                   ) -> Array:
    n = x.shape[ax]
    counts = [n, n] if lengths is None else _pair_per_axis("stat_length", lengths, x.ndim)[ax]
    if any(type(m) not in (int, Dim) or m < 1 for m in counts):
        raise ArgumentError(f"expected stat_length as integers >= 1, got {lengths}")
    counts = [axis_lengths.minimum(m, n) for m in counts]
    parts = (_slice(x, ax, 0, counts[0]), _slice(x, ax, n - counts[1], n))
    sides = []
    for part, m in zip(parts, width):
        value = f(part, axis=ax, keepdims=True)
        value = rint(value) if x._dtype.is_integer and value._dtype.is_float else value
        shape = (*x.shape[:ax], m, *x.shape[ax + 1:])
        sides.append(Array(build.expand(value.astype(x.dtype)._node, shape)))
    return _copy_weak_type(concatenate([sides[0], x, sides[1]], ax), x)
