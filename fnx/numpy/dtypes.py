"""Scalar types (``float32(1)``, ``dtype=float32``), type queries, limits and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import promotion
from fnx.core.array.abstract_values import FLOAT0
from fnx.core.array.api_boundary import asarray, join_dtypes, public_api
from fnx.core.array.api_boundary import dtype_and_weak as operand_dtype
from fnx.core.array.array import Array
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.array.convert import DTypeLike
from fnx.core.array.eager_cache import register_key_parts
from fnx.core.ir import dtypes, low_precision
from fnx.core.ir.dtypes import DType
from fnx.core.support.config import config
from fnx.core.support.errors import DTypeError

__all__ = [
    "ComplexWarning", "bfloat16", "bool_", "cdouble", "complex64", "complex128", "complex_",
    "complexfloating", "csingle", "double", "dtype", "e", "euler_gamma", "finfo",
    "float8_e4m3fn", "float8_e5m2", "float16", "float32", "float64", "float_", "floating",
    "generic", "half", "iinfo", "inexact", "inf", "int4", "int8", "int16", "int32", "int64",
    "int_", "integer", "issubdtype", "nan", "newaxis", "number", "pi", "promote_types",
    "result_type", "signedinteger", "single", "uint", "uint4", "uint8", "uint16", "uint32",
    "uint64", "unsignedinteger",
]


class ScalarType:
    """A scalar type, which names a dtype and converts when called.

    >>> import numpy as np
    >>> float32(1), np.dtype(float32)
    (Array(1., dtype=float32), dtype('float32'))
    >>> np.int32 in {int32}
    True
    """

    __slots__ = ("_declared", "__name__")

    def __init__(self, t: DType) -> None:
        self._declared = t
        self.__name__ = t.name

    @property
    def _type(self) -> DType:
        return self._declared

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; for a type that NumPy lacks, that of ml_dtypes."""
        return low_precision.public_dtype(self._type)

    def __call__(self, x: Any) -> Array:
        return _convert(x, self._type)

    def __repr__(self) -> str:
        return self._type.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ScalarType):
            return self._type is other._type
        if isinstance(other, type):
            other = np.dtype(other)
        try:
            other_dtype = dtype_of(other)
        except DTypeError:
            return False
        else:
            return self._type is other_dtype

    def __hash__(self) -> int:
        return hash(self.dtype.type)  # as NumPy's scalar type, which it is equal to


register_key_parts(ScalarType, lambda t: (t._declared,))


class DefaultType(ScalarType):
    """A scalar type that is 64 bits wide under ``config.x64``, and 32 otherwise.

    >>> import numpy as np
    >>> np.dtype(int_)
    dtype('int32')
    """

    __slots__ = ()

    @property
    def _type(self) -> DType:
        return dtypes.default_width(self._declared)


@public_api
def _convert(x: Any, dtype: DType) -> Array:
    return asarray(x, dtype)


bool_ = ScalarType(dtypes.bool_)
int4, uint4 = ScalarType(dtypes.int4), ScalarType(dtypes.uint4)
int8, int16 = ScalarType(dtypes.int8), ScalarType(dtypes.int16)
int32, int64 = ScalarType(dtypes.int32), ScalarType(dtypes.int64)
uint8, uint16 = ScalarType(dtypes.uint8), ScalarType(dtypes.uint16)
uint32, uint64 = ScalarType(dtypes.uint32), ScalarType(dtypes.uint64)
float8_e4m3fn = ScalarType(dtypes.float8_e4m3fn)
float8_e5m2 = ScalarType(dtypes.float8_e5m2)
bfloat16, float16 = ScalarType(dtypes.bfloat16), ScalarType(dtypes.float16)
float32 = ScalarType(dtypes.float32)
float64 = ScalarType(dtypes.float64)
int_, uint = DefaultType(dtypes.int64), DefaultType(dtypes.uint64)
float_ = DefaultType(dtypes.float64)
complex64, complex128 = ScalarType(dtypes.complex64), ScalarType(dtypes.complex128)
complex_ = DefaultType(dtypes.complex128)
half, single, double = float16, float32, float64
csingle, cdouble = complex64, complex128

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
euler_gamma = 0.5772156649015329
newaxis = None

generic, number, inexact = np.generic, np.number, np.inexact
integer, signedinteger, unsignedinteger = np.integer, np.signedinteger, np.unsignedinteger
floating, complexfloating = np.floating, np.complexfloating
dtype = np.dtype
ComplexWarning = np.exceptions.ComplexWarning


