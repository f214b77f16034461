"""Low-precision (storage-only) dtypes: their bits in memory, and their values in NumPy.

NumPy has only float16; an array of another such type is held as records of one unsigned integer,
which ufuncs refuse. ``decode`` returns the exact values in ``t.compute``; ``encode`` rounds to
nearest, ties to even, overflows to infinity (NaN if the type has no infinity), and wraps integers.

>>> from fnx.core.ir.dtypes import bfloat16, float8_e4m3fn, int4
>>> x = encode(np.float32([1.0, 1.00390625, 1e39]), bfloat16)
>>> x.dtype, decode(x, bfloat16)
(dtype([('bfloat16', '<u2')]), array([ 1.,  1., inf], dtype=float32))
>>> decode(encode(np.float32([464.0, 465.0]), float8_e4m3fn), float8_e4m3fn)
array([448.,  nan], dtype=float32)
>>> decode(encode(np.int32([7, 8]), int4), int4)
array([ 7, -8], dtype=int32)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import numpy as np

from fnx.core.ir.dtypes import DType, NDArray, random_key_error
from fnx.core.support.errors import DTypeError


def decode(x: NDArray, t: DType) -> NDArray:
    """Convert an array that is held as ``t`` to values in the compute type of t."""
    if t.storage is None or x.dtype == t.compute.np:
        return x
    if x.dtype.names is None and t.np.names is None:
        return x.astype(t.compute.np)  # NumPy has the type
    bits = x.view(t.storage.np) if x.ndim else x.reshape(1).view(t.storage.np).reshape(())
    return np.asarray(decode_bits(bits, t))


def encode(x: NDArray, t: DType) -> NDArray:
    """Convert values to an array that is held as ``t``."""
    if t.storage is None:
        return x.astype(t.np, copy=False)
    promoted = x.astype(t.compute.np, copy=False)
    if t.np.names is None:
        return promoted.astype(t.np)
    return np.ascontiguousarray(encode_bits(promoted, t)).view(t.np).reshape(x.shape)


def decode_bits(bits: NDArray, t: DType) -> NDArray:
    """Return the values of bit patterns."""
    if t.kind == "key":
        return bits.astype(t.compute.np)
    promoted = bits.astype(np.uint32)
    if not t.is_float:
        unused = np.uint32(32 - t.bits)
        return np.asarray((promoted << unused).view(t.compute.np) >> unused.astype(t.compute.np))
    if t.exponent == 8:
        return (promoted << np.uint32(23 - t.mantissa)).view(np.float32)
    sign, magnitude = promoted >> t.bits - 1, promoted & (1 << t.bits - 1) - 1
    scaled = (magnitude << np.uint32(23 - t.mantissa)).view(np.float32)
    size = scaled * np.float32(2.0 ** (127 - t.bias))
    size = np.where(magnitude > infinity_bits(t), np.float32(np.nan), size)
    if not t.has_no_inf:
        size = np.where(magnitude == infinity_bits(t), np.float32(np.inf), size)
    return np.where(sign == 1, -size, size)


def infinity_bits(t: DType) -> int:
    """Return the bits of infinity, or of the largest number if t has none; above it is NaN."""
    return (1 << t.bits - 1) - 2 if t.has_no_inf else ((1 << t.exponent) - 1) << t.mantissa


def nan_bits(t: DType) -> int:
    """Return the bits of NaN."""
    return (1 << t.bits - 1) - 1 if t.has_no_inf else infinity_bits(t) | 1 << t.mantissa - 1


def encode_bits(x: NDArray, t: DType) -> NDArray:
    """Return the bit patterns of values in ``t.compute``."""
    assert t.storage is not None
    if t.kind == "key":
        return x.astype(t.storage.np)
    if not t.is_float:
        return (x.astype(np.int64) & (1 << t.bits) - 1).astype(t.storage.np)
    float_bits = np.asarray(x, np.float32).view(np.uint32).astype(np.int64)
    sign, size = float_bits >> 31, float_bits & 0x7FFFFFFF
    dropped_bits = 23 - t.mantissa
    rebased = size - (127 - t.bias << 23)
    rounded = rebased + (1 << dropped_bits - 1) - 1 + (rebased >> dropped_bits & 1) >> dropped_bits
    step = 2.0 ** (1 - t.bias - t.mantissa)  # spacing of subnormal numbers
    low = np.fmin(size.astype(np.uint32).view(np.float32), 2.0 ** (1 - t.bias))
    steps = np.rint(low.astype(np.float64) / step).astype(np.int64)
    small = size < (128 - t.bias << 23)
    magnitude = np.where(small, steps, rounded)
    magnitude = np.where(magnitude > infinity_bits(t),
                         nan_bits(t) if t.has_no_inf else infinity_bits(t), magnitude)
    magnitude = np.where(size > 0x7F800000, nan_bits(t), magnitude)
    return np.asarray(magnitude | sign << t.bits - 1).astype(t.storage.np)


# ---- one number -------------------------------------------------------------------------------


def encode_number(value: float, t: DType) -> int:
    """Return the bit pattern of a Python number."""
    with np.errstate(over="ignore"):
        return int(encode_bits(np.asarray(value, t.compute.np), t))


def decode_number(bits: int, t: DType) -> Any:
    """Return the Python number of a bit pattern."""
    assert t.storage is not None
    return decode_bits(np.asarray(bits, t.storage.np), t).item()


def key_words(x: NDArray) -> NDArray:
    """Return the two 32-bit words of each random key of an array."""
    bits = np.ascontiguousarray(x).reshape(-1).view(np.uint64)
    words = np.stack([bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)], -1)
    return words.astype(np.uint32).reshape(*x.shape, 2)


# ---- for users --------------------------------------------------------------------------------


def public_dtype(t: DType) -> np.dtype[Any]:
    """Return the NumPy dtype that users see.

    For a type that NumPy lacks it is that of ml_dtypes, or t if ml_dtypes is not installed.
    """
    if t.np.names is None:
        return t.np
    module = None if t.kind == "key" else ml_dtypes()
    public: Any = t if module is None else np.dtype(getattr(module, t.name))
    return cast(np.dtype[Any], public)


def as_public_array(x: NDArray, t: DType) -> NDArray:
    """View an array that is held as ``t`` with its public dtype, without a copy.

    Raises:
        DTypeError: NumPy lacks the type, and ml_dtypes is not installed.
    """
    if t.np.names is None:
        return x
    dtype: Any = public_dtype(t)
    if t.kind == "key":
        raise random_key_error()
    if dtype is t:
        raise DTypeError(f"expected a NumPy dtype, got {t}, which NumPy lacks",
                         hint=f"install ml_dtypes, or convert: x.astype('{t.compute}'), or "
                              f"x.view('{t.storage}') for the bits")
    return x.view(dtype)


def ml_dtypes() -> Any:
    """Return the module ml_dtypes, which is optional, or None if it is not installed."""
    try:
        return import_module("ml_dtypes")
    except ImportError:
        return None
