"""Binary search, bin counts, histograms and linear interpolation of ``fnx.numpy``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fnx.core.array import arguments, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import domain_node, promote_arrays
from fnx.core.ir import build, build_calls, dtypes
from fnx.core.ir.index_arrays import index_dtype
from fnx.core.rewriting import lengths
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.base import (
    clip,
    concatenate,
    equal,
    flip,
    isnan,
    linspace,
    logical_and,
    logical_or,
    max,
    min,
    ones_like,
    ravel,
    remainder,
    sum,
    take,
    where,
)
from fnx.numpy.dtypes import finfo
from fnx.numpy.sorting import sort_along

__all__ = [
    "bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd",
    "interp", "searchsorted",
]

SearchSide = Literal["left", "right"]
SearchMethod = Literal["scan", "scan_unrolled", "sort", "compare_all", "default"] | None
SEARCH_METHODS = ("scan", "scan_unrolled", "sort", "compare_all", "default", None)

_docstr = DocTemplate(
    a="a vector in ascending order, NaN last.", x="an Array or array-like.",
    method="the search method, for JAX compatibility; all give the same result.",
    weights="the weight of each element; by default 1.",
    bins="the number of bins of equal width, or the bin edges in ascending order.",
    range="(low, high), the range of the bins; by default that of the data.",
    density="whether to normalize by bin width and total, to a density.",
    returns="An int32 Array of the shape of x.",
    raises=("ShapeError: the edges or values have more than one axis.",
            "ArgumentError: an option is unknown."))


def _precedes(a: Array, b: Array, or_equal: bool) -> Array:
    """Return a < b (or a <= b) in sort order, in which NaN comes last."""
    less = a <= b if or_equal else a < b
    if not a._dtype.is_float:
        return less
    return logical_or(less, isnan(b) if or_equal else logical_and(isnan(b), ~isnan(a)))


@_docstr("An int32 Array of the shape of v.", v="the values to insert.",
         side='whether to insert before ("left") or after ("right") equal elements.',
         sorter="the indices that sort a, as ``argsort`` returns them.")
def searchsorted(a: ArrayLike, v: ArrayLike, side: SearchSide = "left",
                 sorter: ArrayLike | None = None, *, method: SearchMethod = "scan") -> Array:
    """Find the indices at which to insert values into a sorted vector.

    >>> jnp.searchsorted(jnp.asarray([1, 3, 5]), jnp.asarray([3, 9]))
    Array([1, 3], dtype=int32)
    """
    arguments.check_choice("side", side, ("left", "right"))
    arguments.check_choice("method", method, SEARCH_METHODS)
    if asarray(a).ndim != 1:
        raise ShapeError(f"expected a vector to search in, got shape {asarray(a).shape}")
    sorted_values, values = promote_arrays("searchsorted", asarray(a), v, domain="any")
    if sorter is not None:
        sorted_values = take(sorted_values, asarray(sorter))
    return _binary_search(sorted_values, values, side == "right")


def _binary_search(sorted_values: Array, values: Array, right: bool) -> Array:
    """Run the binary search for all values in one loop, so that it stays one kernel.

    Strides are powers of two, the largest first: a value moves by one if the last element that it
    passes precedes it. All lanes take the same steps, and ``low`` is all that they carry.
    """
    n, shape = sorted_values.size, values.shape
    t = index_dtype(n) if config.x64 else dtypes.int32
    start = build.const(0, t, shape)
    steps = lengths.most(n).bit_length()
    if not steps:
        return Array(start)
    strides = 1 << (steps - 1 - Array(build.iota(steps, t)))
    operands = (sorted_values._node, values._node, start)
    a, v, low, stride = [Array(build.param(i, dtype, shape)) for i, (dtype, shape) in enumerate(
        [*[(x.dtype, x.shape) for x in operands], (t, ())])]
    moved = low + stride
    passed = Array(build.gather(a._node, (moved - 1)._node))  # clamped
    moves = logical_and(moved <= n, _precedes(passed, v, right))
    step = build.function([where(moves, moved, low)._node], len(operands) + 1, "searchsorted")
    return Array(build_calls.scan(step, steps, operands[:2], [start], [strides._node])[0])


@_docstr(bins="the bin edges, ascending or descending.",
         right="whether bins include their right edge instead of the left one.")
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: SearchMethod = None
             ) -> Array:
    """Return the index of the bin of each element; 0 and len(bins) are out of range.

    >>> jnp.digitize(jnp.asarray([0.5, 1.0, 7.0]), jnp.asarray([1.0, 2.0]))
    Array([0, 1, 2], dtype=int32)
    """
    edges = asarray(bins)
    if edges.ndim != 1:
        raise ShapeError(f"expected 1-d edges, got shape {edges.shape}")
    if not edges.size:
        return Array(build.const(0, dtypes.int32, asarray(x).shape))
    up = searchsorted(edges, x, "left" if right else "right", method=method)
    down = edges.size - searchsorted(flip(edges), x, "left" if right else "right", method=method)
    return where(edges[-1] >= edges[0], up, down)


@_docstr("An Array of counts, of the default int dtype, or the dtype of the weights.",
         x="a vector of integers >= 0.", minlength="the minimum length of the result.",
         length="the length of the result, required under tracing; larger values are dropped.",
         raises=("ShapeError: an input has more than one axis.",
                 "TracedValueError: x is traced and there is no ``length``.",
                 "DTypeError: the input has a float dtype."))
def bincount(x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *,
             length: int | None = None, out_sharding: None = None) -> Array:
    """Count the occurrences of each non-negative integer.

    >>> jnp.bincount(jnp.asarray([1, 1, 3]))
    Array([0, 2, 0, 1], dtype=int32)
    """
    reject_out_sharding(out_sharding)
    numbers = widen_indices(Array(domain_node("whole", x)))
    if numbers.ndim != 1:
        raise ShapeError(f"expected a vector, got shape {numbers.shape}")
    min_length = arguments.check_int("minlength", minlength)
    if length is None:
        data = arguments.values_of(numbers, "pass length=, the number of bins: a constant")
        length = int(data.max()) + 1 if data.size else 0
        length = min_length if length < min_length else length
    n = arguments.check_int("length", length)
    counts = ones_like(numbers, convert.default_int()) if weights is None else asarray(weights)
    if counts.shape != numbers.shape:
        raise ShapeError(f"expected weights of shape {numbers.shape}, got {counts.shape}")
    zero = Array(build.const(0, counts._dtype, (n,)))
    return zero.at[clip(numbers, 0)].add(counts, mode="drop")


def widen_indices(numbers: Array) -> Array:
    """Widen indices to at least 32 bits, as an axis length may not fit a narrower dtype."""
    is_narrow = numbers._dtype.is_integer and numbers.dtype.itemsize < 4
    return numbers.astype(np.int32) if is_narrow else numbers


def reject_out_sharding(out_sharding: None) -> None:
    """Refuse an output sharding, as there is one device."""
    if out_sharding is not None:
        raise ArgumentError(f"expected out_sharding=None, got {out_sharding!r}",
                            hint="leave it out: there is only one device")


# ---- histograms ---------------------------------------------------------------------------------


@_docstr("A vector of edges, one more than there are bins.",
         a="an Array or array-like of any shape.")
def histogram_bin_edges(a: ArrayLike, bins: Any = 10, range: Any = None,
                        weights: ArrayLike | None = None) -> Array:
    """Compute the edges of bins of equal width.

    >>> jnp.histogram_bin_edges(jnp.asarray([0.0, 4.0]), 2)
    Array([0., 2., 4.], dtype=float32)
    """
    if weights is not None:
        asarray(weights)
    if isinstance(bins, str):
        raise ArgumentError(f"expected bins as a number or edges, got {bins!r}",
                            hint="pass a number: named rules are not implemented")
    edges = asarray(bins)
    if edges.ndim == 1:
        return edges
    n = arguments.check_int("bins", bins)
    x = Array(domain_node("inexact", a))
    if range is None:
        low, high = (min(x), max(x)) if x.size else (asarray(0.0), asarray(1.0))
    else:
        low, high = _bounds_pair("range", range)
    is_point = equal(low, high)
    low, high = where(is_point, low - 0.5, low), where(is_point, high + 0.5, high)
    edges = linspace(low, high, n + 1, dtype=x.dtype)
    return asarray(edges)


def _bounds_pair(name: str, bounds: Any) -> tuple[Array, Array]:
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise ArgumentError(f"expected {name} as (low, high), got {bounds!r}") from None
    return asarray(low), asarray(high)


def _check_flag(name: str, value: Any) -> bool:
    if value is not None:
        arguments.check_bool(name, value)
    return bool(value)


@_docstr("(counts, edges), Arrays of a float dtype.", a="an Array or array-like of any shape.")
def histogram(a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None,
              density: bool | None = None) -> tuple[Array, Array]:
    """Count the elements in each bin. The last bin includes its right edge.

    >>> jnp.histogram(jnp.asarray([0.0, 1.0, 4.0]), 2)
    (Array([2., 1.], dtype=float32), Array([0., 2., 4.], dtype=float32))
    """
    points = ravel(a)[:, None]
    w = ones_like(Array(domain_node("inexact",
                                    points))[:, 0]) if weights is None else ravel(weights)
    counts, edges = histogramdd(points, [bins] if np.ndim(bins) else bins,
                                None if range is None else [range], w, density)
    return counts, edges[0]


@_docstr("(counts, edges of x, edges of y); counts are of the default int dtype, or that of the "
         "weights.", x="a vector.", y="a vector of the length of x.",
         bins="a number of bins or edges, for both axes or for each.",
         range="((low, high) of x, (low, high) of y).")
def histogram2d(x: ArrayLike, y: ArrayLike, bins: Any = 10, range: Any = None,
                weights: ArrayLike | None = None, density: bool | None = None
                ) -> tuple[Array, Array, Array]:
    """Count the points in each cell of a two-dimensional grid.

    >>> h, _, _ = jnp.histogram2d(jnp.asarray([0.0, 1.0]), jnp.asarray([0.0, 1.0]), 2)
    >>> h
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    axis_bins = [bins, bins] if np.ndim(bins) == 1 and len(bins) != 2 else bins
    points = concatenate([ravel(x)[:, None], ravel(y)[:, None]], 1)
    counts, edges = histogramdd(points, axis_bins, range, weights, density)
    return counts, edges[0], edges[1]


