"""The Bernoulli distribution: the outcome of one trial, as in ``jax.scipy.stats.bernoulli``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.special import xlog1py, xlogy
from fnx.scipy.stats.distribution import Distribution, counts_p, promote_floats

_bernoulli = Distribution(__name__, "1.0, 0.25")


def _counts(k: ArrayLike, p: ArrayLike) -> list[Array]:
    return promote_floats(k, p)


def _quantiles(q: ArrayLike, p: ArrayLike) -> list[Array]:
    return promote_floats(q, p)


@_bernoulli(counts_p, -1.3863)
def logpmf(k: Array, p: Array, loc: Array) -> Array:
    y = k - loc
    logp = xlogy(y, p) + xlog1py(1 - y, -p)
    return jnp.where((y < 0) | (y > 1), -jnp.inf, logp)


@_bernoulli(_counts, 1.0)
def cdf(k: Array, p: Array) -> Array:
    prob = jnp.where(k < 0, 0, jnp.where(k < 1, 1 - p, 1))
    invalid = jnp.isnan(k) | jnp.isnan(p) | (p < 0) | (p > 1)
    return jnp.where(invalid, jnp.nan, prob)


@_bernoulli(_quantiles, 0.0)
def ppf(q: Array, p: Array) -> Array:
    invalid = jnp.isnan(q) | jnp.isnan(p) | (p < 0) | (p > 1) | (q < 0) | (q > 1)
    return jnp.where(invalid, jnp.nan, jnp.where(q <= 1 - p, 0, 1))


pmf = _bernoulli.exp(logpmf, 0.25)
