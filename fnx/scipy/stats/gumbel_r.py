"""The Gumbel distribution of largest values, as in ``jax.scipy.stats.gumbel_r``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.nn import log1mexp
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_docstr = docstring_for("gumbel_r")


@_docstr()
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(gumbel_r.logpdf(0.5).round(4))
    -1.1065
    """
    x, loc, scale = promote_floats(x, loc, scale)
    z = (x - loc) / scale
    return jnp.where(scale > 0, -(z + jnp.exp(-z)) - jnp.log(scale), np.nan)


@_docstr()
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(gumbel_r.pdf(0.5).round(4))
    0.3307
    """
    return jnp.exp(logpdf(x, loc, scale))


@_docstr()
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(gumbel_r.logcdf(0.5).round(4))
    -0.6065
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return jnp.where(scale > 0, -jnp.exp((loc - x) / scale), np.nan)


@_docstr()
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(gumbel_r.cdf(0.5).round(4))
    0.5452
    """
    return jnp.exp(logcdf(x, loc, scale))


@_docstr()
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(gumbel_r.sf(0.5).round(4))
    0.4548
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return -jnp.expm1(logcdf(x, loc, scale))


@_docstr()
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(gumbel_r.logsf(0.5).round(4))
    -0.788
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return log1mexp(-logcdf(x, loc, scale))


@_docstr()
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(gumbel_r.ppf(0.75).round(4))
    1.2459
    """
    q, loc, scale = promote_floats(q, loc, scale)
    quantile = loc - scale * jnp.log(-jnp.log(q))
    return jnp.where((q > 0) & (q < 1) & (scale > 0), quantile, np.nan)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
