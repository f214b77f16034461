"""Integrals and series of ``scipy.special``: exponential, sine and Fresnel integrals and others.

Sources: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), chapters 5, 7, 13, 15 and
23; series near 0 and expansions or Gauss-Legendre quadrature beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, constant_array
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.float32_compute import compute_in_float32
from fnx.core.array.promotion import as_real, promote_arrays
from fnx.core.formulas import gamma
from fnx.core.ir.expr import Expr
from fnx.core.support.errors import ArgumentError
from fnx.lax.control_flow import fori_loop
from fnx.lax.elementwise import stop_gradient
from fnx.transforms.custom.jvp import custom_jvp

__all__ = [
    "bernoulli", "bessel_jn", "dawsn", "exp1", "expi", "expn", "fresnel", "hyp1f1", "hyp2f1",
    "owens_t", "sici", "spence",
]

_SERIES_TERMS = 400  # terms of a series
_EULER = 0.5772156649015329
_E1_MIDDLE = (  # scripts/fit_special.py
    1.65004004922495782e-18, -5.61509770742408731e-18, 1.91281207524443165e-17,
    -6.52334142184082576e-17, 2.22733029351017593e-16, -7.61471123935138292e-16,
    2.60686417017949805e-15, -8.93771063930209136e-15, 3.0692312046355053e-14,
    -1.05581434557501056e-13, 3.63887604193116645e-13, -1.25673929796534829e-12,
    4.35019818169658821e-12, -1.50959338855201072e-11, 5.25309952297579713e-11,
    -1.83363867474319398e-10, 6.42269423455777847e-10, -2.25850220293174369e-9,
    7.97734344159907007e-9, -2.83215827987822602e-8, 1.01147272134721068e-7,
    -3.63761957667904506e-7, 1.31912046558236878e-6, -4.83187821311480868e-6,
    0.0000179200213063685883, -0.0000675102580437057736, 0.000259508024295175229,
    -0.00102328990210321268, 0.00414998267219239367, -0.0170919117559861211, 0.0677533709516841046,
    -0.226954516749540293, 0.484897858152585108,
)


def _legendre_rule(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of Gauss-Legendre quadrature, rounded once: NumPy's weights are some
    hundred ulp off."""
    x: np.ndarray = np.polynomial.legendre.leggauss(n)[0].astype(np.longdouble)
    for _ in range(3):
        before, value = np.ones_like(x), x
        for k in range(2, n + 1):
            before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
        slope = n * (x * value - before) / (x * x - 1)
        x = x - value / slope
    return x.astype(np.float64), (2 / ((1 - x * x) * slope * slope)).astype(np.float64)


_NODES, _WEIGHTS = _legendre_rule(48)

_docstr = DocTemplate(
    x="an Array or array-like.", a="a parameter.", b="a parameter.",
    c="a parameter.", z="an Array or array-like.", n="the order.",
    returns="An Array of the broadcast shape, of a float dtype.",
    imports="fnx.scipy.special as special",
    raises=("ShapeError: the shapes do not broadcast.",), wrap=compute_in_float32)


def _odd_abs(x: Array) -> Array:
    """Return |x| with derivative 1 at 0, which is right for odd functions of x."""
    return jnp.where(x < 0, -x, x)


def _integrate(f: Any, low: float, high: Any) -> Array:
    """Integrate f from low to high by Gauss-Legendre quadrature with 48 nodes."""
    half = (high - low) / 2
    center = (high + low) / 2
    kind = half.dtype
    nodes, weights = constant_array(_NODES, kind), constant_array(_WEIGHTS, kind)
    points = center[..., None] + nodes * half[..., None]
    return asarray((f(points) * weights).sum(-1) * half)


