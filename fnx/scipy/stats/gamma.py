"""The gamma distribution, as in ``jax.scipy.stats.gamma``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import gammainc, gammaincc, gammaln, xlogy
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_docstr = docstring_for("gamma", a="the shape parameter.")


def _standardized(x: Array, loc: Array, scale: Array) -> Array:
    """Return the standardized x, at least 0, the start of the support."""
    return jnp.maximum((x - loc) / scale, 0)


@_docstr()
def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(gamma.logpdf(0.5, 2.0).round(4))
    -1.1931
    """
    x, a, loc, scale = promote_floats(x, a, loc, scale)
    z = (x - loc) / scale
    logp = xlogy(a - 1, z) - z - gammaln(a) - jnp.log(scale)
    return jnp.where(x < loc, -np.inf, logp)


@_docstr()
def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(gamma.pdf(0.5, 2.0).round(4))
    0.3033
    """
    return jnp.exp(logpdf(x, a, loc, scale))


@_docstr()
def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(gamma.cdf(0.5, 2.0).round(4))
    0.0902
    """
    x, a, loc, scale = promote_floats(x, a, loc, scale)
    return gammainc(a, _standardized(x, loc, scale))


@_docstr()
def logcdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(gamma.logcdf(0.5, 2.0).round(4))
    -2.4057
    """
    return jnp.log(cdf(x, a, loc, scale))


@_docstr()
def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(gamma.sf(0.5, 2.0).round(4))
    0.9098
    """
    x, a, loc, scale = promote_floats(x, a, loc, scale)
    return gammaincc(a, _standardized(x, loc, scale))


@_docstr()
def logsf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(gamma.logsf(0.5, 2.0).round(4))
    -0.0945
    """
    return jnp.log(sf(x, a, loc, scale))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
