"""Gamma and beta functions of ``scipy.special``: logarithms, derivatives, incomplete forms."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise, record_elementwise
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.float32_compute import compute_in_float32
from fnx.core.array.promotion import as_real, domain_node, promote_arrays, promote_operands
from fnx.core.formulas import gamma as rows
from fnx.core.support.errors import ArgumentError
from fnx.core.support.process import lazy_import
from fnx.lax.elementwise import stop_gradient

while_loop = lazy_import("fnx.transforms.control_flow.while_loop")
of_complex = lazy_import("fnx.lax.complex_special_functions")

__all__ = [
    "beta", "betainc", "betaln", "comb", "digamma", "factorial", "gamma", "gammainc", "gammaincc",
    "gammaln", "gammasgn", "loggamma", "multigammaln", "poch", "polygamma", "zeta",
]

IMPORTS = "fnx.scipy.special as special"
_MAX_STEPS = 2000  # iteration limit of series and continued fractions

_docstr = DocTemplate(
    x="an Array or array-like.", a="above 0.", b="above 0.",
    returns="An Array of the broadcast shape, of a float dtype.", imports=IMPORTS,
    raises=("ShapeError: the shapes do not broadcast.",), wrap=compute_in_float32)


@elementwise(rows.LGAMMA, imports=IMPORTS)
def gammaln(x: ArrayLike) -> Array:
    """Return the logarithm of abs(gamma(x)). core/formulas/gamma.py describes the method.

    >>> print(special.gammaln(1.0))
    0.0
    """
    return apply(rows.LGAMMA, x)


@_docstr()
def loggamma(x: ArrayLike) -> Array:
    """Return the logarithm of gamma(x); NaN for x < 0, unless x is complex.

    >>> print(special.loggamma(1.0))
    0.0
    """
    z = asarray(x)
    if z._dtype.is_complex:
        result: Array = of_complex.loggamma(z)
        return result
    return jnp.where(jnp.signbit(x), np.nan, gammaln(x))


@elementwise(rows.GAMMA, imports=IMPORTS)
def gamma(x: ArrayLike) -> Array:
    """Return the gamma function: (x - 1)! for integers.

    >>> print(special.gamma(1.0))
    1.0
    """
    z = asarray(x)
    return of_complex.gamma(z) if z._dtype.is_complex else Array(apply(rows.GAMMA, z)._node)


@elementwise(rows.GAMMA_SIGN, imports=IMPORTS)
def gammasgn(x: ArrayLike) -> Array:
    """Return the sign of the gamma function.

    >>> print(special.gammasgn(-0.5))
    -1.0
    """
    return Array(apply(rows.GAMMA_SIGN, x)._node)


@elementwise(rows.DIGAMMA, imports=IMPORTS)
def digamma(x: ArrayLike) -> Array:
    """Return the derivative of gammaln; NaN at 0, -1, -2, ...

    >>> print(special.digamma(1.0).round(5))
    -0.57722
    """
    return apply(rows.DIGAMMA, x)


@elementwise(rows.POLYGAMMA, imports=IMPORTS)
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """Return the n-th derivative of digamma.

    >>> print(special.polygamma(1, 1.0).round(5))
    1.64493
    """
    return apply(rows.POLYGAMMA, n, x)


@_docstr(q="the first term; by default 1.")
def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Return the Hurwitz zeta function: the sum of (k + q)**-x over k = 0, 1, 2, ...

    >>> print(special.zeta(2.0, 1.0).round(5))
    1.64493
    """
    return apply(rows.ZETA, x, 1.0 if q is None else q)


@elementwise(rows.BETALN, imports=IMPORTS)
def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the logarithm of the beta function.

    >>> print(special.betaln(1.0, 1.0))
    0.0
    """
    return apply(rows.BETALN, a, b)


@_docstr()
def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the beta function, gamma(a) gamma(b) / gamma(a + b).

    >>> print(special.beta(1.0, 2.0))
    0.5
    """
    nodes, weak = promote_operands("inexact", "beta", (a, b))
    a, b = [Array(node, weak) for node in nodes]
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * jnp.exp(betaln(a, b))


@_docstr(n="integers or floats.", exact="must be False: results are floats.",
         raises=("ArgumentError: ``exact`` is true.",))
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """Return n!; 0 for negative n.

    >>> print(special.factorial(3.0).round(5))
    6.0
    """
    if exact:
        raise ArgumentError("expected exact=False", hint="math.factorial is exact")
    x = Array(domain_node("inexact", n), asarray(n).weak)
    return jnp.where(x < 0, 0, jnp.exp(gammaln(jnp.where(x < 0, 0, x) + 1)))


