"""The normal distribution, as in ``jax.scipy.stats.norm``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import log_ndtr, ndtr, ndtri
from fnx.scipy.stats.distribution import Distribution, points, quantiles

_norm = Distribution(__name__, "0.5")


@_norm(points, -1.0439)
def logpdf(x: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    return -0.5 * (z * z + jnp.log(2 * jnp.pi * scale * scale))


@_norm(points, 0.6915)
def cdf(x: Array, loc: Array, scale: Array) -> Array:
    return ndtr((x - loc) / scale)


@_norm(points, -0.3689)
def logcdf(x: Array, loc: Array, scale: Array) -> Array:
    return log_ndtr((x - loc) / scale)


@_norm(points, 0.3085)
def sf(x: Array, loc: Array, scale: Array) -> Array:
    return ndtr((loc - x) / scale)


@_norm(points, -1.1759)
def logsf(x: Array, loc: Array, scale: Array) -> Array:
    return log_ndtr((loc - x) / scale)


@_norm(quantiles, 0.6745)
def ppf(q: Array, loc: Array, scale: Array) -> Array:
    return ndtri(q) * scale + loc


@_norm(quantiles, -0.6745)
def isf(q: Array, loc: Array, scale: Array) -> Array:
    return ndtri(1 - q) * scale + loc


pdf = _norm.exp(logpdf, 0.3521)
