"""Float formats, signs, log(2) and sums of two floats: what the elementary functions share."""

from __future__ import annotations

import math

from fnx.core.dtypes import DType
from fnx.core.expr import Expr, where

# log(2) in two parts; the first has few bits, so that its product with an exponent is exact.
# float32: 10 bits (Cephes); float64: 33 bits (fdlibm, Sun Microsystems).
LN2_32 = (0.693359375, -0.00021219444170128554)
LN2_64 = (0.6931471804855391, 7.440617110012397e-11)
LOG2_E = 1.4426950408889634

INF, NAN = math.inf, math.nan


def rounder(t: DType) -> float:
    """1.5 * 2**mantissa: x + rounder holds round(x) in its low bits."""
    return 1.5 * 2.0 ** t.mantissa


def as_integer(x: Expr) -> Expr:
    """A whole number, less than 2**(mantissa - 1) away from 0, in the low bits of an integer."""
    return (x + rounder(x.dtype)).bits()


def power_of_two(field: Expr, t: DType) -> Expr:
    """The float with this exponent field: 2**(field - bias)."""
    return (field << t.mantissa).bitcast(t)


def tiny(t: DType) -> float:
    """A size below which f(x) = x + x**2 / 2 ... rounds to x."""
    return 2.0 ** -(t.mantissa + 3)


def magnitude(t: DType) -> int:
    """All bits but the sign."""
    return (1 << t.bits - 1) - 1


def clamp(x: Expr, low: float, high: float) -> Expr:
    """x inside low..high; NaN stays NaN."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def with_sign(x: Expr, sign: Expr) -> Expr:
    """x >= 0 with the sign bit of ``sign``."""
    low = ~magnitude(x.dtype)
    return (x.bits() | (sign.bits() & low)).bitcast(x.dtype)


# ---- unevaluated sums of two floats (Dekker 1971, Knuth) --------------------------------------
# Written without fused operations, so that a target without them gets the same results.

Double = tuple[Expr, Expr]


def fast_two_sum(a: Expr, b: Expr) -> Double:
    """a + b and its rounding error, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_sum(a: Expr, b: Expr) -> Double:
    """a + b and its rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def split(x: Expr) -> Double:
    """x as a sum: its leading 26 bits (float64), and the rest."""
    high = (x.bits() & ~0x7FF_FFFF).bitcast(x.dtype)
    return high, x - high


def two_product(a: Expr, b: Expr) -> Double:
    """a * b and its rounding error (float64)."""
    p = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def times(a: Double, b: Double) -> Double:
    """Product of two unevaluated sums, to about 104 bits."""
    p, e = two_product(a[0], b[0])
    return fast_two_sum(p, e + (a[0] * b[1] + a[1] * b[0]))


def plus(a: Double, b: Double) -> Double:
    """Sum of two unevaluated sums, to about 104 bits where nothing cancels."""
    s, e = two_sum(a[0], b[0])
    return fast_two_sum(s, e + (a[1] + b[1]))


def pair(like: Expr, parts: tuple[float, float]) -> Double:
    """A constant as an unevaluated sum."""
    return like.like(parts[0]), like.like(parts[1])
