"""The Pareto distribution, as in ``jax.scipy.stats.pareto``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_docstr = docstring_for("pareto", b="the tail exponent; above 0.")


@_docstr()
def logpdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(pareto.logpdf(2.0, 2.0).round(4))
    -1.3863
    """
    x, b, loc, scale = promote_floats(x, b, loc, scale)
    z = (x - loc) / scale
    logp = jnp.log(b / scale) - (b + 1) * jnp.log(z)
    return jnp.where(x < loc + scale, -np.inf, logp)


@_docstr()
def pdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(pareto.pdf(2.0, 2.0).round(4))
    0.25
    """
    return jnp.exp(logpdf(x, b, loc, scale))


@_docstr()
def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(pareto.cdf(2.0, 2.0).round(4))
    0.75
    """
    x, b, loc, scale = promote_floats(x, b, loc, scale)
    return jnp.where(x < loc + scale, 0, 1 - ((x - loc) / scale) ** -b)


@_docstr()
def logcdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(pareto.logcdf(2.0, 2.0).round(4))
    -0.2877
    """
    x, b, loc, scale = promote_floats(x, b, loc, scale)
    return jnp.where(x < loc + scale, -np.inf, jnp.log1p(-((x - loc) / scale) ** -b))


@_docstr()
def logsf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(pareto.logsf(2.0, 2.0).round(4))
    -1.3863
    """
    x, b, loc, scale = promote_floats(x, b, loc, scale)
    return jnp.where(x < loc + scale, 0, -b * jnp.log((x - loc) / scale))


@_docstr()
def sf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(pareto.sf(2.0, 2.0).round(4))
    0.25
    """
    return jnp.exp(logsf(x, b, loc, scale))


@_docstr()
def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(pareto.ppf(0.75, 2.0).round(4))
    2.0
    """
    q, b, loc, scale = promote_floats(q, b, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, loc + scale * (1 - q) ** (-1 / b))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
