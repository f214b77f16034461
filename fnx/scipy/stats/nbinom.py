"""The distribution of failures before n successes, as in ``jax.scipy.stats.nbinom``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import gammaln, xlogy
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpmf", "pmf"]

_docstr = docstring_for("nbinom", n="the successes.")


@_docstr()
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the logarithm of the probability mass.

    >>> print(nbinom.logpmf(1.0, 4.0, 0.25).round(4))
    -4.4466
    """
    k, n, p, loc = promote_floats(k, n, p, loc)
    y = k - loc
    ways = gammaln(y + n) - gammaln(n) - gammaln(y + 1)
    return jnp.where(k < loc, -np.inf, ways + xlogy(n, p) + xlogy(y, 1 - p))


@_docstr()
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the probability mass.

    >>> print(nbinom.pmf(1.0, 4.0, 0.25).round(4))
    0.0117
    """
    return jnp.exp(logpmf(k, n, p, loc))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
