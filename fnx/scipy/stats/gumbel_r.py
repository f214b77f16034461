"""The Gumbel distribution of largest values, as in ``jax.scipy.stats.gumbel_r``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.nn import log1mexp
from fnx.scipy.stats.distribution import Distribution, points, probabilities

_gumbel_r = Distribution(__name__, "0.5")


@_gumbel_r(points, -1.1065)
def logpdf(x: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    return jnp.where(scale > 0, -(z + jnp.exp(-z)) - jnp.log(scale), jnp.nan)


@_gumbel_r(points, -0.6065)
def logcdf(x: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(scale > 0, -jnp.exp((loc - x) / scale), jnp.nan)


@_gumbel_r(points, 0.4548)
def sf(x: Array, loc: Array, scale: Array) -> Array:
    return -jnp.expm1(logcdf(x, loc, scale))


@_gumbel_r(points, -0.788)
def logsf(x: Array, loc: Array, scale: Array) -> Array:
    return log1mexp(-logcdf(x, loc, scale))


@_gumbel_r(probabilities, 1.2459)
def ppf(p: Array, loc: Array, scale: Array) -> Array:
    quantile = loc - scale * jnp.log(-jnp.log(p))
    return jnp.where((p > 0) & (p < 1) & (scale > 0), quantile, jnp.nan)


pdf = _gumbel_r.exp(logpdf, 0.3307)
cdf = _gumbel_r.exp(logcdf, 0.5452)
