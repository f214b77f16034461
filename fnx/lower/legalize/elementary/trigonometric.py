"""sin, cos, tan, atan and asin.

sin, cos and tan are accurate for every argument, however large, without a table in memory.

    u = x / (2 pi) mod 1,   q = round(4 u),   r = 2 pi (u - q / 4),   |r| <= pi / 4

This is the Payne-Hanek reduction (1983) in floating point: the bits of 1 / (2 pi) are split into
words so short that word * x is exact, each product drops its integer part separately, and q / 4 is
subtracted before anything is rounded. So the result has full relative precision however close x is
to a multiple of pi / 2.

float32 computes in float64, with all 8 words that any argument needs, if an argument exceeds
2**19; up to there it subtracts q * pi / 2 in two parts (Cody and Waite). float64 needs up to 50
words, 9 at a time: a barrel shifter of WHEREs selects the window by the magnitude of x.

    tan(x) = t or, in odd quadrants, -1 / t      t = tan(r)

    atan(x) = base + atan(t),   |t| <= 1/2
              base, t = 0, x or pi / 4, (x - 1) / (x + 1) or pi / 2, -1 / x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core.formulas.double_double import (
    DoubleDouble,
    double_const,
    fast_two_sum,
    multiply,
    split,
    two_sum,
)
from fnx.core.ir import dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, mulacc, polynomial, rint, sqrt, unlikely, where
from fnx.core.ir.ops import Op
from fnx.lower.legalize.elementary.floats import as_integer, magnitude, rounder, with_sign

# (sin(r) - r) / r**3 over z = r**2, |r| <= pi / 4: 2**-27.60
SIN_32 = (
    -0.16666655242443085,
    0.00833218265324831,
    -0.00019517794135026634,
)
# (cos(r) - 1 + r**2 / 2) / r**4 over z = r**2, |r| <= pi / 4: 2**-30.46
COS_32 = (
    0.04166664555668831,
    -0.0013887387467548251,
    2.4440412744297646e-05,
)
# as SIN_32: 2**-57.24
SIN_64 = (
    -0.16666666666666632,
    0.008333333333322411,
    -0.0001984126982980594,
    2.7557313691236896e-06,
    -2.5050758003873875e-08,
    1.5896788943033695e-10,
)
# as COS_32: 2**-59.94
COS_64 = (
    0.0416666666666666,
    -0.0013888888888874123,
    2.4801587289480738e-05,
    -2.755731435186833e-07,
    2.087572320464165e-09,
    -1.135964400228214e-11,
)
# (tan(r) - r) / r**3 over z = r**2, |r| <= pi / 4: 2**-26.81
TAN_32 = (
    0.33333349227905273,
    0.13332635164260864,
    0.054063308984041214,
    0.02126445807516575,
    0.010881439782679081,
    3.262365498812869e-05,
    0.004403780214488506,
)
# as TAN_32: 2**-55.49
TAN_64 = (
    0.3333333333333338,
    0.13333333333325004,
    0.05396825397306391,
    0.02186948839547949,
    0.008863237976162772,
    0.00359210039885096,
    0.001456048461031922,
    0.0005888523330116157,
    0.0002437875130029546,
    8.34823890196955e-05,
    6.733338314594778e-05,
    -2.57421144468573e-05,
    4.8700956251233584e-05,
    -2.4294366688135085e-05,
    9.801136244138121e-06,
)
# (atan(t) - t) / t**3 over z = t**2, |t| <= 1/2: 2**-29.15
ATAN_32 = (
    -0.333333283662796,
    0.19999529421329498,
    -0.14272738993167877,
    0.10945959389209747,
    -0.08001388609409332,
    0.038950078189373016,
)
# as ATAN_32: 2**-57.45
ATAN_64 = (
    -0.33333333333332993,
    0.1999999999990565,
    -0.14285714276590455,
    0.1111111066785252,
    -0.09090896436469979,
    0.07692076726251859,
    -0.06663837669394246,
    0.05858471897465985,
    -0.051227348645907084,
    0.04188450162383612,
    -0.027464751372352995,
    0.010136800565310786,
)
# (asin(t) - t) / t**3 over z = t**2, |t| <= 1/2: 2**-27.44
ASIN_32 = (
    0.16666747629642487,
    0.07495439797639847,
    0.04545597359538078,
    0.02423970215022564,
    0.042077042162418365,
)
# as ASIN_32: 2**-58.92
ASIN_64 = (
    0.16666666666666763,
    0.07499999999970262,
    0.044642857175119566,
    0.030381942683688896,
    0.022372215658050136,
    0.017351600135328736,
    0.013980960902511866,
    0.011397780656174845,
    0.010786502075389125,
    0.0036831465000971074,
    0.021763239116250742,
    -0.021076916614081346,
    0.03267665024082109,
)
# pi / 2 as an unevaluated sum
HALF_PI_32 = (1.5707963705062866, -4.371138828673793e-08)
HALF_PI_64 = (1.5707963267948966, 6.123233995736766e-17)
# 2 pi as an unevaluated sum
TWO_PI_PARTS = (6.283185307179586, 2.4492935982947064e-16)
# floor(2**1248 / (2 pi)): the bits from which the Payne-Hanek reduction takes its window.
INVERSE_TWO_PI_BITS = 1248
INVERSE_TWO_PI = int(
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef1586dc91b8e909374b8"
    "01924bba827464873f877ac72c4a69cfba208d7d4baed1213a671c09ad17df904e64758e60d4ce7d"
    "272117e2ef7e4a0ec7fe25fff7816603fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b"
    "5d49eeb1faf97c5ecf41ce7de294a4ba9afed7ec47e357421580cc11bf1edaeafc33ef08",
    16)

_SIN = {dtypes.float32: SIN_32, dtypes.float64: SIN_64}
_COS = {dtypes.float32: COS_32, dtypes.float64: COS_64}
_TAN = {dtypes.float32: TAN_32, dtypes.float64: TAN_64}
_ATAN = {dtypes.float32: ATAN_32, dtypes.float64: ATAN_64}
_ASIN = {dtypes.float32: ASIN_32, dtypes.float64: ASIN_64}
_HALF_PI = {dtypes.float32: HALF_PI_32, dtypes.float64: HALF_PI_64}

_INVERSE_HALF_PI = 0.6366197723675814
# pi / 2 as a sum: 33 bits, so that the product with q < 2**20 is exact, and the rest
_HALF_PI_PARTS = (1.5707963267341256, 6.077100506506192e-11)
_CODY_WAITE_LIMIT = 2.0 ** 19               # for larger arguments q may reach 2**20
_TINY = 2.0 ** -28                # sin(x) rounds to x; the parts of smaller products underflow
_WORD_32, _WORDS_32 = 26, 8       # 24 + 26 bits are exact in 53; 8 * 26 >= 128 + 31 + 24
_WORD_64, _WORDS_64 = 24, 9       # 27 + 24 bits, and the sum of two such products
_SHIFT_STEPS = (32, 16, 8, 4, 2, 1)     # words that the barrel shifter skips
_LARGE_PRODUCTS = 7                        # products before this index may exceed 1/2


def _inv_two_pi_words(width: int, count: int) -> tuple[float, ...]:
    """Return the leading ``count`` words of 1 / (2 pi), as integers of ``width`` bits."""
    bits = INVERSE_TWO_PI
    return tuple(float(bits >> INVERSE_TWO_PI_BITS - width * (i + 1) & (1 << width) - 1)
                 for i in range(count))


def _fraction(x: Expr) -> Expr:
    """Return x minus the nearest integer, exactly."""
    return x - rint(x)


def _reduce_32(x: Expr) -> Expr:
    """Return r in float64 for a float32 x >= 0, with its two low bits replaced by those of q.

    As one value, r and q need only one unlikely WHERE, for large numbers. For others, q * pi / 2
    is subtracted in two parts, and q times the first is exact.
    """
    wide = x.cast(dtypes.float64)
    shifted = mulacc(wide, _INVERSE_HALF_PI, rounder(wide.dtype))
    q = shifted - rounder(wide.dtype)
    first, second = _HALF_PI_PARTS
    small_angle = mulacc(q, -second, mulacc(q, -first, wide))
    large_quarters, large_angle = _payne_hanek_32(wide)
    return unlikely(x > _CODY_WAITE_LIMIT, _pack_quadrant(large_angle, as_integer(large_quarters)),
                    _pack_quadrant(small_angle, shifted.bits()))


def _pack_quadrant(r: Expr, q: Expr) -> Expr:
    """Return r with its two low bits replaced by those of q."""
    return ((r.bits() & ~3) | (q & 3)).bitcast(r.dtype)


def _payne_hanek_32(wide: Expr) -> tuple[Expr, Expr]:
    """Return (q, r) = (round(4 u), 2 pi (u - q / 4)) in float64, for a float32 x >= 0.

    At most three products are neither integers nor negligible. The sum of the first two of them
    and q is exact, since all are multiples of 2**-52 or |x| is small.
    """
    parts = [_fraction(wide * (w * 2.0 ** (-_WORD_32 * (i + 1))))
             for i, w in enumerate(_inv_two_pi_words(_WORD_32, _WORDS_32))]
    q = rint(4.0 * _sum(parts))
    return q, TWO_PI_PARTS[0] * _sum([mulacc(q, -0.25, parts[0]), *parts[1:]])


def _sum(xs: Sequence[Expr]) -> Expr:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def _window(x: Expr) -> tuple[Expr, list[Expr]]:
    """Return (X, words) with x / (2 pi) = X * (0.words) + an integer, and X < 2**76."""
    words: list[Expr] = [x.like(w) for w in _inv_two_pi_words(_WORD_64, 52)]
    for step in _SHIFT_STEPS:
        is_large = x >= 2.0 ** (52 + _WORD_64 * step)  # then 2**(WORD * step) divides x
        x = where(is_large, x * 2.0 ** (-_WORD_64 * step), x)
        count = _WORDS_64 + step - 1
        words = [where(is_large, words[i + step], words[i]) if i + step < len(words) else words[i]
                 for i in range(count)]
    return x, words


def _payne_hanek_64(x: Expr) -> tuple[Expr, DoubleDouble]:
    """Return (q, r) = (round(4 u), 2 pi (u - q / 4)) for a float64 x >= 0; r is a pair.

    ``parts[j]`` is about 2**24 times smaller than its predecessor once that is below 1, and exact
    except for a last bit of the first ones. So the errors of these and of the running sum can be
    added in plain arithmetic.
    """
    large, words = _window(x)
    high, low = split(large)
    products: list[Expr] = []
    for j, word in enumerate(words):
        scaled = word * 2.0 ** (-_WORD_64 * (j + 1))
        products += [high * scaled, low * scaled]
    products = [_fraction(p) if i < _LARGE_PRODUCTS else p for i, p in enumerate(products)]
    pairs = [two_sum(a, b) for a, b in zip(products[1:9:2], products[2:9:2])]
    parts = [products[0], *[p for p, _ in pairs],
             *(a + b for a, b in zip(products[9::2], products[10::2])), products[-1]]
    q = rint(4.0 * _sum(parts[:4]))
    total, errors = parts[0] - 0.25 * q, [e for _, e in pairs]
    for part in parts[1:6]:
        total, error = two_sum(total, part)
        errors.append(error)
    tail = _sum([*reversed(parts[6:]), *reversed(errors)])
    return q, multiply((total, tail), double_const(x, TWO_PI_PARTS))


def _sin_cos_kernel(r: Expr, low: Expr | float) -> DoubleDouble:
    """Return sin and cos of r + low, |r| <= pi / 4."""
    z = r * r
    sin = r + mulacc(z * r, polynomial(_SIN[r.dtype], z), low)
    half = 0.5 * z
    one = 1.0 - half
    error = (1.0 - one) - half
    cos = one + (mulacc(z * z, polynomial(_COS[r.dtype], z), error) - r * low)
    return sin, cos


def _tan_kernel(r: Expr, low: Expr) -> DoubleDouble:
    """Return tan of r + low, |r| <= pi / 4, and its rounding error."""
    z = r * r
    tail = z * r * polynomial(_TAN[r.dtype], z)
    t = r + tail
    tail = mulacc(low, mulacc(t, t, 1.0), tail)
    return fast_two_sum(r, tail)


def _sin_shifted(x: Expr, quadrants: int) -> Expr:
    """Return sin(|x| + ahead * pi / 2)."""
    a = abs(x)
    dtype: DType = x.dtype
    if dtype is dtypes.float32:
        angle = _reduce_32(a)
        sin, cos = _sin_cos_kernel(angle.cast(dtype), 0.0)
        quadrant = angle.bits().cast(dtype.integer) + quadrants
    else:
        q, parts = _payne_hanek_64(a)
        sin, cos = _sin_cos_kernel(*parts)
        quadrant = as_integer(q) + quadrants
    odd = (quadrant & 1).ne(0)
    sign = quadrant >> 1 << dtype.mantissa + dtype.bias.bit_length() + 1
    return (where(odd, cos, sin).bits() ^ sign).bitcast(dtype)


def sin(x: Expr) -> Expr:
    """Sine of an angle in radians."""
    y = _sin_shifted(x, 0)
    sign = x.bits() & ~magnitude(x.dtype)
    signed = (y.bits() ^ sign).bitcast(x.dtype)
    return where(abs(x) < _TINY, x, signed)


def cos(x: Expr) -> Expr:
    """Cosine of an angle in radians."""
    return _sin_shifted(x, 1)


def tan(x: Expr) -> Expr:
    """Tangent of an angle in radians."""
    a, dtype = abs(x), x.dtype
    if dtype is dtypes.float32:
        angle = _reduce_32(a)
        r = angle.cast(dtype)
        low = (angle - r.cast(angle.dtype)).cast(dtype)
        quadrant = angle.bits().cast(dtype.integer)
    else:
        q, (r, low) = _payne_hanek_64(a)
        quadrant = as_integer(q)
    t, error = _tan_kernel(r, low)
    inverse = -1.0 / t
    inverse = mulacc(inverse, mulacc(inverse, t, 1.0) + inverse * error, inverse)
    y = where((quadrant & 1).ne(0), inverse, t)
    sign = x.bits() & ~magnitude(dtype)
    return where(a < _TINY, x, (y.bits() ^ sign).bitcast(dtype))


def atan(x: Expr) -> Expr:
    """Inverse tangent, in -pi / 2 .. pi / 2."""
    a = abs(x)
    middle, large = a > 0.5, a > 2.0
    numerator = where(large, -1.0, where(middle, a - 1.0, a))
    t = numerator / where(large, a, where(middle, a + 1.0, 1.0))
    high, low = (where(large, x.like(part), where(middle, x.like(part / 2), 0.0))
                 for part in _HALF_PI[x.dtype])
    z = t * t
    y = high + (t + mulacc(z * t, polynomial(_ATAN[x.dtype], z), low))
    return with_sign(y, x)


def asin(x: Expr) -> Expr:
    """Inverse sine, in -pi / 2 .. pi / 2; NaN for |x| > 1.

    asin(a) = pi / 2 - 2 asin(sqrt((1 - a) / 2)) for a > 1/2, so the series gets at most 1/2.
    """
    a = abs(x)
    is_large = a > 0.5
    z = where(is_large, 0.5 * (1.0 - a), a * a)
    s = where(is_large, sqrt(z), a)
    tail = s * z * polynomial(_ASIN[x.dtype], z)
    high, low = _HALF_PI[x.dtype]
    y = where(is_large, (high - 2.0 * s) - (2.0 * tail - low), s + tail)
    return with_sign(y, x)


# with the largest errors seen in ulp: float32, float64
FORMULAS: dict[Op, Callable[..., Expr]] = {
    ops.SIN: sin,    # 1.53  1.02
    ops.COS: cos,    # 1.55  0.84
    ops.TAN: tan,    # 1.27  1.25
    ops.ATAN: atan,  # 1.39  1.33
    ops.ASIN: asin,  # 1.82  1.99
}
