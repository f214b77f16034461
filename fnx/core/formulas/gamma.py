"""The gamma function and related functions, as formulas over ops.

lgamma is (x - 1)(x - 2) times a Chebyshev series on 1..3 (scripts/fit_special.py), which preserves
the zeros at 1 and 2. Larger x use Stirling's series (Abramowitz and Stegun, Handbook of
Mathematical Functions, 1964, 6.1.41), x in between the recurrence, and x below 0 the reflection
formula (6.1.17). gamma is the exponential of the Chebyshev part, and a power for larger x.
digamma is 6.3.18 with 6.3.5 and 6.3.7; zeta is Hurwitz's, by the Euler-Maclaurin formula (23.2.7,
23.1.30).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from fnx.core.formulas.elementwise import ElementwiseFn, compute_in_float64
from fnx.core.ir import build, ops
from fnx.core.ir.expr import (
    Expr,
    digamma,
    exp,
    floor,
    isnan,
    lgamma,
    log,
    log1p,
    maximum,
    minimum,
    mulacc,
    polynomial,
    rint,
    stop_gradient,
    where,
)

_LGAMMA = (
    -8.20674654416672773e-19, 3.16304516617902538e-18, -1.22041073196398554e-17,
    4.71416900675627159e-17, -1.82321771416621187e-16, 7.06067050721489248e-16,
    -2.73824207866528248e-15, 1.06357012277578984e-14, -4.13794920681404209e-14,
    1.61284600302837865e-13, -6.29886814079171148e-13, 2.46534819835566093e-12,
    -9.67248529965632461e-12, 3.80501964581105369e-11, -1.50131297707286694e-10,
    5.94354190581754607e-10, -2.36199970218464494e-9, 9.4281008236242844e-9,
    -3.78263766029132615e-8, 1.52686773990715466e-7, -6.20853588077631604e-7,
    2.54743368734084149e-6, -0.0000105728743735942996, 0.0000445447018497560638,
    -0.000191538553413655923, 0.00084789898959538574, -0.00392246146302526399,
    0.0195104482606888405, -0.111195803217525223, 0.882978050910028416,
)

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
              43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730)  # B2, B4, ...
_STIRLING = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(_BERNOULLI[:10])]
_STIRLING_MIN = 8.0        # Stirling's series is used above this
_SHIFT = 8                 # so many terms precede the series of digamma and its derivative
_PAIRS = 0, 6, 10, 12      # k (7 - k)
_NEGLIGIBLE = 1e-9     # coefficients below this are negligible in 32 bits


def chebyshev(coefficients: tuple[float, ...], y: Expr, bits: int | None = None) -> Expr:
    """Evaluate c[0] / 2 + the sum of c[k] T_k(y / 2) by Clenshaw's scheme, highest order first.

    ``bits`` is the width that the final result is rounded to, by default that of y.
    """
    if (bits or y.dtype.bits) <= 32:
        coefficients = tuple([c for c in coefficients if abs(c) > _NEGLIGIBLE])
    first, before, last = y.like(coefficients[0]), y.like(0), y.like(0)
    for c in coefficients[1:]:
        first, before, last = mulacc(y, first, c) - before, first, before
    return 0.5 * (first - last)


def stirling(x: Expr, log_x: Expr, bits: int) -> Expr:
    """lgamma(x) for x >= 8."""
    inverse = 1 / x
    correction = inverse * polynomial(_STIRLING if bits > 32 else _STIRLING[:4], inverse * inverse)
    return (x - 0.5) * log_x - x + (0.5 * math.log(2 * math.pi) + correction)


def _reduce_to_1_3(x: Expr, bits: int | None = None) -> tuple[Expr, Expr, Expr]:
    """(whether y = x + 1, lgamma(y), gamma(x) / gamma(y)) for 0 < x <= 8, with y in 1..3.

    For x < 1 the factor is 1 / x, which the caller applies; x + 1 is never rounded.
    """
    is_far = x > 5
    y = where(is_far, x - 3, x)
    is_above = y > 3
    reduced = where(is_above, y - 2, y)
    product = where(is_above, (y - 1) * reduced, 1) * where(is_far, (x - 1) * (x - 2) * y, 1)
    is_below = reduced < 1
    first, second = where(is_below, reduced, reduced - 1), where(is_below, reduced - 1, reduced - 2)
    return is_below, first * second * chebyshev(_LGAMMA, 2 * second, bits), product


def _lgamma_positive(x: Expr, bits: int) -> Expr:
    """lgamma(x) for x > 0."""
    is_far = x > _STIRLING_MIN
    near = where(is_far, 2, x)
    is_below, series, product = _reduce_to_1_3(near, bits)
    large = where(is_far, x, 10)
    log_term = log(where(is_far, large, where(is_below, near, product)))
    small = series + where(is_below, -log_term, log_term)
    return where(is_far, stirling(large, log_term, bits), small)


def _sin_cos_pi(t: Expr) -> tuple[Expr, Expr]:
    """sin(pi t) and cos(pi t) for 0 <= t <= 1/2, by their Taylor series on 0..1/4."""
    far = t > 0.25
    s = where(far, 0.5 - t, t)
    sine, cosine = s * polynomial(_SIN_PI, s * s), polynomial(_COS_PI, s * s)
    return where(far, cosine, sine), where(far, sine, cosine)


_SIN_PI = [(-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(9)]
_COS_PI = [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k) for k in range(9)]


def sin_pi(x: Expr) -> Expr:
    """|sin(pi x)|, exact at integers."""
    return _sin_cos_pi(abs(x - rint(x)))[0]


def lgamma_formula(x: Expr) -> Expr:
    """log |gamma(x)|; infinite at 0, -1, -2, ...

    Negative x use gamma(x) gamma(-x) = -pi / (x sin(pi x)), which does not round the argument. The
    difference loses digits near zeros, and can overflow, so float32 is computed in float64.
    """
    return compute_in_float64(functools.partial(_lgamma, x.dtype.bits))(x)


def lgamma_single(x: Expr) -> Expr:
    """lgamma computed in float32: the error is at most 1e-6 * max(|lgamma|, 1)."""
    return _lgamma(32, x)


def _lgamma(bits: int, x: Expr) -> Expr:
    negative, a = x < 0, abs(x)
    positive = _lgamma_positive(a, bits)
    is_tiny = a < 1e-10  # here lgamma is -log(a), but for a term whose sign is that of x
    small = where(is_tiny, a, 0)
    reduced = where(negative & ~is_tiny, x, 0.5)
    reflected = math.log(math.pi) - log(abs(reduced) * sin_pi(reduced)) - positive
    below = where(is_tiny, positive + 2 * 0.5772156649015329 * small, reflected)
    return where(a.eq(math.inf), math.inf, where(negative, below, positive))


def gamma_sign(x: Expr) -> Expr:
    """The sign of gamma(x), which changes at 0, -1, -2, ..."""
    odd = (floor(x) - 2 * floor(0.5 * floor(x))).ne(0)
    pole = (x < 0) & x.eq(floor(x)) | isnan(x)
    below = where(x.eq(0), x.bits() < 0, (x < 0) & odd)
    return where(pole, math.nan, where(below, x.like(-1), x.like(1)))


def _shifted(y: Expr) -> tuple[Expr, Expr, Expr]:
    """y, or y + 8 if y < 8, where an asymptotic series holds; y up to 8, and y (y + 7) of that.

    The eight terms y + k that are skipped make four pairs (y + k)(y + 7 - k) = y (y + 7) + c, with
    c of ``_PAIRS``.
    """
    is_low = y < _SHIFT
    low = where(is_low, y, 1)
    return where(is_low, y + _SHIFT, y), low, low * (low + 7)


def digamma_single(x: Expr) -> Expr:
    """The derivative of lgamma, computed in the dtype of x; NaN at 0, -1, -2, ...

    In float32 its error is that of ``lgamma_single``.
    """
    negative = x < 0
    y = where(negative, 1 - x, x)
    z, low, u = _shifted(y)
    # the sum of 1 / (y + k): pairs of terms are (2 y + 7) / (u + c)
    numerator = polynomial((720, 504, 84, 4), u)
    denominator = u * polynomial((720, 252, 28, 1), u)
    total = where(y < _SHIFT, (2 * low + 7) * (numerator / denominator), 0)
    inverse = 1 / (z * z)
    terms = [b / (2 * k + 2) for k, b in enumerate(_BERNOULLI[:8])]
    positive = log(z) - 0.5 / z - inverse * polynomial(terms, inverse) - total
    r = where(negative, x - rint(x), 0.25)
    sine, cosine = _sin_cos_pi(abs(r))
    slope = math.pi * cosine / where(r < 0, -sine, sine)
    pole = (x <= 0) & x.eq(floor(x))
    return where(pole, math.nan, where(negative, positive - slope, positive))


digamma_formula = compute_in_float64(digamma_single)


def trigamma(x: Expr) -> Expr:
    """The derivative of digamma: 6.4.6, 6.4.7, 6.4.12; infinite at 0, -1, -2, ..."""
    negative = x < 0
    a = where(negative, 1 - x, x)
    z, low, u = _shifted(a)
    # the sum of 1 / (a + k)**2: pairs of terms are (2 u + 49 - 2 c) / (u + c)**2; the first one is
    # not joined, as its derivative would be a difference of infinities near 0
    total = 1 / (low * low) + 1 / ((low + 7) * (low + 7))
    for c in _PAIRS[1:]:
        v = u + c
        total = total + (2 * u + (49 - 2 * c)) / (v * v)
    total = where(a < _SHIFT, total, 0)
    inverse = 1 / z
    square = inverse * inverse
    terms = _BERNOULLI[:10] if x.dtype.bits > 32 else _BERNOULLI[:4]
    tail = inverse + 0.5 * square + inverse * square * polynomial(terms, square)
    steep = math.pi / sin_pi(where(negative, x, 0.5))
    return where(negative, steep * steep - (total + tail), total + tail)


def zeta(s: Expr, q: Expr) -> Expr:
    """The Hurwitz zeta function: the sum of (k + q)**-s over k >= 0.

    Negative q need an integer s, and have no derivative in s. There the result is the sum over all
    integers k, which depends only on the distance of q to an integer, minus the terms with k < 0.
    """
    is_negative, offset = q < 0, q - rint(q)
    s = where(is_negative, stop_gradient(s), s)
    pole = (q <= 0) & q.eq(floor(q))
    offset = where(pole | ~is_negative, 0.5, offset)
    above, left, beyond = _hurwitz(s, (where(is_negative, 1 + offset, q),
                                       where(is_negative, 1 - offset, 1),
                                       where(is_negative, 1 - q, 1)))
    mirrored = left - beyond
    first, odd = abs(offset) ** (-s), (s - 2 * floor(0.5 * s)).ne(0)
    all_terms = where(odd & (offset < 0), -first, first) + above + where(odd, -mirrored, mirrored)
    is_undefined = (s < 1) | (is_negative & ~pole & s.ne(floor(s)))
    return where(s.eq(1), math.inf, where(is_undefined, math.nan, where(
        pole, math.inf, where(is_negative, all_terms, above))))


def _hurwitz(s: Expr, qs: Sequence[Expr]) -> Sequence[Expr]:
    """zeta(s, q) of each q >= 0: eight terms, then the Euler-Maclaurin tail.

    The terms and the qs are axes of their own: a power is long code, which a loop repeats. More
    terms would be added in an order that the schedule decides.
    """
    which, s = _axis(len(qs), s), _repeat(len(qs), s)
    q = _repeat(len(qs), qs[0])
    for i, other in enumerate(qs[1:], 1):
        q = where(which.eq(i), _repeat(len(qs), other), q)
    terms = (_repeat(8, q) + _axis(8, q)) ** _repeat(8, -s)
    total, a = Expr(build.reduce(terms.node, ops.ADD, [0])), q + 8
    power = a ** (-s)
    total = total + a * power / (s - 1) + 0.5 * power
    factor, inverse = s * power / a, 1 / (a * a)
    for k, b in enumerate(_BERNOULLI):
        n = 2 * k + 2
        total = total + b / math.factorial(n) * factor
        factor = factor * (s + (n - 1)) * (s + n) * inverse
    shape = total.node.shape
    return [Expr(build.reshape(build.shrink(
        total.node, [(i, i + 1), *((0, n) for n in shape[1:])]), shape[1:]))
        for i in range(len(qs))]


def _repeat(count: int, x: Expr) -> Expr:
    """``count`` copies of x along a new first axis."""
    shape = x.node.shape
    return Expr(build.expand(build.reshape(x.node, (1, *shape)), (count, *shape)))


def _axis(count: int, x: Expr) -> Expr:
    """0, 1, 2, ... along a new first axis of x."""
    shape = x.node.shape
    index = build.reshape(build.iota(count, x.node.dtype), (count, *(1 for _ in shape)))
    return Expr(build.expand(index, (count, *shape)))


def polygamma(n: Expr, x: Expr) -> Expr:
    """The n-th derivative of digamma: (-1)**(n + 1) n! zeta(n + 1, x)."""
    odd = (n - 2 * floor(0.5 * n)).ne(0)
    magnitude = exp(lgamma(n + 1)) * zeta(n + 1, x)
    return where(n.eq(0), digamma(x), where(odd, magnitude, -magnitude))


def xlogy(x: Expr, y: Expr) -> Expr:
    """x log(y); 0 where x is 0."""
    is_zero = x.eq(0) & ~isnan(y)
    return where(is_zero, 0, x * log(where(is_zero, 1, y)))


def xlog1py(x: Expr, y: Expr) -> Expr:
    """x log(1 + y); 0 where x is 0."""
    is_zero = x.eq(0) & ~isnan(y)
    return where(is_zero, 0, x * log1p(where(is_zero, 1, y)))


@compute_in_float64
def betaln(a: Expr, b: Expr) -> Expr:
    """lgamma(a) + lgamma(b) - lgamma(a + b) without cancellation of large terms.

    For a large b it uses the difference of Stirling's formulas, for large a and b all three.
    """
    low, high = minimum(a, b), maximum(a, b)
    is_far = (high >= _STIRLING_MIN) & (low + high >= _STIRLING_MIN) & high.ne(math.inf)
    both_far = is_far & (low >= _STIRLING_MIN)
    x, y = where(is_far, low, 1), where(is_far, high, _STIRLING_MIN)
    log_ratio = log1p(x / y)
    tails = _stirling_tail(y) - _stirling_tail(x + y)
    far_b = x * (1 - log(y)) - (x + y - 0.5) * log_ratio + tails
    u = where(both_far, low, _STIRLING_MIN)
    far_both = (0.5 * math.log(2 * math.pi) - 0.5 * log(y) - (u - 0.5) * log1p(y / u)
                - y * log_ratio + _stirling_tail(u) + tails)
    near = where(is_far, 1, high)
    near_value = lgamma(where(both_far, 1, low)) + where(
        is_far, far_b, lgamma(near) - lgamma(where(is_far, 2, low + high)))
    return where(both_far, far_both, near_value)


def _stirling_tail(x: Expr) -> Expr:
    """The correction that Stirling's series adds to (x - 0.5) log(x) - x + log(2 pi) / 2."""
    inverse = 1 / x
    terms = _STIRLING if x.dtype.bits > 32 else _STIRLING[:4]
    return inverse * polynomial(terms, inverse * inverse)


