"""Functions of ``fnx.numpy`` that look up, count into bins and interpolate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fnx.core import build, build_calls, dtypes
from fnx.core.array import arguments, convert
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.documented import Family
from fnx.core.array.promotion import in_domain, promoted
from fnx.core.array.public import asarray
from fnx.core.config import config
from fnx.core.errors import ArgumentError, ShapeError
from fnx.core.index_arrays import index_type
from fnx.numpy.basic import (
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
from fnx.numpy.limits import finfo

__all__ = [
    "bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd",
    "interp", "searchsorted",
]

Side = Literal["left", "right"]
Method = Literal["scan", "scan_unrolled", "sort", "compare_all", "default"] | None
METHODS = ("scan", "scan_unrolled", "sort", "compare_all", "default", None)

_family = Family(
    a="a vector in increasing order; NaN last.", x="an Array or what ``asarray`` takes.",
    method="how to search; accepted as JAX's, all give the same.",
    weights="what each element counts; by default 1.",
    bins="how many bins of equal width, or their edges in increasing order.",
    range="(low, high) of the bins; by default of the data.",
    density="divide by the width of the bins and the total.",
    returns="An int32 Array of the shape of x.",
    raises=("ShapeError: edges or values of more than one axis.",
            "ArgumentError: an option that is none of those named."))


def before(a: Array, b: Array, or_equal: bool) -> Array:
    """a < b (or a <= b) in the order of sorting, in which NaN is last."""
    test = a <= b if or_equal else a < b
    if not a._dtype.is_float:
        return test
    last = logical_and(isnan(b), isnan(a) if or_equal else ~isnan(a))
    return logical_or(test, logical_or(last, logical_and(isnan(b), ~isnan(a))))


@_family("An int32 Array of the shape of v.", v="what to look for.",
         side='"left": in front of equal elements, "right": behind them.',
         sorter="the order in which a is sorted, as ``argsort`` gives it.")
def searchsorted(a: ArrayLike, v: ArrayLike, side: Side = "left",
                 sorter: ArrayLike | None = None, *, method: Method = "scan") -> Array:
    """Where to insert values into a sorted vector: the halves are searched at once for all.

    >>> jnp.searchsorted(jnp.asarray([1, 3, 5]), jnp.asarray([3, 9]))
    Array([1, 3], dtype=int32)
    """
    arguments.one_of("side", side, ("left", "right"))
    arguments.one_of("method", method, METHODS)
    if asarray(a).ndim != 1:
        raise ShapeError(f"expected a vector to search in, got shape {asarray(a).shape}")
    (left, right), _ = promoted("any", "searchsorted", (asarray(a), v), broadcast=False)
    line, values = Array(left), Array(right)
    if sorter is not None:
        line = take(line, asarray(sorter))
    return _bisected(line, values, side == "right")


def _bisected(line: Array, values: Array, behind: bool) -> Array:
    """A loop that halves what is left of the line, for all values: of any length one kernel."""
    n, shape = line.size, values.shape
    t = index_type(n) if config.x64 else dtypes.int32
    start = [build.const(k, t, shape) for k in (0, n)]
    if not n:
        return Array(start[0])
    given = (line._node, values._node, *start)
    a, v, low, high = [Array(build.param(i, x.dtype, x.shape)) for i, x in enumerate(given)]
    middle = low + (high - low) // 2  # the sum of both may not fit
    inside = low < high
    goes_right = logical_and(inside, before(take(a, clip(middle, 0, n - 1)), v, behind))
    low = where(goes_right, middle + 1, low)
    high = where(logical_and(inside, ~goes_right), middle, high)
    step = build.function([low._node, high._node], len(given), "searchsorted")
    return Array(build_calls.scan(step, n.bit_length(), given[:2], start, [])[0])


@_family(bins="edges in increasing or in decreasing order.",
         right="bins hold their right edges, not the left ones.")
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: Method = None
             ) -> Array:
    """The number of the bin of each element; 0 and len(bins) are outside.

    >>> jnp.digitize(jnp.asarray([0.5, 1.0, 7.0]), jnp.asarray([1.0, 2.0]))
    Array([0, 1, 2], dtype=int32)
    """
    arguments.flag("right", right)
    edges = asarray(bins)
    if edges.ndim != 1:
        raise ShapeError(f"expected edges of one axis, got shape {edges.shape}")
    if not edges.size:
        return Array(build.const(0, dtypes.int32, asarray(x).shape))
    up = searchsorted(edges, x, "left" if right else "right", method=method)
    down = edges.size - searchsorted(flip(edges), x, "left" if right else "right", method=method)
    return where(edges[-1] >= edges[0], up, down)


@_family("An Array of counts, of the default int, or of the dtype of the weights.",
         x="whole numbers >= 0.", minlength="the least length of the result.",
         length="its length, where that must be known while tracing; what is beyond is dropped.",
         raises=("ShapeError: more than one axis.", "TracedValueError: no ``length`` in a trace.",
                 "DTypeError: floats."))
def bincount(x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *,
             length: int | None = None, out_sharding: None = None) -> Array:
    """How often each number occurs.

    >>> jnp.bincount(jnp.asarray([1, 1, 3]))
    Array([0, 2, 0, 1], dtype=int32)
    """
    one_device(out_sharding)
    numbers = as_places(Array(in_domain("whole", x)))
    if numbers.ndim != 1:
        raise ShapeError(f"expected a vector, got shape {numbers.shape}")
    least = arguments.integer("minlength", minlength)
    if length is None:
        data = numbers._numpy()
        length = int(data.max()) + 1 if data.size else 0
        length = least if length < least else length
    n = arguments.integer("length", length)
    counts = ones_like(numbers, convert.default_int()) if weights is None else asarray(weights)
    if counts.shape != numbers.shape:
        raise ShapeError(f"expected weights of shape {numbers.shape}, got {counts.shape}")
    zero = Array(build.const(0, counts._dtype, (n,)))
    return zero.at[clip(numbers, 0)].add(counts, mode="drop")


def as_places(numbers: Array) -> Array:
    """Whole numbers that are places: of at least 32 bits, as lengths may not fit fewer."""
    is_narrow = numbers._dtype.is_integer and numbers.dtype.itemsize < 4
    return numbers.astype(np.int32) if is_narrow else numbers


def one_device(out_sharding: None) -> None:
    """Refuse a layout over several devices: there is one."""
    if out_sharding is not None:
        raise ArgumentError(f"expected out_sharding=None, got {out_sharding!r}",
                            hint="there is one device")


# ---- histograms ---------------------------------------------------------------------------------


@_family("An Array of edges, one more than bins.", a="of any shape.")
def histogram_bin_edges(a: ArrayLike, bins: Any = 10, range: Any = None,
                        weights: ArrayLike | None = None) -> Array:
    """The edges of bins of equal width.

    >>> jnp.histogram_bin_edges(jnp.asarray([0.0, 4.0]), 2)
    Array([0., 2., 4.], dtype=float32)
    """
    if weights is not None:
        asarray(weights)
    if isinstance(bins, str):
        raise ArgumentError(f"expected bins as a number or edges, got {bins!r}",
                            hint="rules by name are not built: choose a number")
    edges = asarray(bins)
    if edges.ndim == 1:
        return edges
    n = arguments.integer("bins", bins)
    x = Array(in_domain("inexact", a))
    if range is None:
        low, high = (min(x), max(x)) if x.size else (asarray(0.0), asarray(1.0))
    else:
        low, high = _pair("range", range)
    same = equal(low, high)
    low, high = where(same, low - 0.5, low), where(same, high + 0.5, high)
    edges = linspace(low, high, n + 1, dtype=x.dtype)
    return asarray(edges)


def _pair(name: str, given: Any) -> tuple[Array, Array]:
    try:
        low, high = given
    except (TypeError, ValueError):
        raise ArgumentError(f"expected {name} as (low, high), got {given!r}") from None
    return asarray(low), asarray(high)


def _flag_or_none(name: str, given: Any) -> bool:
    if given is not None:
        arguments.flag(name, given)
    return bool(given)


@_family("(counts, edges), Arrays of a float dtype.", a="of any shape.")
def histogram(a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None,
              density: bool | None = None) -> tuple[Array, Array]:
    """How many elements are in each bin; the last holds its right edge.

    >>> jnp.histogram(jnp.asarray([0.0, 1.0, 4.0]), 2)
    (Array([2., 1.], dtype=float32), Array([0., 2., 4.], dtype=float32))
    """
    points = ravel(a)[:, None]
    w = ones_like(Array(in_domain("inexact", points))[:, 0]) if weights is None else ravel(weights)
    counts, edges = histogramdd(points, [bins] if np.ndim(bins) else bins,
                                None if range is None else [range], w, density)
    return counts, edges[0]


@_family("(counts, edges of x, edges of y); counts are of the default int, or of the weights.",
         x="a vector.", y="a vector as long.",
         bins="a number, edges for both, or one of these for each.",
         range="((low, high) of x, (low, high) of y).")
def histogram2d(x: ArrayLike, y: ArrayLike, bins: Any = 10, range: Any = None,
                weights: ArrayLike | None = None, density: bool | None = None
                ) -> tuple[Array, Array, Array]:
    """How many points are in each cell of a grid.

    >>> h, _, _ = jnp.histogram2d(jnp.asarray([0.0, 1.0]), jnp.asarray([0.0, 1.0]), 2)
    >>> h
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    both = [bins, bins] if np.ndim(bins) == 1 and len(bins) != 2 else bins
    points = concatenate([ravel(x)[:, None], ravel(y)[:, None]], 1)
    counts, edges = histogramdd(points, both, range, weights, density)
    return counts, edges[0], edges[1]


