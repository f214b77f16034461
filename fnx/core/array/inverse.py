"""More elementwise functions: inverse functions, bits of floats, integers.

The inverse trigonometric and hyperbolic functions are those of fdlibm (Sun Microsystems, 1993):
each is written with arctan, log1p and sqrt so as to avoid cancellation.
"""

from __future__ import annotations

import math

from fnx.core import build, dtypes, ops
from fnx.core.array.elementwise import ElementwiseRow, isinf
from fnx.core.expr import (
    Expr,
    arcsin,
    isnan,
    log,
    log1p,
    polynomial,
    sin,
    sqrt,
    stop,
    trunc,
    where,
)

LOG2 = math.log(2.0)
_PI_2_REST = 6.123233995736766e-17  # pi / 2 minus its float64 value


def arccos(x: Expr) -> Expr:
    """pi / 2 - arcsin(x); for x > 0.5 twice the arcsine of half the chord."""
    near = x > 0.5
    chord = sqrt(where(near, (1 - x) * 0.5, 0.25))
    angle = arcsin(where(near, chord, x))
    half_pi = float(x.dtype.np.type(math.pi / 2))
    rest = math.pi / 2 - half_pi if x.dtype.bits < 64 else _PI_2_REST
    return where(near, 2 * angle, half_pi - (angle - rest))


def _by_size(x: Expr) -> tuple[Expr, Expr]:
    """(whether x < 0, |x|), by a WHERE whose derivative at 0 is that of x."""
    below = x < 0
    return below, where(below, -x, x)


def arcsinh(x: Expr) -> Expr:
    below, a = _by_size(x)
    large = a > 1e4 if x.dtype.bits < 64 else a > 1e9
    inside = where(large, 1, a)
    square = inside * inside
    small = log1p(inside + square / (1 + sqrt(1 + square)))
    far = log(where(large, a, 1)) + LOG2
    size = where(large, far, small)
    return where(x.eq(0), x, where(below, -size, size))


def arccosh(x: Expr) -> Expr:
    large = x > (1e4 if x.dtype.bits < 64 else 1e9)
    t = where(large | (x < 1), 1, x - 1)
    found = where(large, log(where(large, x, 1)) + LOG2, log1p(t + sqrt(t * (t + 2))))
    return where(x < 1, math.nan, found)


def arctanh(x: Expr) -> Expr:
    """Half of log1p(2a / (1 - a)), with the sign of x."""
    below, a = _by_size(x)
    size = 0.5 * log1p(2 * a / (1 - a))
    return where(x.eq(0), x, where(below, -size, size))


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
    bits = stop(x).bits()
    outward = (x > 0).eq(y > x)
    step = where(outward, bits + 1, bits - 1)
    least = where(y > 0, bits.like(1), bits.like(1) + bits.like(-(1 << t.bits - 1)))
    moved = where(x.eq(0), least, step).bitcast(t)
    moved = where(moved.eq(0) | isinf(x), moved, moved + (x - stop(x)))
    return where(x.eq(y), y, where(isnan(x) | isnan(y), math.nan, moved))


def spacing(x: Expr) -> Expr:
    """The distance to the next float away from zero; float16 uses the next above, as in NumPy."""
    if x.dtype is dtypes.float16:
        return nextafter(stop(x), x.like(math.inf)) - stop(x)
    _, a = _by_size(stop(x))
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
    return set_bits(where(x < 0, -x, x) if x.dtype.kind == "int" else x)


def _word(x: Expr) -> Expr:
    """The bits of an integer, zero-extended to at least 32 unsigned bits."""
    t = x.dtype
    if t.bits > 32:
        return x.bitcast(dtypes.named("uint64"))
    word = x.cast(dtypes.uint32)
    return word & (1 << t.bits) - 1 if t.bits < 32 else word


def set_bits(x: Expr) -> Expr:
    """The number of bits set, by a parallel sum of pairs, then fours, and so on."""
    word = _word(x)
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
    word, shift = _word(x), 1
    while shift < x.dtype.bits:
        word = word | word >> shift
        shift *= 2
    return x.dtype.bits - set_bits(word)


