"""Helpers shared by the elementary functions: float formats, signs and log(2)."""

from __future__ import annotations

import math

from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, where

# log(2) in two parts; the first has so few bits that its product with an exponent is exact.
# float32: 10 bits (Cephes); float64: 33 bits (fdlibm, Sun Microsystems).
LN2_32 = (0.693359375, -0.00021219444170128554)
LN2_64 = (0.6931471804855391, 7.440617110012397e-11)
LOG2_E = 1.4426950408889634

INF, NAN = math.inf, math.nan


def rounder(t: DType) -> float:
    """Return 1.5 * 2**mantissa: x + rounder has round(x) in its low bits."""
    return 1.5 * 2.0 ** t.mantissa


def as_integer(x: Expr) -> Expr:
    """Return integral |x| < 2**(mantissa - 1) in the low bits of an integer."""
    return (x + rounder(x.dtype)).bits()


def power_of_two(field: Expr, t: DType) -> Expr:
    """Return the float with this exponent field: 2**(field - bias)."""
    return (field << t.mantissa).bitcast(t)


def tiny(t: DType) -> float:
    """Return a bound below which f(x) = x + x**2 / 2 ... rounds to x."""
    return 2.0 ** -(t.mantissa + 3)


def magnitude(t: DType) -> int:
    """Return the mask of all bits but the sign."""
    return (1 << t.bits - 1) - 1


def clamp(x: Expr, low: float, high: float) -> Expr:
    """Clamp x to low..high; NaN stays NaN."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def with_sign(x: Expr, sign: Expr) -> Expr:
    """Return x >= 0 with the sign bit of ``sign``."""
    low = ~magnitude(x.dtype)
    return (x.bits() | (sign.bits() & low)).bitcast(x.dtype)
