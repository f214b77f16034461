"""The part of ``fnx.numpy`` that is loaded at import; the lazily loaded modules build on it."""

from __future__ import annotations

from fnx.core.array.array import Array
from fnx.core.array.operate import astype
from fnx.numpy import (
    binary,
    contraction,
    creation,
    elementwise,
    joining,
    matrices,
    movement,
    rearranging,
    reductions,
    scalars,
    searching,
    taking,
    unary,
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

ndarray = Array

__all__ = [
    "Array", "astype", "ndarray",
    *binary.__all__,
    *contraction.__all__,
    *creation.__all__,
    *elementwise.__all__,
    *joining.__all__,
    *matrices.__all__,
    *movement.__all__,
    *rearranging.__all__,
    *reductions.__all__,
    *scalars.__all__,
    *searching.__all__,
    *taking.__all__,
    *unary.__all__,
]
