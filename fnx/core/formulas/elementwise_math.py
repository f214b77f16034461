"""More elementwise functions: inverse functions, bits of floats, integers.

The inverse trigonometric and hyperbolic functions are those of fdlibm (Sun Microsystems, 1993):
each is written with arctan, log1p and sqrt so as to avoid cancellation.
"""

from __future__ import annotations

import math

from fnx.core.formulas.elementwise import ElementwiseFn, isinf
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import (
    Expr,
    arcsin,
    clamp,
    isnan,
    log,
    log1p,
    polynomial,
    sin,
    sqrt,
    stop_gradient,
    trunc,
    where,
)

LOG2 = math.log(2.0)
_PI_2_REST = 6.123233995736766e-17  # pi / 2 minus its float64 value


def arccos(x: Expr) -> Expr:
    """pi / 2 - arcsin(x); for x > 0.5 twice the arcsine of half the chord."""
    is_near = x > 0.5
    chord = sqrt(where(is_near, (1 - x) * 0.5, 0.25))
    angle = arcsin(where(is_near, chord, x))
    half_pi = float(x.dtype.np.type(math.pi / 2))
    pi_rest = math.pi / 2 - half_pi if x.dtype.bits < 64 else _PI_2_REST
    return where(is_near, 2 * angle, half_pi - (angle - pi_rest))


def _sign_and_abs(x: Expr) -> tuple[Expr, Expr]:
    """(whether x < 0, |x|), by a WHERE whose derivative at 0 is that of x."""
    below = x < 0
    return below, where(below, -x, x)


def arcsinh(x: Expr) -> Expr:
    is_negative, a = _sign_and_abs(x)
    is_large = a > 1e4 if x.dtype.bits < 64 else a > 1e9
    bounded = where(is_large, 1, a)
    square = bounded * bounded
    small_value = log1p(bounded + square / (1 + sqrt(1 + square)))
    large_value = log(where(is_large, a, 1)) + LOG2
    magnitude = where(is_large, large_value, small_value)
    return where(x.eq(0), x, where(is_negative, -magnitude, magnitude))


def arccosh(x: Expr) -> Expr:
    is_large = x > (1e4 if x.dtype.bits < 64 else 1e9)
    t = where(is_large | (x < 1), 1, x - 1)
    result = where(is_large, log(where(is_large, x, 1)) + LOG2, log1p(t + sqrt(t * (t + 2))))
    return where(x < 1, math.nan, result)


def arctanh(x: Expr) -> Expr:
    """Half of log1p(2a / (1 - a)), with the sign of x."""
    is_negative, a = _sign_and_abs(x)
    magnitude = 0.5 * log1p(2 * a / (1 - a))
    return where(x.eq(0), x, where(is_negative, -magnitude, magnitude))


def _itself(x: Expr) -> Expr:
    """A real number is its own real part and conjugate."""
    return x


def _zero(x: Expr) -> Expr:
    """The imaginary part of a real number."""
    return x.like(0)


def signbit(x: Expr) -> Expr:
    """Whether the sign bit is set, also for -0.0 and NaN."""
    if x.dtype.is_float:
        return x.bits() < 0
    return x < 0 if x.dtype.kind == "int" else Expr(build.const(False, dtypes.bool_, x.shape))


def copysign(x: Expr, y: Expr) -> Expr:
    return where(signbit(x).ne(signbit(y)), -x, x)


def nextafter(x: Expr, y: Expr) -> Expr:
    """The next float after x towards y. Magnitudes are ordered like their bits.

    The derivative is 1 with respect to x and 0 with respect to y.
    """
    t = x.dtype
    bits = stop_gradient(x).bits()
    outward = (x > 0).eq(y > x)
    step = where(outward, bits + 1, bits - 1)
    smallest = where(y > 0, bits.like(1), bits.like(1) + bits.like(-(1 << t.bits - 1)))
    stepped = where(x.eq(0), smallest, step).bitcast(t)
    stepped = where(stepped.eq(0) | isinf(x), stepped, stepped + (x - stop_gradient(x)))
    return where(x.eq(y), y, where(isnan(x) | isnan(y), math.nan, stepped))


