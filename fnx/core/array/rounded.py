"""Compute functions of several steps on 16-bit floats in float32, and round once.

Elementwise formulas do this themselves (core/array/elementwise.py); this is for functions that are
composed of other public functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from fnx.core import build, dtypes
from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.public import asarray, public
from fnx.core.dtypes import DType

P = ParamSpec("P")
R = TypeVar("R")
_HELD = (Array, np.ndarray, np.generic)


def rounded_once(f: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Decorate a public function to compute with 16-bit floats as float32; see ``public``."""
    called = public(f, name)

    def narrow(t: DType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wide = tree.map(lambda x: _cast(x, t.compute), (args, kwargs), is_leaf=_is_held)
        return tree.map(lambda x: _narrowed(x, t), called(*wide[0], **wide[1]))

    once = public(narrow, called.__name__)

    @functools.wraps(called)
    def outer(*args: P.args, **kwargs: P.kwargs) -> R:
        t = _stored([*args, *kwargs.values()])
        return called(*args, **kwargs) if t is None else cast(R, once(t, args, kwargs))

    outer.__dict__["rounds"] = True
    return outer


def _is_held(x: Any) -> bool:
    return isinstance(x, _HELD) or x is None


def _stored(values: Iterable[Any]) -> DType | None:
    """Return the dtype that the Arrays promote to if it is a storage-only float, else None."""
    t: DType | None = None
    weak = True
    for x in values:
        if isinstance(x, _HELD) and (isinstance(x, Array) or x.dtype.kind in "biufV"):
            array = asarray(x)
            t, weak = (array._dtype, array.weak) if t is None else dtypes.promote(
                t, weak, array._dtype, array.weak)
    return t if t is not None and t.is_float and t.storage is not None else None


def _cast(x: Any, to: DType) -> Any:
    if not isinstance(x, _HELD):
        return x
    array = asarray(x)
    return Array(build.cast(array._node, to)) if array._dtype.is_float else x


def _narrowed(x: Any, t: DType) -> Any:
    return Array(build.cast(x._node, t)) if isinstance(x, Array) and x._dtype is t.compute else x
