"""The multivariate normal distribution, as in ``jax.scipy.stats.multivariate_normal``."""

from __future__ import annotations

import math

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import ShapeError
from fnx.random.continuous import cholesky_factor
from fnx.scipy.stats.distribution import Distribution, promote_floats

_normal = Distribution(
    __name__, "jnp.ones(2), jnp.zeros(2), jnp.eye(2)",
    x="vectors along the last axis.", mean="vectors, or a number.",
    cov="positive definite matrices; or the variance of each element.", allow_singular="None.",
    returns="An Array of a float dtype, without the last axis.",
    error="ShapeError: mean and covariance do not match.")


def _vectors(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> list[Array]:
    return promote_floats(x, mean, cov)


def _checked_vectors(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None
                     ) -> list[Array]:
    arguments.check_choice("allow_singular", allow_singular, (None,))
    return _vectors(x, mean, cov)


def _solve_lower(factor: Array, b: Array) -> Array:
    """Solve factor @ y = b for a lower triangular matrix by forward substitution."""
    solved: list[Array] = []
    for i in range(factor.shape[-1]):
        residual = b[..., i]
        for j, known in enumerate(solved):
            residual = residual - factor[..., i, j] * known
        solved.append(residual / factor[..., i, i])
    return jnp.stack(solved, -1)


@_normal(_checked_vectors, -2.8379)
def logpdf(x: Array, mean: Array, cov: Array) -> Array:
    deviation = x - mean
    if not mean.ndim:
        return -0.5 * (deviation * deviation / cov + jnp.log(2 * math.pi * cov))
    n = mean.shape[-1]
    if not cov.ndim:
        return -0.5 * ((deviation * deviation).sum(-1) / cov + n * jnp.log(2 * math.pi * cov))
    if cov.shape[-2:] != (n, n):
        raise ShapeError(f"expected a covariance of shape {(n, n)}, got {cov.shape}")
    factor = cholesky_factor(cov)
    y = _solve_lower(factor, deviation)
    half_log_det = jnp.log(jnp.diagonal(factor, 0, -2, -1)).sum(-1)
    return -0.5 * ((y * y).sum(-1) + n * math.log(2 * math.pi)) - half_log_det


@_normal(_vectors, 0.0585)
def pdf(x: Array, mean: Array, cov: Array) -> Array:
    return jnp.exp(logpdf(x, mean, cov))
