"""Memory that an Array has in common with others.

An Array is immutable. So NumPy data that somebody may write is copied, unless the caller asks for
it by ``from_dlpack``; what nobody can write (views of Arrays, bytes) is taken as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import storage
from fnx.core.array.array import Array, from_storage
from fnx.core.dtypes import NDArray


def borrow(value: NDArray, weak: bool = False) -> Array | None:
    """An Array in the memory of NumPy data of a dtype that fnx holds; None where its layout is
    another one than the device's, or its address."""
    found = storage.borrow(value)
    return None if found is None else \
        from_storage(found, value.shape, dtypes.as_dtype(value.dtype), weak)


def is_frozen(value: NDArray) -> bool:
    """Whether nobody can write the memory of NumPy data: it is that of bytes, or of an Array.

    >>> is_frozen(np.frombuffer(b"abcd", np.int32)), is_frozen(np.zeros(1))
    (True, False)
    """
    base: Any = value
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    if isinstance(base, memoryview):
        return base.readonly and hasattr(getattr(base.obj, "owner", None), "lent")
    return isinstance(base, bytes)


def obstacle(value: NDArray) -> str:
    """Why NumPy data can't be taken as they are; empty where they can.

    >>> obstacle(np.zeros((4, 4))[:, 1])
    'its elements are not one behind the other in rows'
    """
    if not value.flags.c_contiguous:
        return "its elements are not one behind the other in rows"
    return "its address is no multiple of 64" if storage.borrow(value) is None else ""
