"""The remainder of floats: exactly fmod, whatever the exponents, without a loop.

Where the quotient is a small number, the remainder is what one division leaves. Of others, with
|a| = i 2**p, |b| = m 2**q and integers i, m, the remainder is 2**q (i 2**(p - q) mod m). 2**(p - q)
mod m is found by repeated squaring: the exponent's top bits by one power of two, a bit of the
others by each squaring. Residues are kept in -m/2 .. m/2; a product less its multiple of m is exact
(in float64: as an unevaluated sum of two).
"""

from __future__ import annotations

from fnx.core import dtypes
from fnx.core.doubles import two_product
from fnx.core.dtypes import DType
from fnx.core.expr import Expr, rint, seldom, trunc, where
from fnx.lower.program.elementary.floats import INF, NAN, power_of_two, with_sign

# p - q < 2**(5 + squarings): the largest differences are 276 and 2045.
_SQUARINGS = {dtypes.float32: 4, dtypes.float64: 6}
_FORM = dtypes.float64


def _centred(r: Expr, m: Expr) -> Expr:
    """r mod m in -m/2 .. m/2, for |r| <= 3/2 m."""
    return r - where(abs(r + r) > m, with_sign(m, r), 0.0)


def _residue(i: Expr, m: Expr) -> Expr:
    """i mod m of integers 0 <= i < 2**53. (Rounding i / m up could take the product past 2**53.)"""
    return _centred(i - trunc(i / m) * m, m)


def _product_32(a: Expr, b: Expr, m: Expr) -> Expr:
    """a * b mod m, for residues of m <= 2**24."""
    p = a * b
    return _centred(p - rint(p / m) * m, m)


def _product_64(a: Expr, b: Expr, m: Expr) -> Expr:
    """The same for m <= 2**53: the quotient is off by at most 1, so that the rest is exact."""
    p, p_low = two_product(a, b)
    t, t_low = two_product(rint(p / m), m)
    return _centred((p - t) + (p_low - t_low), m)


_PRODUCT = {dtypes.float32: _product_32, dtypes.float64: _product_64}


def _integer(x: Expr, unused: int) -> tuple[Expr, Expr]:
    """(i, p): a float64 x >= 0 is i * 2**(unused - 52) * 2**(p - 1023), i an integer."""
    field = x.bits() >> _FORM.mantissa
    subnormal = field.eq(0)
    fraction = x.bits() & (1 << _FORM.mantissa) - 1
    i = where(subnormal, fraction, fraction + (1 << _FORM.mantissa)) >> unused
    return i.cast(dtypes.float64), where(subnormal, 1, field)


def _near_32(ratio: Expr, x: Expr, y: Expr) -> Expr:
    """x mod y of float32, where the quotient has so few bits that its product with y is exact."""
    return _raised(x - trunc(ratio) * y, y)


def _near_64(ratio: Expr, x: Expr, y: Expr) -> Expr:
    """The same of float64: what the quotient rounds off is less than y."""
    t, t_low = two_product(trunc(ratio), y)
    return _raised((x - t) - t_low, y)


def _raised(r: Expr, y: Expr) -> Expr:
    """r mod y for -y <= r < y: a quotient that was rounded up to an integer is one too large."""
    return where(r < 0.0, r + y, r)


_NEAR = {dtypes.float32: _near_32, dtypes.float64: _near_64}
# The largest quotient of that kind, and the largest number whose quotient may be rounded up.
_NEAREST = {dtypes.float32: (2.0 ** 29, INF), dtypes.float64: (2.0 ** 52, 2.0 ** 1022)}


def fmod(a: Expr, b: Expr) -> Expr:
    """REM of floats: smaller than b, with the sign of a."""
    x, y = (abs(v).cast(dtypes.float64) for v in (a, b))
    ratio, (quotient, size) = x / y, _NEAREST[a.dtype]
    far = (ratio > quotient) | (x > size)
    r = seldom(far, _far(x, y, a.dtype), _NEAR[a.dtype](ratio, x, y))
    r = where(x < y, x, r).cast(a.dtype)
    defined = (x < INF) & (0.0 < y) & y.eq(y)
    return where(defined, with_sign(r, a), NAN)


def _far(x: Expr, y: Expr, dtype: DType) -> Expr:
    """x mod y of numbers >= 0 of any exponents."""
    squarings, product = _SQUARINGS[dtype], _PRODUCT[dtype]
    # bits of a float64 that this type never sets: without them, products of integers are exact
    unused = _FORM.mantissa - dtype.mantissa
    (i, p), (m, q) = _integer(x, unused), _integer(y, unused)
    difference = where(p < q, 0, p - q)
    r = _residue(power_of_two((difference >> squarings) + _FORM.bias, _FORM), m)
    for bit in reversed(range(squarings)):
        r = product(r, r, m)
        r = where((difference & 1 << bit).ne(0), _centred(r + r, m), r)
    r = product(_residue(i, m), r, m)
    return _raised(r, m) * 2.0 ** (unused - _FORM.mantissa) * power_of_two(q, _FORM)
