"""NumPy's functions on fnx arrays, with the names, arguments and meaning they have in JAX.

>>> import fnx.numpy as jnp
>>> jnp.sum(jnp.asarray([1.0, 2.0]) * 3)
Array(9., dtype=float32)
"""

from typing import TYPE_CHECKING

import numpy as np

from fnx.core.array.array import Array
from fnx.core.array.operate import astype
from fnx.core.errors import module_face
from fnx.numpy import (
    binary,
    contraction,
    creation,
    elementwise,
    joining,
    linalg,
    matrices,
    methods,
    movement,
    rearranging,
    reductions,
    scalars,
    searching,
    taking,
    unary,
    vectorizing,
)
from fnx.numpy.binary import *
from fnx.numpy.contraction import *
from fnx.numpy.creation import *
from fnx.numpy.elementwise import *
from fnx.numpy.joining import *
from fnx.numpy.matrices import *
from fnx.numpy.movement import *
from fnx.numpy.rearranging import *
from fnx.numpy.reductions import *
from fnx.numpy.scalars import *
from fnx.numpy.searching import *
from fnx.numpy.taking import *
from fnx.numpy.unary import *
from fnx.numpy.vectorizing import *

ndarray = Array

__all__ = [
    "Array", "astype", "linalg", "ndarray", *binary.__all__, *contraction.__all__,
    *creation.__all__, *elementwise.__all__, *joining.__all__, *matrices.__all__, *movement.__all__,
    *rearranging.__all__, *reductions.__all__, *scalars.__all__, *searching.__all__,
    *taking.__all__, *unary.__all__, *vectorizing.__all__,
]

if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__, ["bfloat16", *np.__all__])
