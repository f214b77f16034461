"""Special functions, as in ``jax.scipy.special``.

>>> from fnx.scipy import special
>>> print(special.expit(0.0))
0.5
"""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face
from fnx.scipy.special import gammas, integrals, plain
from fnx.scipy.special.gammas import *
from fnx.scipy.special.integrals import *
from fnx.scipy.special.plain import *

__all__ = [*gammas.__all__, *integrals.__all__, *plain.__all__]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
