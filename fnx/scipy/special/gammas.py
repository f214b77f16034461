"""Gamma and beta functions of ``scipy.special``: logarithms, derivatives, incomplete forms."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array import gamma as rows
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.documented import Family
from fnx.core.array.operate import apply, elementwise
from fnx.core.array.promotion import in_domain, promoted
from fnx.core.array.public import asarray
from fnx.core.array.rounded import rounded_once
from fnx.core.errors import ArgumentError
from fnx.core.process import load
from fnx.lax.elementwise import stop_gradient

__all__ = [
    "beta", "betainc", "betaln", "comb", "digamma", "factorial", "gamma", "gammainc", "gammaincc",
    "gammaln", "gammasgn", "loggamma", "multigammaln", "poch", "polygamma", "zeta",
]

AT = "fnx.scipy.special as special"
_MOST = 2000  # iteration limit of series and continued fractions

_family = Family(
    x="an Array or what ``asarray`` takes, of any shape.", a="above 0.", b="above 0.",
    returns="An Array of the shape that they broadcast to, of a float dtype.", at=AT,
    raises=("ShapeError: the shapes do not broadcast.",), wrap=rounded_once)


@elementwise(rows.LGAMMA, at=AT)
def gammaln(x: ArrayLike) -> Array:
    """Return the logarithm of abs(gamma(x)). core/array/gamma.py describes the method.

    >>> print(special.gammaln(1.0))
    0.0
    """
    return apply(rows.LGAMMA, x)


@_family()
def loggamma(x: ArrayLike) -> Array:
    """Return the logarithm of gamma(x); NaN for x < 0.

    >>> print(special.loggamma(1.0))
    0.0
    """
    return jnp.where(jnp.signbit(x), np.nan, gammaln(x))


@elementwise(rows.GAMMA, at=AT)
def gamma(x: ArrayLike) -> Array:
    """Return the gamma function: (x - 1)! for integers.

    >>> print(special.gamma(1.0))
    1.0
    """
    return Array(apply(rows.GAMMA, x)._node)


@elementwise(rows.GAMMA_SIGN, at=AT)
def gammasgn(x: ArrayLike) -> Array:
    """Return the sign of the gamma function.

    >>> print(special.gammasgn(-0.5))
    -1.0
    """
    return Array(apply(rows.GAMMA_SIGN, x)._node)


@elementwise(rows.DIGAMMA, at=AT)
def digamma(x: ArrayLike) -> Array:
    """Return the derivative of gammaln; NaN at 0, -1, -2, ...

    >>> print(special.digamma(1.0).round(5))
    -0.57722
    """
    return apply(rows.DIGAMMA, x)


@elementwise(rows.POLYGAMMA, at=AT)
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """Return the n-th derivative of digamma.

    >>> print(special.polygamma(1, 1.0).round(5))
    1.64493
    """
    return apply(rows.POLYGAMMA, n, x)


@_family(q="where the sum begins; by default 1.")
def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Return the Hurwitz zeta function: the sum of (k + q)**-x over k = 0, 1, 2, ...

    >>> print(special.zeta(2.0, 1.0).round(5))
    1.64493
    """
    return apply(rows.ZETA, x, 1.0 if q is None else q)


@elementwise(rows.BETALN, at=AT)
def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the logarithm of the beta function.

    >>> print(special.betaln(1.0, 1.0))
    0.0
    """
    return apply(rows.BETALN, a, b)


@_family()
def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the beta function, gamma(a) gamma(b) / gamma(a + b).

    >>> print(special.beta(1.0, 2.0))
    0.5
    """
    nodes, weak = promoted("inexact", "beta", (a, b))
    a, b = [Array(node, weak) for node in nodes]
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * jnp.exp(betaln(a, b))


@_family(n="how many elements: of floats too.", exact="False: numbers are floats here.",
         raises=("ArgumentError: ``exact`` is true.",))
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """Return n!; 0 for negative n.

    >>> print(special.factorial(3.0).round(5))
    6.0
    """
    arguments.flag("exact", exact)
    if exact:
        raise ArgumentError("expected exact=False", hint="math.factorial is exact")
    x = Array(in_domain("inexact", n), asarray(n).weak)
    return jnp.where(x < 0, 0, jnp.exp(gammaln(jnp.where(x < 0, 0, x) + 1)))


