"""The multinomial distribution: the outcomes of n trials, as in ``jax.scipy.stats.multinomial``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.special import gammaln, xlogy
from fnx.scipy.stats.distribution import Distribution, promote_floats

_multinomial = Distribution(
    __name__, "jnp.asarray([1, 1]), 2, jnp.asarray([0.5, 0.5])",
    x="counts of the outcomes, along the last axis.", n="the trials.",
    p="the probability of each outcome, along the last axis.",
    returns="An Array of a float dtype, without the last axis.")


def _counts(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> list[Array]:
    chances, = promote_floats(p)
    return [*(jnp.asarray(y).astype(chances.dtype) for y in (x, n)), chances]


@_multinomial(_counts, -0.6931)
def logpmf(counts: Array, trials: Array, chances: Array) -> Array:
    logp = gammaln(trials + 1) + (xlogy(counts, chances) - gammaln(counts + 1)).sum(-1)
    return jnp.where(counts.sum(-1) == trials, logp, -jnp.inf)


pmf = _multinomial.exp(logpmf, 0.5)
