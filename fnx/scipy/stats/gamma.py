"""The gamma distribution, as in ``jax.scipy.stats.gamma``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.errors import module_face
from fnx.scipy.special import gammainc, gammaincc, gammaln, xlogy
from fnx.scipy.stats.making import family, floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_family = family("gamma", a="the shape; above 0.")


def _clamped(x: Array, loc: Array, scale: Array) -> Array:
    """Return the standardized x, at least 0, the start of the support."""
    return jnp.maximum((x - loc) / scale, 0)


@_family()
def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(gamma.logpdf(0.5, 2.0).round(4))
    -1.1931
    """
    x, a, loc, scale = floats(x, a, loc, scale)
    z = (x - loc) / scale
    found = xlogy(a - 1, z) - z - gammaln(a) - jnp.log(scale)
    return jnp.where(x < loc, -np.inf, found)


@_family()
def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(gamma.pdf(0.5, 2.0).round(4))
    0.3033
    """
    return jnp.exp(logpdf(x, a, loc, scale))


@_family()
def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(gamma.cdf(0.5, 2.0).round(4))
    0.0902
    """
    x, a, loc, scale = floats(x, a, loc, scale)
    return gammainc(a, _clamped(x, loc, scale))


@_family()
def logcdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(gamma.logcdf(0.5, 2.0).round(4))
    -2.4057
    """
    return jnp.log(cdf(x, a, loc, scale))


@_family()
def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(gamma.sf(0.5, 2.0).round(4))
    0.9098
    """
    x, a, loc, scale = floats(x, a, loc, scale)
    return gammaincc(a, _clamped(x, loc, scale))


@_family()
def logsf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(gamma.logsf(0.5, 2.0).round(4))
    -0.0945
    """
    return jnp.log(sf(x, a, loc, scale))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
