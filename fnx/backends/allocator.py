"""Pooled host memory: 64-byte aligned, reused without page faults, nothing preallocated.

Sizes are rounded up to classes (eight a power of two, so at most 1/8 is lost above 512 bytes).
A class has a list of free addresses; small classes are carved out of slabs, a large block is a
mapping of its own, on huge pages where the system has them. ``take`` and ``give`` rest on
``list.pop`` and ``list.append``, which no thread can interrupt.

>>> pool = Pool()
>>> address, free = pool.take(1000)
>>> address % 64, size_class(1000)
(0, 1024)
>>> free.append(address)                         # give it back
>>> pool.take(1000)[0] == address                # the last one given is the next one taken
True
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import threading
from typing import Any

from fnx.core.errors import DeviceError

ALIGNMENT = 64
HUGE = 2 << 20
SLAB = 256 << 10  # small classes are carved from slabs of this size
LARGEST_SMALL = 32 << 10
KEPT = 256 << 20  # free bytes that are always kept for reuse
_STAGGER, _STAGGERS = 320, 8  # large blocks start at different cache sets


def size_class(nbytes: int) -> int:
    """Bytes of the block that an allocation of ``nbytes`` gets.

    >>> [size_class(n) for n in (0, 1, 64, 65, 1025, 1 << 20)]
    [64, 64, 64, 128, 1152, 1048576]
    """
    step = max(ALIGNMENT, 1 << max(0, (nbytes - 1).bit_length() - 4))
    return max(ALIGNMENT, -(-nbytes // step) * step)


class _System:
    """Anonymous memory from the operating system."""

    def __init__(self) -> None:
        process = ctypes.CDLL(None, use_errno=True)
        self._map: Any = process.mmap
        self._map.restype = ctypes.c_void_p
        self._map.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                              ctypes.c_int, ctypes.c_int64)
        self._unmap: Any = process.munmap
        self._unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._advise: Any = process.madvise
        self._advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._huge: int | None = getattr(mmap, "MADV_HUGEPAGE", None)

    def map(self, nbytes: int) -> int | None:
        """Address of fresh pages (from 2 MB on aligned to 2 MB), or None."""
        extra = HUGE if nbytes >= HUGE else 0
        size = _pages(nbytes)
        got = self._map(None, size + extra, mmap.PROT_READ | mmap.PROT_WRITE,
                        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if got is None or got == ctypes.c_void_p(-1).value:
            return None
        if not extra:
            return int(got)
        start = -(-got // HUGE) * HUGE
        if start > got:
            self._unmap(got, start - got)
        if (tail := got + size + extra - (start + size)) > 0:
            self._unmap(start + size, tail)
        if self._huge is not None:
            self._advise(start, size, self._huge)
        return int(start)

    def unmap(self, address: int, nbytes: int) -> None:
        """Give pages back."""
        self._unmap(address, _pages(nbytes))


def _pages(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


@functools.cache
def _system() -> _System:
    return _System()


Free = list[int]


class Pool:
    """Memory blocks by size class.

    ``lists`` maps every size asked for so far to the free list of its class.
    """

    def __init__(self) -> None:
        self.lists: dict[int, Free] = {}
        self._classes: dict[int, Free] = {}
        self._lock = threading.RLock()  # a finalizer may allocate in the middle
        self._mapped: dict[int, int] = {}  # address of each large block: bytes of its mapping
        self._small = 0  # bytes in slabs
        self._staggered = 0

    def reset(self) -> None:
        """A forked child: a lock that another thread held is not to be waited for."""
        self._lock = threading.RLock()

    def take(self, nbytes: int) -> tuple[int, Free]:
        """A block of at least ``nbytes`` and the free list to append it to afterwards.

        Raises:
            DeviceError: the system has no memory left, also after all free blocks are returned.
        """
        free = self.lists.get(nbytes)
        if free is None:
            free = self.free_list(nbytes)
        try:
            return free.pop(), free
        except IndexError:
            return self.grow(nbytes), free

    def free_list(self, nbytes: int) -> Free:
        """The free list for a size."""
        with self._lock:
            free = self._classes.setdefault(size_class(nbytes), [])
            if len(self.lists) > 10_000:  # sizes asked for, not classes: only a shortcut
                self.lists.clear()
            self.lists[nbytes] = free
            return free

    def grow(self, nbytes: int) -> int:
        """A block that was not in use before."""
        size = size_class(nbytes)
        with self._lock:
            return self._carve(size) if size <= LARGEST_SMALL else self._large(size)

    def _carve(self, size: int) -> int:
        start = _system().map(SLAB)
        if start is None:
            raise _no_memory(size, self._total())
        self._small += SLAB
        count = SLAB // size
        self._classes[size].extend(range(start + (count - 1) * size, start, -size))
        return start

    def _large(self, size: int) -> int:
        stagger = self._staggered % _STAGGERS * _STAGGER
        self._staggered += 1
        nbytes = size + _STAGGER * _STAGGERS
        if self.free_bytes() > KEPT + self._total() // 2:
            self._trim()
        start = _system().map(nbytes)
        if start is None:
            self._trim()
            start = _system().map(nbytes)
        if start is None:
            raise _no_memory(size, self._total())
        self._mapped[start + stagger] = nbytes
        return start + stagger

    def trim(self) -> None:
        """Return all free large blocks to the system."""
        with self._lock:
            self._trim()

    def _trim(self) -> None:
        for size, free in self._classes.items():
            while size > LARGEST_SMALL:
                try:
                    address = free.pop()
                except IndexError:
                    break
                nbytes = self._mapped.pop(address)
                _system().unmap(address & -mmap.PAGESIZE, nbytes)

    def free_bytes(self) -> int:
        """Bytes that wait for reuse."""
        return sum(size * len(free) for size, free in self._classes.items())

    def _total(self) -> int:
        return self._small + sum(self._mapped.values())

    def stats(self) -> dict[str, int]:
        """Bytes held from the system, and how many of them are free."""
        with self._lock:
            return {"held": self._total(), "free": self.free_bytes()}


def _no_memory(nbytes: int, held: int) -> DeviceError:
    return DeviceError(
        f"expected {nbytes:,} bytes of memory, the system has no more ({held:,} bytes are held)",
        hint="use smaller batches, delete arrays that are no longer needed, or donate_argnums")


class Block:
    """A block of a pool for as long as this object lives."""

    __slots__ = ("ptr", "nbytes", "_free")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self.ptr = 0  # what ``__del__`` sees where the next line raises
        self.ptr, self._free = pool.take(nbytes)
        self.nbytes = nbytes

    def __del__(self) -> None:
        if self.ptr:
            self._free.append(self.ptr)
