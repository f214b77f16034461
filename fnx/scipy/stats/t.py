"""Student's t distribution, as in ``jax.scipy.stats.t``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import gammaln
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpdf", "pdf"]

_docstr = docstring_for("t", df="degrees of freedom; above 0.")


@_docstr()
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the logarithm of the probability density.

    >>> print(t.logpdf(0.5, 2.0).round(4))
    -1.2164
    """
    x, df, loc, scale = promote_floats(x, df, loc, scale)
    z = (x - loc) / scale
    log_norm = gammaln(df / 2) - gammaln(df / 2 + 0.5) + jnp.log(math.pi * df * scale * scale) / 2
    return -log_norm - (df / 2 + 0.5) * jnp.log1p(z * z / df)


@_docstr()
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Return the probability density.

    >>> print(t.pdf(0.5, 2.0).round(4))
    0.2963
    """
    return jnp.exp(logpdf(x, df, loc, scale))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
