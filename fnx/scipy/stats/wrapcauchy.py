"""The wrapped Cauchy distribution, as in ``jax.scipy.stats.wrapcauchy``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpdf", "pdf"]

_docstr = docstring_for("wrapcauchy", c="the concentration, 0 to 1.")


@_docstr()
def logpdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Return the logarithm of the probability density.

    >>> print(wrapcauchy.logpdf(0.5, 0.5).round(4))
    -1.1378
    """
    x, c = promote_floats(x, c)
    below = jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    logp = jnp.log(1 - c * c) - math.log(2 * math.pi) - below
    logp = jnp.where((x >= 0) & (x <= 2 * math.pi), logp, -np.inf)
    return jnp.where((c > 0) & (c < 1), logp, np.nan)


@_docstr()
def pdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Return the probability density.

    >>> print(wrapcauchy.pdf(0.5, 0.5).round(4))
    0.3205
    """
    return jnp.exp(logpdf(x, c))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
