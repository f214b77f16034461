"""Pooled host memory: 64-byte aligned, reused without page faults, nothing preallocated.

Sizes are rounded up to size classes (eight per power of two, so at most 1/8 is lost above 512
bytes). Small classes are carved out of slabs; a large block is a mapping of its own, on huge pages
where the system has them. Each class has a deque of free blocks.

A block is free again when its owner dies: its ``BlockOwner``, a weak reference to the owner, is
then appended to that deque by the interpreter itself. No bytecode runs, so Ctrl-C can't be raised
there and get lost. An allocation pops a dead holding from the deque.

>>> pool = Pool()
>>> block = PoolBlock(pool, 1000)
>>> address = block.ptr
>>> address % 64, size_class(1000)
(0, 1024)
>>> del block                                    # give it back
>>> PoolBlock(pool, 1000).ptr == address             # the last one given is the next one taken
True
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import resource
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat, starmap
from typing import Any

from fnx.core.support.config import config
from fnx.core.support.errors import OutOfMemoryError
from fnx.core.support.process import fork_safe_lock

ALIGNMENT = 64
HUGE = 2 << 20
SLAB = 256 << 10  # small classes are carved from slabs of this size
LARGEST_SMALL = 32 << 10
CARVE_COUNT = 32  # blocks carved at once
MAX_FREE_BYTES = 256 << 20  # free bytes that are always retained for reuse
MAX_ALLOCATION = 1 << 56  # largest allocation in bytes: no machine has as many addresses
_STAGGER, _STAGGERS = 320, 8  # large blocks start at different cache sets


def size_class(nbytes: int, least: int = ALIGNMENT, bits: int = 4) -> int:
    """Return the block size for an allocation of ``nbytes``.

    A multiple of ``least``, and of 2**-``bits`` of the power of two that holds it.

    >>> [size_class(n) for n in (0, 1, 64, 65, 1025, 1 << 20)]
    [64, 64, 64, 128, 1152, 1048576]
    """
    step = max(least, 1 << max(0, (nbytes - 1).bit_length() - bits))
    return max(least, -(-nbytes // step) * step)


def reserved_bytes(sizes: Iterable[int]) -> int:
    """Return the bytes that an empty pool takes from the system for blocks of these sizes.

    >>> reserved_bytes([1 << 20]) - (1 << 20), reserved_bytes([64] * 3) == SLAB
    (2560, True)
    """
    small: Counter[int] = Counter()
    large = 0
    for size in map(size_class, filter(None, sizes)):
        if size <= LARGEST_SMALL:
            small[size] += size
        else:
            large += size + _STAGGER * _STAGGERS
    return large + sum([-(-nbytes // SLAB) * SLAB for nbytes in small.values()])


class _SystemMemory:
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
        """Map new pages (aligned to 2 MB from 2 MB on). Return their address, or None."""
        if nbytes > MAX_ALLOCATION:  # would overflow a 64-bit size
            return None
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
        """Unmap pages."""
        self._unmap(address, _pages(nbytes))


def available_memory() -> int:
    """Bytes that this process may use: the memory of the machine, or a lower limit."""
    return min([machine_memory(), *_address_space_limits()])


@functools.cache
def machine_memory() -> int:
    """Bytes of memory of the machine, or of the control group."""
    limits = [os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE]
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max") as f:
        limits.append(int(f.read()))
    return min(limits)


def _address_space_limits() -> list[int]:
    """Return the limit of the address space (RLIMIT_AS) in a list; empty if there is none."""
    return [n for n in resource.getrlimit(resource.RLIMIT_AS)[:1] if n != resource.RLIM_INFINITY]


def has_address_space_limit() -> bool:
    """Whether the process may run out of addresses before the machine is out of memory."""
    return bool(_address_space_limits())


def require_address_space(nbytes: int, purpose: str) -> None:
    """Raise an error early where code that cannot handle a failed allocation would end the process.

    Raises:
        OutOfMemoryError: less than ``nbytes`` is left under the limit of the process.
    """
    for limit in _address_space_limits():
        if _remaining_address_space(limit) < nbytes:
            for pool in _pools:
                pool.trim()
        remaining = _remaining_address_space(limit)
        if remaining < nbytes:
            raise OutOfMemoryError(
                f"expected {nbytes:,} bytes of address space {purpose}, {max(0, remaining):,} are "
                "left "
                f"of the limit of {limit:,}", hint="raise the limit (ulimit -v, RLIMIT_AS)")


def _remaining_address_space(limit: int) -> int:
    """Bytes of address space left under a limit, where the system reports usage."""
    try:
        with open("/proc/self/statm") as f:
            return limit - int(f.read().split()[0]) * mmap.PAGESIZE
    except OSError:
        return limit


def _pages(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


@functools.cache
def _system() -> _SystemMemory:
    return _SystemMemory()


class BlockOwner(weakref.ref[Any]):
    """A weak reference to the owner of the block at ``ptr``. Dead: the block is free."""

    __slots__ = ("ptr",)
    ptr: int


class _NoOwner:
    """The initial, immediately dead owner of a block that was never allocated."""

    __slots__ = ("__weakref__",)


# An iterator that pops a free block (or raises IndexError), and the function that frees one.
PopAndPush = tuple[Iterator[BlockOwner], Callable[[BlockOwner], None]]


class _BlockFreeList:
    """The free blocks of a class. ``pop_iter`` pops the most recently freed one without a Python
    call.

    ``pop_and_push`` is the same object for all sizes of the class.
    """

    __slots__ = ("blocks", "pop_iter", "pop_and_push")

    def __init__(self) -> None:
        self.blocks: deque[BlockOwner] = deque()
        self.pop_iter: Iterator[BlockOwner] = starmap(self.blocks.pop, repeat(()))
        self.pop_and_push: PopAndPush = self.pop_iter, self.blocks.append


class Pool:
    """Memory blocks by size class.

    Attributes:
        free_lists: for each size requested so far, how to pop and to free a block of its class.
        owners: by address, the last owner of each block. Keeps the weak reference alive.
        reclaim: called before an allocation fails: frees what it can (waits for work in flight).
    """

    def __init__(self, reclaim: Callable[[], None] = lambda: None) -> None:
        self.free_lists: dict[int, PopAndPush] = {}
        self.owners: dict[int, BlockOwner] = {}
        self.reclaim = reclaim
        self._classes: dict[int, _BlockFreeList] = {}
        self._lock = fork_safe_lock()
        self._mapped: dict[int, int] = {}  # mapping size of each large block, by address
        # large blocks, by id, that were free at the last check
        self._idle: dict[int, BlockOwner] = {}
        self._small = 0  # bytes in slabs
        self._uncarved: dict[int, tuple[int, int]] = {}  # rest of a slab, by class
        self._stagger_count = 0
        _pools.add(self)

    def take(self, nbytes: int) -> tuple[BlockOwner, Callable[[BlockOwner], None]]:
        """Pop a free block of at least ``nbytes``. Also return the function that frees it.

        Raises:
            OutOfMemoryError: the system has none left, even after all free blocks are returned to
                it.
        """
        while True:
            try:
                pop_iter, push = self.free_lists[nbytes]
                for block in pop_iter:  # no call: Ctrl-C can't come between popping and owning
                    return block, push
            except LookupError:
                self.grow(nbytes)

    def free_list(self, nbytes: int) -> PopAndPush:
        """Return how to pop a free block of at least ``nbytes``, and how to free it."""
        size = size_class(nbytes)
        self._class(nbytes, size)
        return self._classes[size].pop_and_push

    def fresh(self, nbytes: int) -> tuple[BlockOwner, Callable[[BlockOwner], None]] | None:
        """Map a large block of untouched pages, which are zero.

        None if a free block exists, or the system has no more memory: then use ``take``.
        """
        if nbytes < HUGE:
            return None
        size, blocks = size_class(nbytes), deque[BlockOwner]()
        if free := self._class(nbytes, size):
            return None
        with self._lock:
            return (blocks.pop(), free.append) if self._large(size, blocks) else None

    def grow(self, nbytes: int) -> None:
        """Register a size, and make sure that its class has a free block."""
        size = size_class(nbytes)
        free = self._class(nbytes, size)
        if free or self._grow(size, free):
            return
        self.reclaim()
        if not free and not self._grow(size, free, trim=True):
            raise self._no_memory(size)

    def _class(self, nbytes: int, size: int) -> deque[BlockOwner]:
        with self._lock:
            if size not in self._classes:
                self._classes[size] = _BlockFreeList()
            if len(self.free_lists) > 10_000:  # requested sizes, not classes: only a shortcut
                self.free_lists.clear()
            free = self._classes[size]
            self.free_lists[nbytes] = free.pop_and_push
            return free.blocks

    def _grow(self, size: int, free: deque[BlockOwner], trim: bool = False) -> bool:
        with self._lock:
            if trim:
                self._trim()
            return self._carve(size, free) if size <= LARGEST_SMALL else self._large(size, free)

    def _carve(self, size: int, free: deque[BlockOwner]) -> bool:
        """Carve some blocks out of a slab, not all: the object for each costs time."""
        start, end = self._uncarved.get(size, (0, 0))
        if start + size > end:
            mapped = _system().map(SLAB)
            if mapped is None:
                return False
            self._small += SLAB
            start, end = mapped, mapped + SLAB
        count = min(CARVE_COUNT, (end - start) // size)
        self._uncarved[size] = start + count * size, end  # first: Ctrl-C may come in between
        for i in reversed(range(count)):
            free.append(self._fresh(start + i * size))
        return True

    def release_idle(self) -> None:
        """Return large blocks to the system that nobody used since the previous call.

        Each allocation of a block creates a new holding, so an unchanged one means that it was not
        used.
        """
        previous, self._idle = self._idle, {}
        with self._lock:
            for size, free in self._classes.items():
                for owner in tuple(free.blocks) if size > LARGEST_SMALL else ():
                    if id(owner) not in previous:
                        self._idle[id(owner)] = owner
                        continue
                    with contextlib.suppress(ValueError):  # another thread popped it just now
                        free.blocks.remove(owner)
                        self._unmap(owner.ptr)

    def _large(self, size: int, free: deque[BlockOwner]) -> bool:
        nbytes = size + _STAGGER * _STAGGERS
        if self.free_bytes() > MAX_FREE_BYTES + self._total() // 2:
            self._trim()
        start = self._map(nbytes)
        if start is None:
            self._trim()
            start = self._map(nbytes)
        if start is None:
            return False
        start += self._stagger_count % _STAGGERS * _STAGGER
        self._stagger_count += 1
        self._mapped[start] = nbytes
        _start_idle_thread()
        free.append(self._fresh(start))
        return True

    def _map(self, nbytes: int) -> int | None:
        """Map pages. None also if that would exceed the memory of the machine."""
        return None if self._total() + nbytes > machine_memory() else _system().map(nbytes)

    def _fresh(self, address: int) -> BlockOwner:
        owner = self.owners[address] = BlockOwner(_NoOwner())
        owner.ptr = address
        return owner

    def trim(self) -> None:
        """Return all free large blocks to the system."""
        with self._lock:
            self._trim()

    def _trim(self) -> None:
        for size, free in self._classes.items():
            if size <= LARGEST_SMALL:
                continue
            with contextlib.suppress(IndexError):
                for owner in free.pop_iter:
                    self._unmap(owner.ptr)

    def _unmap(self, address: int) -> None:
        """Return a free large block to the system."""
        del self.owners[address]
        nbytes = self._mapped.pop(address)
        _system().unmap(address & -mmap.PAGESIZE, nbytes)

    def free_bytes(self) -> int:
        """Bytes that are available for reuse."""
        return sum(size * len(free.blocks) for size, free in self._classes.items()) + \
            sum(end - start for start, end in self._uncarved.values())

    def _total(self) -> int:
        return self._small + sum(self._mapped.values())

    def stats(self) -> dict[str, int]:
        """Bytes taken from the system, and how many of them are free."""
        with self._lock:
            return {"held": self._total(), "free": self.free_bytes()}

    def _no_memory(self, size: int) -> OutOfMemoryError:
        with self._lock:
            in_use = Counter(nbytes for address, nbytes in self._mapped.items()
                             if self.owners[address]() is not None)
            reserved = self._total()
        largest = ", ".join(f"{count} of {nbytes:,}" for nbytes, count in
                            sorted(in_use.items(), reverse=True)[:3])
        return OutOfMemoryError(
            f"expected {size:,} bytes of memory, the system has no more ({reserved:,} bytes are "
            "held; "
            f"the largest that are in use: {largest or 'none'})",
            hint="use smaller batches, delete arrays that are no longer needed, or donate_argnums")


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_idle_threads: list[threading.Thread] = []


def _start_idle_thread() -> None:
    """Start the thread that returns idle memory, unless it runs. A forked child starts its own."""
    if config.idle_seconds and not any(thread.is_alive() for thread in _idle_threads):
        _idle_threads[:] = [threading.Thread(target=_idle_loop, name="fnx-idle", daemon=True)]
        with contextlib.suppress(RuntimeError):  # no more threads, or the process ends
            _idle_threads[0].start()


def _idle_loop() -> None:
    while seconds := config.idle_seconds:
        time.sleep(seconds)
        for pool in tuple(_pools):
            pool.release_idle()


class PoolBlock:
    """A block of a pool that is freed with this object."""

    __slots__ = ("__weakref__", "nbytes", "ptr")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self.nbytes = nbytes
        try:  # as ``Pool.take``, inlined: Ctrl-C can't come between popping and owning
            pop_iter, push = pool.free_lists[nbytes]
            for _free in pop_iter:
                break
        except LookupError:
            _free, push = pool.take(nbytes)
        try:
            owner = BlockOwner(self, push)
        except BaseException:
            push(_free)
            raise
        owner.ptr = self.ptr = address = _free.ptr
        pool.owners[address] = owner
