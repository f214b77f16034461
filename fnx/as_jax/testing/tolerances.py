"""Tolerances of comparisons by dtype, as in JAX's tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fnx.core.array.abstract_values import FLOAT0
from fnx.core.ir import dtypes
from fnx.core.ir.low_precision import public_dtype

Tolerance = float | Mapping[Any, float] | None

_EXACT = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_VALUES = {"bfloat16": 1e-2, "float16": 1e-3, "float32": 1e-6, "float64": 1e-15,
           "complex64": 1e-6, "complex128": 1e-15}
_GRADIENTS = {"bfloat16": 1e-1, "float16": 1e-2, "float32": 2e-3, "float64": 1e-5,
              "complex64": 1e-3, "complex128": 1e-5}


def numpy_dtype(t: Any) -> np.dtype[Any]:
    """Return a dtype as NumPy's; one that NumPy lacks as an extension of it."""
    return FLOAT0 if t == FLOAT0 else public_dtype(dtypes.as_dtype(t))


_default: dict[Any, float] = {FLOAT0: 0.0, **{numpy_dtype(t): 0.0 for t in _EXACT},
            **{numpy_dtype(t): x for t, x in _VALUES.items()}}
default_gradient_tolerance = {numpy_dtype(t): x for t, x in _GRADIENTS.items()}


def default_tolerance() -> dict[Any, float]:
    """Return dtype -> the tolerance of values."""
    return dict(_default)


def tolerance(dtype: Any, tol: Tolerance = None) -> float:
    """Return the tolerance for a dtype: of a number, of a dict by dtype, or the default."""
    key = numpy_dtype(dtype)
    if tol is None or isinstance(tol, Mapping):
        by_dtype = {numpy_dtype(t): x for t, x in (tol or {}).items()}
        return by_dtype.get(key, _default.get(key, 1e-1))
    return tol


def join_tolerance(tol1: Tolerance, tol2: Tolerance) -> dict[Any, float]:
    """Return dtype -> the larger of two tolerances."""
    return {t: max(tolerance(t, tol1), tolerance(t, tol2)) for t in _default}


def num_float_bits(dtype: Any) -> int:
    """Return the number of bits of a real float, or of a part of a complex number."""
    t = dtypes.as_dtype(dtype)
    return t.itemsize * (4 if t.kind == "complex" else 8)
