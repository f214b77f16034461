"""The Dirichlet distribution, as in ``jax.scipy.stats.dirichlet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import ShapeError, lazy_module
from fnx.scipy.special import gammaln, xlogy
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpdf", "pdf"]

_docstr = docstring_for(
    "dirichlet", x="shares along the first axis, that add up to 1; the last may be left out.",
    alpha="weights of the shares; above 0.")


@_docstr("An Array of a float dtype, without the first axis.",
         ("ShapeError: shares and weights do not match.",))
def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Return the logarithm of the probability density.

    >>> import fnx.numpy as jnp
    >>> print(dirichlet.logpdf(jnp.asarray([0.5, 0.5]), jnp.asarray([2.0, 2.0])).round(4))
    0.4055
    """
    shares, weights = promote_floats(x, alpha)
    if weights.ndim != 1 or shares.shape[0] not in (weights.size, weights.size - 1):
        raise ShapeError(f"expected a vector of weights and as many shares along the first axis, "
                         f"got shapes {weights.shape} and {shares.shape}")
    if shares.shape[0] + 1 == weights.size:
        shares = jnp.concatenate([shares, 1 - shares.sum(0, keepdims=True)])
    log_beta = gammaln(weights).sum() - gammaln(weights.sum())
    powers = weights.reshape(-1, *[1] * (shares.ndim - 1)) - 1
    logp = xlogy(powers, shares).sum(0) - log_beta
    inside = (shares > 0).all(0) & (jnp.abs(shares.sum(0) - 1) < 1e-6)
    return jnp.where(inside, logp, -np.inf)


@_docstr("An Array of a float dtype, without the first axis.",
         ("ShapeError: shares and weights do not match.",))
def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Return the probability density.

    >>> import fnx.numpy as jnp
    >>> print(dirichlet.pdf(jnp.asarray([0.5, 0.5]), jnp.asarray([2.0, 2.0])).round(4))
    1.5
    """
    return jnp.exp(logpdf(x, alpha))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
