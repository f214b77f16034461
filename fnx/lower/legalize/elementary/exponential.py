"""exp, exp2, expm1 and tanh by one range reduction.

    exp(x) = 2**n * exp(r),   n = round(x / log 2),   r = x - n * log 2

n is in the low bits of x / log 2 + 1.5 * 2**mantissa, so as float and integer it costs one addition
each, and 2**n is a shift, added to the exponent of exp(r) as an integer. A result that is subnormal
rounds where exp(r) is added to a power of two.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import dtypes, ops
from fnx.core.ir.expr import Expr, maximum, mulacc, polynomial, where
from fnx.core.ir.ops import Op
from fnx.lower.legalize.elementary.floats import (
    INF,
    LN2_32,
    LN2_64,
    LOG2_E,
    clamp,
    rounder,
    tiny,
    with_sign,
)

# (exp(r) - 1 - r) / r**2 on |r| <= log(2) / 2, weighted for exp: 2**-27.66
EXP_32 = (
    0.5,
    0.166665181517601,
    0.04166620597243309,
    0.008368941955268383,
    0.0013950513675808907,
)
# the same, weighted for expm1: 2**-28.67
EXPM1_32 = (
    0.5,
    0.1666666716337204,
    0.04166635125875473,
    0.00833327230066061,
    0.001394120161421597,
    0.0001991449244087562,
)
# (exp(r) - 1 - r) / r**2 on |r| <= log(2) / 2: 2**-61.23
EXPM1_64 = (
    0.5,
    0.16666666666666677,
    0.0416666666666667,
    0.008333333333321372,
    0.0013888888888866381,
    0.00019841269886856602,
    2.4801587361468455e-05,
    2.7557243405848516e-06,
    2.755724197257199e-07,
    2.5109338639828408e-08,
    2.0924688321182097e-09,
)
# (2**f - 1) / f on |f| <= 1/2: 2**-28.97
EXP2_32 = (
    0.6931471824645996,
    0.24022650718688965,
    0.05550410971045494,
    0.00961803738027811,
    0.0013333430979400873,
    0.00015467074990738183,
    1.531491579953581e-05,
)
# (tanh(x) - x) / x**3 over z = x**2, |x| <= 0.55: 2**-28.87
TANH_32 = (
    -0.33333319425582886,
    0.13332626223564148,
    -0.05385599657893181,
    0.021085528656840324,
    -0.006292411126196384,
)
# as TANH_32: 2**-57.75
TANH_64 = (
    -0.333333333333333,
    0.13333333333326833,
    -0.05396825396387896,
    0.021869488389110837,
    -0.008863232652889153,
    0.0035920925333969827,
    -0.001455545988828757,
    0.0005884570661774281,
    -0.0002334127671005783,
    8.336011899042011e-05,
    -1.9521055503573344e-05,
)

_LN2 = {dtypes.float32: LN2_32, dtypes.float64: LN2_64}
_EXP = {dtypes.float32: EXP_32, dtypes.float64: EXPM1_64}
_TANH = {dtypes.float32: TANH_32, dtypes.float64: TANH_64}
_EXPM1 = {dtypes.float32: EXPM1_32, dtypes.float64: EXPM1_64}
# Below the first, exp(x) rounds to 0; from the second on, it overflows.
_EXP_RANGE = {dtypes.float32: (-104.5, 88.72283935546875),
              dtypes.float64: (-746.0, 709.7827128933841)}
_EXP2_RANGE = (-151.0, 128.0)  # the same for 2**x
# Below the first, expm1(x) rounds to -1.
_EXPM1_RANGE = {dtypes.float32: (-18.0, 89.0), dtypes.float64: (-38.0, 710.0)}
# From here on tanh(x) rounds to 1.
_TANH_LIMIT = {dtypes.float32: 9.5, dtypes.float64: 19.5}


def _reduce(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Return (n, bits with n in the low bits, x - n * the high part of log 2)."""
    big = rounder(x.dtype)
    shifted = mulacc(x, LOG2_E, big)
    n = shifted - big
    return n, shifted.bits(), mulacc(n, -_LN2[x.dtype][0], x)


