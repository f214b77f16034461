"""The part of ``fnx.numpy`` that is loaded at import; the lazily loaded modules build on it."""

from __future__ import annotations

from fnx.core.array.array import Array
from fnx.core.array.array_operators import astype
from fnx.numpy import (
    composite_ufuncs,
    contraction,
    creation,
    dtypes,
    rearrange,
    reductions,
    shape_manipulation,
    ufuncs,
)
from fnx.numpy.composite_ufuncs import *
from fnx.numpy.contraction import *
from fnx.numpy.creation import *
from fnx.numpy.dtypes import *
from fnx.numpy.rearrange import *
from fnx.numpy.reductions import *
from fnx.numpy.shape_manipulation import *
from fnx.numpy.ufuncs import *

ndarray = Array

__all__ = [
    "Array", "astype", "ndarray", *composite_ufuncs.__all__, *contraction.__all__,
    *creation.__all__, *dtypes.__all__, *rearrange.__all__, *reductions.__all__,
    *shape_manipulation.__all__, *ufuncs.__all__,
]
