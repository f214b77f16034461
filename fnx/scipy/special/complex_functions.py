"""Special functions with complex values: the Faddeeva function and spherical harmonics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import DTypeError, NotBuiltError
from fnx.lax.complex_special_functions import faddeeva

__all__ = ["sph_harm_y", "wofz"]

@public_api
def wofz(z: ArrayLike) -> Array:
    """Return the Faddeeva function exp(-z**2) erfc(-i z).

    Source: Weideman, Computation of the complex error function, SIAM J. Numer. Anal. 31 (1994).

    Args:
        z: complex or real numbers.

    Returns:
        An Array of a complex dtype.

    Raises:
        DTypeError: ``z`` is no number.

    >>> from fnx.scipy import special
    >>> print(special.wofz(0.0))
    (1+0j)
    """
    x = asarray(z)
    if not x._dtype.is_complex:
        x, = promote_arrays("wofz", x)
        x = lax.complex(x, jnp.zeros_like(x))
    return faddeeva(x)


@public_api
def sph_harm_y(n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: None = None,
               n_max: int | None = None) -> Array:
    """Return the spherical harmonics of degree n and order m.

    Args:
        n: the degrees, integers from 0.
        m: the orders, integers from -n to n.
        theta: the polar angle, from 0 to pi.
        phi: the azimuth.
        diff_n: must be None.
        n_max: the largest degree, which must be known while tracing; greater n count as n_max. By
            default the largest of n.

    Returns:
        An Array of a complex dtype and of the broadcast shape, of at least one axis; 0 where
        abs(m) is greater than n.

    Raises:
        DTypeError: a degree or an order is no integer.
        NotBuiltError: there is a ``diff_n``.
        ShapeError: the shapes do not broadcast.
        TracedValueError: n is traced and ``n_max`` is not there.

    >>> import fnx.numpy as jnp
    >>> from fnx.scipy import special
    >>> print(special.sph_harm_y(jnp.asarray([1]), jnp.asarray([0]), 0.0, 0.0).real.round(4))
    [0.4886]
    """
    if diff_n is not None:
        raise NotBuiltError("diff_n is not implemented", hint="use fnx.grad")
    degree, order = asarray(n), asarray(m)
    for name, x in (("n", degree), ("m", order)):
        if not x._dtype.is_integer:
            raise DTypeError(f"expected {name} as integers, got {x.dtype}")
    limit = int(np.max(np.asarray(degree), initial=0)) if n_max is None else \
        arguments.check_int("n_max", n_max)
    polar, azimuth = promote_arrays("sph_harm_y", asarray(theta), asarray(phi))
    polar = polar if polar.ndim else polar[None]
    degree, order, polar, azimuth = jnp.broadcast_arrays(degree, order, polar, azimuth)
    size = jnp.abs(order)
    sine = jnp.sin(polar)
    sine = jnp.where(sine < 0, -sine, sine)  # past pi as well; the derivative at 0 is that of sin
    legendre = _legendre(jnp.minimum(degree, limit), size, jnp.cos(polar), sine, limit)
    angle = size.astype(polar.dtype) * azimuth
    sign = jnp.where((order < 0) & (size % 2 == 1), -1, 1).astype(polar.dtype)
    real, imaginary = sign * legendre * jnp.cos(angle), sign * legendre * jnp.sin(angle)
    return lax.complex(real, jnp.where(order < 0, -imaginary, imaginary))


def _legendre(degree: Array, order: Array, cosine: Array, sine: Array, limit: int) -> Array:
    """Return normalized associated Legendre functions by the recurrences in order and degree."""
    m = order.astype(cosine.dtype)

    def raise_order(k: Any, value: Array) -> Array:
        step = jnp.asarray(k).astype(cosine.dtype)
        factor = -jnp.sqrt((2 * step + 1) / (2 * step)) * sine
        return jnp.where(k <= order, value * factor, value)

    def raise_degree(k: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        """From the functions of degrees k - 2 and k - 1 to those of k - 1 and k."""
        before, value = state
        active = (k > order) & (k <= degree)
        step = jnp.asarray(k).astype(cosine.dtype)
        spread = jnp.where(active, step * step - m * m, 1)
        old = (step - 1) ** 2
        a = jnp.sqrt((4 * step * step - 1) / spread)
        b = jnp.sqrt(jnp.where(active, old - m * m, 0) / jnp.where(k > 1, 4 * old - 1, 1))
        new = a * (cosine * value - b * before)
        return jnp.where(active, value, before), jnp.where(active, new, value)

    start = jnp.full_like(cosine, math.sqrt(1 / (4 * math.pi)))
    diagonal = lax.fori_loop(1, limit + 1, raise_order, start)
    _, value = lax.fori_loop(1, limit + 1, raise_degree, (jnp.zeros_like(diagonal), diagonal))
    return jnp.where((order <= degree) & (degree >= 0), value, 0)
