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

from fnx.core import build
from fnx.core.array import arguments
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.operate import get_item
from fnx.core.array.promotion import as_node, operand
from fnx.core.array.public import asarray, public
from fnx.core.errors import ArgumentError, ShapeError
from fnx.numpy.basic import (
    concatenate,
    flip,
    linspace,
    mean,
    rint,
)
from fnx.numpy.basic import (
    max as largest,
)
from fnx.numpy.basic import (
    min as least,
)
from fnx.numpy.choosing import apply_along_axis
from fnx.numpy.quantiles import median

__all__ = ["pad"]

PadMode: TypeAlias = Literal["constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp",
                             "maximum", "minimum", "mean", "median", "empty"]
_STATISTICS: dict[str, Callable[..., Array]] = {
    "maximum": largest, "minimum": least, "mean": mean, "median": median}
_TAKEN = {"constant": ("constant_values",), "reflect": ("reflect_type",),
          "symmetric": ("reflect_type",), "linear_ramp": ("end_values",), "edge": (), "wrap": (),
          "empty": (), **dict.fromkeys(_STATISTICS, ("stat_length",))}


@public
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
    widths = _pairs("pad_width", pad_width, x.ndim)
    if any(type(w) is not int or w < 0 for pair in widths for w in pair):
        raise ArgumentError(f"expected widths as integers >= 0, got {pad_width}",
                            hint="slice instead of negative widths")
    if callable(mode):
        return _by_function(x, widths, mode, kwargs)
    arguments.one_of("mode", mode, tuple(_TAKEN))
    unknown = [name for name in kwargs if name not in _TAKEN[mode]]
    if unknown:
        raise ArgumentError(f"expected keywords of mode {mode!r} "
                            f"({', '.join(_TAKEN[mode]) or 'none'}), got {unknown[0]!r}")
    if mode == "constant" or mode == "empty":
        return _constant(x, widths, kwargs.get("constant_values", 0))
    for at, width in enumerate(widths):
        if any(width):
            if not x.shape[at]:
                raise ShapeError(f"expected elements to repeat along axis {at} in mode {mode!r}, "
                                 f"got shape {x.shape}")
            x = _along(x, at, width, mode, kwargs)
    return x


def _pairs(name: str, given: Any, rank: int) -> list[list[Any]]:
    """Broadcast a value, a pair, or a pair for each axis to a pair for each axis."""
    try:
        return [list(pair) for pair in np.broadcast_to(np.asarray(given), (rank, 2)).tolist()]
    except ValueError:
        raise ArgumentError(f"expected {name} as one, a pair, or a pair for each of {rank} axes; "
                            f"got {given}", hint="pairs are (before, after)") from None


def _constant(x: Array, widths: Sequence[Any], value: Any) -> Array:
    fill = as_node(operand(asarray(value)), x._dtype)
    if not fill.shape:
        return Array(build.pad(x._node, widths, fill), x.weak)
    if len(fill.shape) > 2 or fill.shape[-1] not in (1, 2) or \
            len(fill.shape) == 2 and fill.shape[0] not in (1, x.ndim):
        raise ArgumentError(f"expected one, a pair, or a pair for each of {x.ndim} axes as "
                            f"constant_values; got shape {fill.shape}")
    table = Array(build.expand(fill, (x.ndim, 2)))
    for at, width in enumerate(widths):
        for side, n in enumerate(width):
            one = [(0, 0)] * x.ndim
            one[at] = (0, n) if side else (n, 0)
            x = Array(build.pad(x._node, one, table[at, side]._node), x.weak) if n else x
    return x


def _by_function(x: Array, widths: Sequence[Sequence[int]], f: Callable[..., Any],
                 kwargs: dict[str, Any]) -> Array:
    out = _constant(x, widths, 0)
    for at, width in enumerate(widths):
        out = apply_along_axis(f, at, out, tuple(width), at, kwargs)
    return out


def _along(x: Array, at: int, width: Sequence[int], mode: Any, kwargs: dict[str, Any]) -> Array:
    if mode in _STATISTICS:
        return _statistic(x, at, width, _STATISTICS[mode], kwargs.get("stat_length"))
    if mode == "linear_ramp":
        ends = kwargs.get("end_values", 0)
        before, after = _pairs("end_values", ends, x.ndim)[at]
        edges = _part(x, at, 0, 1), _part(x, at, x.shape[at] - 1, x.shape[at])
        low, high = (linspace(end, edge.squeeze(at), n, endpoint=False, dtype=x.dtype, axis=at)
                     for end, edge, n in zip((before, after), edges, width))
        return _strong(concatenate([low, x, flip(high, at)], at), x)
    kind = kwargs.get("reflect_type", "even")
    arguments.one_of("reflect_type", kind, ("even", "odd"))
    if kind == "odd":
        low, high = width
        return flip(_odd(flip(_odd(x, at, low, mode), at), at, high, mode, x.shape[at]), at)
    places = np.pad(np.arange(x.shape[at]), width, mode=mode)
    sides = places[:width[0]], places[width[0] + x.shape[at]:]
    low, high = (_places(x, at, side) for side in sides)
    return _strong(concatenate([low, x, high], at), x)


def _places(x: Array, at: int, places: np.ndarray[Any, Any]) -> Array:
    """Return the elements at positions along an axis.

    Consecutive positions become a slice, reversed positions a flipped slice, and a repeated
    position a broadcast; anything else is a gather.
    """
    steps = set(np.diff(places).tolist())
    if len(steps) > 1 or not steps <= {-1, 0, 1}:
        return get_item(x, (slice(None),) * at + (places,))
    ends = (int(places.min()), int(places.max()) + 1) if places.size else (0, 0)
    part = _part(x, at, *ends)
    if steps == {0}:
        shape = (*x.shape[:at], places.size, *x.shape[at + 1:])
        return Array(build.expand(part._node, shape), x.weak)
    return flip(part, at) if steps == {-1} else part


def _part(x: Array, at: int, low: int, high: int) -> Array:
    return x[(slice(None),) * at + (slice(low, high),)]


def _strong(out: Array, x: Array) -> Array:
    """Return ``out`` with the weak type of x."""
    return Array(out._node, x.weak)


def _odd(x: Array, at: int, width: int, mode: str, period: int | None = None) -> Array:
    """Prepend ``width`` elements to x: repeated point reflections through its first element."""
    n = period or x.shape[at]
    skipped = 1 if mode == "reflect" and n > 1 else 0
    edge = _part(x, at, 0, 1)
    while width:
        step = min(width, n - skipped)
        image = 2 * edge - flip(_part(x, at, skipped, skipped + step), at)
        edge = _part(image, at, 0, 1) if n > 1 else edge
        x, width = concatenate([image, x], at), width - step
    return x


def _statistic(x: Array, at: int, width: Sequence[int], f: Callable[..., Array], lengths: Any
               ) -> Array:
    n = x.shape[at]
    found = [n, n] if lengths is None else _pairs("stat_length", lengths, x.ndim)[at]
    if any(type(m) is not int or m < 1 for m in found):
        raise ArgumentError(f"expected stat_length as integers >= 1, got {lengths}")
    parts = (_part(x, at, 0, found[0]), _part(x, at, max(n - found[1], 0), n))
    sides = []
    for part, m in zip(parts, width):
        value = f(part, axis=at, keepdims=True)
        value = rint(value) if x._dtype.is_integer and value._dtype.is_float else value
        shape = (*x.shape[:at], m, *x.shape[at + 1:])
        sides.append(Array(build.expand(value.astype(x.dtype)._node, shape)))
    return _strong(concatenate([sides[0], x, sides[1]], at), x)
