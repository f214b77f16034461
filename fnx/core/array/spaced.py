"""Evenly spaced numbers, with one rounding.

    low * (1 - place / gaps) + high * (place / gaps)        first + place * by

float32 and narrower types are computed in double-float32 arithmetic, so that machines without
float64 get the same bits; float64 is computed directly. Derivatives are those of the formula.
"""

from __future__ import annotations

import numpy as np

from fnx.core import dtypes
from fnx.core.doubles import (
    Double,
    fast_two_sum,
    pair,
    plus,
    times,
    two_product,
    two_sum,
)
from fnx.core.dtypes import DType
from fnx.core.expr import Expr, stop, where

_LOW_BITS = 0xFFF  # the low bits of an index: the other bits fit in a float32, too
_EXACT = 1 << 24   # integers up to this are exact in float32


def between(low: Expr, high: Expr, place: Expr, gaps: int, wide: DType) -> Expr:
    """Interpolate from low to high in ``gaps`` > 0 equal steps, at some of the indices.

    Args:
        low: the number at index 0.
        high: the number at index ``gaps``.
        place: the indices: int32, of the same shape.
        gaps: the number of steps.
        wide: the dtype of the computation and the result, float64 or float32.

    >>> from fnx.core import build
    >>> from fnx.core.levels import interp
    >>> at = Expr(build.iota(4))
    >>> ends = [Expr(build.const(v, dtypes.float32, (4,))) for v in (1.0, 2.0)]
    >>> interp.evaluate([between(*ends, at, 3, dtypes.float32).node], {})[0]
    array([1.       , 1.3333334, 1.6666666, 2.       ], dtype=float32)
    """
    low, high = low.cast(wide), high.cast(wide)
    return _in_double(low, high, place, gaps) if wide is dtypes.float64 else \
        _in_pairs(low, high, place, gaps)


def stepped(first: float, by: float, place: Expr, wide: DType) -> Expr:
    """Return first + place * by for an int32 index; ``wide`` is float64 or float32.

    >>> from fnx.core import build
    >>> from fnx.core.levels import interp
    >>> interp.evaluate([stepped(0.5, 0.1, Expr(build.iota(3)), dtypes.float32).node], {})[0]
    array([0.5, 0.6, 0.7], dtype=float32)
    """
    if wide is dtypes.float64:
        return place.cast(wide) * by + first
    whole = _whole(place)
    total, rest = plus(times(whole, _parts(whole[0], by)), _parts(whole[0], first))
    return total + rest


def _parts(like: Expr, x: float) -> Double:
    high = float(np.float32(x))
    return pair(like, (high, x - high))


def _whole(place: Expr) -> Double:
    """Return an index as a sum of two float32."""
    return fast_two_sum(*[part.cast(dtypes.float32) for part in (
        place & ~_LOW_BITS, place & _LOW_BITS)])


def _in_double(low: Expr, high: Expr, place: Expr, gaps: int) -> Expr:
    place = place.cast(low.dtype)
    share = place / gaps
    total = low * (gaps - place) + high * place
    return where((total - total).eq(0), total / gaps, low * (1 - share) + high * share)


def _in_pairs(low: Expr, high: Expr, place: Expr, gaps: int) -> Expr:
    share = _share(place, gaps)
    first, rest = fast_two_sum(low.like(1.0), -share[0])
    left = first, rest - share[1]
    (a, rest_a), (b, rest_b) = _scaled(low, left), _scaled(high, share)
    total, rest = two_sum(a, b)
    exact = total + stop(rest + (rest_a + rest_b))
    return where((exact - exact).eq(0), exact, total)  # an infinity has no rounding error to add


def _share(place: Expr, gaps: int) -> Double:
    """Return place / gaps; its error is a fraction of a step, so multiplying by 1 / gaps is enough.
    """
    exact = gaps < _EXACT
    whole, rest = (place.cast(dtypes.float32), None) if exact else _whole(place)
    count, few = _parts(whole, gaps)
    share = whole / count
    product, lost = two_product(share, count)
    left = (whole - product) - lost
    return share, (left if rest is None else left + (rest - share * few)) * (1 / gaps)


def _scaled(x: Expr, by: Double) -> Double:
    product, rest = two_product(x, by[0])
    return product, rest + x * by[1]
