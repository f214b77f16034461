"""The beta distribution, as in ``jax.scipy.stats.beta``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import betainc, betaln, xlog1py, xlogy
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_docstr = docstring_for("beta", a="above 0.", b="above 0.")


@_docstr()
def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
           scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(beta.logpdf(0.5, 2.0, 2.0).round(4))
    0.4055
    """
    x, a, b, loc, scale = promote_floats(x, a, b, loc, scale)
    z = (x - loc) / scale
    logp = xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b) - jnp.log(scale)
    logp = jnp.where((x > loc + scale) | (x < loc), -np.inf, logp)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), np.nan, logp)


@_docstr()
def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
        scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(beta.pdf(0.5, 2.0, 2.0).round(4))
    1.5
    """
    return jnp.exp(logpdf(x, a, b, loc, scale))


@_docstr()
def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
        scale: ArrayLike = 1) -> Array:
    """Return the cumulative distribution function (CDF).

    >>> print(beta.cdf(0.5, 2.0, 2.0).round(4))
    0.5
    """
    x, a, b, loc, scale = promote_floats(x, a, b, loc, scale)
    return betainc(a, b, jnp.clip((x - loc) / scale, 0, 1))


@_docstr()
def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
           scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the CDF.

    >>> print(beta.logcdf(0.5, 2.0, 2.0).round(4))
    -0.6931
    """
    return jnp.log(cdf(x, a, b, loc, scale))


@_docstr()
def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the survival function, 1 - CDF.

    >>> print(beta.sf(0.5, 2.0, 2.0).round(4))
    0.5
    """
    x, a, b, loc, scale = promote_floats(x, a, b, loc, scale)
    return betainc(b, a, 1 - jnp.clip((x - loc) / scale, 0, 1))


@_docstr()
def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
          scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the survival function.

    >>> print(beta.logsf(0.5, 2.0, 2.0).round(4))
    -0.6931
    """
    return jnp.log(sf(x, a, b, loc, scale))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