def _sum_series(x: Array, ratio: Callable[[Array], Array]) -> Array:
    """Sum 1 + r(1) + r(1) r(2) + ... in a loop; NaN where the remainder is not negligible."""
    one = jnp.ones_like(x)

    def step(i: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        term = state[0] * ratio((i + 1).astype(x.dtype))
        return term, state[1] + term
    term, total = fori_loop(0, _SERIES_TERMS, step, (one, one))
    last, total_const, r = map(stop_gradient,
                               (term, total, ratio(jnp.full_like(x, _SERIES_TERMS + 1))))
    tolerance = 4 * float(jnp.finfo(x.dtype).eps) * jnp.abs(total_const) * (1 - jnp.abs(r))
    return jnp.where((jnp.abs(last * r) > tolerance) & jnp.isfinite(total_const), math.nan, total)


def _e1_fraction(x: Array, n: Any, steps: int) -> Array:
    """Return exp(x) E_n(x) by the continued fraction 5.1.22, evaluated from its end."""
    def step(i: Any, tail: Array) -> Array:
        k = (steps - i).astype(x.dtype)
        return asarray((n + (k - 1)) / (1 + k / (x + tail)))
    return 1 / (x + fori_loop(0, steps, step, jnp.zeros_like(x)))


def _e1_polynomial(x: Array) -> Array:
    """Return E_1(x) for x from 1 / 2 to 7 / 4, where the series less the logarithm cancels."""
    y = (x - 1.125) * 3.2
    return Array(gamma.chebyshev(_E1_MIDDLE, Expr(y._node)).node)


def _ein_series(x: Array, terms: int) -> Array:
    """Return the sum of (-1)**(k + 1) x**k / (k k!), from k = 1."""
    def step(i: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        k = (i + 1).astype(x.dtype)
        term = state[0] * (-x / k)
        return term, state[1] - term / k
    return fori_loop(0, terms, step, (jnp.ones_like(x), jnp.zeros_like(x)))[1]


def _exp1(y: Array) -> Array:
    """Return exp1: by its series, a polynomial, or a continued fraction."""
    near, far = y < 0.5, y >= 1.75
    small, large = jnp.where(near & (y > 0), y, 0.25), jnp.where(far, y, 1.75)
    series = -jnp.log(small) - _EULER + _ein_series(small, 24)
    fraction = jnp.exp(-large) * _e1_fraction(large, 1.0, 60)
    middle = _e1_polynomial(jnp.where(near | far, 1, y))
    out = jnp.where(near, series, jnp.where(far, fraction, middle))
    return jnp.where(y == 0, math.inf, jnp.where(y < 0, math.nan, out))


_e1: custom_jvp[Any, Array] = custom_jvp(_exp1)
_e1.defjvps(lambda t, _, x: -jnp.exp(-x) / jnp.where(x < 0, math.nan, x) * t)


@_docstr()
def exp1(x: ArrayLike) -> Array:
    """Return the integral of exp(-t) / t from x to infinity.

    >>> print(special.exp1(1.0).round(5))
    0.21938
    """
    return _e1(as_real(x))


def _principal_value(y: Array) -> Array:
    """Return expi: by its series, its asymptotic series, or as -E_1(-y)."""
    limit, terms, far_terms = (40, 130, 40) if y.dtype.itemsize == 8 else (24, 90, 24)
    near = jnp.abs(y) < limit
    positive = jnp.where((y > 0) & near, y, 1)
    series = jnp.log(positive) + _EULER - _ein_series(-positive, terms)
    large = jnp.where(near | (y < 0), limit, y)
    term, total = large * 0 + 1, large * 0 + 1
    for k in range(1, far_terms):
        term = term * (k / large)
        total = total + term
    far = jnp.exp(large) / large * total
    out = jnp.where(near, series, far)
    negative = -_exp1(jnp.where(y < 0, -y, 1))
    out = jnp.where(y == math.inf, y, out)
    return jnp.where(y == 0, -math.inf, jnp.where(y < 0, negative, out))


_exponential_integral: custom_jvp[Any, Array] = custom_jvp(_principal_value)
_exponential_integral.defjvps(lambda t, _, x: jnp.exp(x) / x * t)


@_docstr()
def expi(x: ArrayLike) -> Array:
    """Return the integral of exp(t) / t from -infinity to x, as a principal value.

    >>> print(special.expi(1.0).round(5))
    1.89512
    """
    return _exponential_integral(as_real(x))


@_docstr(n="an integer >= 0.")
def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """Return the integral of exp(-x t) / t**n from 1 to infinity, by recurrence from exp1.

    >>> print(special.expn(2, 1.0).round(5))
    0.1485
    """
    order, y = promote_arrays("expn", n, x, domain="real", broadcast=True)
    near = y < 1.5
    positive = jnp.where(y > 0, y, 1)
    out, last = jnp.exp(-positive) / positive, exp1(positive)
    most = int(np.max(np.asarray(order), initial=0)) if order._storage is not None else 32
    value = jnp.where(order == 0, out, last)
    for k in range(2, most + 1):
        last = (jnp.exp(-positive) - positive * last) / (k - 1)
        value = jnp.where(order == k, last, value)
    far = jnp.exp(-positive) * _e1_fraction(jnp.where(near, 1.5, positive), order, 60)
    out_positive = jnp.where(near | (order == 0), value, far)
    at_zero = jnp.where(order > 1, 1 / jnp.where(order > 1, order - 1, 1), math.inf)
    return jnp.where(y == 0, at_zero, jnp.where(y < 0, math.nan, out_positive))


@_docstr()
def dawsn(x: ArrayLike) -> Array:
    """Return Dawson's integral: exp(-x**2) times the integral of exp(t**2) from 0 to x.

    >>> print(special.dawsn(1.0).round(5))
    0.53808
    """
    y = as_real(x)
    size = _odd_abs(y)
    limit, terms = (6, 37) if y.dtype.itemsize == 8 else (5, 12)
    near = size < limit
    inside = jnp.where(near, size, 0)
    twice = 2 * inside[..., None]
    integral = _integrate(lambda u: jnp.exp(u * (u - twice)), 0.0, inside)  # u = x - t
    large = jnp.where(near, limit, size)
    inverse = 0.5 / (large * large)
    term, total = large * 0 + 1, large * 0 + 1
    for k in range(1, terms):
        term = term * inverse * (2 * k - 1)
        total = total + term
    out = jnp.where(near, integral, 0.5 / large * total)
    out = jnp.where(jnp.isinf(y), 0, out)
    return jnp.where(y < 0, -out, out)


def _auxiliary_fg(x: Array) -> tuple[Array, Array]:
    """Return f and g of 5.2.12 for x >= 4: integrals of exp(-x t) / (1 + t**2) times 1 and t."""
    f: Any = 0.0
    g: Any = 0.0
    nodes, weights = np.polynomial.laguerre.laggauss(32)
    for node, weight in zip(nodes, weights):
        t = float(node) / x
        under = float(weight) / (1 + t * t)
        f, g = f + under, g + under * t
    return f / x, g / x


@_docstr("(sine integral, cosine integral), Arrays of the shape of x.")
def sici(x: ArrayLike) -> tuple[Array, Array]:
    """Return the integrals of sin(t) / t from 0, and of cos(t) / t from infinity, to x.

    >>> [round(float(v), 5) for v in special.sici(1.0)]
    [0.94608, 0.3374]
    """
    y = as_real(x)
    size = _odd_abs(y)
    near = size < 6
    inside, large = jnp.where(near, size, 1), jnp.where(near, 6, size)
    square, term = inside * inside, inside
    sine, cosine, even = inside, inside * 0, inside * 0 + 1
    for k in range(1, 18):
        even = even * (-square / ((2 * k - 1) * (2 * k)))
        cosine = cosine + even / (2 * k)
        term = term * (-square / ((2 * k) * (2 * k + 1)))
        sine = sine + term / (2 * k + 1)
    f, g = _auxiliary_fg(large)
    s = jnp.where(near, sine, math.pi / 2 - f * jnp.cos(large) - g * jnp.sin(large))
    c = jnp.where(near, _EULER + jnp.log(inside) + cosine,
                  f * jnp.sin(large) - g * jnp.cos(large))
    s = jnp.where(size == math.inf, math.pi / 2, s)
    c = jnp.where(size == math.inf, 0, c)
    return jnp.where(y < 0, -s, s), c


@_docstr("(S, C), Arrays of the shape of x.")
def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """Return the integrals of sin(pi t**2 / 2) and cos(pi t**2 / 2) from 0 to x.

    >>> [round(float(v), 5) for v in special.fresnel(1.0)]
    [0.43826, 0.77989]
    """
    y = as_real(x)
    size = _odd_abs(y)
    near = size < 4
    inside, large = jnp.where(near, size, 0), jnp.where(near | (size > 1e18), 4, size)
    half = math.pi / 2
    s = _integrate(lambda t: jnp.sin(half * t * t), 0.0, inside)
    c = _integrate(lambda t: jnp.cos(half * t * t), 0.0, inside)
    z = math.pi * large * large
    f, g, term = z * 0 + 1, z * 0 + 1, z * 0 + 1
    sign = 1
    for k in range(1, 7):  # 7.3.27, 7.3.28
        sign = -sign
        term = term * ((4 * k - 3) * (4 * k - 1)) / (z * z)
        f = f + sign * term
        g = g + sign * term * (4 * k + 1)
    f, g = f / (math.pi * large), g / (math.pi ** 2 * large ** 3)
    phase = half * jnp.fmod(large * large, 4.0)
    far_s = 0.5 - f * jnp.cos(phase) - g * jnp.sin(phase)
    far_c = 0.5 + f * jnp.sin(phase) - g * jnp.cos(phase)
    s, c = jnp.where(near, s, far_s), jnp.where(near, c, far_c)
    is_huge = size > 1e8 if y.dtype.itemsize < 8 else size > 1e17  # squares may overflow
    s, c = (jnp.where(is_huge, 0.5, v) for v in (s, c))
    return jnp.where(y < 0, -s, s), jnp.where(y < 0, -c, c)


@_docstr()
def spence(x: ArrayLike) -> Array:
    """Return the integral of log(t) / (1 - t) from 1 to x: the dilogarithm of 1 - x.

    >>> print(special.spence(1.0))
    0.0
    """
    y = as_real(x)
    safe = jnp.where(y > 0, y, 1)
    large, small = safe > 1.5, safe < 0.5
    log = jnp.log(safe)
    z = jnp.where(large, 1 / safe, safe)  # then 0 < z <= 1.5
    small = z < 0.5
    w = jnp.where(small, z, 1 - z)
    # Li2(w), |w| <= 0.5, by u = -log(1 - w)
    u = -jnp.log1p(-w)
    total, power = u - u * u / 4, u
    square = u * u
    for k, b in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)):
        power = power * square / ((2 * k + 2) * (2 * k + 3))
        total = total + b * power
    near_one = total
    near_zero = math.pi ** 2 / 6 - jnp.log(jnp.where(small, z, 0.5)) * jnp.log1p(
        -jnp.where(small, z, 0.5)) - total
    out = jnp.where(small, near_zero, near_one)
    out = jnp.where(large, -0.5 * log * log - out, out)
    return jnp.where(y == 0, math.pi ** 2 / 6, jnp.where((y > 0) & (y < math.inf), out, math.nan))


