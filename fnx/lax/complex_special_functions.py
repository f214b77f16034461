"""Special functions of complex arguments: the Faddeeva function and the gamma function.

    wofz(z)       a rational function (Weideman, SIAM J. Numer. Anal. 31 (1994)) above the real axis
    loggamma(z)   Stirling's series far out and after a recurrence, a Taylor series at the zeros 1
                  and 2, reflection left of 0.1 (Hare, J. Algorithms 25 (1997)); as in SciPy
"""

from __future__ import annotations

import math

import numpy as np

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.transforms.custom.jvp import custom_jvp

__all__ = ["faddeeva", "gamma", "loggamma"]


# ---- the Faddeeva function ---------------------------------------------------------------------

_TERMS = 64


def _rational_coefficients(terms: int) -> tuple[float, np.ndarray]:
    """Return L and the coefficients of a polynomial in (L + i z) / (L - i z), highest first."""
    count = 2 * terms
    scale = math.sqrt(terms / math.sqrt(2))
    angles = np.arange(1 - count, count) * math.pi / count
    t = scale * np.tan(angles / 2)
    samples = np.exp(-t * t) * (scale * scale + t * t)
    transform = np.fft.fft(np.fft.fftshift(np.concatenate([[0.0], samples]))).real / (2 * count)
    return scale, transform[1:terms + 1][::-1].copy()


_SCALE, _COEFFICIENTS = _rational_coefficients(_TERMS)


@custom_jvp[[Array], Array]
def faddeeva(z: Array) -> Array:
    """Return w(z): by a rational function above the real axis, by w(z) = 2 exp(-z z) - w(-z) below.
    """
    lower = z.imag < 0
    upper = jnp.where(lower, -z, z)
    iz = lax.complex(-upper.imag, upper.real)
    denominator = _SCALE - iz
    ratio = (_SCALE + iz) / denominator
    total = jnp.full_like(z, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        total = total * ratio + float(coefficient)
    w = 2 * total / (denominator * denominator) + (1 / math.sqrt(math.pi)) / denominator
    safe = jnp.where(lower, z, 0)
    return jnp.where(lower, 2 * jnp.exp(-safe * safe) - w, w)


@faddeeva.defjvp
def _faddeeva_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (tangent,) = primals, tangents
    w = faddeeva(z)
    return w, tangent * (-2 * z * w + 2j / math.sqrt(math.pi))


# ---- the gamma function ------------------------------------------------------------------------

_FAR = 7.0     # beyond it, Stirling's series has all digits
_NEAR = 0.2    # to a zero
_LEFT = 0.1    # of it, reflection
_EULER = 0.5772156649015329
# B(2k) / (2k (2k - 1)), and (-1)**k zeta(k) / k from k = 23 down to 2
_STIRLING = (-2.955065359477124183e-2, 6.4102564102564102564e-3, -1.9175269175269175269e-3,
             8.4175084175084175084e-4, -5.952380952380952381e-4, 7.9365079365079365079e-4,
             -2.7777777777777777778e-3, 8.3333333333333333333e-2)
_ZETA = {2: math.pi**2 / 6, 3: 1.2020569031595942}


def _zeta(k: int) -> float:
    return _ZETA.get(k) or math.fsum(n ** -k for n in range(1, 4000))


_TAYLOR = [(-1)**k * _zeta(k) / k for k in range(23, 1, -1)]


def _stirling(z: Array) -> Array:
    inverse = 1 / z
    square = inverse * inverse
    series = jnp.full_like(z, _STIRLING[0])
    for coefficient in _STIRLING[1:]:
        series = series * square + coefficient
    return (z - 0.5) * jnp.log(z) - z + 0.5 * math.log(2 * math.pi) + inverse * series


def _taylor(z: Array) -> Array:
    """Return loggamma(1 + z) near 0."""
    series = jnp.full_like(z, _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        series = series * z + coefficient
    return z * (series * z - _EULER)


def _recur(z: Array) -> Array:
    """Return loggamma(z) of a z in the right upper quadrant: that of z + n by Stirling's series,
    less log(z (z + 1) ...), whose angle grows beyond pi as often as the sign of its imaginary part
    becomes negative."""
    product, turns = z, jnp.zeros_like(z.real)
    for _ in range(math.ceil(_FAR)):
        inside = z.real + 1 <= _FAR
        z = jnp.where(inside, z + 1, z)
        following = jnp.where(inside, product * z, product)
        turns = turns + jnp.where((following.imag < 0) & (product.imag >= 0), 2 * math.pi, 0)
        product = following
    final = z + 1
    return _stirling(final) - jnp.log(product) - lax.complex(jnp.zeros_like(turns), turns)


def _sin_pi(z: Array) -> Array:
    """Return sin(pi z) of a z whose imaginary part is small."""
    turns = jnp.rint(z.real)
    x, y = z.real - turns, z.imag * math.pi
    cosine = jnp.sin(math.pi * (0.5 - jnp.where(x < 0, -x, x)))  # not below 0 at 0.5
    sign = jnp.where(turns % 2 == 0, 1.0, -1.0)
    return lax.complex(sign * jnp.sin(math.pi * x) * jnp.cosh(y), sign * cosine * jnp.sinh(y))


def loggamma(z: Array) -> Array:
    """Return the logarithm of gamma(z), continuous but for a cut left of 0; NaN at the poles."""
    pole = (z.imag == 0) & (z.real <= 0) & (z.real == jnp.floor(z.real))
    below = jnp.signbit(z.imag)
    upper = jnp.where(pole, 1, jnp.where(below, jnp.conj(z), z))
    x, y = upper.real, upper.imag
    far = (x > _FAR) | (y > _FAR)
    left = ~far & (x < _LEFT)
    right = jnp.where(far, 1, jnp.where(left, jnp.conj(1 - upper), upper))
    one, two = jnp.abs(right - 1) <= _NEAR, jnp.abs(right - 2) <= _NEAR
    shifted = jnp.where(one, right - 1, jnp.where(two, right - 2, 0))
    near = _taylor(shifted) + jnp.where(two, jnp.log1p(jnp.where(two, shifted, 0)), 0)
    inside = jnp.where(one | two, near, _recur(right))
    angle = 2 * math.pi * jnp.floor(0.5 * x + 0.25)
    reflected = lax.complex(jnp.full_like(x, math.log(math.pi)), angle) - jnp.log(
        _sin_pi(jnp.where(left, upper, 0.5))) - jnp.conj(inside)
    result = jnp.where(far, _stirling(jnp.where(far, upper, 1)),
                      jnp.where(left, reflected, inside))
    return jnp.where(pole | jnp.isnan(z), math.nan, jnp.where(below, jnp.conj(result), result))


def gamma(z: Array) -> Array:
    """Return gamma(z), by its logarithm; NaN at the poles."""
    return jnp.exp(loggamma(z))
