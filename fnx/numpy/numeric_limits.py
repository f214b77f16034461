"""Numeric limits: ``finfo`` and ``iinfo``, also of dtypes that NumPy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array.api_boundary import public_api
from fnx.core.ir import dtypes, low_precision
from fnx.core.ir.dtypes import DType
from fnx.core.support.errors import DTypeError

__all__ = ["finfo", "iinfo"]


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
    """Return the limits of a float dtype.

    Args:
        dtype: a float dtype.

    Returns:
        A ``numpy.finfo``, or an object with its attributes.

    Raises:
        DTypeError: the dtype is not a float dtype.

    >>> print(finfo("float32").eps, finfo("bfloat16").eps)
    1.1920929e-07 0.0078125
    """
    t = dtypes.as_dtype(dtype)
    if not t.is_float:
        raise DTypeError(f"expected a float dtype, got {t}", hint="use iinfo")
    return np.finfo(t.np) if t.np.names is None else FloatLimits(t)


@public_api
def iinfo(dtype: Any) -> np.iinfo[Any] | IntegerLimits:
    """Return the limits of an integer dtype.

    Args:
        dtype: an integer dtype.

    Returns:
        A ``numpy.iinfo``, or an object with its attributes.

    Raises:
        DTypeError: the dtype is not an integer dtype.

    >>> iinfo("int32").max, iinfo("int4").max
    (2147483647, 7)
    """
    t = dtypes.as_dtype(dtype)
    if not t.is_integer:
        raise DTypeError(f"expected an integer dtype, got {t}", hint="use finfo")
    return np.iinfo(t.np) if t.np.names is None else IntegerLimits(t)
