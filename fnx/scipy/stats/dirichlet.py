"""The Dirichlet distribution, as in ``jax.scipy.stats.dirichlet``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import ShapeError
from fnx.scipy.special import gammaln, xlogy
from fnx.scipy.stats.distribution import Distribution, promote_floats

_dirichlet = Distribution(
    __name__, "jnp.asarray([0.5, 0.5]), jnp.asarray([2.0, 2.0])",
    x="shares along the first axis, that add up to 1; the last may be left out.",
    alpha="weights of the shares; above 0.",
    returns="An Array of a float dtype, without the first axis.",
    error="ShapeError: shares and weights do not match.")


def _points(x: ArrayLike, alpha: ArrayLike) -> list[Array]:
    return promote_floats(x, alpha)


@_dirichlet(_points, 0.4055)
def logpdf(shares: Array, weights: Array) -> Array:
    if weights.ndim != 1 or shares.shape[0] not in (weights.size, weights.size - 1):
        raise ShapeError("expected a vector alpha and x of its length along the first axis, got "
                         f"shapes {weights.shape} and {shares.shape}")
    if shares.shape[0] + 1 == weights.size:
        shares = jnp.concatenate([shares, 1 - shares.sum(0, keepdims=True)])
    log_beta = gammaln(weights).sum() - gammaln(weights.sum())
    powers = weights.reshape(-1, *[1] * (shares.ndim - 1)) - 1
    logp = xlogy(powers, shares).sum(0) - log_beta
    inside = (shares > 0).all(0) & (jnp.abs(shares.sum(0) - 1) < 1e-6)
    return jnp.where(inside, logp, -jnp.inf)


pdf = _dirichlet.exp(logpdf, 1.5)
