"""The exponential distribution, as in ``jax.scipy.stats.expon``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.nn import log1mexp
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_docstr = docstring_for("expon")


@_docstr()
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(expon.logpdf(0.5).round(4))
    -0.5
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return jnp.where(x < loc, -np.inf, -((x - loc) / scale + jnp.log(scale)))


@_docstr()
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(expon.pdf(0.5).round(4))
    0.6065
    """
    return jnp.exp(logpdf(x, loc, scale))


@_docstr()
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(expon.cdf(0.5).round(4))
    0.3935
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return jnp.where(x < loc, 0, -jnp.expm1((loc - x) / scale))


@_docstr()
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(expon.logcdf(0.5).round(4))
    -0.9328
    """
    x, loc, scale = promote_floats(x, loc, scale)
    inside = jnp.where(x < loc, 1, (x - loc) / scale)
    return jnp.where(x < loc, -np.inf, log1mexp(inside))


@_docstr()
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(expon.sf(0.5).round(4))
    0.6065
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return jnp.where(x < loc, 1, jnp.exp((loc - x) / scale))


@_docstr()
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(expon.logsf(0.5).round(4))
    -0.5
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return jnp.where(x < loc, 0, (loc - x) / scale)


@_docstr()
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(expon.ppf(0.75).round(4))
    1.3863
    """
    q, loc, scale = promote_floats(q, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, loc - scale * jnp.log1p(-q))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
