"""Evenly spaced numbers, with one rounding.

    low * (1 - place / gaps) + high * (place / gaps)        first + place * by

float32 and narrower types are computed in double-float32 arithmetic, so that machines without
float64 get the same bits; float64 is computed directly. Derivatives are those of the formula.
"""

from __future__ import annotations

import numpy as np

from fnx.core.formulas.double_double import (
    DoubleDouble,
    add_doubles,
    double_const,
    fast_two_sum,
    multiply,
    two_product,
    two_sum,
)
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, stop_gradient, where

_LOW_MASK = 0xFFF  # the low bits of an index: the other bits fit in a float32, too
_MAX_EXACT_INT = 1 << 24   # integers up to this are exact in float32


def linspace_at(low: Expr, high: Expr, index: Expr, steps: int | Expr, dtype: DType) -> Expr:
    """Interpolate from low to high in ``steps`` > 0 equal steps, at some of the indices.

    Args:
        low: the number at index 0.
        high: the number at index ``steps``.
        index: the indices: int32, of the same shape.
        steps: the number of steps; of ``dtype``, float64, if it is known at the call only.
        dtype: the dtype of the computation and the result, float64 or float32.

    >>> from fnx.core.ir import build
    >>> from fnx.core.levels import interp
    >>> at = Expr(build.iota(4))
    >>> ends = [Expr(build.const(v, dtypes.float32, (4,))) for v in (1.0, 2.0)]
    >>> interp.evaluate([linspace_at(*ends, at, 3, dtypes.float32).node], {})[0]
    array([1.       , 1.3333334, 1.6666666, 2.       ], dtype=float32)
    """
    low, high = low.cast(dtype), high.cast(dtype)
    if dtype is dtypes.float64 or isinstance(steps, Expr):
        return _linspace_float64(low, high, index, steps)
    return _linspace_double_float(low, high, index, steps)


def arange_at(start: float, step: float, index: Expr, dtype: DType) -> Expr:
    """Return first + place * by for an int32 index; ``dtype`` is float64 or float32.

    >>> from fnx.core.ir import build
    >>> from fnx.core.levels import interp
    >>> interp.evaluate([arange_at(0.5, 0.1, Expr(build.iota(3)), dtypes.float32).node], {})[0]
    array([0.5, 0.6, 0.7], dtype=float32)
    """
    if dtype is dtypes.float64:
        return index.cast(dtype) * step + start
    index_parts = _split_index(index)
    total, error = add_doubles(multiply(index_parts, _split_float(index_parts[0], step)),
                               _split_float(index_parts[0], start))
    return total + error


def _split_float(like: Expr, x: float) -> DoubleDouble:
    high = float(np.float32(x))
    return double_const(like, (high, x - high))


def _split_index(index: Expr) -> DoubleDouble:
    """Return an index as a sum of two float32."""
    return fast_two_sum(*[part.cast(dtypes.float32) for part in (
        index & ~_LOW_MASK, index & _LOW_MASK)])


def _linspace_float64(low: Expr, high: Expr, index: Expr, steps: int | Expr) -> Expr:
    index = index.cast(low.dtype)
    fraction = index / steps
    total = low * (steps - index) + high * index
    return where((total - total).eq(0), total / steps, low * (1 - fraction) + high * fraction)


def _linspace_double_float(low: Expr, high: Expr, index: Expr, steps: int) -> Expr:
    fraction = _fraction(index, steps)
    complement, error = fast_two_sum(low.like(1.0), -fraction[0])
    rest_fraction = complement, error - fraction[1]
    (a, rest_a), (b, rest_b) = _scale(low, rest_fraction), _scale(high, fraction)
    total, error = two_sum(a, b)
    exact = total + stop_gradient(error + (rest_a + rest_b))
    return where((exact - exact).eq(0), exact, total)  # an infinity has no rounding error to add


def _fraction(index: Expr, steps: int) -> DoubleDouble:
    """Return place / gaps; its error is a fraction of a step, so multiplying by 1 / gaps is enough.
    """
    is_exact = steps < _MAX_EXACT_INT
    index_high, index_low = (index.cast(dtypes.float32), None) if is_exact else _split_index(index)
    count, count_low = _split_float(index_high, steps)
    quotient = index_high / count
    product, product_error = two_product(quotient, count)
    remainder = (index_high - product) - product_error
    return quotient, (remainder if index_low is None
                      else remainder + (index_low - quotient * count_low)) * (1 / steps)


def _scale(x: Expr, factor: DoubleDouble) -> DoubleDouble:
    product, error = two_product(x, factor[0])
    return product, error + x * factor[1]
