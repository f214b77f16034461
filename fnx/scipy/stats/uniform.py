"""The uniform distribution between loc and loc + scale, as in ``jax.scipy.stats.uniform``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.stats.distribution import Distribution, points, quantiles

_uniform = Distribution(__name__, "0.5")


@_uniform(points, -0.0)
def logpdf(x: Array, loc: Array, scale: Array) -> Array:
    outside = (x < loc) | (x > loc + scale)
    return jnp.where(outside, -jnp.inf, -jnp.log(scale))


@_uniform(points, 0.5)
def cdf(x: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(x < loc, 0, jnp.where(x >= loc + scale, 1, (x - loc) / scale))


@_uniform(quantiles, 0.75)
def ppf(q: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), jnp.nan, q * scale + loc)


pdf = _uniform.exp(logpdf, 1.0)
