"""The remainder of floats: exact fmod for all exponents, without a loop.

If the quotient is small, one division gives the remainder. Otherwise, with |a| = i 2**p,
|b| = m 2**q and integers i, m, the remainder is 2**q (i 2**(p - q) mod m). 2**(p - q) mod m is
computed by repeated squaring: the top bits of the exponent by one power of two, one of the other
bits by each squaring. Residues are in -m/2 .. m/2; a product minus its multiple of m is exact (in
float64: as an unevaluated sum of two).
"""

from __future__ import annotations

from fnx.core.formulas.double_double import two_product
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, rint, trunc, unlikely, where
from fnx.lower.legalize.elementary.floats import INF, NAN, power_of_two, with_sign

# p - q < 2**(5 + squarings): the largest differences are 276 and 2045.
_SQUARINGS = {dtypes.float32: 4, dtypes.float64: 6}
_FORM = dtypes.float64


def _center(r: Expr, m: Expr) -> Expr:
    """Return r mod m in -m/2 .. m/2, for |r| <= 3/2 m."""
    return r - where(abs(r + r) > m, with_sign(m, r), 0.0)


def _residue(i: Expr, m: Expr) -> Expr:
    """Return i mod m of integers 0 <= i < 2**53.

    trunc, not rint: rounding i / m up could take the product past 2**53.
    """
    return _center(i - trunc(i / m) * m, m)


def _product_32(a: Expr, b: Expr, m: Expr) -> Expr:
    """Return a * b mod m, for residues of m <= 2**24."""
    p = a * b
    return _center(p - rint(p / m) * m, m)


def _product_64(a: Expr, b: Expr, m: Expr) -> Expr:
    """Return a * b mod m for m <= 2**53: the quotient is off by at most 1; the rest is exact."""
    p, p_low = two_product(a, b)
    t, t_low = two_product(rint(p / m), m)
    return _center((p - t) + (p_low - t_low), m)


_PRODUCT = {dtypes.float32: _product_32, dtypes.float64: _product_64}


def _integer(x: Expr, unused: int) -> tuple[Expr, Expr]:
    """Return (i, p) with x = i * 2**(unused - 52) * 2**(p - 1023), i an integer, x >= 0."""
    field = x.bits() >> _FORM.mantissa
    subnormal = field.eq(0)
    fraction = x.bits() & (1 << _FORM.mantissa) - 1
    i = where(subnormal, fraction, fraction + (1 << _FORM.mantissa)) >> unused
    return i.cast(dtypes.float64), where(subnormal, 1, field)


def _small_quotient_32(ratio: Expr, x: Expr, y: Expr) -> Expr:
    """Return x mod y of float32, for quotients so short that the product with y is exact."""
    return _wrap_negative(x - trunc(ratio) * y, y)


def _small_quotient_64(ratio: Expr, x: Expr, y: Expr) -> Expr:
    """Return x mod y of float64: the rounding error of the quotient costs less than y."""
    t, t_low = two_product(trunc(ratio), y)
    return _wrap_negative((x - t) - t_low, y)


def _wrap_negative(r: Expr, y: Expr) -> Expr:
    """Return r mod y for -y <= r < y: a quotient that was rounded up is one too large."""
    return where(r < 0.0, r + y, r)


_SMALL_QUOTIENT = {dtypes.float32: _small_quotient_32, dtypes.float64: _small_quotient_64}
# The largest such quotient, and the largest dividend whose quotient may be rounded up.
_QUOTIENT_LIMITS = {dtypes.float32: (2.0 ** 29, INF), dtypes.float64: (2.0 ** 52, 2.0 ** 1022)}


def fmod(a: Expr, b: Expr) -> Expr:
    """REM of floats: smaller than b in magnitude, with the sign of a."""
    x, y = (abs(v).cast(dtypes.float64) for v in (a, b))
    ratio, (quotient, limit) = x / y, _QUOTIENT_LIMITS[a.dtype]
    is_large = (ratio > quotient) | (x > limit)
    r = unlikely(is_large, _large_quotient(x, y, a.dtype), _SMALL_QUOTIENT[a.dtype](ratio, x, y))
    r = where(x < y, x, r).cast(a.dtype)
    defined = (x < INF) & (0.0 < y) & y.eq(y)
    return where(defined, with_sign(r, a), NAN)


def _large_quotient(x: Expr, y: Expr, dtype: DType) -> Expr:
    """Return x mod y of numbers >= 0 with any exponents."""
    squarings, product = _SQUARINGS[dtype], _PRODUCT[dtype]
    # float64 mantissa bits that this dtype never sets: without them, integer products are exact
    unused = _FORM.mantissa - dtype.mantissa
    (i, p), (m, q) = _integer(x, unused), _integer(y, unused)
    difference = where(p < q, 0, p - q)
    r = _residue(power_of_two((difference >> squarings) + _FORM.bias, _FORM), m)
    for bit in reversed(range(squarings)):
        r = product(r, r, m)
        r = where((difference & 1 << bit).ne(0), _center(r + r, m), r)
    r = product(_residue(i, m), r, m)
    return _wrap_negative(r, m) * 2.0 ** (unused - _FORM.mantissa) * power_of_two(q, _FORM)
