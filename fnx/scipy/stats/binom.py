"""The binomial distribution: the successes of n trials, as in ``jax.scipy.stats.binom``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import gammaln, xlog1py, xlogy
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpmf", "pmf"]

_docstr = docstring_for("binom", n="the trials.")


@_docstr()
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the logarithm of the probability mass.

    >>> print(binom.logpmf(1.0, 4.0, 0.25).round(4))
    -0.863
    """
    k, n, p, loc = promote_floats(k, n, p, loc)
    y = k - loc
    ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
    chance = xlogy(y, p) + xlog1py(n - y, -p)
    logp = jnp.where((y == 0) & (n == 0) | (chance == 0), 0, ways + chance)
    return jnp.where((k >= loc) & (k < loc + n + 1), logp, -np.inf)


@_docstr()
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the probability mass.

    >>> print(binom.pmf(1.0, 4.0, 0.25).round(4))
    0.4219
    """
    return jnp.exp(logpmf(k, n, p, loc))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
