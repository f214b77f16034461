"""Special functions, as in ``jax.scipy.special``.

>>> from fnx.scipy import special
>>> print(special.expit(0.0))
0.5
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.lax import gamma_beta, special_functions, special_integrals
from fnx.lax.gamma_beta import *
from fnx.lax.special_functions import *
from fnx.lax.special_integrals import *
from fnx.scipy.special import complex_functions, exp_sums
from fnx.scipy.special.complex_functions import *
from fnx.scipy.special.exp_sums import *

__all__ = [*gamma_beta.__all__, *special_integrals.__all__, *special_functions.__all__,
           *exp_sums.__all__, *complex_functions.__all__]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
