"""The truncated normal distribution, as in ``jax.scipy.stats.truncnorm``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import log_ndtr, ndtr
from fnx.scipy.stats import norm
from fnx.scipy.stats.distribution import Distribution, points_ab

_truncnorm = Distribution(__name__, "0.5, -1.0, 2.0",
                          a="the lower bound, in standard deviations.",
                          b="the upper bound, in standard deviations.")


def _log_mass(a: Array, b: Array) -> Array:
    """Return the logarithm of the probability that a standard normal number is in [a, b].

    If the range is in one tail, it is a log-difference of CDFs; if it contains 0, it is 1 minus
    the probabilities of both tails.
    """
    right, left = a > 0, b <= 0
    low, high = jnp.where(right, -b, a), jnp.where(right, -a, b)
    tail = right | left
    log_high, log_low = (log_ndtr(jnp.where(tail, y, d)) for y, d in ((high, -1.0), (low, -2.0)))
    middle = jnp.log1p(-ndtr(jnp.where(tail, 0, a)) - ndtr(jnp.where(tail, -1, -b)))
    return jnp.where(tail, log_high + jnp.log(-jnp.expm1(log_low - log_high)), middle)


def _log_cdf(z: Array, a: Array, b: Array) -> Array:
    """Return the logarithm of the CDF at z; near 0 it is computed from the survival function."""
    inside = jnp.clip(z, a, b)
    log_mass = _log_mass(a, b)
    below, above = _log_mass(a, inside) - log_mass, _log_mass(inside, b) - log_mass
    logp = jnp.where(below > -0.1, jnp.log1p(-jnp.exp(above)), below)
    logp = jnp.where(z >= b, 0, jnp.where(z <= a, -jnp.inf, logp))
    return jnp.where(a >= b, jnp.nan, logp)


@_truncnorm(points_ab, -0.8438)
def logpdf(x: Array, a: Array, b: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    logp = norm.logpdf(x, loc, scale) - _log_mass(a, b)
    logp = jnp.where((z < a) | (z > b), -jnp.inf, logp)
    return jnp.where(a >= b, jnp.nan, logp)


@_truncnorm(points_ab, -0.4294)
def logcdf(x: Array, a: Array, b: Array, loc: Array, scale: Array) -> Array:
    return _log_cdf((x - loc) / scale, a, b)


@_truncnorm(points_ab, -1.0523)
def logsf(x: Array, a: Array, b: Array, loc: Array, scale: Array) -> Array:
    return _log_cdf((loc - x) / scale, -b, -a)


pdf = _truncnorm.exp(logpdf, 0.4301)
cdf = _truncnorm.exp(logcdf, 0.6509)
sf = _truncnorm.exp(logsf, 0.3491)
