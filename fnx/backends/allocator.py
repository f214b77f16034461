"""Pooled host memory: 64-byte aligned, reused without page faults, nothing preallocated.

Sizes are rounded up to classes (eight a power of two, so at most 1/8 is lost above 512 bytes).
Small classes are carved out of slabs, a large block is a mapping of its own, on huge pages where
the system has them. Each class has a deque of free blocks.

A block is free again when the object that holds it dies: its ``Holding``, a weak reference, is
then appended to that deque by the interpreter itself. No bytecode runs, so that Ctrl-C can't be
raised in there and get lost; a dead holding in the deque is what the next taker finds.

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

from fnx.core.config import config
from fnx.core.errors import OutOfMemoryError
from fnx.core.process import fork_safe_lock

ALIGNMENT = 64
HUGE = 2 << 20
SLAB = 256 << 10  # small classes are carved from slabs of this size
LARGEST_SMALL = 32 << 10
CARVED = 32  # blocks at once
KEPT = 256 << 20  # free bytes that are always kept for reuse
MOST = 1 << 56  # bytes of an allocation: no machine has as many addresses
_STAGGER, _STAGGERS = 320, 8  # large blocks start at different cache sets


def size_class(nbytes: int, least: int = ALIGNMENT, bits: int = 4) -> int:
    """Bytes of the block that an allocation of ``nbytes`` gets: a multiple of ``least``, and of
    2**-``bits`` of the power of two that holds them.

    >>> [size_class(n) for n in (0, 1, 64, 65, 1025, 1 << 20)]
    [64, 64, 64, 128, 1152, 1048576]
    """
    step = max(least, 1 << max(0, (nbytes - 1).bit_length() - bits))
    return max(least, -(-nbytes // step) * step)


def held(sizes: Iterable[int]) -> int:
    """What a pool that was empty holds from the system with blocks of these sizes.

    >>> held([1 << 20]) - (1 << 20), held([64] * 3) == SLAB
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
        """Address of fresh pages (from 2 MB on aligned to 2 MB), or None."""
        if nbytes > MOST:  # would wrap around in a word
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
        """Give pages back."""
        self._unmap(address, _pages(nbytes))


def memory() -> int:
    """Bytes this process may use: what the machine has, less where a limit is set."""
    return min([machine_memory(), *_address_space()])


@functools.cache
def machine_memory() -> int:
    """Bytes that the machine, or the group of processes, has for all."""
    found = [os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE]
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max") as f:
        found.append(int(f.read()))
    return min(found)


def _address_space() -> list[int]:
    """The limit of addresses in use, if there is one."""
    return [n for n in resource.getrlimit(resource.RLIMIT_AS)[:1] if n != resource.RLIM_INFINITY]


def address_space_is_limited() -> bool:
    """Whether the process may run out of addresses before the machine is out of memory."""
    return bool(_address_space())


def require_address_space(nbytes: int, why: str) -> None:
    """Refuse what would end the process, in code that takes no refusal of memory.

    Raises:
        OutOfMemoryError: less is left under the limit of the process.
    """
    for limit in _address_space():
        if _left(limit) < nbytes:
            for pool in _pools:
                pool.trim()
        left = _left(limit)
        if left < nbytes:
            raise OutOfMemoryError(
                f"expected {nbytes:,} bytes of address space {why}, {max(0, left):,} are left "
                f"of the limit of {limit:,}", hint="raise the limit (ulimit -v, RLIMIT_AS)")


def _left(limit: int) -> int:
    """Bytes of address space under a limit, where the system tells."""
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


class Holding(weakref.ref[Any]):
    """Who holds the block at ``ptr``: a weak reference; dead, or of nobody: the block is free."""

    __slots__ = ("ptr",)
    ptr: int


class _Nobody:
    """What a holding of a block refers to that was never taken."""

    __slots__ = ("__weakref__",)


# What takes a block (or raises IndexError), what gives one.
TakeAndGive = tuple[Iterator[Holding], Callable[[Holding], None]]


