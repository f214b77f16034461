"""The part of ``fnx.numpy`` that is loaded at import; the lazily loaded modules build on it."""

from __future__ import annotations

from typing import Any

from fnx.core.array.array import Array
from fnx.core.array.array_operators import astype
from fnx.core.array.promotion import promote_operands
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


def promote_arrays(name: str, *operands: Any, domain: str = "inexact", broadcast: bool = False
                   ) -> list[Array]:
    """Promote the operands of a function (core/array/promotion.py); the results are not weak."""
    nodes, _ = promote_operands(domain, name, operands, broadcast=broadcast)
    return [Array(node) for node in nodes]