@_family("(counts, edges of each axis).", sample="points, a row each.",
         bins="a number, or a number or edges for each axis.",
         range="(low, high) for each axis.",
         raises=("ShapeError: no matrix, or weights of another length.",
                 "ArgumentError: bins or ranges for another number of axes."))
def histogramdd(sample: ArrayLike, bins: Any = 10, range: Any = None,
                weights: ArrayLike | None = None, density: bool | None = None
                ) -> tuple[Array, list[Array]]:
    """How many points are in each cell of a grid.

    >>> counts, edges = jnp.histogramdd(jnp.asarray([[0.0], [1.0]]), 2)
    >>> counts
    Array([1, 1], dtype=int32)
    """
    given = (sample,) if weights is None else (sample, asarray(weights))
    points, *weighted = [Array(x) for x in promoted("inexact", "histogramdd", given,
                                                    broadcast=False)[0]]
    if points.ndim != 2:
        raise ShapeError(f"expected points as rows, got shape {points.shape}")
    n, d = points.shape
    dense = _flag_or_none("density", density)
    each = list(bins) if isinstance(bins, Sequence) and not isinstance(bins, str) else [bins] * d
    spans = [None] * d if range is None else list(range) if isinstance(range, Sequence) else range
    if not isinstance(spans, list) or len(each) != d or len(spans) != d or isinstance(range, str):
        raise ArgumentError(f"expected bins and ranges for {d} axes, got {bins!r} and {range!r}")
    edges = [histogram_bin_edges(points[:, i], b, r) for i, (b, r) in
             enumerate(zip(each, spans))]
    w = weighted[0] if weighted else ones_like(points[:, 0], int)
    if w.shape != (n,):
        raise ShapeError(f"expected {n} weights, got shape {w.shape}")
    places = [_bin(points[:, i], e) for i, e in enumerate(edges)]
    shape = tuple([e.size + 1 for e in edges])
    zero = Array(build.const(0, w._dtype, shape))
    counts = zero.at[tuple(places)].add(w)[(slice(1, -1),) * d]
    if dense:
        counts = counts.astype(points.dtype) / sum(counts)
        for i, e in enumerate(edges):
            width = (e[1:] - e[:-1]).reshape([-1 if j == i else 1 for j in np.arange(d)])
            counts = counts / width
    return counts, edges


