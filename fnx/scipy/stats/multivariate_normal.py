"""The multivariate normal distribution, as in ``jax.scipy.stats.multivariate_normal``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.array import Array, ArrayLike
from fnx.core.errors import ShapeError, module_face
from fnx.random.families import cholesky_factor
from fnx.scipy.stats.making import family, floats

__all__ = ["logpdf", "pdf"]

_family = family(
    "multivariate_normal", x="vectors along the last axis.", mean="vectors, or a number.",
    cov="matrices, positive definite; or a number: of independent elements.",
    allow_singular="None.")


def _solved(factor: Array, b: Array) -> Array:
    """Solve factor @ y = b for a lower triangular matrix by forward substitution."""
    done: list[Array] = []
    for i in range(factor.shape[-1]):
        left = b[..., i]
        for j, known in enumerate(done):
            left = left - factor[..., i, j] * known
        done.append(left / factor[..., i, i])
    return jnp.stack(done, -1)


@_family("An Array of a float dtype, without the last axis.",
         ("ShapeError: a covariance of another shape than the mean.",))
def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """Return the logarithm of the probability density.

    >>> import fnx.numpy as jnp
    >>> print(multivariate_normal.logpdf(jnp.ones(2), jnp.zeros(2), jnp.eye(2)).round(4))
    -2.8379
    """
    arguments.one_of("allow_singular", allow_singular, (None,))
    x, mean, cov = floats(x, mean, cov)
    away = x - mean
    if not mean.ndim:
        return -0.5 * (away * away / cov + jnp.log(2 * math.pi * cov))
    n = mean.shape[-1]
    if not cov.ndim:
        return -0.5 * ((away * away).sum(-1) / cov + n * jnp.log(2 * math.pi * cov))
    if cov.shape[-2:] != (n, n):
        raise ShapeError(f"expected a covariance of shape {(n, n)}, got {cov.shape}")
    factor = cholesky_factor(cov)
    y = _solved(factor, away)
    size = jnp.log(jnp.diagonal(factor, 0, -2, -1)).sum(-1)
    return -0.5 * ((y * y).sum(-1) + n * math.log(2 * math.pi)) - size


@_family("An Array of a float dtype, without the last axis.",
         ("ShapeError: a covariance of another shape than the mean.",))
def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Return the probability density.

    >>> import fnx.numpy as jnp
    >>> print(multivariate_normal.pdf(jnp.ones(2), jnp.zeros(2), jnp.eye(2)).round(4))
    0.0585
    """
    return jnp.exp(logpdf(x, mean, cov))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
