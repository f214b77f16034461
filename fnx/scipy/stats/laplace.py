"""The Laplace distribution, as in ``jax.scipy.stats.laplace``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.stats.distribution import Distribution, points

_laplace = Distribution(__name__, "0.5")


@_laplace(points, -1.1931)
def logpdf(x: Array, loc: Array, scale: Array) -> Array:
    return -(jnp.abs(x - loc) / scale + jnp.log(2 * scale))


@_laplace(points, 0.6967)
def cdf(x: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    below = 0.5 * jnp.exp(jnp.where(z <= 0, z, -z))  # its derivative at 0 is the density
    return jnp.where(z <= 0, below, 1 - below)


pdf = _laplace.exp(logpdf, 0.3033)
