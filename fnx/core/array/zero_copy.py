"""Arrays that share memory with NumPy data.

An Array is immutable. So writable NumPy data is copied, unless the caller asks to share it with
``from_dlpack``; read-only memory (views of Arrays, bytes) is shared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array.array import Array, from_storage
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import NDArray
from fnx.core.scope import storage


def borrow_array(value: NDArray, weak: bool = False) -> Array | None:
    """Return an Array in the memory of NumPy data of a supported dtype.

    None if the layout or the alignment is not what the device needs.
    """
    memory = storage.borrow(value)
    return None if memory is None else \
        from_storage(memory, value.shape, dtypes.as_dtype(value.dtype), weak)


def is_read_only(value: NDArray) -> bool:
    """Whether the memory of NumPy data is read-only for everyone: that of bytes, or of an Array.

    >>> is_read_only(np.frombuffer(b"abcd", np.int32)), is_read_only(np.zeros(1))
    (True, False)
    """
    base: Any = value
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    if isinstance(base, memoryview):
        return base.readonly and hasattr(getattr(base.obj, "owner", None), "is_aliased")
    return isinstance(base, bytes)


def copy_reason(value: NDArray) -> str:
    """Return why the memory of NumPy data cannot be shared; empty if it can.

    >>> copy_reason(np.zeros((4, 4))[:, 1])
    'it is not C-contiguous'
    """
    if not value.flags.c_contiguous:
        return "it is not C-contiguous"
    return "its address is not a multiple of 64" if storage.borrow(value) is None else ""
