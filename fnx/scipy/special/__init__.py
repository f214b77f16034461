"""Special functions, as in ``jax.scipy.special``.

>>> from fnx.scipy import special
>>> print(special.expit(0.0))
0.5
"""

from typing import TYPE_CHECKING

from fnx.core.errors import lazy_module
from fnx.scipy.special import elementary, gamma_beta, integrals
from fnx.scipy.special.elementary import *
from fnx.scipy.special.gamma_beta import *
from fnx.scipy.special.integrals import *

__all__ = [*gamma_beta.__all__, *integrals.__all__, *elementary.__all__]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
