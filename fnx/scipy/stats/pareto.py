"""The Pareto distribution, as in ``jax.scipy.stats.pareto``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.stats.distribution import Distribution, promote_floats

_pareto = Distribution(__name__, "2.0, 2.0", b="the tail exponent; above 0.")


def _points(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> list[Array]:
    return promote_floats(x, b, loc, scale)


def _quantiles(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> list[Array]:
    return promote_floats(q, b, loc, scale)


@_pareto(_points, -1.3863)
def logpdf(x: Array, b: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    logp = jnp.log(b / scale) - (b + 1) * jnp.log(z)
    return jnp.where(x < loc + scale, -jnp.inf, logp)


@_pareto(_points, 0.75)
def cdf(x: Array, b: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(x < loc + scale, 0, 1 - ((x - loc) / scale) ** -b)


@_pareto(_points, -0.2877)
def logcdf(x: Array, b: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(x < loc + scale, -jnp.inf, jnp.log1p(-((x - loc) / scale) ** -b))


@_pareto(_points, -1.3863)
def logsf(x: Array, b: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(x < loc + scale, 0, -b * jnp.log((x - loc) / scale))


@_pareto(_quantiles, 2.0)
def ppf(q: Array, b: Array, loc: Array, scale: Array) -> Array:
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), jnp.nan, loc + scale * (1 - q) ** (-1 / b))


pdf = _pareto.exp(logpdf, 0.25)
sf = _pareto.exp(logsf, 0.25)