@_docstr("(counts, edges of each axis).", sample="a matrix with one point per row.",
         bins="a number of bins for all axes, or a number or edges for each.",
         range="(low, high) for each axis.",
         raises=("ShapeError: the sample is not a matrix, or the weights differ in length.",
                 "ArgumentError: the bins or ranges do not match the number of axes."))
def histogramdd(sample: ArrayLike, bins: Any = 10, range: Any = None,
                weights: ArrayLike | None = None, density: bool | None = None
                ) -> tuple[Array, list[Array]]:
    """Count the points in each cell of a grid of any dimension.

    >>> counts, edges = jnp.histogramdd(jnp.asarray([[0.0], [1.0]]), 2)
    >>> counts
    Array([1, 1], dtype=int32)
    """
    operands = (sample,) if weights is None else (sample, asarray(weights))
    points, *weighted = promote_arrays("histogramdd", *operands)
    if points.ndim != 2:
        raise ShapeError(f"expected a matrix with one point per row, got shape {points.shape}")
    n, d = points.shape
    is_density = _check_flag("density", density)
    specs = list(bins) if isinstance(bins, Sequence) and not isinstance(bins, str) else [bins] * d
    ranges = [None] * d if range is None else list(range) if isinstance(range, Sequence) else range
    if not isinstance(ranges, list) or len(specs) != d or len(ranges) != d or \
            isinstance(range, str):
        raise ArgumentError(f"expected bins and ranges for {d} axes, got {bins!r} and {range!r}")
    edges = [histogram_bin_edges(points[:, i], b, r) for i, (b, r) in
             enumerate(zip(specs, ranges))]
    w = weighted[0] if weighted else ones_like(points[:, 0], int)
    if w.shape != (n,):
        raise ShapeError(f"expected {n} weights, got shape {w.shape}")
    bin_index = [_bin_number(points[:, i], e) for i, e in enumerate(edges)]
    shape = tuple([e.size + 1 for e in edges])
    zero = Array(build.const(0, w._dtype, shape))
    counts = zero.at[tuple(bin_index)].add(w)[(slice(1, -1),) * d]
    if is_density:
        counts = counts.astype(points.dtype) / sum(counts)
        for i, e in enumerate(edges):
            width = (e[1:] - e[:-1]).reshape([-1 if j == i else 1 for j in np.arange(d)])
            counts = counts / width
    return counts, edges


