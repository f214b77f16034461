"""Compute functions of several steps on 16-bit floats in float32, and round once.

Elementwise formulas do this themselves (core/formulas/elementwise.py); this is for functions that
are composed of other public functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType

P = ParamSpec("P")
R = TypeVar("R")
_ARRAY_TYPES = (Array, np.ndarray, np.generic)


def compute_in_float32(f: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Decorate a public function to compute with 16-bit floats as float32; see ``public_api``."""
    called = public_api(f, name)

    def compute_wide(t: DType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wide = tree.map(lambda x: _cast(x, t.compute), (args, kwargs), is_leaf=_is_array_leaf)
        return tree.map(lambda x: _cast_back(x, t), called(*wide[0], **wide[1]))

    wide_call = public_api(compute_wide, called.__name__)

    @functools.wraps(called)
    def outer(*args: P.args, **kwargs: P.kwargs) -> R:
        t = _storage_only_float([*args, *kwargs.values()])
        return called(*args, **kwargs) if t is None else cast(R, wide_call(t, args, kwargs))

    outer.__dict__["rounds"] = True
    return outer


def _is_array_leaf(x: Any) -> bool:
    return isinstance(x, _ARRAY_TYPES) or x is None


def _storage_only_float(values: Iterable[Any]) -> DType | None:
    """Return the dtype that the Arrays promote to if it is a storage-only float, else None."""
    t: DType | None = None
    weak = True
    for x in values:
        if isinstance(x, _ARRAY_TYPES) and (isinstance(x, Array) or x.dtype.kind in "biufV"):
            array = asarray(x)
            t, weak = (array._dtype, array.weak) if t is None else dtypes.promote(
                t, weak, array._dtype, array.weak)
    return t if t is not None and t.is_float and t.storage is not None else None


def _cast(x: Any, to: DType) -> Any:
    if not isinstance(x, _ARRAY_TYPES):
        return x
    array = asarray(x)
    return Array(build.cast(array._node, to)) if array._dtype.is_float else x


def _cast_back(x: Any, t: DType) -> Any:
    return Array(build.cast(x._node, t)) if isinstance(x, Array) and x._dtype is t.compute else x