def power_of_two(k: Expr, like: Expr) -> Expr:
    """2**k for an integer k in the range of normal numbers, built from its bits."""
    t = like.dtype
    whole = k.cast(t.integer)
    return (whole + t.bias << t.mantissa).bitcast(t)


def ldexp(x: Expr, k: Expr) -> Expr:
    """x * 2**k in three steps, so that each factor is a normal number; rounds once."""
    t = x.dtype
    up, down = t.bias, t.bias - 1 - t.mantissa
    for _ in range(2):
        much, little = k > up, k < -down
        x = where(much, x * 2.0 ** up, where(little, x * 2.0 ** -down, x))
        k = where(much, k - up, where(little, k + down, k))
    k = where(k > up, up, where(k < -down, -down, k))
    return x * power_of_two(k, x)


def exponent(x: Expr) -> Expr:
    """The k of x = m * 2**k with 0.5 <= |m| < 1; 0 for zero, infinities and NaN."""
    t = x.dtype
    tiny = abs(x) < 2.0 ** (1 - t.bias)
    scaled = where(tiny, x * 2.0 ** t.mantissa, x)
    stored = scaled.bits() >> t.mantissa & (1 << t.exponent) - 1
    k = stored.cast(dtypes.int32) - (t.bias - 1) - where(tiny, t.mantissa, 0 * stored).cast(
        dtypes.int32)
    plain = x.eq(0) | isnan(x) | isinf(x)
    return where(plain, 0, k)


def mantissa(x: Expr) -> Expr:
    """The m of x = m * 2**k with 0.5 <= |m| < 1."""
    return ldexp(x, -exponent(stop(x)))


def fraction(x: Expr) -> Expr:
    """x - trunc(x), with the sign of x; 0 for infinities."""
    below = signbit(x)
    left = where(below, -(trunc(x) - x), x - trunc(x))  # 0 has the sign of x; the derivative is 1
    return where(isinf(x), where(below, x.like(-0.0), x.like(0.0)), left)


def is_negative_infinity(x: Expr) -> Expr:
    return x.eq(-math.inf)


def is_positive_infinity(x: Expr) -> Expr:
    return x.eq(math.inf)


# fmt: off
ARCSIN = ElementwiseRow("arcsin", "inexact", ops.ASIN)
ARCCOS = ElementwiseRow("arccos", "inexact", arccos)
ARCSINH = ElementwiseRow("arcsinh", "inexact", arcsinh)
ARCCOSH = ElementwiseRow("arccosh", "inexact", arccosh)
ARCTANH = ElementwiseRow("arctanh", "inexact", arctanh)
SIGNBIT = ElementwiseRow("signbit", "any", signbit)
COPYSIGN = ElementwiseRow("copysign", "inexact", copysign)
NEXTAFTER = ElementwiseRow("nextafter", "inexact", nextafter, of_format=True)
SPACING = ElementwiseRow("spacing", "inexact", spacing, of_format=True)
SINC = ElementwiseRow("sinc", "inexact", sinc)
FMAX = ElementwiseRow("fmax", "any", fmax)
FMIN = ElementwiseRow("fmin", "any", fmin)
HEAVISIDE = ElementwiseRow("heaviside", "inexact", heaviside)
BITWISE_COUNT = ElementwiseRow("bitwise_count", "bits", bit_count)
DEG2RAD = ElementwiseRow("deg2rad", "inexact", lambda x: x * (math.pi / 180))
RAD2DEG = ElementwiseRow("rad2deg", "inexact", lambda x: x * (180 / math.pi))
ISNEGINF = ElementwiseRow("isneginf", "inexact", lambda x: x.eq(-math.inf))
ISPOSINF = ElementwiseRow("isposinf", "inexact", lambda x: x.eq(math.inf))
MODF = ElementwiseRow("modf", "inexact", fraction)
# fmt: on
