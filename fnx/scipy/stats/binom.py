"""The binomial distribution: the successes of n trials, as in ``jax.scipy.stats.binom``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import gammaln, xlog1py, xlogy
from fnx.scipy.stats.distribution import Distribution, counts_np

_binom = Distribution(__name__, "1.0, 4.0, 0.25", n="the trials.")


@_binom(counts_np, -0.863)
def logpmf(k: Array, n: Array, p: Array, loc: Array) -> Array:
    y = k - loc
    ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
    chance = xlogy(y, p) + xlog1py(n - y, -p)
    logp = jnp.where((y == 0) & (n == 0) | (chance == 0), 0, ways + chance)
    return jnp.where((k >= loc) & (k < loc + n + 1), logp, -jnp.inf)


pmf = _binom.exp(logpmf, 0.4219)
