"""The wrapped Cauchy distribution, as in ``jax.scipy.stats.wrapcauchy``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.errors import module_face
from fnx.scipy.stats.making import family, floats

__all__ = ["logpdf", "pdf"]

_family = family("wrapcauchy", c="how narrow it is, from 0 to 1.")


@_family()
def logpdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Return the logarithm of the probability density.

    >>> print(wrapcauchy.logpdf(0.5, 0.5).round(4))
    -1.1378
    """
    x, c = floats(x, c)
    below = jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    found = jnp.log(1 - c * c) - math.log(2 * math.pi) - below
    found = jnp.where((x >= 0) & (x <= 2 * math.pi), found, -np.inf)
    return jnp.where((c > 0) & (c < 1), found, np.nan)


@_family()
def pdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Return the probability density.

    >>> print(wrapcauchy.pdf(0.5, 0.5).round(4))
    0.3205
    """
    return jnp.exp(logpdf(x, c))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
