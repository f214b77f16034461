"""The truncated normal distribution, as in ``jax.scipy.stats.truncnorm``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import log_ndtr, ndtr
from fnx.scipy.stats import norm
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_docstr = docstring_for(
    "truncnorm",
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
    logp = jnp.where(z >= b, 0, jnp.where(z <= a, -np.inf, logp))
    return jnp.where(a >= b, np.nan, logp)


@_docstr()
def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
           scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(truncnorm.logpdf(0.5, -1.0, 2.0).round(4))
    -0.8438
    """
    x, a, b, loc, scale = promote_floats(x, a, b, loc, scale)
    z = (x - loc) / scale
    logp = norm.logpdf(x, loc, scale) - _log_mass(a, b)
    logp = jnp.where((z < a) | (z > b), -np.inf, logp)
    return jnp.where(a >= b, np.nan, logp)


@_docstr()
def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
        scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(truncnorm.pdf(0.5, -1.0, 2.0).round(4))
    0.4301
    """
    return jnp.exp(logpdf(x, a, b, loc, scale))


@_docstr()
def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
           scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(truncnorm.logcdf(0.5, -1.0, 2.0).round(4))
    -0.4294
    """
    x, a, b, loc, scale = promote_floats(x, a, b, loc, scale)
    return _log_cdf((x - loc) / scale, a, b)


@_docstr()
def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
        scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(truncnorm.cdf(0.5, -1.0, 2.0).round(4))
    0.6509
    """
    return jnp.exp(logcdf(x, a, b, loc, scale))


@_docstr()
def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
          scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(truncnorm.logsf(0.5, -1.0, 2.0).round(4))
    -1.0523
    """
    x, a, b, loc, scale = promote_floats(x, a, b, loc, scale)
    return _log_cdf((loc - x) / scale, -b, -a)


@_docstr()
def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(truncnorm.sf(0.5, -1.0, 2.0).round(4))
    0.3491
    """
    return jnp.exp(logsf(x, a, b, loc, scale))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
