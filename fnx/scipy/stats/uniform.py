"""The uniform distribution between loc and loc + scale, as in ``jax.scipy.stats.uniform``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logpdf", "pdf", "ppf"]

_docstr = docstring_for("uniform")


@_docstr()
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(uniform.logpdf(0.5).round(4))
    -0.0
    """
    x, loc, scale = promote_floats(x, loc, scale)
    outside = (x < loc) | (x > loc + scale)
    return jnp.where(outside, -np.inf, -jnp.log(scale))


@_docstr()
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(uniform.pdf(0.5).round(4))
    1.0
    """
    return jnp.exp(logpdf(x, loc, scale))


@_docstr()
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(uniform.cdf(0.5).round(4))
    0.5
    """
    x, loc, scale = promote_floats(x, loc, scale)
    return jnp.where(x < loc, 0, jnp.where(x >= loc + scale, 1, (x - loc) / scale))


@_docstr()
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the quantile function, the inverse of ``cdf``.

    >>> print(uniform.ppf(0.75).round(4))
    0.75
    """
    q, loc, scale = promote_floats(q, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, q * scale + loc)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