@_family(N="of how many.", k="how many.", repetition="an element may be chosen again.")
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """Return the number of ways to choose k of N elements.

    >>> print(special.comb(4.0, 2.0).round(4))
    6.0
    """
    arguments.flag("repetition", repetition)
    (a, b), _ = promoted("inexact", "comb", (N, k))
    n, m = Array(a), Array(b)
    if repetition:
        n = n + m - 1
    inside = (n >= 0) & (m >= 0) & (m <= n)
    n, m = jnp.where(inside, n, 1), jnp.where(inside, m, 0)
    ways = jnp.exp(-jnp.log1p(n) - betaln(n - m + 1, m + 1))
    return jnp.where(inside, jnp.round(ways), 0)


@_family(z="an Array or what ``asarray`` takes.", m="what is added.")
def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Return the Pochhammer symbol, gamma(z + m) / gamma(z).

    >>> print(special.poch(2.0, 2.0).round(4))
    6.0
    """
    (a, b), _ = promoted("inexact", "poch", (z, m))
    x, n = Array(a), Array(b)
    out = jnp.exp(gammaln(x + n) - gammaln(x)) * gammasgn(x + n) * gammasgn(x)
    return jnp.where(n == 0, 1, out)


_MOST_DIMENSIONS = 1000


@_family(d="the dimension: a whole number.")
def multigammaln(a: ArrayLike, d: ArrayLike) -> Array:
    """Return the logarithm of the multivariate gamma function of dimension d.

    >>> print(special.multigammaln(3.0, 1))
    0.6931472
    """
    n = arguments.integer("d", np.asarray(d)[()])
    if n > _MOST_DIMENSIONS:
        raise ArgumentError(f"expected d <= {_MOST_DIMENSIONS}, got {n}")
    x = Array(in_domain("inexact", a))
    out = x * 0 + n * (n - 1) / 4 * float(np.log(np.pi))
    for j in range(n):
        out = out + gammaln(x - j / 2)
    return out


# ---- incomplete forms ---------------------------------------------------------------------------


def _converged(step: Any, start: tuple[Array, ...]) -> tuple[Array, ...]:
    """Iterate ``step(i, *state) -> (mask of unconverged elements, state)`` to convergence.

    At most ``_MOST`` steps are run.
    """
    def body(carry: Any) -> Any:
        i, _, state = carry
        going, after = step(i, *state)
        return i + 1, going.any(), after

    loop = load("fnx.transforms.loops.while_loop").while_loop
    found: Any = loop(lambda c: c[1] & (c[0] < _MOST), body,
                      (asarray(np.float32(1)).astype(start[0].dtype), asarray(True), start))
    return tuple(found[2])


def _series(a: Array, x: Array) -> Array:
    """Return gammainc for x < a + 1, by a series.

    It is x**a exp(-x) / gamma(a + 1) times the sum of x**n / ((a + 1) ... (a + n)).
    """
    eps = float(jnp.finfo(x.dtype).eps) / 4

    def step(i: Array, term: Array, total: Array) -> Any:
        after = term * x / (a + i)
        going = jnp.abs(after) > eps * jnp.abs(total)
        return going, (after, total + after)
    one = jnp.ones_like(x)
    return _converged(step, (one, one))[1] * jnp.exp(_front(a, x) - jnp.log(a))


def _front(a: Array, x: Array) -> Array:
    return a * jnp.log(x) - x - gammaln(a)


def _fraction(a: Array, x: Array) -> Array:
    """Return gammaincc for x > a, by a continued fraction.

    Source: Lentz's evaluation of the fraction 6.5.31 of Abramowitz and Stegun.
    """
    def terms(i: Array, a: Array) -> Any:
        yield -i * (i - a), x + 1 - a + 2 * i
    whole = _lentz(terms, a, jnp.full_like(x, 1 / _tiny(x)), 1 / _away(x + 1 - a))
    return whole * jnp.exp(_front(a, x))


def _lentz(terms: Any, p: Array, above: Array, first: Array) -> Array:
    """Evaluate a continued fraction by Lentz's method.

    If p is an integer, a numerator is 0 and the fraction terminates, but its derivative with
    respect to p does not. So convergence is also checked on the fraction for floor(p) + 0.5.

    Args:
        terms: ``terms(i, p)`` yields pairs (numerator, denominator), for i = 1, 2, ...
        p: the parameter of the terms.
        above: the initial ratio of successive numerators.
        first: the initial inverse ratio of successive denominators, and value of the fraction.
    """
    eps = float(jnp.finfo(p.dtype).eps) / 2
    between = stop_gradient(jnp.floor(p) + 0.5)

    def step(i: Array, c: Array, d: Array, h: Array, c2: Array, d2: Array) -> Any:
        for (n, m), (n2, m2) in zip(terms(i, p), terms(i, between)):
            d, c = 1 / _away(n * d + m), _away(m + n / c)
            d2, c2 = 1 / _away(n2 * d2 + m2), _away(m2 + n2 / c2)
            h = h * c * d
        going = (jnp.abs(c * d - 1) > eps) | (jnp.abs(c2 * d2 - 1) > eps)
        return going, (c, d, h, c2, d2)
    return _converged(step, (above, first, first, above, stop_gradient(first)))[2]


def _tiny(x: Array) -> float:
    return float(jnp.finfo(x.dtype).tiny) * 16


def _away(x: Array) -> Array:
    """Return x, or a tiny number where x is about 0."""
    return jnp.where(jnp.abs(x) < _tiny(x), _tiny(x), x)


def incomplete(a: ArrayLike, x: ArrayLike, upper: bool) -> Array:
    """Return the lower or upper regularized incomplete gamma function."""
    nodes, _ = promoted("inexact", "gammainc", (a, x))
    p, y = Array(nodes[0]), Array(nodes[1])
    bad = ~(p > 0) | ~(y >= 0)
    zero, far = y == 0, y == np.inf
    good_a = jnp.where(bad, 1, p)
    good_x = jnp.where(bad | zero | far, 1, y)
    by_series = good_x < good_a + 1
    low = _series(good_a, jnp.where(by_series, good_x, good_a))
    high = _fraction(good_a, jnp.where(by_series, good_a + 1, good_x))
    out = jnp.where(by_series, 1 - low if upper else low, high if upper else 1 - high)
    out = jnp.where(zero, 1.0 if upper else 0.0, jnp.where(far, 0.0 if upper else 1.0, out))
    return jnp.where(bad & ~((p == 0) & (y > 0)), np.nan, jnp.where(
        p == 0, 0.0 if upper else 1.0, out))


@_family(x="not below 0.")
def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the integral of t**(a - 1) exp(-t) from 0 to x, divided by gamma(a).

    >>> print(special.gammainc(1.0, 0.0))
    0.0
    """
    return incomplete(a, x, False)


