"""Minimization of functions, as in ``jax.scipy.optimize``.

>>> import fnx.numpy as jnp
>>> print(minimize(lambda x: jnp.sum((x - 3) ** 2), jnp.zeros(2), method="BFGS").x.round(3))
[3. 3.]
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.scipy.optimize import minimization
from fnx.scipy.optimize.minimization import *

__all__ = [*minimization.__all__]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