@_docstr()
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Return Kummer's function: the sum of (a)_k x**k / ((b)_k k!).

    >>> print(special.hyp1f1(1.0, 1.0, 0.0))
    1.0
    """
    p, q, y = promote_arrays("hyp1f1", a, b, x, domain="real", broadcast=True)
    is_negative = y < 0  # 13.1.27
    p, z = jnp.where(is_negative, q - p, p), jnp.abs(y)
    total = _sum_series(z, lambda k: (p + k - 1) / (q + k - 1) * z / k)
    return jnp.where(is_negative, jnp.exp(y) * total, total)


@_docstr(x="below 1.")
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Return Gauss's hypergeometric function: the sum of (a)_k (b)_k x**k / ((c)_k k!), for x < 1.

    The sum has 400 terms; the result is NaN where more are needed, from about x = 0.97 on.

    >>> print(special.hyp2f1(1.0, 1.0, 1.0, 0.0))
    1.0
    """
    p, q, r, y = promote_arrays("hyp2f1", a, b, c, x, domain="real", broadcast=True)
    is_negative = y < 0  # 15.3.4
    z = jnp.where(is_negative, y / (y - 1), y)
    q2 = jnp.where(is_negative, r - q, q)
    total = _sum_series(z, lambda k: (p + k - 1) * (q2 + k - 1) / (r + k - 1) * z / k)
    out = jnp.where(is_negative, jnp.power(1 - jnp.where(is_negative, y, 0), -p) * total, total)
    return jnp.where(y > 1, math.nan, out)


