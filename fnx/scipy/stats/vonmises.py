"""The von Mises distribution of angles, as in ``jax.scipy.stats.vonmises``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import lazy_module
from fnx.scipy.special import i0e
from fnx.scipy.stats.common import docstring_for, promote_floats

__all__ = ["logpdf", "pdf"]

_docstr = docstring_for("vonmises", kappa="the concentration.")


@_docstr()
def logpdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """Return the logarithm of the probability density.

    >>> print(vonmises.logpdf(0.5, 2.0).round(4))
    -0.9067
    """
    x, kappa = promote_floats(x, kappa)
    return kappa * (jnp.cos(x) - 1) - jnp.log(2 * math.pi * i0e(kappa))


@_docstr()
def pdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """Return the probability density.

    >>> print(vonmises.pdf(0.5, 2.0).round(4))
    0.4039
    """
    return jnp.exp(logpdf(x, kappa))


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
