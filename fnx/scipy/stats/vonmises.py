"""The von Mises distribution of angles, as in ``jax.scipy.stats.vonmises``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.special import i0e
from fnx.scipy.stats.distribution import Distribution, promote_floats

_vonmises = Distribution(__name__, "0.5, 2.0", kappa="the concentration.")


def _points(x: ArrayLike, kappa: ArrayLike) -> list[Array]:
    return promote_floats(x, kappa)


@_vonmises(_points, -0.9067)
def logpdf(x: Array, kappa: Array) -> Array:
    return kappa * (jnp.cos(x) - 1) - jnp.log(2 * jnp.pi * i0e(kappa))


pdf = _vonmises.exp(logpdf, 0.4039)
