"""The Poisson distribution, as in ``jax.scipy.stats.poisson``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import entr, gammaincc, gammaln, xlogy
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "entropy", "logpmf", "pmf"]

_docstr = docstring_for("poisson", mu="the mean.")


@_docstr()
def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the logarithm of the probability mass.

    >>> print(poisson.logpmf(1.0, 2.0).round(4))
    -1.3069
    """
    k, mu, loc = promote_floats(k, mu, loc)
    y = k - loc
    logp = xlogy(y, mu) - gammaln(y + 1) - mu
    return jnp.where((y < 0) | (jnp.round(k) != k), -np.inf, logp)


@_docstr()
def pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the probability mass.

    >>> print(poisson.pmf(1.0, 2.0).round(4))
    0.2707
    """
    return jnp.exp(logpmf(k, mu, loc))


@_docstr()
def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(poisson.cdf(1.0, 2.0).round(4))
    0.406
    """
    k, mu, loc = promote_floats(k, mu, loc)
    y = k - loc
    return jnp.where(y < 0, 0, gammaincc(jnp.floor(1 + jnp.maximum(y, 0)), mu))


@_docstr()
def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the entropy, in nats.

    >>> print(poisson.entropy(2.0).round(4))
    1.7049
    """
    mu, loc = promote_floats(mu, loc)
    small_mu = jnp.where(mu < 100, mu, 1)
    counts = jnp.arange(250, dtype=mu.dtype).reshape(-1, *[1] * mu.ndim)
    nats = jnp.sum(entr(pmf(counts, small_mu)), 0)
    large = jnp.where(mu < 100, 100, mu)
    large = 0.5 * jnp.log(2 * math.pi * math.e * large) - 1 / (12 * large)
    nats = jnp.where(mu == 0, 0, jnp.where(mu < 100, nats, large))
    return jnp.broadcast_to(nats, jnp.broadcast_shapes(mu.shape, loc.shape))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
