"""Arrays that share memory with NumPy data.

An Array is immutable. So writable NumPy data is copied, unless the caller asks to share it with
``from_dlpack``; read-only memory (views of Arrays, bytes, files that fnx mapped) is shared. What
lies in a file at an address that kernels cannot use is copied when it is first used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array.array import Array, from_storage
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import NDArray
from fnx.core.scope import storage
from fnx.core.support.file_map import FileMap


def borrow_array(value: NDArray, weak: bool = False) -> Array | None:
    """Return an Array in the memory of NumPy data of a supported dtype.

    None if the layout or the alignment is not what the device needs, and it is not in a file.
    """
    base = _base(value)
    memory = storage.borrow(value, base.check_unchanged if isinstance(base, FileMap) else None)
    return None if memory is None else \
        from_storage(memory, value.shape, dtypes.as_dtype(value.dtype), weak)


def is_read_only(value: NDArray) -> bool:
    """Whether the memory of NumPy data is read-only for everyone: that of bytes, of an Array, or
    of a file that fnx mapped.

    >>> is_read_only(np.frombuffer(b"abcd", np.int32)), is_read_only(np.zeros(1))
    (True, False)
    """
    base = _base(value)
    return isinstance(base, bytes | FileMap) or \
        hasattr(getattr(base, "owner", None), "is_aliased")  # the memory of a storage


def _base(value: NDArray) -> Any:
    """Return what owns the memory of NumPy data that nobody can write, else the writable data."""
    base: Any = value
    while isinstance(base, np.ndarray) and not base.flags.writeable:
        base = base.base
    return base.obj if isinstance(base, memoryview) and base.readonly else base


def copy_reason(value: NDArray) -> str:
    """Return why the memory of NumPy data cannot be shared; empty if it can.

    >>> copy_reason(np.zeros((4, 4))[:, 1])
    'it is not C-contiguous'
    """
    if not value.flags.c_contiguous:
        return "it is not C-contiguous"
    return "its address is not a multiple of 64" if storage.borrow(value, None) is None else ""