def _bin_number(x: Array, edges: Array) -> Array:
    """Return the bin number of each element, from 1; NaN and elements out of range are in none."""
    number = searchsorted(edges, x, "right")
    return where(equal(x, edges[-1]), edges.size - 1, number)


@_docstr("An Array of the shape of x, of a float dtype.",
         xp="the sample points, in ascending order.", fp="the values at the sample points.",
         left='the value below all sample points, or "extrapolate"; by default the first value.',
         right='the value above all sample points, or "extrapolate"; by default the last value.',
         period="the period of the coordinates, which are taken modulo it.",
         raises=("ShapeError: the sample points and values are not vectors of equal length.",
                 'ArgumentError: the period is 0, or a text is not "extrapolate".'))
def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: Any = None, right: Any = None,
           period: ArrayLike | None = None) -> Array:
    """Interpolate linearly between sample points.

    >>> print(jnp.interp(1.5, jnp.asarray([1.0, 2.0]), jnp.asarray([10.0, 20.0])))
    15.0
    """
    for name, value in (("left", left), ("right", right)):
        if isinstance(value, str):
            arguments.check_choice(name, value, ("extrapolate", None))
    points, knots, values = promote_arrays("interp", asarray(x), asarray(xp), asarray(fp))
    if knots.shape != values.shape or knots.ndim != 1 or not knots.size:
        raise ShapeError(f"expected xp and fp as vectors of equal length, got {knots.shape} and "
                         f"{values.shape}")
    if period is not None:
        span = asarray(period).astype(points.dtype)
        points, knots = remainder(points, abs(span)), remainder(knots, abs(span))
        knots, values = map(Array, sort_along([knots._node, values._node], 0, 1))
        knots = concatenate([knots[-1:] - span, knots, knots[:1] + span])
        values = concatenate([values[-1:], values, values[:1]])
    i = clip(searchsorted(knots, points, "right"), 1, at_least_one(knots.size - 1))
    x0, x1 = (take(knots, j, mode="clip") for j in (i - 1, i))
    y0, y1 = (take(values, j, mode="clip") for j in (i - 1, i))
    step = x1 - x0
    flat = abs(step) <= float(finfo(knots.dtype).tiny)
    out = where(flat, y0, y0 + (points - x0) / where(flat, 1, step) * (y1 - y0))
    if period is None:
        if left != "extrapolate":
            out = where(points < knots[0], values[0] if left is None else left, out)
        if right != "extrapolate":
            out = where(points > knots[-1], values[-1] if right is None else right, out)
    return out


def at_least_one(n: int) -> int:
    return n if n > 1 else 1
