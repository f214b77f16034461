"""DLPack: zero-copy exchange of arrays with other libraries.

NumPy creates and consumes the capsules, so ownership and release order are handled in C, which
Ctrl-C does not interrupt. This module adds what NumPy cannot express: that 8- and 16-bit integers
hold the bits of bfloat16 and float8. The fields of a capsule's tensor are those of DLPack's
header (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from fnx.core.array import convert, zero_copy
from fnx.core.array.array import Array, from_numpy
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.support.errors import ArgumentError, DTypeError, ExchangeError

HOST_DEVICE = (1, 0)  # (device type, id): type 1 is the CPU
_HOST_DEVICE_TYPES = (1, 3, 11, 13)  # the CPU, and host memory that a GPU can access
_FLOAT_CODES = {dtypes.bfloat16: 4, dtypes.float8_e4m3fn: 10, dtypes.float8_e5m2: 12}  # type codes
_UNSIGNED_CODE = 1
# byte offsets: of the tensor; of its dtype (code, bits, lanes) in it
_VERSIONED_OFFSET, _DTYPE_OFFSET = 32, 20


def _dtype_address(capsule: Any) -> int:
    """Return the address of the dtype in a capsule that has not been consumed."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if is_valid(capsule, b"dltensor_versioned"):
        return int(get_pointer(capsule, b"dltensor_versioned")) + _VERSIONED_OFFSET + _DTYPE_OFFSET
    return int(get_pointer(capsule, b"dltensor")) + _DTYPE_OFFSET


def export_capsule(x: Array, stream: Any, max_version: tuple[int, int] | None,
                   dl_device: tuple[int, int] | None, copy: bool | None) -> Any:
    """Return the capsule of ``x.__dlpack__``.

    It shares memory read-only if the consumer's DLPack version knows the read-only flag, else it
    is a copy.

    Raises:
        ExchangeError: a dtype or device that DLPack lacks, or a copy is needed and ``copy=False``.
    """
    t = x._dtype
    if stream is not None or dl_device not in (None, HOST_DEVICE):
        raise ExchangeError(f"expected the device {HOST_DEVICE} and no stream, got "
                            f"{dl_device} and {stream}", hint="copy it there from host memory")
    if t.storage is not None and not t.is_float:
        raise ExchangeError(f"expected a dtype that DLPack supports, got {t}",
                            hint="convert first: x.astype('int8')" if t.is_integer else
                            "convert them with fnx.random.key_data(keys)")
    value = x._numpy()
    if t in _FLOAT_CODES and t.storage is not None:
        value = value.view(t.storage.np)
    versioned = max_version is not None and max_version[0] >= 1
    if not versioned:
        if copy is False:
            raise ExchangeError("expected a consumer that supports read-only memory, got DLPack "
                                "before 1.0", hint="omit copy=, or update the library")
        result = value.copy().__dlpack__()
    else:
        result = value.__dlpack__(max_version=(1, 0), copy=copy)
    if t in _FLOAT_CODES:
        ctypes.c_uint8.from_address(_dtype_address(result)).value = _FLOAT_CODES[t]
    return result


class _BitsProducer:
    """A producer proxy that exports floats that NumPy lacks as unsigned integers of that width."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.dtype: DType | None = None

    def __dlpack_device__(self) -> Any:
        return self.producer.__dlpack_device__()

    def __dlpack__(self, **kwargs: Any) -> Any:
        result = self.producer.__dlpack__(**kwargs)
        code = ctypes.c_uint8.from_address(_dtype_address(result))
        self.dtype = next((t for t, number in _FLOAT_CODES.items() if number == code.value), None)
        if self.dtype is not None:
            code.value = _UNSIGNED_CODE
        return result


def import_array(x: Any, copy: bool | None) -> Array:
    """Convert an array of another library, sharing its memory if layout and dtype allow.

    Raises:
        ArgumentError: it has no ``__dlpack__``.
        ExchangeError: memory of another device, an unsupported dtype, or a copy is needed and
            ``copy=False``.
    """
    if type(x) is Array:
        return x.copy() if copy else x
    if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise ArgumentError(f"expected an array with __dlpack__ and __dlpack_device__, got "
                            f"{type(x).__name__}", hint="fnx.numpy.asarray takes lists and numbers")
    value = _view_as_numpy(x)
    data = convert.to_numpy(value, None)
    if copy is not True and data.dtype == value.dtype:
        shared = zero_copy.borrow_array(data)
        if shared is not None:
            return shared
    if copy is False:
        reason = zero_copy.copy_reason(data) if data.dtype == value.dtype else \
            f"{value.dtype} becomes {data.dtype} (fnx.enable_x64 keeps it)"
        raise ExchangeError(f"expected memory that can be shared without a copy, but {reason}",
                            hint="omit copy=")
    return from_numpy(data)


def _view_as_numpy(x: Any) -> NDArray:
    """View another library's array as NumPy data of a supported dtype."""
    producer = _BitsProducer(x)
    try:
        device = tuple(map(int, x.__dlpack_device__()))
        if device[0] not in _HOST_DEVICE_TYPES:
            raise BufferError(f"memory of the device {device}")
        value = np.from_dlpack(producer)
    except Exception as error:
        raise ExchangeError(f"expected an array in host memory, got {type(x).__name__}: {error}",
                            hint="copy it to the CPU first: x.detach().cpu() for a "
                                 "tensor") from error
    if producer.dtype is not None:
        return value.view(producer.dtype.np)
    if value.dtype.kind not in "biufc":
        raise DTypeError(f"expected a dtype that fnx supports, got {value.dtype}",
                         hint="convert it first")
    return value
