"""Integrals of samples, as in ``jax.scipy.integrate``.

>>> import fnx.numpy as jnp
>>> print(trapezoid(jnp.asarray([1.0, 2.0, 3.0])))
4.0
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.numpy.vector_math import trapezoid

__all__ = ["trapezoid"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
