"""The Gumbel distribution of smallest values, as in ``jax.scipy.stats.gumbel_l``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.nn import log1mexp
from fnx.scipy.stats.distribution import Distribution, points, probabilities

_gumbel_l = Distribution(__name__, "0.5")


@_gumbel_l(points, -1.1487)
def logpdf(x: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    return jnp.where(scale > 0, z - jnp.exp(z) - jnp.log(scale), jnp.nan)


@_gumbel_l(points, -0.2136)
def logcdf(x: Array, loc: Array, scale: Array) -> Array:
    return log1mexp(-logsf(x, loc, scale))


@_gumbel_l(points, 0.8077)
def cdf(x: Array, loc: Array, scale: Array) -> Array:
    return -jnp.expm1(logsf(x, loc, scale))


@_gumbel_l(points, -1.6487)
def logsf(x: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(scale > 0, -jnp.exp((x - loc) / scale), jnp.nan)


@_gumbel_l(probabilities, 0.3266)
def ppf(p: Array, loc: Array, scale: Array) -> Array:
    quantile = loc + scale * jnp.log(-jnp.log1p(-p))
    return jnp.where((p > 0) & (p < 1) & (scale > 0), quantile, jnp.nan)


pdf = _gumbel_l.exp(logpdf, 0.317)
sf = _gumbel_l.exp(logsf, 0.1923)