def spacing(x: Expr) -> Expr:
    """The distance to the next float away from zero; float16 uses the next above, as in NumPy."""
    if x.dtype is dtypes.float16:
        return nextafter(stop_gradient(x), x.like(math.inf)) - stop_gradient(x)
    _, a = _sign_and_abs(stop_gradient(x))
    gap = nextafter(a, a.like(math.inf)) - a
    return where(isinf(x) | isnan(x), math.nan, copysign(gap, x))


def sinc(x: Expr) -> Expr:
    """sin(pi x) / (pi x). Near 0 its Taylor series is used, so that derivatives are right."""
    near = abs(x) < 1e-2
    t = math.pi * where(near, 1, x)
    square = math.pi ** 2 * where(near, x * x, 0)
    series = polynomial([(-1) ** k / math.factorial(2 * k + 1) for k in range(5)], square)
    return where(near, series, sin(t) / t)


def fmax(x: Expr, y: Expr) -> Expr:
    """The larger operand; NaN is ignored if the other is a number."""
    return where((x > y) | isnan(y), x, y) if x.dtype.is_float else where(x > y, x, y)


def fmin(x: Expr, y: Expr) -> Expr:
    """The smaller operand; NaN is ignored if the other is a number."""
    return where((x < y) | isnan(y), x, y) if x.dtype.is_float else where(x < y, x, y)


def heaviside(x: Expr, half: Expr) -> Expr:
    """0 for x < 0, 1 for x > 0, and ``half`` at 0."""
    step = where(x < 0, 0, where(x > 0, x.like(1), half))
    return where(isnan(x), x, step)


def bit_count(x: Expr) -> Expr:
    """The number of bits set in |x|."""
    if x.dtype.is_bool:
        return x.cast(dtypes.int32)
    return popcount(where(x < 0, -x, x) if x.dtype.kind == "int" else x)


def _unsigned_bits(x: Expr) -> Expr:
    """The bits of an integer, zero-extended to at least 32 unsigned bits."""
    t = x.dtype
    if t.bits > 32:
        return x.bitcast(dtypes.dtype_by_name("uint64"))
    word = x.cast(dtypes.uint32)
    return word & (1 << t.bits) - 1 if t.bits < 32 else word


