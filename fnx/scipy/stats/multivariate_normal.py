"""The multivariate normal distribution, as in ``jax.scipy.stats.multivariate_normal``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import ShapeError, lazy_module
from fnx.random.continuous import cholesky_factor
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpdf", "pdf"]

_docstr = docstring_for(
    "multivariate_normal", x="vectors along the last axis.", mean="vectors, or a number.",
    cov="positive definite matrices; or the variance of each element.",
    allow_singular="None.")


def _solve_lower(factor: Array, b: Array) -> Array:
    """Solve factor @ y = b for a lower triangular matrix by forward substitution."""
    solved: list[Array] = []
    for i in range(factor.shape[-1]):
        residual = b[..., i]
        for j, known in enumerate(solved):
            residual = residual - factor[..., i, j] * known
        solved.append(residual / factor[..., i, i])
    return jnp.stack(solved, -1)


@_docstr("An Array of a float dtype, without the last axis.",
         ("ShapeError: mean and covariance do not match.",))
def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """Return the logarithm of the probability density.

    >>> import fnx.numpy as jnp
    >>> print(multivariate_normal.logpdf(jnp.ones(2), jnp.zeros(2), jnp.eye(2)).round(4))
    -2.8379
    """
    arguments.check_choice("allow_singular", allow_singular, (None,))
    x, mean, cov = promote_floats(x, mean, cov)
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


@_docstr("An Array of a float dtype, without the last axis.",
         ("ShapeError: mean and covariance do not match.",))
def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Return the probability density.

    >>> import fnx.numpy as jnp
    >>> print(multivariate_normal.pdf(jnp.ones(2), jnp.zeros(2), jnp.eye(2)).round(4))
    0.0585
    """
    return jnp.exp(logpdf(x, mean, cov))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
