"""The logistic distribution, as in ``jax.scipy.stats.logistic``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import expit, logit
from fnx.scipy.stats.distribution import Distribution, points

_logistic = Distribution(
    __name__, "0.5", x="the points; of ``ppf`` and ``isf`` probabilities, from 0 to 1.")


@_logistic(points, -1.4482)
def logpdf(x: Array, loc: Array, scale: Array) -> Array:
    half = (x - loc) / scale / 2
    return -2 * jnp.logaddexp(half, -half) - jnp.log(scale)


@_logistic(points, 0.6225)
def cdf(x: Array, loc: Array, scale: Array) -> Array:
    return expit((x - loc) / scale)


@_logistic(points, 0.3775)
def sf(x: Array, loc: Array, scale: Array) -> Array:
    return expit((loc - x) / scale)


@_logistic(points, 1.0986)
def ppf(x: Array, loc: Array, scale: Array) -> Array:
    return logit(x) * scale + loc


@_logistic(points, -1.0986)
def isf(x: Array, loc: Array, scale: Array) -> Array:
    return -logit(x) * scale + loc


pdf = _logistic.exp(logpdf, 0.235)
