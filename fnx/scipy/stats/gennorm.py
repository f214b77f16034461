"""The generalized normal distribution, as in ``jax.scipy.stats.gennorm``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import gammainc, gammaln
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logpdf", "pdf"]

_docstr = docstring_for("gennorm", beta="the exponent; 2 gives the normal one.")


@_docstr()
def logpdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Return the logarithm of the probability density.

    >>> print(gennorm.logpdf(0.5, 2.0).round(4))
    -0.8224
    """
    x, beta = promote_floats(x, beta)
    return jnp.log(0.5 * beta) - gammaln(1 / beta) - jnp.abs(x) ** beta


@_docstr()
def pdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Return the probability density.

    >>> print(gennorm.pdf(0.5, 2.0).round(4))
    0.4394
    """
    return jnp.exp(logpdf(x, beta))


@_docstr()
def cdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(gennorm.cdf(0.5, 2.0).round(4))
    0.7602
    """
    x, beta = promote_floats(x, beta)
    return 0.5 * (1 + jnp.sign(x) * gammainc(1 / beta, jnp.abs(x) ** beta))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
