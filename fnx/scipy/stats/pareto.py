"""The distribution of Pareto, as in ``jax.scipy.stats.pareto``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.errors import module_face
from fnx.scipy.stats.making import family, floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_family = family("pareto", b="the power of the tail; above 0.")


@_family()
def logpdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density.

    >>> print(pareto.logpdf(2.0, 2.0).round(4))
    -1.3863
    """
    x, b, loc, scale = floats(x, b, loc, scale)
    z = (x - loc) / scale
    found = jnp.log(b / scale) - (b + 1) * jnp.log(z)
    return jnp.where(x < loc + scale, -np.inf, found)


@_family()
def pdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density.

    >>> print(pareto.pdf(2.0, 2.0).round(4))
    0.25
    """
    return jnp.exp(logpdf(x, b, loc, scale))


@_family()
def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of less.

    >>> print(pareto.cdf(2.0, 2.0).round(4))
    0.75
    """
    x, b, loc, scale = floats(x, b, loc, scale)
    return jnp.where(x < loc + scale, 0, 1 - ((x - loc) / scale) ** -b)


@_family()
def logcdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of less.

    >>> print(pareto.logcdf(2.0, 2.0).round(4))
    -0.2877
    """
    x, b, loc, scale = floats(x, b, loc, scale)
    return jnp.where(x < loc + scale, -np.inf, jnp.log1p(-((x - loc) / scale) ** -b))


@_family()
def logsf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of more.

    >>> print(pareto.logsf(2.0, 2.0).round(4))
    -1.3863
    """
    x, b, loc, scale = floats(x, b, loc, scale)
    return jnp.where(x < loc + scale, 0, -b * jnp.log((x - loc) / scale))


@_family()
def sf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more.

    >>> print(pareto.sf(2.0, 2.0).round(4))
    0.25
    """
    return jnp.exp(logsf(x, b, loc, scale))


@_family()
def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The place below which a probability is: the inverse of ``cdf``.

    >>> print(pareto.ppf(0.75, 2.0).round(4))
    2.0
    """
    q, b, loc, scale = floats(q, b, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, loc + scale * (1 - q) ** (-1 / b))


if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
