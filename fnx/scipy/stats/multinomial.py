"""The multinomial distribution: the outcomes of n trials, as in ``jax.scipy.stats.multinomial``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import gammaln, xlogy
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpmf", "pmf"]

_docstr = docstring_for("multinomial", x="counts of the outcomes, along the last axis.",
                        n="the trials.", p="the probability of each outcome, along the last axis.")


@_docstr("An Array of a float dtype, without the last axis.")
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the logarithm of the probability mass.

    >>> import fnx.numpy as jnp
    >>> print(multinomial.logpmf(jnp.asarray([1, 1]), 2, jnp.asarray([0.5, 0.5])).round(4))
    -0.6931
    """
    chances, = promote_floats(p)
    counts, trials = (jnp.asarray(y).astype(chances.dtype) for y in (x, n))
    logp = gammaln(trials + 1) + (xlogy(counts, chances) - gammaln(counts + 1)).sum(-1)
    return jnp.where(counts.sum(-1) == trials, logp, -np.inf)


@_docstr("An Array of a float dtype, without the last axis.")
def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the probability mass.

    >>> import fnx.numpy as jnp
    >>> print(multinomial.pmf(jnp.asarray([1, 1]), 2, jnp.asarray([0.5, 0.5])).round(4))
    0.5
    """
    return jnp.exp(logpmf(x, n, p))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
