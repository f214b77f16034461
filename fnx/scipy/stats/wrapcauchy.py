"""The wrapped Cauchy distribution, as in ``jax.scipy.stats.wrapcauchy``."""

from __future__ import annotations

import math

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.stats.distribution import Distribution, promote_floats

_wrapcauchy = Distribution(__name__, "0.5, 0.5", c="the concentration, 0 to 1.")


def _points(x: ArrayLike, c: ArrayLike) -> list[Array]:
    return promote_floats(x, c)


@_wrapcauchy(_points, -1.1378)
def logpdf(x: Array, c: Array) -> Array:
    below = jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    logp = jnp.log(1 - c * c) - math.log(2 * jnp.pi) - below
    logp = jnp.where((x >= 0) & (x <= 2 * jnp.pi), logp, -jnp.inf)
    return jnp.where((c > 0) & (c < 1), logp, jnp.nan)


pdf = _wrapcauchy.exp(logpdf, 0.3205)
