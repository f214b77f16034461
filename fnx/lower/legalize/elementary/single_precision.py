"""Elementary functions and division in 32-bit arithmetic, for targets without 64-bit types.

    before   IDIV(a, b)                  computed in float64 by integer.py
    after    WHERE(b == 0, -1, a // b')  in int32

These are less accurate than the formulas in float64. None relies on fused multiply-add or on
subnormal numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.formulas.double_double import DoubleDouble, fast_two_sum, two_product
from fnx.core.ir import dtypes, ops
from fnx.core.ir.expr import Expr, minimum, polynomial, rint, trunc, where
from fnx.core.ir.ops import Op
from fnx.lower.legalize.elementary import exponential, integer
from fnx.lower.legalize.elementary.floats import INF, LOG2_E, NAN, clamp, with_sign
from fnx.lower.legalize.elementary.trigonometric import (
    COS_32,
    INVERSE_TWO_PI,
    INVERSE_TWO_PI_BITS,
    SIN_32,
    TAN_32,
)

# ---- division of integers ---------------------------------------------------------------------


def divide(a: Expr, b: Expr) -> Expr:
    """IDIV"""
    return integer.divide(a, b, integer.native_quotient)


def remainder(a: Expr, b: Expr) -> Expr:
    """REM, with the sign of the dividend."""
    return _fmod(a, b) if a.dtype.is_float else integer.remainder(a, b, integer.native_quotient)


def _bits(x: Expr) -> Expr:
    return x.bits().bitcast(dtypes.uint32)


def _fraction_and_field(x: Expr) -> tuple[Expr, Expr]:
    """Return (i, p) with x = i * 2**(p - 150), i an integer below 2**24, x >= 0."""
    field, fraction = _bits(x) >> 23, _bits(x) & 0x7FFFFF
    subnormal = field.eq(0)
    return where(subnormal, fraction, fraction | 0x800000), where(subnormal, 1, field)


_BITS_PER_STEP = 8                  # bits per step: a residue of 24 bits and these fit in 32
_STEPS = -(-253 // _BITS_PER_STEP)  # for the largest difference of two exponents


def _fmod(a: Expr, b: Expr) -> Expr:
    """Long division, several bits at a time; exact unless the result is subnormal."""
    x, y = abs(a), abs(b)
    (i, p), (m, q) = _fraction_and_field(x), _fraction_and_field(y)
    divisor = where(m.eq(0), 1, m)
    remaining, r = where(p < q, 0, p - q), i % divisor
    for _ in range(_STEPS):
        count = minimum(remaining, _BITS_PER_STEP)
        r, remaining = (r << count) % divisor, remaining - count
    half = q >> 1
    scaled = r.cast(a.dtype) * _pow2(half, 75) * _pow2(q - half, 75)
    r = where(x < y, x, scaled)
    defined = (x < INF) & (0.0 < y) & y.eq(y)
    return where(defined, with_sign(r, a), NAN)


def _pow2(n: Expr, bias: int) -> Expr:
    """Return 2**(n - less) for a small integer n."""
    return ((n + (127 - bias)) << 23).bitcast(dtypes.float32)


# ---- angles: the Payne-Hanek reduction in 32-bit words ------------------------------------------

_MIN_FIELD = 126            # exponent field of 1/2: smaller angles are not reduced
_LEADING_ZEROS = 24           # leading zeros before the bits of 1 / (2 pi), one per mantissa bit
_MAX_SKIPPED = 5            # one more than the words that the largest number skips
_TWO_PI = 6.2831854820251465


def _inv_two_pi_word(i: int) -> int:
    """Return word ``i`` of 1 / (2 pi) with its leading zeros."""
    return INVERSE_TWO_PI >> INVERSE_TWO_PI_BITS + _LEADING_ZEROS - 32 * (i + 1) & 0xFFFFFFFF


def _mul_high(m: Expr, w: Expr) -> Expr:
    """Return the upper 32 bits of the product m * w, for m < 2**24."""
    low, high = m & 0xFFFF, m >> 16
    middle = (low * (w & 0xFFFF) >> 16) + (low * (w >> 16) & 0xFFFF) + high * (w & 0xFFFF)
    return high * (w >> 16) + (low * (w >> 16) >> 16) + (middle >> 16)


def _payne_hanek(x: Expr) -> tuple[Expr, Expr]:
    """Return (quadrant, angle within it in radians) of x >= 1/2."""
    field = _bits(x) >> 23
    m = _bits(x) & 0x7FFFFF | 0x800000
    exponent = where(field < _MIN_FIELD, 0, field - _MIN_FIELD)
    skip, shift = exponent >> 5, exponent & 31
    words = [m.like(_inv_two_pi_word(i)) for i in range(4)]
    for k in range(1, _MAX_SKIPPED):
        words = [where(skip.eq(k), _inv_two_pi_word(i + k), w) for i, w in enumerate(words)]
    w0, w1, w2 = ((a << shift) | (b >> 32 - shift) for a, b in zip(words, words[1:]))
    middle = m * w1 + _mul_high(m, w2)
    carry = where(middle < m * w1, m.like(1), 0)
    high = m * w0 + _mul_high(m, w1) + carry
    quadrant = high + 0x20000000 >> 30
    high = high - (quadrant << 30)
    is_negative = high >= 0x80000000
    high = where(is_negative, ~high + where(middle.eq(0), m.like(1), 0), high)
    middle = where(is_negative, ~middle + 1, middle)
    angle = (high.cast(x.dtype) * 2.0 ** -32 + middle.cast(x.dtype) * 2.0 ** -64) * _TWO_PI
    return quadrant, where(is_negative, -angle, angle)


def _sin_shifted(x: Expr, quadrants: int) -> Expr:
    """Return sin(|x| + ahead * pi / 2)."""
    a = abs(x)
    is_small = a < 0.5
    quadrant, angle = _payne_hanek(a)
    quadrant = where(is_small, 0, quadrant) + quadrants
    r = where(is_small, a, angle)
    z = r * r
    sine = r + z * r * polynomial(SIN_32, z)
    cosine = 1.0 - 0.5 * z + z * z * polynomial(COS_32, z)
    y = where((quadrant & 1).ne(0), cosine, sine)
    y = where((quadrant & 2).ne(0), -y, y)
    return where(a < INF, y, NAN)


def sin(x: Expr) -> Expr:
    """SIN"""
    y = _sin_shifted(x, 0)
    return where(abs(x) < 2.0 ** -14, x, where(x < 0.0, -y, y))


def cos(x: Expr) -> Expr:
    """COS"""
    return _sin_shifted(x, 1)


def tan(x: Expr) -> Expr:
    """TAN"""
    a = abs(x)
    is_small = a < 0.5
    quadrant, angle = _payne_hanek(a)
    r = where(is_small, a, angle)
    z = r * r
    t = r + z * r * polynomial(TAN_32, z)
    y = where(~is_small & (quadrant & 1).ne(0), -1.0 / t, t)
    y = where(a < INF, y, NAN)
    return where(a < 2.0 ** -14, x, where(x < 0.0, -y, y))


# ---- powers -------------------------------------------------------------------------------------


_ATANH = (1 / 3, 1 / 5, 1 / 7, 1 / 9)  # (atanh(s) - s) / s**3 over s**2, |s| <= 0.172
_LOG2_E_PARTS = (1.44269502162933349609375, 1.925963033500011079e-08)


def _log2(x: Expr) -> DoubleDouble:
    """Return log2 of a number > 0, as an unevaluated sum."""
    bits = _bits(x) - 0x3F3504F3  # the square root of 1/2
    e = (bits.bitcast(dtypes.int32) >> 23).cast(x.dtype)
    m = ((bits & 0x7FFFFF) + 0x3F3504F3).bitcast(x.dtype)
    top, bottom = m - 1.0, m + 1.0
    bottom_low = m - (bottom - 1.0)
    s = top / bottom
    p, p_low = two_product(s, bottom)
    s_low = ((top - p) - p_low - s * bottom_low) / bottom
    z = s * s
    half, rest = fast_two_sum(s, s_low + z * s * polynomial(_ATANH, z))
    p, p_low = two_product(half, half.like(2 * _LOG2_E_PARTS[0]))
    rest = p_low + (2 * LOG2_E) * rest + 2 * _LOG2_E_PARTS[1] * half
    high, low = fast_two_sum(e, p)
    return where(e.eq(0.0), p, high), where(e.eq(0.0), rest, low + rest)


def _power(x: Expr, y: Expr) -> Expr:
    """x**y for x >= 0."""
    high, low = _log2(where((x > 0.0) & (x < INF), x, 1.0))
    y = clamp(y, -2.0 ** 40, 2.0 ** 40)
    exponent, rest = two_product(y, high)
    rest = rest + y * low
    ends = x.eq(0.0) | ~(x < INF)
    way = where(x.eq(0.0), -y, y)
    exponent = where(ends, where(way.eq(0.0), 0.0, where(way > 0.0, exponent.like(300.0), -300.0)),
                     clamp(exponent, -300.0, 300.0))
    rest = where(ends | (abs(exponent) > 200.0), 0.0, rest)
    n = rint(exponent)
    frac = exponential.FORMULAS[ops.EXP](((exponent - n) + rest) * 0.6931471824645996)
    whole = n.cast(dtypes.int32)
    quarter = whole >> 2  # 2**whole itself may overflow or underflow
    return frac * _pow2(quarter, 0) * _pow2(quarter, 0) * _pow2(quarter, 0) * _pow2(
        whole - 3 * quarter, 0)


def power(x: Expr, y: Expr) -> Expr:
    """POW"""
    size = abs(x)
    z = _power(size, y)
    is_integer = trunc(y).eq(y)
    is_odd = is_integer & trunc(0.5 * y).ne(0.5 * y)
    z = where((x.bits() < 0) & is_odd, -z, z)
    z = where((x < 0.0) & ~is_integer & size.ne(INF), NAN, z)
    z = where(x.eq(x) & y.eq(y), z, NAN)
    return where(y.eq(0.0) | x.eq(1.0) | (size.eq(1.0) & abs(y).eq(INF)), 1.0, z)


def cbrt(x: Expr) -> Expr:
    """CBRT"""
    a = abs(x)
    y = (_bits(a) // 3 + 0x2A514067).bitcast(x.dtype)
    for _ in range(3):
        cube = y * y * y
        y = y - y * ((cube - a) / (cube + cube + a))
    return where((a > 0.0) & (a < INF), with_sign(y, x), x)


# op -> the function that computes it
FORMULAS: dict[Op, Callable[..., Expr]] = {
    ops.IDIV: divide, ops.REM: remainder,
    ops.SIN: sin, ops.COS: cos, ops.TAN: tan, ops.POW: power, ops.CBRT: cbrt,
}
