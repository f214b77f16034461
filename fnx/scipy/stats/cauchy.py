"""The Cauchy distribution, as in ``jax.scipy.stats.cauchy``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.stats.distribution import Distribution, points, quantiles

_cauchy = Distribution(__name__, "0.5")


@_cauchy(points, -1.3679)
def logpdf(x: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    return -(jnp.log(jnp.pi * scale) + jnp.log1p(z * z))


@_cauchy(points, 0.6476)
def cdf(x: Array, loc: Array, scale: Array) -> Array:
    return 0.5 + jnp.arctan((x - loc) / scale) / jnp.pi


@_cauchy(points, 0.3524)
def sf(x: Array, loc: Array, scale: Array) -> Array:
    return 0.5 + jnp.arctan((loc - x) / scale) / jnp.pi


@_cauchy(quantiles, 1.0)
def ppf(q: Array, loc: Array, scale: Array) -> Array:
    quantile = loc + scale * jnp.tan(jnp.pi * (q - 0.5))
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), jnp.nan, quantile)


@_cauchy(quantiles, -1.0)
def isf(q: Array, loc: Array, scale: Array) -> Array:
    return ppf(1 - q, loc, scale)


pdf = _cauchy.exp(logpdf, 0.2546)
logcdf = _cauchy.log(cdf, -0.4345)
logsf = _cauchy.log(sf, -1.0429)
