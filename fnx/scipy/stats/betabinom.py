"""The beta-binomial distribution, as in ``jax.scipy.stats.betabinom``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import betaln
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpmf", "pmf"]

_docstr = docstring_for("betabinom", n="the trials.", a="above 0.", b="above 0.")


@_docstr()
def logpmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the logarithm of the probability mass.

    >>> print(betabinom.logpmf(1.0, 4.0, 2.0, 2.0).round(4))
    -1.4759
    """
    k, n, a, b, loc = promote_floats(k, n, a, b, loc)
    y = jnp.floor(k) - loc
    ways = -jnp.log1p(n) - betaln(n - y + 1, y + 1)
    logp = ways + betaln(y + a, n - y + b) - betaln(a, b)
    logp = jnp.where((y == 0) & (n == 0), 0, logp)
    logp = jnp.where((y < -loc) | (y > n) | (y + a <= 0), -np.inf, logp)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), np.nan, logp)


@_docstr()
def pmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the probability mass.

    >>> print(betabinom.pmf(1.0, 4.0, 2.0, 2.0).round(4))
    0.2286
    """
    return jnp.exp(logpmf(k, n, a, b, loc))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
