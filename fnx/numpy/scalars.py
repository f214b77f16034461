"""The element types as ``fnx.numpy`` names them, ``float32(1)``, ``dtype=float32``; constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import promotion
from fnx.core.array.array import Array
from fnx.core.array.public import asarray, kind_of, public
from fnx.core.dtypes import DType

__all__ = [
    "bool_", "double", "dtype", "e", "euler_gamma", "finfo", "float32", "float64", "float_",
    "floating", "generic", "iinfo", "inexact", "inf", "int8", "int16", "int32", "int64",
    "int_", "integer", "issubdtype", "nan", "newaxis", "number", "pi", "promote_types",
    "result_type", "signedinteger", "single", "uint", "uint8", "uint16", "uint32", "uint64",
    "unsignedinteger",
]


class ScalarType:
    """An element type: names a dtype, and converts when called.

    >>> import numpy as np
    >>> float32(1), np.dtype(float32)
    (Array(1., dtype=float32), dtype('float32'))
    """

    __slots__ = ("dtype", "__name__")

    def __init__(self, t: DType) -> None:
        self.dtype = t.np
        self.__name__ = t.name

    def __call__(self, x: Any) -> Array:
        return _convert(x, self.dtype)

    def __repr__(self) -> str:
        return self.__name__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ScalarType):
            return self is other
        try:
            return self.dtype == np.dtype(other)  # type: ignore[call-overload, no-any-return]
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.dtype)


@public
def _convert(x: Any, dtype: np.dtype[Any]) -> Array:
    return asarray(x, dtype)


bool_ = ScalarType(dtypes.bool_)
int8, int16 = ScalarType(dtypes.int8), ScalarType(dtypes.int16)
int32, int64 = ScalarType(dtypes.int32), ScalarType(dtypes.int64)
uint8, uint16 = ScalarType(dtypes.uint8), ScalarType(dtypes.uint16)
uint32, uint64 = ScalarType(dtypes.uint32), ScalarType(dtypes.uint64)
float32 = ScalarType(dtypes.float32)
float64 = ScalarType(dtypes.float64)
int_, uint, float_ = int32, uint32, float32
single, double = float32, float64

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
euler_gamma = 0.5772156649015329
newaxis = None

generic, number, inexact = np.generic, np.number, np.inexact
integer, signedinteger, unsignedinteger = np.integer, np.signedinteger, np.unsignedinteger
floating = np.floating
dtype = np.dtype


@public
def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype is of a kind, as ``issubdtype(x.dtype, floating)``.

    Args:
        arg1: a dtype.
        arg2: a dtype, or a kind such as ``floating``.

    Returns:
        A bool.

    >>> issubdtype(float32, floating)
    True
    """
    one, two = (a.dtype if isinstance(a, ScalarType) else a for a in (arg1, arg2))
    return bool(np.issubdtype(one, two))


@public
def result_type(*args: Any) -> np.dtype[Any]:
    """The dtype that arithmetic on these arrays, numbers and dtypes has.

    Args:
        args: Arrays, numbers and dtypes.

    Returns:
        A NumPy dtype.

    Raises:
        ArgumentError: no argument at all.

    >>> result_type(int32, 1.0)
    dtype('float32')
    """
    t, weak = _type_of(args[0])
    for x in args[1:]:
        t, weak = dtypes.promote(t, weak, *_type_of(x))
    return t.np


def _type_of(x: Any) -> tuple[DType, bool]:
    if isinstance(x, (ScalarType, np.dtype, type, str, DType)):
        return dtypes.as_dtype(x), x is int or x is float
    return kind_of(promotion.operand(x))


promote_types = result_type


@public
def finfo(dtype: Any) -> np.finfo[Any]:
    """Limits of a float type.

    Args:
        dtype: a float dtype.

    Returns:
        NumPy's finfo.

    Raises:
        DTypeError: no float dtype.

    >>> print(finfo(float32).eps)
    1.1920929e-07
    """
    return np.finfo(dtypes.as_dtype(dtype).np)


@public
def iinfo(dtype: Any) -> np.iinfo[Any]:
    """Limits of an integer type.

    Args:
        dtype: an integer dtype.

    Returns:
        NumPy's iinfo.

    Raises:
        DTypeError: no integer dtype.

    >>> iinfo(int32).max
    2147483647
    """
    return np.iinfo(dtypes.as_dtype(dtype).np)
