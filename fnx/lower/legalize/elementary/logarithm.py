"""log and log1p.

    log(x) = e * log 2 + log(1 + f),   x = 2**e * (1 + f),   sqrt(1/2) <= 1 + f < sqrt(2)

e and f are extracted from the bit pattern. float32 computes log(1 + f) by a polynomial in f, which
needs no division; float64 by atanh(f / (2 + f)), whose polynomial is half as long. As in fdlibm, f
is added last, which keeps the error below one ulp.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.formulas.double_double import two_sum
from fnx.core.ir import dtypes, ops
from fnx.core.ir.expr import Expr, mulacc, polynomial, where
from fnx.core.ir.ops import Op
from fnx.lower.legalize.elementary.floats import INF, LN2_32, LN2_64, NAN, power_of_two, tiny

# (log(1 + f) - f + f**2 / 2) / f**3 on sqrt(1/2) - 1 <= f <= sqrt(2) - 1: 2**-27.07
LOG_32 = (
    0.33333316445350647,
    -0.25000783801078796,
    0.20002277195453644,
    -0.16625355184078217,
    0.14181648194789886,
    -0.13122092187404633,
    0.1287686824798584,
    -0.078708216547966,
)
# (atanh(s) - s) / s**3 over z = s**2, |s| <= (sqrt(2) - 1) / (sqrt(2) + 1): 2**-58.78
ATANH_64 = (
    0.33333333333333676,
    0.19999999999706675,
    0.1428571437136223,
    0.11111099267462535,
    0.09091783244940514,
    0.07656995508368973,
    0.07398292386626142,
)

_SQRT_HALF = {dtypes.float32: 0x3F3504F3, dtypes.float64: 0x3FE6A09E667F3BCD}


def mantissa_and_exponent(x: Expr) -> tuple[Expr, Expr]:
    """Return (m, e) with x = m * 2**e, sqrt(1/2) <= m < sqrt(2), e integer, for normal x > 0."""
    form, base = x.dtype, _SQRT_HALF[x.dtype]
    above = x.bits() - base
    m = ((above & (1 << form.mantissa) - 1) + base).bitcast(x.dtype)
    return m, above >> form.mantissa


def scaled_to_normal(x: Expr) -> tuple[Expr, Expr]:
    """Scale subnormal x by 2**(mantissa + 1); return it and the exponent correction."""
    shift = x.dtype.mantissa + 1
    subnormal = x < 2.0 ** (1 - x.dtype.bias)
    return where(subnormal, x * 2.0 ** shift, x), where(subnormal, x.like(-shift), 0.0)


def _log_32(f: Expr, e: Expr) -> Expr:
    """e * log 2 + log(1 + f)"""
    high, low = LN2_32
    z = f * f
    tail = mulacc(z * f, polynomial(LOG_32, f), e * low) - 0.5 * z
    return mulacc(e, high, f + tail)


def _log_64(f: Expr, e: Expr) -> Expr:
    high, low = LN2_64
    s = f / (2.0 + f)
    z = s * s
    half_square = 0.5 * f * f
    # log(1 + f) = f - half_square + s (half_square + R),  R = 2 (atanh(s) - s) / s
    r = 2.0 * z * polynomial(ATANH_64, z)
    tail = half_square - mulacc(s, half_square + r, e * low)
    return mulacc(e, high, f - tail)


_LOG = {dtypes.float32: _log_32, dtypes.float64: _log_64}


def _fix_special_cases(x: Expr, y: Expr) -> Expr:
    """Correct the result y of log(x) for x not in (0, inf)."""
    y = where(x < INF, y, x)
    y = where(x < 0.0, NAN, y)
    return where(x.eq(0.0), -INF, y)


def log(x: Expr) -> Expr:
    """Natural logarithm."""
    normal, extra = scaled_to_normal(x)
    m, e = mantissa_and_exponent(normal)
    exponent = e.cast(x.dtype) + extra
    return _fix_special_cases(x, _LOG[x.dtype](m - 1.0, exponent))


def log1p(x: Expr) -> Expr:
    """log(1 + x), precise near 0: the rounding error of 1 + x is scaled and added to f."""
    form = x.dtype
    u, error = two_sum(x.like(1.0), x)
    m, e = mantissa_and_exponent(u)
    scaled = error * power_of_two(form.bias - e, form)  # by 2**-e
    f = (m - 1.0) + where(x < 2.0 ** (form.mantissa + 2), scaled, 0.0)
    y = _fix_special_cases(u, _LOG[x.dtype](f, e.cast(x.dtype)))
    return where(abs(x) < tiny(form), x, y)


# with the largest errors seen in ulp: float32, float64
FORMULAS: dict[Op, Callable[..., Expr]] = {
    ops.LOG: log,      # 0.82  0.75
    ops.LOG1P: log1p,  # 1.39  1.26
}
