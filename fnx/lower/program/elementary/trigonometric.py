"""sin and cos, right for every argument, however large, without a table in memory.

    u = x / (2 pi) mod 1,   q = round(4 u),   r = 2 pi (u - q / 4),   |r| <= pi / 4

Payne and Hanek's reduction (1983) in floating point: the digits of 1 / (2 pi) are cut into words
so short that word * x is exact, each product drops its integer part by itself, and q / 4 is
taken away before anything is rounded, so that what is left has full relative precision however
near x lies to a multiple of pi / 2.

float32 computes in float64 with all of the 8 words that any argument needs. float64 needs up to
50 words, 9 at a time: a barrel shifter of WHEREs picks the window by the size of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from fnx.core import dtypes
from fnx.core.dtypes import DType
from fnx.core.expr import Expr, mulacc, polynomial, rint, where
from fnx.lower.program.elementary import coefficients as k
from fnx.lower.program.elementary.floats import (
    Pair,
    as_integer,
    magnitude,
    pair,
    split,
    times,
    two_sum,
)

_SIN = {dtypes.float32: k.SIN_32, dtypes.float64: k.SIN_64}
_COS = {dtypes.float32: k.COS_32, dtypes.float64: k.COS_64}

_TINY = 2.0 ** -28                # sin(x) rounds to x; the parts of smaller products underflow
_WORD_32, _WORDS_32 = 26, 8       # 24 + 26 bits are exact in 53; 8 * 26 >= 128 + 31 + 24
_WORD_64, _WORDS_64 = 24, 9       # 27 + 24 bits, and the sum of two such products
_STEPS = (32, 16, 8, 4, 2, 1)     # words that the barrel shifter skips
_LARGE = 7                        # products below this place may exceed 1/2


@cache
def _words(width: int, count: int) -> tuple[float, ...]:
    """The leading ``count`` words of 1 / (2 pi), as integers of ``width`` bits."""
    whole = k.INVERSE_TWO_PI
    return tuple(float(whole >> k.INVERSE_TWO_PI_BITS - width * (i + 1) & (1 << width) - 1)
                 for i in range(count))


def _fraction(x: Expr) -> Expr:
    """x less the nearest integer: exact."""
    return x - rint(x)


def _turns_32(x: Expr) -> tuple[Expr, Expr]:
    """(4 u rounded, 2 pi (u - q / 4)) in float64, for a float32 x >= 0.

    Of the products at most three are not integers or negligible. The sum of the first two of
    them and q is exact, since all are multiples of 2**-52 or |x| is small.
    """
    wide = x.cast(dtypes.float64)
    parts = [_fraction(wide * (w * 2.0 ** (-_WORD_32 * (i + 1))))
             for i, w in enumerate(_words(_WORD_32, _WORDS_32))]
    q = rint(4.0 * _sum(parts))
    return q, k.TWO_PI_PARTS[0] * _sum([mulacc(q, -0.25, parts[0]), *parts[1:]])


def _sum(xs: Sequence[Expr]) -> Expr:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def _window(x: Expr) -> tuple[Expr, list[Expr]]:
    """(X, words) with x / (2 pi) = X * (0.words) + an integer, and X < 2**76."""
    words: list[Expr] = [x.like(w) for w in _words(_WORD_64, 52)]
    for step in _STEPS:
        far = x >= 2.0 ** (52 + _WORD_64 * step)  # then 2**(WORD * step) divides x
        x = where(far, x * 2.0 ** (-_WORD_64 * step), x)
        count = _WORDS_64 + step - 1
        words = [where(far, words[i + step], words[i]) if i + step < len(words) else words[i]
                 for i in range(count)]
    return x, words


def _turns_64(x: Expr) -> tuple[Expr, Pair]:
    """(4 u rounded, 2 pi (u - q / 4)) for a float64 x >= 0.

    ``parts[j]`` is exact, and about 2**24 times smaller than the one before it once that is
    below 1; so the errors of the running sum can be summed plainly.
    """
    large, words = _window(x)
    high, low = split(large)
    products: list[Expr] = []
    for j, word in enumerate(words):
        scaled = word * 2.0 ** (-_WORD_64 * (j + 1))
        products += [high * scaled, low * scaled]
    products = [_fraction(p) if i < _LARGE else p for i, p in enumerate(products)]
    parts = [products[0], *(a + b for a, b in zip(products[1::2], products[2::2])), products[-1]]
    q = rint(4.0 * _sum(parts[:4]))
    total, errors = parts[0] - 0.25 * q, []
    for part in parts[1:6]:
        total, error = two_sum(total, part)
        errors.append(error)
    rest = _sum([*reversed(parts[6:]), *reversed(errors)])
    return q, times((total, rest), pair(x, k.TWO_PI_PARTS))


def _sin_cos_of(r: Expr, low: Expr | float) -> Pair:
    """sin and cos of r + low, |r| <= pi / 4."""
    z = r * r
    sin = r + mulacc(z * r, polynomial(_SIN[r.dtype], z), low)
    half = 0.5 * z
    one = 1.0 - half
    lost = (1.0 - one) - half
    cos = one + (mulacc(z * z, polynomial(_COS[r.dtype], z), lost) - r * low)
    return sin, cos


def _rotated(x: Expr, ahead: int) -> Expr:
    """sin(|x| + ahead * pi / 2)"""
    a = abs(x)
    dtype: DType = x.dtype
    if dtype is dtypes.float32:
        q, angle = _turns_32(a)
        sin, cos = _sin_cos_of(angle.cast(dtype), 0.0)
    else:
        q, parts = _turns_64(a)
        sin, cos = _sin_cos_of(*parts)
    quadrant = as_integer(q).cast(dtype.integer) + ahead
    odd = (quadrant & 1).ne(0)
    sign = quadrant >> 1 << dtype.mantissa + dtype.bias.bit_length() + 1
    return (where(odd, cos, sin).bits() ^ sign).bitcast(dtype)


def sin(x: Expr) -> Expr:
    """Sine of an angle in radians."""
    y = _rotated(x, 0)
    signed = (y.bits() ^ (x.bits() & ~magnitude(x.dtype))).bitcast(x.dtype)
    return where(abs(x) < _TINY, x, signed)


def cos(x: Expr) -> Expr:
    """Cosine of an angle in radians."""
    return _rotated(x, 1)
