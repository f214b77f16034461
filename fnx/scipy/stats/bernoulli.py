"""The Bernoulli distribution: the outcome of one trial, as in ``jax.scipy.stats.bernoulli``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.errors import module_face
from fnx.scipy.special import xlog1py, xlogy
from fnx.scipy.stats.making import family, floats

__all__ = ["cdf", "logpmf", "pmf", "ppf"]

_family = family("bernoulli")


@_family()
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the logarithm of the probability mass.

    >>> print(bernoulli.logpmf(1.0, 0.25).round(4))
    -1.3863
    """
    k, p, loc = floats(k, p, loc)
    y = k - loc
    found = xlogy(y, p) + xlog1py(1 - y, -p)
    return jnp.where((y < 0) | (y > 1), -np.inf, found)


@_family()
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the probability mass.

    >>> print(bernoulli.pmf(1.0, 0.25).round(4))
    0.25
    """
    return jnp.exp(logpmf(k, p, loc))


@_family()
def cdf(k: ArrayLike, p: ArrayLike) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(bernoulli.cdf(1.0, 0.25).round(4))
    1.0
    """
    k, p = floats(k, p)
    found = jnp.where(k < 0, 0, jnp.where(k < 1, 1 - p, 1))
    wrong = jnp.isnan(k) | jnp.isnan(p) | (p < 0) | (p > 1)
    return jnp.where(wrong, np.nan, found)


@_family()
def ppf(q: ArrayLike, p: ArrayLike) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(bernoulli.ppf(0.75, 0.25).round(4))
    0.0
    """
    q, p = floats(q, p)
    wrong = jnp.isnan(q) | jnp.isnan(p) | (p < 0) | (p > 1) | (q < 0) | (q > 1)
    return jnp.where(wrong, np.nan, jnp.where(q <= 1 - p, 0, 1))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