@_docstr(N="the total number.", k="the number.", repetition="whether elements may repeat.")
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """Return the number of ways to choose k of N elements.

    >>> print(special.comb(4.0, 2.0).round(4))
    6.0
    """
    n, m = promote_arrays("comb", N, k, domain="real", broadcast=True)
    if repetition:
        n = n + m - 1
    inside = (n >= 0) & (m >= 0) & (m <= n)
    n, m = jnp.where(inside, n, 1), jnp.where(inside, m, 0)
    ways = jnp.exp(-jnp.log1p(n) - betaln(n - m + 1, m + 1))
    whole = (n == jnp.floor(n)) & (m == jnp.floor(m))
    off = jnp.where(whole, jnp.round(ways) - ways, 0)
    return jnp.where(inside, ways + stop_gradient(off), 0)


@_docstr(z="an Array or array-like.", m="the offset.")
def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Return the Pochhammer symbol, gamma(z + m) / gamma(z).

    >>> print(special.poch(2.0, 2.0).round(4))
    6.0
    """
    x, n = promote_arrays("poch", z, m, domain="real", broadcast=True)
    out = jnp.exp(gammaln(x + n) - gammaln(x)) * gammasgn(x + n) * gammasgn(x)
    return jnp.where(n == 0, 1, out)


_MAX_DIMENSIONS = 1000


@_docstr(d="the dimension, an integer.")
def multigammaln(a: ArrayLike, d: ArrayLike) -> Array:
    """Return the logarithm of the multivariate gamma function of dimension d.

    >>> print(special.multigammaln(3.0, 1))
    0.6931472
    """
    n = arguments.check_int("d", np.asarray(d)[()])
    if n > _MAX_DIMENSIONS:
        raise ArgumentError(f"expected d <= {_MAX_DIMENSIONS}, got {n}")
    x = as_real(a)
    out = x * 0 + n * (n - 1) / 4 * float(np.log(np.pi))
    for j in range(n):
        out = out + gammaln(x - j / 2)
    return out


# ---- incomplete forms ---------------------------------------------------------------------------


def _iterate(step: Any, start: tuple[Array, ...]) -> tuple[Array, ...]:
    """Iterate ``step(i, *state) -> (mask of unconverged elements, state)`` until each element has
    converged, which then stays as it is: so each lane of a kernel runs a loop of its own.

    At most ``_MAX_STEPS`` steps are run.
    """
    def body(carry: Any) -> Any:
        i, active, state = carry
        unconverged, new_state = step(i, *state)
        states = [jnp.where(active, new, old) for new, old in zip((i + 1, *new_state), (i, *state))]
        return states[0], active & (unconverged & (i < _MAX_STEPS)), tuple(states[1:])

    one = jnp.ones_like(start[0])
    final: Any = while_loop.while_loop(
        lambda c: c[1].any(), body, (stop_gradient(one), one > 0, start), _MAX_STEPS)
    return tuple(final[2])


def _gammainc_series(a: Array, x: Array) -> Array:
    """Return gammainc for x < a + 1, by a series.

    It is x**a exp(-x) / gamma(a + 1) times the sum of x**n / ((a + 1) ... (a + n)).
    """
    eps = float(jnp.finfo(x.dtype).eps) / 4

    def step(i: Array, term: Array, total: Array) -> Any:
        new_term = term * x / (a + i)
        unconverged = jnp.abs(new_term) > eps * jnp.abs(total)
        return unconverged, (new_term, total + new_term)
    ones = jnp.ones_like(x)
    return _iterate(step, (ones, ones))[1] * jnp.exp(_log_prefactor(a, x) - jnp.log(a))


def _log_prefactor(a: Array, x: Array) -> Array:
    return a * jnp.log(x) - x - gammaln(a)


def _gammaincc_fraction(a: Array, x: Array) -> Array:
    """Return gammaincc for x > a, by a continued fraction.

    Source: Lentz's evaluation of the fraction 6.5.31 of Abramowitz and Stegun.
    """
    def terms(i: Array, a: Array) -> Any:
        yield -i * (i - a), x + 1 - a + 2 * i
    fraction = _lentz(terms, a, jnp.full_like(x, 1 / _tiny(x)), 1 / _avoid_zero(x + 1 - a))
    return fraction * jnp.exp(_log_prefactor(a, x))


def _lentz(terms: Any, p: Array, ratio: Array, inverse: Array) -> Array:
    """Evaluate a continued fraction by Lentz's method.

    If p is an integer, a numerator is 0 and the fraction terminates, but its derivative with
    respect to p does not. So convergence is also checked on the fraction for floor(p) + 0.5.

    Args:
        terms: ``terms(i, p)`` yields pairs (numerator, denominator), for i = 1, 2, ...
        p: the parameter of the terms.
        ratio: the initial ratio of successive numerators.
        inverse: the initial inverse ratio of successive denominators, and value of the fraction.
    """
    eps = float(jnp.finfo(p.dtype).eps) / 2
    half_integer = stop_gradient(jnp.floor(p) + 0.5)

    def step(i: Array, c: Array, d: Array, h: Array, c2: Array, d2: Array) -> Any:
        for (n, m), (n2, m2) in zip(terms(i, p), terms(i, half_integer)):
            d, c = 1 / _avoid_zero(n * d + m), _avoid_zero(m + n / c)
            d2, c2 = 1 / _avoid_zero(n2 * d2 + m2), _avoid_zero(m2 + n2 / c2)
            h = h * c * d
        unconverged = (jnp.abs(c * d - 1) > eps) | (jnp.abs(c2 * d2 - 1) > eps)
        return unconverged, (c, d, h, c2, d2)
    return _iterate(step, (ratio, inverse, inverse, ratio, stop_gradient(inverse)))[2]


def _tiny(x: Array) -> float:
    return float(jnp.finfo(x.dtype).tiny) * 16


def _avoid_zero(x: Array) -> Array:
    """Return x, or a tiny number where x is about 0."""
    return jnp.where(jnp.abs(x) < _tiny(x), _tiny(x), x)


@_docstr.family(x="at least 0.")
def _incomplete_gamma(upper: bool, a: ArrayLike, x: ArrayLike) -> Array:
    """Return the lower or upper regularized incomplete gamma function."""
    p, y = promote_arrays("gammainc", a, x, domain="real", broadcast=True)
    invalid = ~(p > 0) | ~(y >= 0)
    zero, is_inf = y == 0, y == np.inf
    good_a = jnp.where(invalid, 1, p)
    good_x = jnp.where(invalid | zero | is_inf, 1, y)
    by_series = good_x < good_a + 1
    low = _gammainc_series(good_a, jnp.where(by_series, good_x, good_a))
    high = _gammaincc_fraction(good_a, jnp.where(by_series, good_a + 1, good_x))
    out = jnp.where(by_series, 1 - low if upper else low, high if upper else 1 - high)
    out = jnp.where(zero, 1.0 if upper else 0.0, jnp.where(is_inf, 0.0 if upper else 1.0, out))
    out = jnp.where(invalid & ~((p == 0) & (y > 0)), np.nan, jnp.where(
        p == 0, 0.0 if upper else 1.0, out))
    return record_elementwise(out, "igammac" if upper else "igamma",
                              gammaincc if upper else gammainc, p, y)


gammainc = _incomplete_gamma(
    False, "gammainc",
    "Return the integral of t**(a - 1) exp(-t) from 0 to x, divided by gamma(a).",
    "print(special.gammainc(1.0, 0.0))", "0.0")
gammaincc = _incomplete_gamma(
    True, "gammaincc",
    "Return the integral of t**(a - 1) exp(-t) from x to infinity, divided by gamma(a).",
    "print(special.gammaincc(1.0, 0.0))", "1.0")


@_docstr(x="from 0 to 1.")
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Return the integral of t**(a - 1) (1 - t)**(b - 1) from 0 to x, divided by beta(a, b).

    Source: Lentz's evaluation of the continued fraction 26.5.8 of Abramowitz and Stegun.

    >>> print(special.betainc(1.0, 1.0, 0.25).round(5))
    0.25
    """
    p, q, y = operands = promote_arrays("betainc", a, b, x, domain="real", broadcast=True)
    invalid = ~((p > 0) & (q > 0) & (y >= 0) & (y <= 1))
    at_end = (y == 0) | (y == 1)
    p, q = jnp.where(invalid, 1, p), jnp.where(invalid, 1, q)
    t = jnp.where(invalid | at_end, 0.5, y)
    swapped = t > (p + 1) / (p + q + 2)
    u, v = jnp.where(swapped, q, p), jnp.where(swapped, p, q)
    s = jnp.where(swapped, 1 - t, t)
    prefactor = jnp.exp(u * jnp.log(s) + v * jnp.log1p(-s) - betaln(u, v)) / u
    part = prefactor * _beta_fraction(u, v, s)
    out = jnp.where(swapped, 1 - part, part)
    out = jnp.where(invalid, np.nan, jnp.where(at_end, y, out))
    return record_elementwise(out, "regularized_incomplete_beta", betainc, *operands)


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    def terms(i: Array, b: Array) -> Any:
        yield i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i)), 1
        yield -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1)), 1
    return _lentz(terms, b, jnp.ones_like(x), 1 / _avoid_zero(1 - (a + b) * x / (a + 1)))