def _power_of_two(n: Expr, offset: Expr | int, like: Expr) -> Expr:
    """Return 2**n from the low bits of n; ``offset`` is the bias, shifted to the exponent field."""
    return ((n << like.dtype.mantissa) + offset).bitcast(like.dtype)


def _exp_with_exponent(x: Expr) -> tuple[Expr, Expr]:
    """Return (bits with n in the low bits, exp(r))."""
    n, bits, high = _reduce(x)
    r = mulacc(n, -_LN2[x.dtype][1], high)
    return bits, mulacc(r, mulacc(r, polynomial(_EXP[x.dtype], r), 1.0), 1.0)


def exp(x: Expr) -> Expr:
    """e**x"""
    low, top = _EXP_RANGE[x.dtype]
    n, p = _exp_with_exponent(where(x < low, low, x))
    return where(x < top, _scale_by_power(p, n), x + INF)


def exp2(x: Expr) -> Expr:
    """2**x of float32; exact for integers."""
    low, top = _EXP2_RANGE
    a = where(x < low, low, x)
    shifted = a + rounder(a.dtype)
    f = a - (shifted - rounder(a.dtype))
    p = mulacc(f, polynomial(EXP2_32, f), 1.0)
    return where(x < top, _scale_by_power(p, shifted.bits()), x + INF)


def _scale_by_power(p: Expr, n: Expr) -> Expr:
    """Return p * 2**n, which may be subnormal but does not overflow, for p**2 in 1/2 .. 2.

    A product that is subnormal takes a processor more than a hundred cycles. So n is added to the
    exponent of p as an integer. What is subnormal then is rounded by adding p to a power of two
    whose last bit is the smallest subnormal number, divided by 2**n: the difference of both as
    integers is the result. Of both results the right one is the greater, since for greater n the
    power of two is less than p, or is no power but a negative number.
    """
    exponent = n << p.dtype.mantissa
    power = (1 << p.dtype.mantissa) - exponent
    rounded = (p + power.bitcast(p.dtype)).bits() - power
    return maximum(p.bits() + exponent, rounded).bitcast(p.dtype)


def expm1(x: Expr) -> Expr:
    """e**x - 1, precise near 0.

    The low part of r is added last; otherwise the rounding error would double near
    x = log(2) / 2. Half of 2**n is used, since 2**n may overflow where the result does not.
    """
    form = x.dtype
    n, bits, high = _reduce(clamp(x, *_EXPM1_RANGE[x.dtype]))
    low = n * -_LN2[x.dtype][1]
    r = high + low
    q = high + mulacc(r * r, polynomial(_EXPM1[x.dtype], r), low)
    half = _power_of_two(bits, form.bias - 1 << form.mantissa, x)
    y = 2.0 * mulacc(half, q, half - 0.5)
    return where(abs(x) < tiny(form), x, y)


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent: 1 - 2 / (exp(2 |x|) + 1) with the sign of x; a polynomial near 0."""
    size, limit = abs(x), _TANH_LIMIT[x.dtype]
    bounded = where(size > limit, limit, size)
    n, p = _exp_with_exponent(bounded + bounded)
    e = p * _power_of_two(n, x.dtype.bias << x.dtype.mantissa, x)
    z = x * x
    near = mulacc(size * z, polynomial(_TANH[x.dtype], z), size)
    return with_sign(where(size < 0.55, near, 1.0 - 2.0 / (e + 1.0)), x)


# with the largest errors seen in ulp: float32, float64
FORMULAS: dict[Op, Callable[..., Expr]] = {
    ops.EXP: exp,      # 1.16  1.02
    ops.EXPM1: expm1,  # 1.41  1.39
    ops.TANH: tanh,    # 1.57  1.31
}
