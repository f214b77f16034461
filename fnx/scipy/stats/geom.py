"""The geometric distribution: trials up to the first success, as in ``jax.scipy.stats.geom``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import xlog1py
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpmf", "pmf"]

_docstr = docstring_for("geom")


@_docstr()
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the logarithm of the probability mass.

    >>> print(geom.logpmf(2.0, 0.25).round(4))
    -1.674
    """
    k, p, loc = promote_floats(k, p, loc)
    y = k - loc
    return jnp.where(y <= 0, -np.inf, xlog1py(y - 1, -p) + jnp.log(p))


@_docstr()
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Return the probability mass.

    >>> print(geom.pmf(2.0, 0.25).round(4))
    0.1875
    """
    return jnp.exp(logpmf(k, p, loc))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
