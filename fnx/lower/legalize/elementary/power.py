"""pow and cbrt. x**y = sign * 2**(y * log2 |x|), with C99's special cases (annex F).

The logarithm needs as many extra bits as the exponent of the result has. A float32 power is
computed in float64 throughout; a float64 power has the logarithm as an unevaluated sum of two
float64 with about 66 bits.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.formulas.double_double import (
    DoubleDouble,
    add_doubles,
    double_const,
    fast_two_sum,
    multiply,
    two_product,
)
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr, mulacc, polynomial, rint, trunc, where
from fnx.core.ir.ops import Op
from fnx.lower.legalize.elementary.exponential import exp2
from fnx.lower.legalize.elementary.floats import (
    INF,
    LOG2_E,
    NAN,
    as_integer,
    clamp,
    power_of_two,
    with_sign,
)
from fnx.lower.legalize.elementary.logarithm import mantissa_and_exponent, scaled_to_normal

# as ATANH_64 of logarithm.py; evaluated in float64 for a float32 power: 2**-37.60
POW_LOG_32 = (
    0.33333332821921363,
    0.20000167801520405,
    0.14268639942530625,
    0.11791368239969945,
)
# (2**f - 1) / f on |f| <= 1/2; evaluated in float64 for a float32 power: 2**-34.30
POW_EXP2_32 = (
    0.6931471805416227,
    0.24022651076302864,
    0.05550410962688039,
    0.009618036837707932,
    0.0013333430684002846,
    0.00015467135642825564,
    1.531497221502483e-05,
)
# (atanh(s) - s - s**3 / 3) / s**5 over z = s**2: 2**-66.63
POW_LOG_64 = (
    0.2,
    0.14285714285714188,
    0.1111111111114539,
    0.09090909084610473,
    0.07692308378062737,
    0.0666662013855082,
    0.05884339457832449,
    0.052114070428212846,
    0.055069885310180776,
)
# as POW_EXP2_32: 2**-56.06
POW_EXP2_64 = (
    0.6931471805599453,
    0.24022650695910072,
    0.0555041086648217,
    0.009618129107628496,
    0.0013333558146390418,
    0.0001540353039334113,
    1.5252733856255951e-05,
    1.3215486833044906e-06,
    1.0178051201109467e-07,
    7.05488825210826e-09,
    4.4566749667559364e-10,
    2.5741809979824022e-11,
)
# 1 / log(2) and 1/3 as unevaluated sums
LOG2_E_PARTS = (1.4426950408889634, 2.0355273740931033e-17)
THIRD_PARTS = (0.3333333333333333, 1.850371707708594e-17)

# 2 to the power of these is 0 or infinite (for float32: after rounding to it); and so is x**y,
# unless x = 1, for all |y| larger than the last.
_LIMIT_32, _LIMIT = 200.0, 1100.0
_LARGEST_Y = 2.0 ** 66


def _power_32(x: Expr, y: Expr) -> Expr:
    """x**y for float32 x >= 0."""
    m, e = mantissa_and_exponent(x.cast(dtypes.float64))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    log_m = s + s * z * polynomial(POW_LOG_32, z)
    log2_x = mulacc(log_m, 2.0 * LOG2_E, e.cast(dtypes.float64))
    log2_x = where(x.eq(0.0), -INF, where(x < INF, log2_x, x.cast(dtypes.float64)))
    exponent = clamp(y.cast(dtypes.float64) * log2_x, -_LIMIT_32, _LIMIT_32)
    n = rint(exponent)
    f = exponent - n
    power = mulacc(f, polynomial(POW_EXP2_32, f), 1.0)
    return (power * _power_of_two(n)).cast(dtypes.float32)


def _power_of_two(n: Expr) -> Expr:
    return power_of_two(as_integer(n) + n.dtype.bias, n.dtype)


def _log2_64(x: Expr) -> DoubleDouble:
    """Return log2 x of a float64 x > 0 as an unevaluated sum."""
    normal, extra = scaled_to_normal(x)
    m, e = mantissa_and_exponent(normal)
    f = m - 1.0
    d, d_low = fast_two_sum(m.like(1.0), m)
    q = f / d
    p, p_low = two_product(q, d)
    s = fast_two_sum(q, ((f - p) - p_low - q * d_low) / d)
    z = multiply(s, s)
    # atanh(s) = s + s z (1/3 + z P(z))
    tail = z[0] * polynomial(POW_LOG_64, z[0])
    third, third_low = double_const(x, THIRD_PARTS)
    series, error = fast_two_sum(third, tail)
    log_m = add_doubles(s, multiply(multiply(s, z), (series, error + third_low)))
    scaled = multiply(log_m, double_const(x, (2 * LOG2_E_PARTS[0], 2 * LOG2_E_PARTS[1])))
    exponent = e.cast(dtypes.float64) + extra
    high, low = fast_two_sum(exponent, scaled[0])
    return where(exponent.eq(0.0), scaled[0], high), \
        where(exponent.eq(0.0), scaled[1], low + scaled[1])


def _power_64(x: Expr, y: Expr) -> Expr:
    """x**y for float64 x >= 0."""
    log2_x = _log2_64(x)
    bounded = clamp(y, -_LARGEST_Y, _LARGEST_Y)
    high, low = multiply((bounded, bounded.like(0.0)), log2_x)
    inside = (0.0 < x) & (x < INF)
    special = bounded * where(x.eq(0.0), -INF, x)
    exponent = clamp(where(inside, high, special), -_LIMIT, _LIMIT)
    n = rint(exponent)
    f = (exponent - n) + where(exponent.eq(high), low, 0.0)
    power = mulacc(f, polynomial(POW_EXP2_64, f), 1.0)
    # two factors, since 2**n alone may be subnormal or infinite
    first = rint(n * 0.5)
    return power * _power_of_two(first) * _power_of_two(n - first)


_POWER = {dtypes.float32: _power_32, dtypes.float64: _power_64}


def power(x: Expr, y: Expr) -> Expr:
    """x**y"""
    if x.node.op is ops.CONST and build.const_of(x.node) == 2 and x.dtype is dtypes.float32:
        return exp2(y)
    size = abs(x)
    z = _POWER[x.dtype](size, y)
    half_y = 0.5 * y
    is_integer = trunc(y).eq(y)
    is_odd = is_integer & trunc(half_y).ne(half_y)
    negative = x.bits() < 0
    z = where(negative & is_odd, -z, z)
    z = where((x < 0.0) & ~is_integer & size.ne(INF), NAN, z)
    is_one = y.eq(0.0) | x.eq(1.0) | (size.eq(1.0) & abs(y).eq(INF))
    return where(is_one, 1.0, z)


# ---- cube root --------------------------------------------------------------------------------

_THIRD = 0x5555_5556  # n * _THIRD >> 32 is n / 3 for n < 2**31
_OFFSET = 0x2A9F_7893  # two thirds of float64's bias, adjusted to balance the error: 2**-4.9
_SCALE_IN, _SCALE_OUT = 2.0 ** 300, 2.0 ** 100


def _cube_root(x: Expr) -> Expr:
    """Return the cube root to 2**-40 of a float64 0 < x < inf whose powers do not overflow.

    Dividing the bits by 3 divides the exponent; each step (Halley) then triples the correct digits.
    """
    y = (((x.bits() >> 32) * _THIRD >> 32) + _OFFSET << 32).bitcast(dtypes.float64)
    for _ in range(2):
        cube = y * y * y
        y = y - y * ((cube - x) / (cube + cube + x))
    return y


def _cbrt_64(x: Expr) -> Expr:
    small, large = x < 2.0 ** -900, x > 2.0 ** 900
    x = x * where(small, x.like(_SCALE_IN), where(large, x.like(1 / _SCALE_IN), 1.0))
    y = _cube_root(x)
    square, error = two_product(y, y)
    cube, error_cube = two_product(square, y)
    y = y - ((cube - x) + (error_cube + error * y)) / (3.0 * square)
    return y * where(small, x.like(1 / _SCALE_OUT), where(large, x.like(_SCALE_OUT), 1.0))


def cbrt(x: Expr) -> Expr:
    """CBRT; odd, and exact at 0 and infinity."""
    regular = (abs(x) > 0.0) & (abs(x) < INF)
    a = where(regular, abs(x), 1.0)  # of 0, the root would underflow: a hundred cycles
    root = _cbrt_64(a) if x.dtype is dtypes.float64 else \
        _cube_root(a.cast(dtypes.float64)).cast(x.dtype)
    return where(regular, with_sign(root, x), x)


# with the largest errors seen in ulp: float32, float64
FORMULAS: dict[Op, Callable[..., Expr]] = {
    ops.POW: power,  # 0.51  1.19
    ops.CBRT: cbrt,  # 0.50  0.50
}
