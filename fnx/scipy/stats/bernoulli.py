"""The Bernoulli distribution: the outcome of one trial, as in ``jax.scipy.stats.bernoulli``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import xlog1py, xlogy
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logpmf", "pmf", "ppf"]

_docstr = docstring_for("bernoulli")


@_docstr()
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the logarithm of the probability mass.

    >>> print(bernoulli.logpmf(1.0, 0.25).round(4))
    -1.3863
    """
    k, p, loc = promote_floats(k, p, loc)
    y = k - loc
    logp = xlogy(y, p) + xlog1py(1 - y, -p)
    return jnp.where((y < 0) | (y > 1), -np.inf, logp)


@_docstr()
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the probability mass.

    >>> print(bernoulli.pmf(1.0, 0.25).round(4))
    0.25
    """
    return jnp.exp(logpmf(k, p, loc))


@_docstr()
def cdf(k: ArrayLike, p: ArrayLike) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(bernoulli.cdf(1.0, 0.25).round(4))
    1.0
    """
    k, p = promote_floats(k, p)
    prob = jnp.where(k < 0, 0, jnp.where(k < 1, 1 - p, 1))
    invalid = jnp.isnan(k) | jnp.isnan(p) | (p < 0) | (p > 1)
    return jnp.where(invalid, np.nan, prob)


@_docstr()
def ppf(q: ArrayLike, p: ArrayLike) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(bernoulli.ppf(0.75, 0.25).round(4))
    0.0
    """
    q, p = promote_floats(q, p)
    invalid = jnp.isnan(q) | jnp.isnan(p) | (p < 0) | (p > 1) | (q < 0) | (q > 1)
    return jnp.where(invalid, np.nan, jnp.where(q <= 1 - p, 0, 1))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
