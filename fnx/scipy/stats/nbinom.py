"""The distribution of failures before n successes, as in ``jax.scipy.stats.nbinom``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import gammaln, xlogy
from fnx.scipy.stats.distribution import Distribution, counts_np

_nbinom = Distribution(__name__, "1.0, 4.0, 0.25", n="the successes.")


@_nbinom(counts_np, -4.4466)
def logpmf(k: Array, n: Array, p: Array, loc: Array) -> Array:
    y = k - loc
    ways = gammaln(y + n) - gammaln(n) - gammaln(y + 1)
    return jnp.where(k < loc, -jnp.inf, ways + xlogy(n, p) + xlogy(y, 1 - p))


pmf = _nbinom.exp(logpmf, 0.0117)
