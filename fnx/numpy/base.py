"""The part of ``fnx.numpy`` that is loaded at import; the lazily loaded modules build on it."""

from __future__ import annotations

from fnx.core.array.array import Array
from fnx.core.array.array_operators import astype
from fnx.numpy import (
    argreduce_cumulative,
    binary_ufuncs,
    composite_ufuncs,
    contraction,
    creation,
    gather,
    join_split,
    matrices,
    rearrange,
    reductions,
    scalar_types,
    shape_manipulation,
    unary_ufuncs,
)
from fnx.numpy.argreduce_cumulative import *
from fnx.numpy.binary_ufuncs import *
from fnx.numpy.composite_ufuncs import *
from fnx.numpy.contraction import *
from fnx.numpy.creation import *
from fnx.numpy.gather import *
from fnx.numpy.join_split import *
from fnx.numpy.matrices import *
from fnx.numpy.rearrange import *
from fnx.numpy.reductions import *
from fnx.numpy.scalar_types import *
from fnx.numpy.shape_manipulation import *
from fnx.numpy.unary_ufuncs import *

ndarray = Array

__all__ = [
    "Array", "astype", "ndarray",
    *binary_ufuncs.__all__,
    *contraction.__all__,
    *creation.__all__,
    *composite_ufuncs.__all__,
    *join_split.__all__,
    *matrices.__all__,
    *shape_manipulation.__all__,
    *rearrange.__all__,
    *reductions.__all__,
    *scalar_types.__all__,
    *argreduce_cumulative.__all__,
    *gather.__all__,
    *unary_ufuncs.__all__,
]