def popcount(x: Expr) -> Expr:
    """The number of bits set, by a parallel sum of pairs, then fours, and so on."""
    word = _unsigned_bits(x)
    width = word.dtype.bits
    ones = (1 << width) - 1
    word = word - (word >> 1 & ones // 3)
    word = (word & ones // 5) + (word >> 2 & ones // 5)
    word = word + (word >> 4) & ones // 17
    shift = 8
    while shift < width:
        word = word + (word >> shift)
        shift *= 2
    return (word & 127).cast(dtypes.int32)


def leading_zeros(x: Expr) -> Expr:
    """The number of zero bits above the highest set bit: smear it down, then count."""
    word, shift = _unsigned_bits(x), 1
    while shift < x.dtype.bits:
        word = word | word >> shift
        shift *= 2
    return x.dtype.bits - popcount(word)


def power_of_two(k: Expr, like: Expr) -> Expr:
    """2**k for an integer k in the range of normal numbers, built from its bits."""
    t = like.dtype
    integer = k.cast(t.integer)
    return (integer + t.bias << t.mantissa).bitcast(t)


def ldexp(x: Expr, k: Expr) -> Expr:
    """x * 2**k in three steps, so that each factor is a normal number; rounds once."""
    t = x.dtype
    up, down = t.bias, t.bias - 1 - t.mantissa
    for _ in range(2):
        is_large, is_small = k > up, k < -down
        x = where(is_large, x * 2.0 ** up, where(is_small, x * 2.0 ** -down, x))
        k = where(is_large, k - up, where(is_small, k + down, k))
    k = where(k > up, up, where(k < -down, -down, k))
    return x * power_of_two(k, x)


def exponent(x: Expr) -> Expr:
    """The k of x = m * 2**k with 0.5 <= |m| < 1; 0 for zero, infinities and NaN."""
    t = x.dtype
    is_subnormal = abs(x) < 2.0 ** (1 - t.bias)
    scaled = where(is_subnormal, x * 2.0 ** t.mantissa, x)
    biased = scaled.bits() >> t.mantissa & (1 << t.exponent) - 1
    k = biased.cast(dtypes.int32) - (t.bias - 1) - where(is_subnormal, t.mantissa, 0 * biased).cast(
        dtypes.int32)
    is_special = x.eq(0) | isnan(x) | isinf(x)
    return where(is_special, 0, k)


def mantissa(x: Expr) -> Expr:
    """The m of x = m * 2**k with 0.5 <= |m| < 1."""
    return ldexp(x, -exponent(stop_gradient(x)))


def scale_to_one(x: Expr) -> tuple[Expr, Expr]:
    """Return a power of two that brings a positive x near 1, and the power of two that brings it
    back. Both are normal numbers, so products with them are exact unless they underflow."""
    t = x.dtype
    biased = x.bits() >> t.mantissa & (1 << t.exponent) - 1
    k = clamp(t.bias - biased, 1 - t.bias, t.bias - 1)
    return power_of_two(k, x), power_of_two(-k, x)


def fractional_part(x: Expr) -> Expr:
    """x - trunc(x), with the sign of x; 0 for infinities."""
    is_negative = signbit(x)
    # 0 has the sign of x; the derivative is 1
    difference = where(is_negative, -(trunc(x) - x), x - trunc(x))
    return where(isinf(x), where(is_negative, x.like(-0.0), x.like(0.0)), difference)


# fmt: off
ARCSIN = ElementwiseFn("arcsin", "inexact", ops.ASIN)
ARCCOS = ElementwiseFn("arccos", "inexact", arccos)
ARCSINH = ElementwiseFn("arcsinh", "inexact", arcsinh)
ARCCOSH = ElementwiseFn("arccosh", "inexact", arccosh)
ARCTANH = ElementwiseFn("arctanh", "inexact", arctanh)
SIGNBIT = ElementwiseFn("signbit", "any", signbit)
COPYSIGN = ElementwiseFn("copysign", "inexact", copysign)
NEXTAFTER = ElementwiseFn("nextafter", "inexact", nextafter, is_format_specific=True)
SPACING = ElementwiseFn("spacing", "inexact", spacing, is_format_specific=True)
SINC = ElementwiseFn("sinc", "inexact", sinc)
FMAX = ElementwiseFn("fmax", "any", fmax)
FMIN = ElementwiseFn("fmin", "any", fmin)
HEAVISIDE = ElementwiseFn("heaviside", "inexact", heaviside)
BITWISE_COUNT = ElementwiseFn("bitwise_count", "bits", bit_count)
DEG2RAD = ElementwiseFn("deg2rad", "inexact", lambda x: x * (math.pi / 180))
RAD2DEG = ElementwiseFn("rad2deg", "inexact", lambda x: x * (180 / math.pi))
REAL = ElementwiseFn("real", "any", _itself)
IMAG = ElementwiseFn("imag", "any", _zero)
CONJUGATE = ElementwiseFn("conjugate", "any", _itself)
ISNEGINF = ElementwiseFn("isneginf", "inexact", lambda x: x.eq(-math.inf))
ISPOSINF = ElementwiseFn("isposinf", "inexact", lambda x: x.eq(math.inf))
MODF = ElementwiseFn("modf", "inexact", fractional_part)
# fmt: on
