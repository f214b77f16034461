"""The logistic distribution, as in ``jax.scipy.stats.logistic``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import expit, logit
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]

_docstr = docstring_for("logistic")


@_docstr()
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(logistic.logpdf(0.5).round(4))
    -1.4482
    """
    x, loc, scale = promote_floats(x, loc, scale)
    half = (x - loc) / scale / 2
    return -2 * jnp.logaddexp(half, -half) - jnp.log(scale)


@_docstr()
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(logistic.pdf(0.5).round(4))
    0.235
    """
    return jnp.exp(logpdf(x, loc, scale))


@_docstr()
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(logistic.cdf(0.5).round(4))
    0.6225
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return expit((x - loc) / scale)


@_docstr()
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(logistic.sf(0.5).round(4))
    0.3775
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return expit((loc - x) / scale)


@_docstr()
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(logistic.ppf(0.75).round(4))
    1.0986
    """
    q, loc, scale = promote_floats(q, loc, scale)
    return logit(q) * scale + loc


@_docstr()
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the inverse of the survival function ``sf``.

    >>> print(logistic.isf(0.75).round(4))
    -1.0986
    """
    q, loc, scale = promote_floats(q, loc, scale)
    return -logit(q) * scale + loc


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
