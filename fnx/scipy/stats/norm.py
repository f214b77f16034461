"""The normal distribution, as in ``jax.scipy.stats.norm``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import log_ndtr, ndtr, ndtri
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_docstr = docstring_for("norm")


@_docstr()
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(norm.logpdf(0.5).round(4))
    -1.0439
    """
    x, loc, scale = promote_floats(x, loc, scale)
    z = (x - loc) / scale
    return -0.5 * (z * z + jnp.log(2 * math.pi * scale * scale))


@_docstr()
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(norm.pdf(0.5).round(4))
    0.3521
    """
    return jnp.exp(logpdf(x, loc, scale))


@_docstr()
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(norm.cdf(0.5).round(4))
    0.6915
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return ndtr((x - loc) / scale)


@_docstr()
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(norm.logcdf(0.5).round(4))
    -0.3689
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return log_ndtr((x - loc) / scale)


@_docstr()
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(norm.sf(0.5).round(4))
    0.3085
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return ndtr((loc - x) / scale)


@_docstr()
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(norm.logsf(0.5).round(4))
    -1.1759
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return log_ndtr((loc - x) / scale)


@_docstr()
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(norm.ppf(0.75).round(4))
    0.6745
    """
    q, loc, scale = promote_floats(q, loc, scale)
    return ndtri(q) * scale + loc


@_docstr()
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the inverse of the survival function ``sf``.

    >>> print(norm.isf(0.75).round(4))
    -0.6745
    """
    q, loc, scale = promote_floats(q, loc, scale)
    return ndtri(1 - q) * scale + loc


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