def _bin(x: Array, edges: Array) -> Array:
    """The number of the bin, from 1; NaN and what is outside is in none."""
    found = searchsorted(edges, x, "right")
    return where(equal(x, edges[-1]), edges.size - 1, found)


@_family("An Array of the shape of x, of a float dtype.", xp="places in increasing order.",
         fp="the values there.", left='below all places; by default the first value, or '
         '"extrapolate".', right='above all places; by default the last value, or "extrapolate".',
         period="of the places: they are taken modulo this.",
         raises=("ShapeError: places and values that are no vectors of one length.",
                 "ArgumentError: a period of 0; text that is not \"extrapolate\"."))
def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: Any = None, right: Any = None,
           period: ArrayLike | None = None) -> Array:
    """Straight lines between known values.

    >>> print(jnp.interp(1.5, jnp.asarray([1.0, 2.0]), jnp.asarray([10.0, 20.0])))
    15.0
    """
    for name, given in (("left", left), ("right", right)):
        if isinstance(given, str):
            arguments.one_of(name, given, ("extrapolate", None))
    nodes, _ = promoted("inexact", "interp", [asarray(x), asarray(xp), asarray(fp)],
                        broadcast=False)
    at, places, values = map(Array, nodes)
    if places.shape != values.shape or places.ndim != 1 or not places.size:
        raise ShapeError(f"expected places and values as vectors of one length, got "
                         f"{places.shape} and {values.shape}")
    if period is not None:
        turn = asarray(period).astype(at.dtype)
        at, places = remainder(at, abs(turn)), remainder(places, abs(turn))
        order = _order(places)
        places, values = take(places, order), take(values, order)
        places = concatenate([places[-1:] - turn, places, places[:1] + turn])
        values = concatenate([values[-1:], values, values[:1]])
    i = clip(searchsorted(places, at, "right"), 1, max_or_one(places.size - 1))
    low, high = (take(places, j, mode="clip") for j in (i - 1, i))
    first, last = (take(values, j, mode="clip") for j in (i - 1, i))
    step = high - low
    flat = abs(step) <= float(finfo(places.dtype).tiny)
    out = where(flat, first, first + (at - low) / where(flat, 1, step) * (last - first))
    if period is None:
        if left != "extrapolate":
            out = where(at < places[0], values[0] if left is None else left, out)
        if right != "extrapolate":
            out = where(at > places[-1], values[-1] if right is None else right, out)
    return out


def max_or_one(n: int) -> int:
    return n if n > 1 else 1


def _order(x: Array) -> Array:
    """The order that sorts a short vector: how many elements are before each."""
    earlier = logical_and(equal(x[:, None], x[None, :]),
                          Array(build.iota(x.size))[:, None] < Array(build.iota(x.size))[None, :])
    rank = sum(logical_or(x[:, None] < x[None, :], earlier), 0, "int32")
    return Array(build.const(0, dtypes.int32, x.shape)).at[rank].set(Array(build.iota(x.size)))