class _Free:
    """The free blocks of a class; ``taker`` takes the last one given, without a call in Python.

    ``both`` is one object for all sizes of the class.
    """

    __slots__ = ("blocks", "taker", "both")

    def __init__(self) -> None:
        self.blocks: deque[Holding] = deque()
        self.taker: Iterator[Holding] = starmap(self.blocks.pop, repeat(()))
        self.both: TakeAndGive = self.taker, self.blocks.append


class Pool:
    """Memory blocks by size class.

    Attributes:
        lists: for every size asked for so far: how to take a block of its class, and to give.
        holdings: by address, the last holding of each block. Keeps it alive for its holder.
        reclaim: frees what it can at once (waits for work in flight), before memory is refused.
    """

    def __init__(self, reclaim: Callable[[], None] = lambda: None) -> None:
        self.lists: dict[int, TakeAndGive] = {}
        self.holdings: dict[int, Holding] = {}
        self.reclaim = reclaim
        self._classes: dict[int, _Free] = {}
        self._lock = fork_safe_lock()
        self._mapped: dict[int, int] = {}  # address of each large block: bytes of its mapping
        self._idle: dict[int, Holding] = {}  # of large blocks, by id: free at the last look
        self._small = 0  # bytes in slabs
        self._uncarved: dict[int, tuple[int, int]] = {}  # of a slab of each class: what is left
        self._staggered = 0
        _pools.add(self)

    def take(self, nbytes: int) -> tuple[Holding, Callable[[Holding], None]]:
        """A free block of at least ``nbytes``, and what to call with it afterwards.

        Raises:
            OutOfMemoryError: the system has none left, also after all that is free is returned.
        """
        while True:
            try:
                taker, give = self.lists[nbytes]
                for found in taker:  # not a call: Ctrl-C can't come between taking and having
                    return found, give
            except LookupError:
                self.grow(nbytes)

    def ways(self, nbytes: int) -> TakeAndGive:
        """How to take a block of at least ``nbytes`` where one is free, and to give it."""
        size = size_class(nbytes)
        self._class(nbytes, size)
        return self._classes[size].both

    def fresh(self, nbytes: int) -> tuple[Holding, Callable[[Holding], None]] | None:
        """A large block of pages that nobody touched, which are zero; None where one is free, or
        the system has no more: then ``take``."""
        if nbytes < HUGE:
            return None
        size, made = size_class(nbytes), deque[Holding]()
        if free := self._class(nbytes, size):
            return None
        with self._lock:
            return (made.pop(), free.append) if self._large(size, made) else None

    def grow(self, nbytes: int) -> None:
        """Make the size known, and see to it that its class has a free block."""
        size = size_class(nbytes)
        free = self._class(nbytes, size)
        if free or self._grow(size, free):
            return
        self.reclaim()
        if not free and not self._grow(size, free, trim=True):
            raise self._no_memory(size)

    def _class(self, nbytes: int, size: int) -> deque[Holding]:
        with self._lock:
            if size not in self._classes:
                self._classes[size] = _Free()
            if len(self.lists) > 10_000:  # sizes asked for, not classes: only a shortcut
                self.lists.clear()
            free = self._classes[size]
            self.lists[nbytes] = free.both
            return free.blocks

    def _grow(self, size: int, free: deque[Holding], trim: bool = False) -> bool:
        with self._lock:
            if trim:
                self._trim()
            return self._carve(size, free) if size <= LARGEST_SMALL else self._large(size, free)

    def _carve(self, size: int, free: deque[Holding]) -> bool:
        """Some blocks of a slab: each has an object, which takes longer to make than to need."""
        start, end = self._uncarved.get(size, (0, 0))
        if start + size > end:
            mapped = _system().map(SLAB)
            if mapped is None:
                return False
            self._small += SLAB
            start, end = mapped, mapped + SLAB
        count = min(CARVED, (end - start) // size)
        self._uncarved[size] = start + count * size, end  # first: Ctrl-C may come in between
        for i in reversed(range(count)):
            free.append(self._fresh(start + i * size))
        return True

    def release_idle(self) -> None:
        """Return the large blocks to the system that nobody had since this was called before.

        A block that is taken and given has another holding: the same one was not taken.
        """
        before, self._idle = self._idle, {}
        with self._lock:
            for size, free in self._classes.items():
                for holding in tuple(free.blocks) if size > LARGEST_SMALL else ():
                    if id(holding) not in before:
                        self._idle[id(holding)] = holding
                        continue
                    with contextlib.suppress(ValueError):  # somebody took it just now
                        free.blocks.remove(holding)
                        self._unmap(holding.ptr)

    def _large(self, size: int, free: deque[Holding]) -> bool:
        nbytes = size + _STAGGER * _STAGGERS
        if self.free_bytes() > KEPT + self._total() // 2:
            self._trim()
        start = self._map(nbytes)
        if start is None:
            self._trim()
            start = self._map(nbytes)
        if start is None:
            return False
        start += self._staggered % _STAGGERS * _STAGGER
        self._staggered += 1
        self._mapped[start] = nbytes
        _watch_idle()
        free.append(self._fresh(start))
        return True

    def _map(self, nbytes: int) -> int | None:
        """Fresh pages; None also where the machine would end the process that fills them."""
        return None if self._total() + nbytes > machine_memory() else _system().map(nbytes)

    def _fresh(self, address: int) -> Holding:
        holding = self.holdings[address] = Holding(_Nobody())
        holding.ptr = address
        return holding

    def trim(self) -> None:
        """Return all free large blocks to the system."""
        with self._lock:
            self._trim()

    def _trim(self) -> None:
        for size, free in self._classes.items():
            if size <= LARGEST_SMALL:
                continue
            with contextlib.suppress(IndexError):
                for holding in free.taker:
                    self._unmap(holding.ptr)

    def _unmap(self, address: int) -> None:
        """Return a large block that nobody has to the system."""
        del self.holdings[address]
        nbytes = self._mapped.pop(address)
        _system().unmap(address & -mmap.PAGESIZE, nbytes)

    def free_bytes(self) -> int:
        """Bytes that wait for reuse."""
        return sum(size * len(free.blocks) for size, free in self._classes.items()) + \
            sum(end - start for start, end in self._uncarved.values())

    def _total(self) -> int:
        return self._small + sum(self._mapped.values())

    def stats(self) -> dict[str, int]:
        """Bytes held from the system, and how many of them are free."""
        with self._lock:
            return {"held": self._total(), "free": self.free_bytes()}

    def _no_memory(self, size: int) -> OutOfMemoryError:
        with self._lock:
            used = Counter(nbytes for address, nbytes in self._mapped.items()
                           if self.holdings[address]() is not None)
            held = self._total()
        largest = ", ".join(f"{count} of {nbytes:,}" for nbytes, count in
                            sorted(used.items(), reverse=True)[:3])
        return OutOfMemoryError(
            f"expected {size:,} bytes of memory, the system has no more ({held:,} bytes are held; "
            f"the largest that are in use: {largest or 'none'})",
            hint="use smaller batches, delete arrays that are no longer needed, or donate_argnums")


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_watching: list[threading.Thread] = []


def _watch_idle() -> None:
    """See to it that a thread gives idle memory back. A forked child has none at first."""
    if config.idle_seconds and not any(thread.is_alive() for thread in _watching):
        _watching[:] = [threading.Thread(target=_release_idle, name="fnx-idle", daemon=True)]
        with contextlib.suppress(RuntimeError):  # no more threads, or the process ends
            _watching[0].start()


def _release_idle() -> None:
    while seconds := config.idle_seconds:
        time.sleep(seconds)
        for pool in tuple(_pools):
            pool.release_idle()


class PoolBlock:
    """A block of a pool for as long as this object lives."""

    __slots__ = ("__weakref__", "nbytes", "ptr")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self.nbytes = nbytes
        try:  # as ``Pool.take``, without the call: Ctrl-C can't come between taking and having
            taker, give = pool.lists[nbytes]
            for _free in taker:
                break
        except LookupError:
            _free, give = pool.take(nbytes)
        try:
            holding = Holding(self, give)
        except BaseException:
            give(_free)
            raise
        holding.ptr = self.ptr = address = _free.ptr
        pool.holdings[address] = holding
