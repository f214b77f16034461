"""Devices that use host memory, and storages in memory that is not theirs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fnx.backends.device.allocator import ALIGNMENT
from fnx.backends.device.base import DeviceBase
from fnx.backends.device.hcq import HostStorage, SharedBlock, group_small_results
from fnx.core.support.process import fork_safe_lock

_reading = fork_safe_lock()
_ADDRESS: Any = HostStorage.__dict__["ptr"]  # the slot below the property of UnreadStorage


class BorrowedStorage(HostStorage):
    """A storage in the memory of a foreign NumPy array, ``owner``: read, never written."""

    __slots__ = ("owner",)
    owner: Any  # an array, or the storage of its copy


class UnreadStorage(BorrowedStorage):
    """A storage that copies the elements of an array, which lies in a file, when they are first
    used, and is a BorrowedStorage from then on.
    """

    __slots__ = ()

    @property
    def ptr(self) -> int:  # type: ignore[override]
        """The address of the elements. Copies them.

        Raises:
            CheckpointError: the file has changed.
        """
        with _reading:
            if type(self) is UnreadStorage:
                value, check, upload = self.owner
                check()
                copied = upload(value)
                _ADDRESS.__set__(self, copied.ptr)
                self.owner = copied
                self.__class__ = BorrowedStorage  # type: ignore[assignment]
        address: int = _ADDRESS.__get__(self)
        return address


def borrow_array(value: np.ndarray[Any, Any]) -> BorrowedStorage | None:
    """Wrap the memory of an array in a storage, if its layout and alignment are what kernels
    expect.
    """
    address: int = value.__array_interface__["data"][0]
    if not value.flags.c_contiguous or address % ALIGNMENT and value.size:
        return None
    storage = BorrowedStorage()
    storage.ptr, storage.nbytes, storage.owner = address, value.nbytes, value
    storage.timeline, storage.is_aliased = 0, True
    return storage


class HostDevice(DeviceBase):
    """A device that uses host memory."""

    allocate: Callable[[Iterable[int | SharedBlock]], list[HostStorage]]

    def results(self, sizes: Sequence[int]) -> Callable[[], list[HostStorage]]:
        """Return a function that allocates the results of a call."""
        return functools.partial(self.allocate, group_small_results(sizes))

    def borrow(self, value: np.ndarray[Any, Any], check: Callable[[], None] | None = None
               ) -> HostStorage | None:
        """Wrap the memory of an array, if its layout allows; with a check, always."""
        borrowed = borrow_array(value)
        if borrowed is not None or check is None:
            return borrowed
        unread = UnreadStorage()
        unread.nbytes, unread.owner = value.nbytes, (value, check, self.upload)
        unread.timeline, unread.is_aliased = 0, True
        return unread
