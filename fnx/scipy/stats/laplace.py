"""The Laplace distribution, as in ``jax.scipy.stats.laplace``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logpdf", "pdf"]

_docstr = docstring_for("laplace")


@_docstr()
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(laplace.logpdf(0.5).round(4))
    -1.1931
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return -(jnp.abs(x - loc) / scale + jnp.log(2 * scale))


@_docstr()
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(laplace.pdf(0.5).round(4))
    0.3033
    """
    return jnp.exp(logpdf(x, loc, scale))


@_docstr()
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(laplace.cdf(0.5).round(4))
    0.6967
    """
    x, loc, scale = promote_floats(x, loc, scale)
    z = (x - loc) / scale
    below = 0.5 * jnp.exp(jnp.where(z <= 0, z, -z))  # its derivative at 0 is the density
    return jnp.where(z <= 0, below, 1 - below)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
