"""The Poisson distribution, as in ``jax.scipy.stats.poisson``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.special import entr, gammaincc, gammaln, xlogy
from fnx.scipy.stats.distribution import Distribution, promote_floats

_poisson = Distribution(__name__, "1.0, 2.0", mu="the mean.")


def _counts(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> list[Array]:
    return promote_floats(k, mu, loc)


def _means(mu: ArrayLike, loc: ArrayLike = 0) -> list[Array]:
    return promote_floats(mu, loc)


@_poisson(_counts, -1.3069)
def logpmf(k: Array, mu: Array, loc: Array) -> Array:
    y = k - loc
    logp = xlogy(y, mu) - gammaln(y + 1) - mu
    return jnp.where((y < 0) | (jnp.round(k) != k), -jnp.inf, logp)


@_poisson(_counts, 0.406)
def cdf(k: Array, mu: Array, loc: Array) -> Array:
    y = k - loc
    return jnp.where(y < 0, 0, gammaincc(jnp.floor(1 + jnp.maximum(y, 0)), mu))


@_poisson(_means, 1.7049, "2.0")
def entropy(mu: Array, loc: Array) -> Array:
    small_mu = jnp.where(mu < 100, mu, 1)
    counts = jnp.arange(250, dtype=mu.dtype).reshape(-1, *[1] * mu.ndim)
    nats = jnp.sum(entr(pmf(counts, small_mu)), 0)
    large = jnp.where(mu < 100, 100, mu)
    large = 0.5 * jnp.log(2 * jnp.pi * jnp.e * large) - 1 / (12 * large)
    nats = jnp.where(mu == 0, 0, jnp.where(mu < 100, nats, large))
    return jnp.broadcast_to(nats, jnp.broadcast_shapes(mu.shape, loc.shape))


pmf = _poisson.exp(logpmf, 0.2707)
