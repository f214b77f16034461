"""The exponential distribution, as in ``jax.scipy.stats.expon``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.nn import log1mexp
from fnx.scipy.stats.distribution import Distribution, points, quantiles

_expon = Distribution(__name__, "0.5")


@_expon(points, -0.5)
def logpdf(x: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(x < loc, -jnp.inf, -((x - loc) / scale + jnp.log(scale)))


@_expon(points, 0.3935)
def cdf(x: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(x < loc, 0, -jnp.expm1((loc - x) / scale))


@_expon(points, -0.9328)
def logcdf(x: Array, loc: Array, scale: Array) -> Array:
    inside = jnp.where(x < loc, 1, (x - loc) / scale)
    return jnp.where(x < loc, -jnp.inf, log1mexp(inside))


@_expon(points, 0.6065)
def sf(x: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(x < loc, 1, jnp.exp((loc - x) / scale))


@_expon(points, -0.5)
def logsf(x: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(x < loc, 0, (loc - x) / scale)


@_expon(quantiles, 1.3863)
def ppf(q: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), jnp.nan, loc - scale * jnp.log1p(-q))


pdf = _expon.exp(logpdf, 0.6065)