def gamma(x: Expr) -> Expr:
    """gamma(x); NaN at -1, -2, ...; infinite at 0, with the sign of the zero.

    Up to 8 by the recurrence; above by Stirling's formula, whose power is split into two finite
    factors; below 0 by reflection, like lgamma.
    """
    pole = (x < 0) & x.eq(floor(x))
    a = abs(where(pole | x.eq(0), 1, x))
    is_far, negative = a > _STIRLING_MIN, x < 0
    near = where(is_far, 2, a)
    below, series, product = _reduce_to_1_3(near)
    scaled = exp(series) * product       # a gamma(a) below 1
    magnitude = where(is_far, _gamma_far(where(is_far, a, 10)), scaled / where(below, near, 1))
    reduced = where(negative, a, 0.5)
    sine = sin_pi(where(pole, 0.5, reduced))
    small = reduced < 1
    reflected = math.pi / (sine * where(small, where(negative, scaled, 1), reduced))
    magnitude = where(negative, where(small, reflected, reflected / magnitude), magnitude)
    at_zero = where(x.bits() < 0, x.like(-math.inf), x.like(math.inf))
    out = where(x.eq(0), at_zero, gamma_sign(stop_gradient(x)) * magnitude)
    return where(pole | x.eq(-math.inf), math.nan, out)


