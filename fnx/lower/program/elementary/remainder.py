"""The remainder of floats: exactly fmod, whatever the exponents, without a loop.

With |a| = i 2**p, |b| = m 2**q and integers i, m, the remainder is 2**q (i 2**(p - q) mod m).
2**(p - q) mod m is found by repeated squaring: the exponent's top bits by one power of two, a
bit of the others by each squaring. Residues are kept in -m/2 .. m/2; a product less its multiple
of m is exact (in float64: as an unevaluated sum of two).
"""

from __future__ import annotations

from fnx.core import dtypes
from fnx.core.uop import UOp
from fnx.lower.program.elementary.values import (
    FORMATS,
    INF,
    NAN,
    Value,
    magnitude,
    two_product,
    where,
    with_sign,
)

# p - q < 2**(5 + squarings): the largest differences are 276 and 2045.
_SQUARINGS = {dtypes.float32: 4, dtypes.float64: 6}
# Bits of a float64 that a float32 never sets: without them, products of integers are exact.
_UNUSED = {dtypes.float32: 29, dtypes.float64: 0}
_FORM = FORMATS[dtypes.float64]


def _centred(r: Value, m: Value) -> Value:
    """r mod m in -m/2 .. m/2, for |r| <= 3/2 m."""
    return r - where(magnitude(r + r) > m, with_sign(m, r), 0.0)


def _residue(i: Value, m: Value) -> Value:
    """i mod m of integers 0 <= i < 2**53. (Rounding i / m up could take the product past 2**53.)"""
    return _centred(i - (i / m).trunc() * m, m)


def _product_32(a: Value, b: Value, m: Value) -> Value:
    """a * b mod m, for residues of m <= 2**24."""
    p = a * b
    return _centred(p - (p / m).round() * m, m)


def _product_64(a: Value, b: Value, m: Value) -> Value:
    """The same for m <= 2**53: the quotient is off by at most 1, so that the rest is exact."""
    p, p_low = two_product(a, b)
    t, t_low = two_product((p / m).round(), m)
    return _centred((p - t) + (p_low - t_low), m)


_PRODUCT = {dtypes.float32: _product_32, dtypes.float64: _product_64}


def _integer(x: Value, unused: int) -> tuple[Value, Value]:
    """(i, p): a float64 x >= 0 is i * 2**(unused - 52) * 2**(p - 1023), i an integer."""
    field = x.bits() >> _FORM.mantissa
    subnormal = field.equals(0)
    fraction = x.bits() & (1 << _FORM.mantissa) - 1
    i = where(subnormal, fraction, fraction + (1 << _FORM.mantissa)) >> unused
    return i.cast(dtypes.float64), where(subnormal, 1, field)


def _power_of_two(exponent_field: Value) -> Value:
    return (exponent_field << _FORM.mantissa).as_float(dtypes.float64)


def fmod(node: UOp) -> UOp:
    """REM of floats: smaller than b, with the sign of a."""
    a, b = map(Value, node.src)
    unused, squarings = _UNUSED[node.dtype], _SQUARINGS[node.dtype]
    product = _PRODUCT[node.dtype]
    x, y = (magnitude(v).cast(dtypes.float64) for v in (a, b))
    (i, p), (m, q) = _integer(x, unused), _integer(y, unused)
    difference = where(p < q, 0, p - q)
    r = _residue(_power_of_two((difference >> squarings) + _FORM.bias), m)
    for bit in reversed(range(squarings)):
        r = product(r, r, m)
        r = where((difference & 1 << bit).differs(0), _centred(r + r, m), r)
    r = product(_residue(i, m), r, m)
    r = where(r < 0.0, r + m, r) * 2.0 ** (unused - _FORM.mantissa) * _power_of_two(q)
    r = where(x < y, x, r).cast(node.dtype)
    defined = (x < INF) & (0.0 < y) & y.equals(y)
    return where(defined, with_sign(r, a), NAN).node
