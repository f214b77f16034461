"""The multinomial distribution: the outcomes of n trials, as in ``jax.scipy.stats.multinomial``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.errors import module_face
from fnx.scipy.special import gammaln, xlogy
from fnx.scipy.stats.making import family, floats

__all__ = ["logpmf", "pmf"]

_family = family("multinomial", x="how many of each outcome, along the last axis.",
                 n="how many trials.", p="the probability of each outcome, along the last axis.")


@_family("An Array of a float dtype, without the last axis.")
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the logarithm of the probability mass.

    >>> import fnx.numpy as jnp
    >>> print(multinomial.logpmf(jnp.asarray([1, 1]), 2, jnp.asarray([0.5, 0.5])).round(4))
    -0.6931
    """
    chances, = floats(p)
    counts, trials = (jnp.asarray(y).astype(chances.dtype) for y in (x, n))
    found = gammaln(trials + 1) + (xlogy(counts, chances) - gammaln(counts + 1)).sum(-1)
    return jnp.where(counts.sum(-1) == trials, found, -np.inf)


@_family("An Array of a float dtype, without the last axis.")
def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the probability mass.

    >>> import fnx.numpy as jnp
    >>> print(multinomial.pmf(jnp.asarray([1, 1]), 2, jnp.asarray([0.5, 0.5])).round(4))
    0.5
    """
    return jnp.exp(logpmf(x, n, p))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