@_docstr(h="a height.", a="a slope.")
def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Return the integral of exp(-h**2 (1 + t**2) / 2) / (2 pi (1 + t**2)) from 0 to a.

    >>> print(special.owens_t(0.0, 1.0).round(5))
    0.125
    """
    height, slope = promote_arrays("owens_t", h, a, domain="real", broadcast=True)
    square = (height * height)[..., None]
    # substitute t = tan(s)
    def f(s: Array) -> Array:
        c = jnp.cos(s)
        return jnp.exp(-0.5 * square / (c * c))
    return _integrate(f, 0.0, jnp.arctan(slope)) / (2 * math.pi)


@_docstr("An Array of n + 1 floats.", n="the last index: an int.",
         raises=("ArgumentError: a negative n.",))
def bernoulli(n: int) -> Array:
    """Return the Bernoulli numbers 0 to n.

    >>> special.bernoulli(2).round(4).tolist()
    [1.0, -0.5, 0.16670000553131104]
    """
    last = arguments.check_int("n", n)
    if last < 0:
        raise ArgumentError(f"expected n >= 0, got {last}")
    exact: list[Any] = [1.0]
    for m in range(1, last + 1):
        exact.append(-sum(math.comb(m + 1, k) * exact[k] for k in range(m)) / (m + 1)
                     if m == 1 or m % 2 == 0 else 0.0)
    return jnp.asarray(np.array(exact[:last + 1], np.float32))


@_docstr("An Array with a leading axis of the orders 0 to v.", v="the highest order.",
         n_iter="the start order, above v and abs(z).",
         raises=("ArgumentError: invalid orders.",))
def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Return Bessel functions of the first kind, orders 0 to v, by Miller's backward recurrence.

    >>> special.bessel_jn(0.0, v=1).round(4).tolist()
    [1.0, 0.0]
    """
    order, start = arguments.check_int("v", v), arguments.check_int("n_iter", n_iter)
    if order < 0 or start <= order:
        raise ArgumentError(f"expected 0 <= v < n_iter, got {order} and {start}")
    x = as_real(z)
    zero = x == 0
    y = jnp.where(zero, 1, x)
    above, current = x * 0, x * 0 + 1e-30
    orders: list[Array] = []
    total = x * 0
    for k in range(start, -1, -1):
        if k <= order:
            orders.append(current)
        if k % 2 == 0:
            total = total + (current if k == 0 else 2 * current)
        above, current = current, 2 * k / y * current - above
        rescale = jnp.where(jnp.abs(current) > 1e10, 1e-10, 1.0)
        above, current, total = above * rescale, current * rescale, total * rescale
        orders = [value * rescale for value in orders]
    values = jnp.stack(orders[::-1]) / total
    exact = constant_array(np.eye(1, order + 1)[0], x.dtype).reshape(-1, *(1,) * x.ndim)
    return jnp.where(zero, exact, values)
