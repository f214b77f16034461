"""The chi-square distribution, as in ``jax.scipy.stats.chi2``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import gammainc, gammaincc, gammaln
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_docstr = docstring_for("chi2", df="degrees of freedom.")


def _half_standardized(x: Array, loc: Array, scale: Array) -> Array:
    """Return half the standardized x, at least 0, the start of the support."""
    return jnp.maximum((x - loc) / (2 * scale), 0)


@_docstr()
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(chi2.logpdf(0.5, 2.0).round(4))
    -0.9431
    """
    x, df, loc, scale = promote_floats(x, df, loc, scale)
    z = (x - loc) / scale
    half = df / 2
    logp = (half - 1) * jnp.log(z) - z / 2 - gammaln(half) - half * math.log(2)
    return jnp.where(x < loc, -np.inf, logp - jnp.log(scale))


@_docstr()
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(chi2.pdf(0.5, 2.0).round(4))
    0.3894
    """
    return jnp.exp(logpdf(x, df, loc, scale))


@_docstr()
def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(chi2.cdf(0.5, 2.0).round(4))
    0.2212
    """
    x, df, loc, scale = promote_floats(x, df, loc, scale)
    return gammainc(df / 2, _half_standardized(x, loc, scale))


@_docstr()
def logcdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(chi2.logcdf(0.5, 2.0).round(4))
    -1.5087
    """
    return jnp.log(cdf(x, df, loc, scale))


@_docstr()
def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(chi2.sf(0.5, 2.0).round(4))
    0.7788
    """
    x, df, loc, scale = promote_floats(x, df, loc, scale)
    return gammaincc(df / 2, _half_standardized(x, loc, scale))


@_docstr()
def logsf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(chi2.logsf(0.5, 2.0).round(4))
    -0.25
    """
    return jnp.log(sf(x, df, loc, scale))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
