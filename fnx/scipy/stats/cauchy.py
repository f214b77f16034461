"""The Cauchy distribution, as in ``jax.scipy.stats.cauchy``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_docstr = docstring_for("cauchy")


@_docstr()
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(cauchy.logpdf(0.5).round(4))
    -1.3679
    """
    x, loc, scale = promote_floats(x, loc, scale)
    z = (x - loc) / scale
    return -(jnp.log(math.pi * scale) + jnp.log1p(z * z))


@_docstr()
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(cauchy.pdf(0.5).round(4))
    0.2546
    """
    return jnp.exp(logpdf(x, loc, scale))


@_docstr()
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(cauchy.cdf(0.5).round(4))
    0.6476
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return 0.5 + jnp.arctan((x - loc) / scale) / math.pi


@_docstr()
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(cauchy.logcdf(0.5).round(4))
    -0.4345
    """
    return jnp.log(cdf(x, loc, scale))


@_docstr()
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(cauchy.sf(0.5).round(4))
    0.3524
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return 0.5 + jnp.arctan((loc - x) / scale) / math.pi


@_docstr()
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(cauchy.logsf(0.5).round(4))
    -1.0429
    """
    return jnp.log(sf(x, loc, scale))


@_docstr()
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(cauchy.ppf(0.75).round(4))
    1.0
    """
    q, loc, scale = promote_floats(q, loc, scale)
    quantile = loc + scale * jnp.tan(math.pi * (q - 0.5))
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, quantile)


@_docstr()
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the inverse of the survival function ``sf``.

    >>> print(cauchy.isf(0.75).round(4))
    -1.0
    """
    q, loc, scale = promote_floats(q, loc, scale)
    return ppf(1 - q, loc, scale)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
