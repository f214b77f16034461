"""The Poisson distribution, as in ``jax.scipy.stats.poisson``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.errors import module_face
from fnx.scipy.special import entr, gammaincc, gammaln, xlogy
from fnx.scipy.stats.making import family, floats

__all__ = ["cdf", "entropy", "logpmf", "pmf"]

_family = family("poisson", mu="the mean.")


@_family()
def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the logarithm of the probability mass.

    >>> print(poisson.logpmf(1.0, 2.0).round(4))
    -1.3069
    """
    k, mu, loc = floats(k, mu, loc)
    y = k - loc
    found = xlogy(y, mu) - gammaln(y + 1) - mu
    return jnp.where((y < 0) | (jnp.round(k) != k), -np.inf, found)


@_family()
def pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the probability mass.

    >>> print(poisson.pmf(1.0, 2.0).round(4))
    0.2707
    """
    return jnp.exp(logpmf(k, mu, loc))


@_family()
def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(poisson.cdf(1.0, 2.0).round(4))
    0.406
    """
    k, mu, loc = floats(k, mu, loc)
    y = k - loc
    return jnp.where(y < 0, 0, gammaincc(jnp.floor(1 + jnp.maximum(y, 0)), mu))


@_family()
def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the entropy, in nats.

    >>> print(poisson.entropy(2.0).round(4))
    1.7049
    """
    mu, loc = floats(mu, loc)
    few = jnp.where(mu < 100, mu, 1)
    counts = jnp.arange(250, dtype=mu.dtype).reshape(-1, *[1] * mu.ndim)
    found = jnp.sum(entr(pmf(counts, few)), 0)
    far = jnp.where(mu < 100, 100, mu)
    far = 0.5 * jnp.log(2 * math.pi * math.e * far) - 1 / (12 * far)
    found = jnp.where(mu == 0, 0, jnp.where(mu < 100, found, far))
    return jnp.broadcast_to(found, jnp.broadcast_shapes(mu.shape, loc.shape))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
