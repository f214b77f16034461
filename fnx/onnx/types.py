"""Element types of ONNX tensors, and the formats that fnx has no dtype for.

A tensor of such a format (float8 without a negative zero, 4-bit floats, powers of two, 2-bit
integers) is held in a wider dtype whose values are those of the format: operations of ONNX only
move such elements, or convert them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.rewriting.dimensions import Dim
from fnx.core.support.errors import ModelError
from fnx.core.support.record import Record
from fnx.numpy.bits import bitcast_convert_type

Value = Any  # np.ndarray: known while tracing; Array; list: a sequence; None: an absent optional

FLOAT, INT8, INT32, INT64, STRING, UINT8, FLOAT8E8M0 = 1, 3, 6, 7, 8, 2, 24

DTYPES: dict[int, DType] = {
    1: dtypes.float32, 2: dtypes.uint8, 3: dtypes.int8, 4: dtypes.uint16, 5: dtypes.int16,
    6: dtypes.int32, 7: dtypes.int64, 9: dtypes.bool_, 10: dtypes.float16, 11: dtypes.float64,
    12: dtypes.uint32, 13: dtypes.uint64, 14: dtypes.complex64, 15: dtypes.complex128,
    16: dtypes.bfloat16, 17: dtypes.float8_e4m3fn, 19: dtypes.float8_e5m2, 21: dtypes.uint4,
    22: dtypes.int4}


class Format(Record):
    """A format without a dtype of fnx: the dtype that holds its values, and what rounds to it.

    ``mantissa``: stored bits; ``lowest``: the exponent of the smallest normal number.
    """

    name: str
    dtype: DType
    largest: float
    mantissa: int = 0
    lowest: int = 0
    smallest: float = 0.0  # of integers
    has_nan: bool = True


FORMATS: dict[int, Format] = {
    18: Format("FLOAT8E4M3FNUZ", dtypes.float32, 240.0, 3, -7),
    20: Format("FLOAT8E5M2FNUZ", dtypes.float32, 57344.0, 2, -15),
    23: Format("FLOAT4E2M1", dtypes.float32, 6.0, 1, 0, has_nan=False),
    FLOAT8E8M0: Format("FLOAT8E8M0", dtypes.float32, 2.0 ** 127),
    25: Format("UINT2", dtypes.uint8, 3),
    26: Format("INT2", dtypes.int8, 1, smallest=-2)}


def dtype_of(elem_type: int) -> DType:
    """Return the dtype that holds the elements of a type of ONNX.

    Raises:
        ModelError: the elements are no numbers.
    """
    if elem_type in FORMATS:
        return FORMATS[elem_type].dtype
    if elem_type not in DTYPES:
        raise ModelError(f"expected tensors of numbers, got elements of type "
                         f"{'STRING' if elem_type == STRING else elem_type}",
                         hint="compute on texts outside of the model")
    return DTYPES[elem_type]


def type_of(x: Value) -> DType:
    """Return the dtype of a value, as fnx's object."""
    return dtypes.int64 if x.dtype == object else dtypes.as_dtype(x.dtype)


def elem_type_of(x: Value) -> int:
    """Return the type of ONNX for the elements of a value.

    >>> elem_type_of(np.zeros(2, np.int64))
    7
    """
    t = type_of(x)
    return next(code for code, other in DTYPES.items() if other is t)


def held(data: np.ndarray[Any, Any], elem_type: int) -> Value:
    """Return data of a file or of the user in the dtype that holds them: NumPy's, if it has it."""
    t = dtype_of(elem_type)
    if elem_type in FORMATS:
        return np.asarray(data).astype(t.np)
    return jnp.asarray(data, t) if t in dtypes.STORAGE_ONLY and t is not dtypes.float16 else data


def to_array(x: Value) -> Array:
    """Return a value as an Array of its dtype: 64-bit data stay 64 bits wide."""
    if isinstance(x, np.ndarray) and x.dtype == object:
        lengths = [jnp.asarray(d).astype(jnp.int64) for d in x.flat]
        return jnp.reshape(jnp.stack(lengths), x.shape)
    return jnp.asarray(x, x.dtype) if isinstance(x, np.ndarray) else x


def known(x: Value) -> Value:
    """Return a result of NumPy as an array. Lengths that change are elements of type object.

    >>> known(np.int64(3)).dtype, known(np.asarray([2, 3], object)).dtype
    (dtype('int64'), dtype('int64'))
    """
    if isinstance(x, Dim | int | np.ndarray) and (not isinstance(x, np.ndarray)
                                                  or x.dtype == object):
        x = np.asarray(x, object)
        return x if any(isinstance(d, Dim) for d in x.flat) else x.astype(np.int64)
    return np.asarray(x) if isinstance(x, np.generic) else x


def convert(x: Value, elem_type: int, saturate: bool = True, round_mode: str = "up") -> Value:
    """Convert numbers to a type of ONNX, as its Cast does."""
    t, source = dtype_of(elem_type), type_of(x)
    if elem_type in FORMATS:
        form = FORMATS[elem_type]
        if form.dtype.is_integer:
            return _wrap_integer(x, form)
        return round_to(x, form, saturate, round_mode)
    if t is source or isinstance(x, np.ndarray) and x.dtype == object and t.is_integer:
        return x
    if isinstance(x, np.ndarray) and x.dtype != object and \
            t not in dtypes.LOW_PRECISION.values() and not (source.is_float and t.is_integer):
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(t.np)
    x = to_array(x)
    if t.is_float and t.bits == 8 and saturate:
        largest = 448.0 if t is dtypes.float8_e4m3fn else 57344.0
        x = jnp.clip(x.astype(jnp.float32), -largest, largest)
    if t.is_integer and t.bits == 4:
        x = x.astype(jnp.int32)
    if source.is_float and t.is_bool:
        return x != 0
    return x.astype(t)


def _wrap_integer(x: Value, form: Format) -> Value:
    low, count = int(form.smallest), int(form.largest - form.smallest) + 1
    whole = to_array(x).astype(jnp.int32)
    return ((whole - low) % count + low).astype(form.dtype)


def round_to(x: Value, form: Format, saturate: bool = True, round_mode: str = "up") -> Array:
    """Round to the nearest number of a float format, ties to an even mantissa."""
    x = to_array(x).astype(jnp.float32)
    size = jnp.abs(x)
    bits = bitcast_convert_type(size, jnp.int32)
    if form is FORMATS[FLOAT8E8M0]:
        return _round_to_power(size, bits, saturate, round_mode)
    exponent = jnp.maximum((bits >> 23) - 127, form.lowest) - form.mantissa
    unit = bitcast_convert_type((jnp.clip(exponent, -126, 127) + 127) << 23, jnp.float32)
    near = jnp.round(size / unit) * unit
    too_large = (near > form.largest) | jnp.isinf(x)
    top = form.largest if saturate or not form.has_nan else jnp.nan
    near = jnp.where(too_large, top, near)
    signed = jnp.where(x < 0, -near, near) if form.has_nan else jnp.copysign(near, x)
    return jnp.where(jnp.isnan(x), jnp.nan if form.has_nan else -0.0, signed)


def _round_to_power(size: Array, bits: Array, saturate: bool, round_mode: str) -> Array:
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    if round_mode == "up":
        up = fraction > 0
    elif round_mode == "down":
        up = fraction < 0
    else:
        up = fraction >= 1 << 22
    e = exponent + up - 127
    limit = jnp.where(e > 127, 127.0 if saturate else jnp.nan, e)
    power = jnp.exp2(jnp.maximum(limit, -127.0))
    return jnp.where(jnp.isnan(size), jnp.nan, power)
