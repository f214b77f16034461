"""The Gumbel distribution of smallest values, as in ``jax.scipy.stats.gumbel_l``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.nn import log1mexp
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_docstr = docstring_for("gumbel_l")


@_docstr()
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(gumbel_l.logpdf(0.5).round(4))
    -1.1487
    """
    x, loc, scale = promote_floats(x, loc, scale)
    z = (x - loc) / scale
    return jnp.where(scale > 0, z - jnp.exp(z) - jnp.log(scale), np.nan)


@_docstr()
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(gumbel_l.pdf(0.5).round(4))
    0.317
    """
    return jnp.exp(logpdf(x, loc, scale))


@_docstr()
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(gumbel_l.logcdf(0.5).round(4))
    -0.2136
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return log1mexp(-logsf(x, loc, scale))


@_docstr()
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(gumbel_l.cdf(0.5).round(4))
    0.8077
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return -jnp.expm1(logsf(x, loc, scale))


@_docstr()
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(gumbel_l.logsf(0.5).round(4))
    -1.6487
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return jnp.where(scale > 0, -jnp.exp((x - loc) / scale), np.nan)


@_docstr()
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(gumbel_l.sf(0.5).round(4))
    0.1923
    """
    return jnp.exp(logsf(x, loc, scale))


@_docstr()
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(gumbel_l.ppf(0.75).round(4))
    0.3266
    """
    q, loc, scale = promote_floats(q, loc, scale)
    quantile = loc + scale * jnp.log(-jnp.log1p(-q))
    return jnp.where((q > 0) & (q < 1) & (scale > 0), quantile, np.nan)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