@_family(x="not below 0.")
def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the integral of t**(a - 1) exp(-t) from x to infinity, divided by gamma(a).

    >>> print(special.gammaincc(1.0, 0.0))
    1.0
    """
    return incomplete(a, x, True)


@_family(x="from 0 to 1.")
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Return the integral of t**(a - 1) (1 - t)**(b - 1) from 0 to x, divided by beta(a, b).

    Source: Lentz's evaluation of the continued fraction 26.5.8 of Abramowitz and Stegun.

    >>> print(special.betainc(1.0, 1.0, 0.25).round(5))
    0.25
    """
    nodes, _ = promoted("inexact", "betainc", (a, b, x))
    p, q, y = map(Array, nodes)
    bad = ~((p > 0) & (q > 0) & (y >= 0) & (y <= 1))
    ends = (y == 0) | (y == 1)
    p, q = jnp.where(bad, 1, p), jnp.where(bad, 1, q)
    t = jnp.where(bad | ends, 0.5, y)
    turned = t > (p + 1) / (p + q + 2)
    u, v = jnp.where(turned, q, p), jnp.where(turned, p, q)
    s = jnp.where(turned, 1 - t, t)
    front = jnp.exp(u * jnp.log(s) + v * jnp.log1p(-s) - betaln(u, v)) / u
    part = front * _beta_fraction(u, v, s)
    out = jnp.where(turned, 1 - part, part)
    return jnp.where(bad, np.nan, jnp.where(ends, y, out))


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    def terms(i: Array, b: Array) -> Any:
        yield i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i)), 1
        yield -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1)), 1
    return _lentz(terms, b, jnp.ones_like(x), 1 / _away(1 - (a + b) * x / (a + 1)))
