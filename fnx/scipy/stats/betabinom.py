"""The beta-binomial distribution, as in ``jax.scipy.stats.betabinom``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.special import betaln
from fnx.scipy.stats.distribution import Distribution, promote_floats

_betabinom = Distribution(__name__, "1.0, 4.0, 2.0, 2.0",
                          n="the trials.", a="above 0.", b="above 0.")


def _counts(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0
            ) -> list[Array]:
    return promote_floats(k, n, a, b, loc)


@_betabinom(_counts, -1.4759)
def logpmf(k: Array, n: Array, a: Array, b: Array, loc: Array) -> Array:
    y = jnp.floor(k) - loc
    ways = -jnp.log1p(n) - betaln(n - y + 1, y + 1)
    logp = ways + betaln(y + a, n - y + b) - betaln(a, b)
    logp = jnp.where((y == 0) & (n == 0), 0, logp)
    logp = jnp.where((y < -loc) | (y > n) | (y + a <= 0), -jnp.inf, logp)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), jnp.nan, logp)


pmf = _betabinom.exp(logpmf, 0.2286)
