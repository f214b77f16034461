"""The generalized normal distribution, as in ``jax.scipy.stats.gennorm``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.special import gammainc, gammaln
from fnx.scipy.stats.distribution import Distribution, promote_floats

_gennorm = Distribution(__name__, "0.5, 2.0", beta="the exponent; 2 gives the normal one.")


def _points(x: ArrayLike, beta: ArrayLike) -> list[Array]:
    return promote_floats(x, beta)


@_gennorm(_points, -0.8224)
def logpdf(x: Array, beta: Array) -> Array:
    return jnp.log(0.5 * beta) - gammaln(1 / beta) - jnp.abs(x) ** beta


@_gennorm(_points, 0.7602)
def cdf(x: Array, beta: Array) -> Array:
    return 0.5 * (1 + jnp.sign(x) * gammainc(1 / beta, jnp.abs(x) ** beta))


pdf = _gennorm.exp(logpdf, 0.4394)