@public_api
def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Return whether a dtype is of a kind, as in ``issubdtype(x.dtype, floating)``.

    Args:
        arg1: a dtype.
        arg2: a dtype, or a kind such as ``floating``.

    Returns:
        True or False.

    >>> issubdtype(float32, floating)
    True
    """
    kind1, kind2 = (_numpy_kind(a) for a in (arg1, arg2))
    return bool(np.issubdtype(kind1, kind2))


def dtype_of(x: Any) -> DType:
    """Return the DType of a dtype, or of an array: functions about dtypes take both."""
    return dtypes.as_dtype(x.dtype if dtypes.is_array(x) else x)


def _numpy_kind(x: Any) -> Any:
    """Return a dtype or kind for ``numpy.issubdtype``; a dtype that NumPy lacks gives its kind."""
    if isinstance(x, type) and issubclass(x, np.generic) and x.__name__ not in dtypes.LOW_PRECISION:
        return x
    try:
        t = dtype_of(np.dtype(x) if isinstance(x, type) else x)
    except DTypeError:
        return getattr(x, "type", x)  # as of a dtype of keys
    return t.np if t.np.names is None else _KIND_CLASSES[t.kind]


class extended(np.generic):
    """The kind of non-numeric dtypes.

    >>> issubclass(prng_key, extended)
    True
    """


class prng_key(extended):
    """The kind of the dtype of random keys.

    >>> import fnx.random
    >>> issubdtype(fnx.random.key(0).dtype, prng_key)
    True
    """


_KIND_CLASSES = {"key": prng_key, "float": np.floating, "int": np.signedinteger,
                 "uint": np.unsignedinteger}


@public_api
def result_type(*args: Any) -> np.dtype[Any]:
    """Return the dtype that these arrays, numbers and dtypes promote to.

    Args:
        args: Arrays, numbers and dtypes.

    Returns:
        A NumPy dtype.

    Raises:
        ArgumentError: there are no arguments.

    >>> result_type(int32, 1.0)
    dtype('float32')
    """
    if any(getattr(x, "dtype", None) == FLOAT0 for x in args):
        return FLOAT0
    kinds = map(dtype_and_weak, args)
    t, _ = join_dtypes([(dtypes.default_width(t), weak) for t, weak in kinds]
                       if config.truncate else kinds)
    return low_precision.public_dtype(dtypes.default_width(t) if config.truncate else t)


@public_api
def promote_types(a: DTypeLike, b: DTypeLike) -> np.dtype[Any]:
    """Return the dtype that two dtypes promote to.

    Args:
        a: a dtype.
        b: a dtype.

    Returns:
        A NumPy dtype.

    Raises:
        TypePromotionError: the dtypes have no implicit promotion.

    >>> promote_types("int32", "float16")
    dtype('float16')
    """
    return low_precision.public_dtype(_promote((a, b)))


def _promote(args: Sequence[Any]) -> DType:
    return join_dtypes(map(dtype_and_weak, args))[0]


def dtype_and_weak(x: Any) -> tuple[DType, bool]:
    """Return the (dtype, weak) of an operand, a ShapeDtypeStruct or a dtype."""
    if isinstance(x, (ScalarType, np.dtype, type, str, DType)):
        return dtypes.as_dtype(x), x is int or x is float or x is complex
    if isinstance(x, ShapeDtypeStruct):
        return x._aval.dtype, x.weak_type
    return operand_dtype(promotion.as_operand(x))


class FloatLimits:
    """Limits of a float dtype that NumPy lacks, as numbers of its compute dtype.

    Attributes:
        dtype, bits: the dtype and its width.
        nmant, nexp: the numbers of stored mantissa and exponent bits.
        max, min: the largest and the most negative number.
        eps, epsneg: the distance from 1 to the next number above and below.
        tiny, smallest_normal, smallest_subnormal: the smallest positive numbers.
        maxexp, minexp: 2**maxexp overflows; 2**minexp is the smallest normal number.
        machep, negep: the exponents of eps and epsneg.
        precision, resolution: the number of significant decimal digits, and 10**-precision.
    """

    def __init__(self, t: DType) -> None:
        self.dtype: Any = low_precision.public_dtype(t)
        self.bits, self.nmant, self.nexp = t.bits, t.mantissa, t.exponent
        max_bits = low_precision.infinity_bits(t) - (not t.has_no_inf)
        to_number = t.compute.np.type
        self.max, self.min = (to_number(sign * low_precision.decode_number(max_bits, t))
                              for sign in (1, -1))
        self.machep, self.negep = -t.mantissa, -t.mantissa - 1
        self.eps, self.epsneg = to_number(2.0 ** self.machep), to_number(2.0 ** self.negep)
        self.minexp = 1 - t.bias
        self.maxexp = int(np.frexp(self.max)[1])
        self.tiny = self.smallest_normal = to_number(2.0 ** self.minexp)
        self.smallest_subnormal = to_number(2.0 ** (self.minexp - t.mantissa))
        self.precision = int(t.mantissa * np.log10(2.0))
        self.resolution = to_number(10.0 ** -self.precision)

    def __repr__(self) -> str:
        return f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, " \
               f"dtype={self.dtype})"


class IntegerLimits:
    """Limits of an integer dtype that NumPy lacks.

    Attributes:
        dtype, bits, kind: the dtype, its width, and "i" or "u".
        min, max: the smallest and the largest number.
    """

    def __init__(self, t: DType) -> None:
        self.dtype: Any = low_precision.public_dtype(t)
        self.bits, self.kind = t.bits, t.kind[0]
        self.min, self.max = t.limits

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


@public_api
def finfo(dtype: Any) -> np.finfo[Any] | FloatLimits:
    """Return the limits of a float dtype, or of the parts of a complex one.

    Args:
        dtype: a float or complex dtype.

    Returns:
        A ``numpy.finfo``, or an object with its attributes.

    Raises:
        DTypeError: the dtype is neither float nor complex.

    >>> print(finfo("float32").eps, finfo("bfloat16").eps)
    1.1920929e-07 0.0078125
    """
    t = dtype_of(dtype).real
    if not t.is_float:
        raise DTypeError(f"expected a float dtype, got {t}", hint="use iinfo")
    return np.finfo(t.np) if t.np.names is None else FloatLimits(t)


@public_api
def iinfo(int_type: Any) -> np.iinfo[Any] | IntegerLimits:
    """Return the limits of an integer dtype.

    Args:
        int_type: an integer dtype.

    Returns:
        A ``numpy.iinfo``, or an object with its attributes.

    Raises:
        DTypeError: the dtype is not an integer dtype.

    >>> iinfo("int32").max, iinfo("int4").max
    (2147483647, 7)
    """
    t = dtype_of(int_type)
    if not t.is_integer:
        raise DTypeError(f"expected an integer dtype, got {t}", hint="use finfo")
    return np.iinfo(t.np) if t.np.names is None else IntegerLimits(t)