def _gamma_far(x: Expr) -> Expr:
    """gamma(x) for x >= 8."""
    max_x = 180 if x.dtype.bits == 64 else 40  # gamma overflows above this
    y = where(x > max_x, max_x, x)
    inverse = 1 / y
    correction = inverse * polynomial(_STIRLING, inverse * inverse)
    root = y ** (0.5 * y - 0.25)
    return math.sqrt(2 * math.pi) * exp(correction) * (root * exp(-y)) * root


# fmt: off
LGAMMA = ElementwiseFn("lgamma", "inexact", ops.LGAMMA)
DIGAMMA = ElementwiseFn("digamma", "inexact", ops.DIGAMMA)
GAMMA = ElementwiseFn("gamma", "inexact", gamma)
GAMMA_SIGN = ElementwiseFn("gammasgn", "inexact", gamma_sign)
ZETA = ElementwiseFn("zeta", "inexact", zeta, is_primitive=True)
POLYGAMMA = ElementwiseFn("polygamma", "inexact", polygamma, is_primitive=True)
XLOGY = ElementwiseFn("xlogy", "inexact", xlogy)
XLOG1PY = ElementwiseFn("xlog1py", "inexact", xlog1py)
BETALN = ElementwiseFn("betaln", "inexact", betaln)
# fmt: on
