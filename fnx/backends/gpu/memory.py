"""Device memory: storages of arrays, and a pool of free blocks.

    take(nbytes)  ->  a PoolMemory of at least this size class, freed when its owner dies
    free          ->  cached up to a bound, for the next allocation of its class

A freed block can be reused at once: its next writer is queued after its readers, or waits for them.
So that copies and kernels overlap, blocks that no queued work uses are preferred. Memory that is
filled by the host has separate free lists: a number that is passed with each call then has the same
address each time, whatever results were retained in between.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from fnx.backends.device.allocator import size_class
from fnx.backends.device.base import DeviceStorage
from fnx.backends.gpu.driver import AsyncRead, DeviceMemory, HostBytes, QueueDriver
from fnx.backends.gpu.pinned_memory import MAX_BLOCK, MAX_PINNED
from fnx.core.ir.cache import DeathQueue
from fnx.core.ir.uop import current_loc
from fnx.core.support.errors import (
    DeviceError,
    Location,
    OutOfMemoryError,
    ShapeError,
    format_location,
)
from fnx.core.support.process import fork_safe_lock

MAX_FREE_BYTES = 1 << 28  # bytes of free memory at most
_MAX_HOST_FILLED = 1 << 20  # largest block that has separate free lists when filled by the host
_MIN_SIZE, _SIZE_BITS = 256, 3  # smallest size class, and its bits
_MAX_REPORTED = 5  # lines that the out-of-memory error lists
_ALIGNMENT = 64  # for host kernels that read host memory


T = TypeVar("T")


class IncomingCopy(Protocol):
    """A copy that is partly still in host memory (transfer.py)."""

    nbytes: int

    @property
    def owner(self) -> Callable[[], GpuStorage | None]:
        """Return the owner of the destination memory, or None if it is dead."""

    def deliver(self, remaining: int = 0) -> None:
        """Write it to its destination, except for ``remaining`` chunks."""

    def drop(self) -> None:
        """Drop it: nobody needs it any more."""


class PoolMemory:
    """Memory in use, and how it is freed when its owner dies.

    ``loc``: the user's source location: of the call at first, then of the command that fills the
    memory.
    """

    __slots__ = ("memory", "from_host", "loc", "size")

    def __init__(self, size: int, from_host: bool, memory: DeviceMemory) -> None:
        self.size, self.from_host, self.memory = size, from_host, memory
        self.loc: Location | None = current_loc.loc


def block_size(nbytes: int) -> int:
    """Return the size of the block that an allocation of ``nbytes`` gets."""
    return size_class(nbytes, _MIN_SIZE, _SIZE_BITS)


class GpuPool:
    """The memory of one driver, by size class."""

    def __init__(self, driver: QueueDriver) -> None:
        self.driver = driver
        self.held = self.free_bytes = 0
        self.failed: Callable[[DeviceError], DeviceError] = lambda error: error
        self.on_all_done: Callable[[], None] = lambda: None
        self.lost = ""  # why its content can't be read any more
        # copies to other devices in progress
        self.outgoing: DeathQueue[IncomingCopy] = DeathQueue()
        self._free: dict[tuple[int, bool], list[DeviceMemory]] = {}
        self._deaths: DeathQueue[PoolMemory] = DeathQueue()
        self._lock = fork_safe_lock()

    def take(self, owner: object, nbytes: int, from_host: bool = False, size: int = 0
             ) -> PoolMemory:
        """Allocate memory of ``nbytes`` bytes for the lifetime of ``owner``; ``from_host``: filled
        by the host; ``size``: the ``block_size``, if known.

        Raises:
            OutOfMemoryError: there is none, even after all free memory is returned to the driver.
        """
        size = size or block_size(nbytes)
        from_host = from_host and size <= _MAX_HOST_FILLED
        with self._lock:
            self._settle()
            memory = self._take_free(size, from_host)
            if memory is None:
                memory = self._alloc(size, nbytes)
            block = PoolMemory(size, from_host, memory)
            self._deaths.watch(owner, block)
        return block

    def _take_free(self, size: int, from_host: bool) -> DeviceMemory | None:
        """Take a free block, if possible one that queued work doesn't use any more. None: there is
        none, or all are in use and there is room for more.
        """
        free = self._free.get((size, from_host))
        if not free:
            return None
        if not from_host and self.driver.is_idle(free[-1]):
            self.free_bytes -= size
            return free.pop()
        idle = [memory for memory in free if self.driver.is_idle(memory)]
        if not idle and self.free_bytes < MAX_FREE_BYTES // 2:
            return None
        # The lowest one for the host, so that several allocations get the same ones again.
        memory = min(idle or free) if from_host else (idle or free)[-1]
        free.remove(memory)
        self.free_bytes -= size
        return memory

    def _alloc(self, size: int, nbytes: int) -> DeviceMemory:
        limits = self.driver.limits
        if size <= limits.buffer:
            for release in (self._no_op, self.trim, self._collect_garbage):
                release()
                if self.held + size > limits.memory:
                    continue  # some drivers only fail at first use
                try:
                    memory = self.driver.alloc(size)
                except MemoryError:
                    continue
                self.held += size
                return memory
        raise OutOfMemoryError(
            f"{self.driver.name}: expected {nbytes:,} bytes of memory, one array may have "
            f"{limits.buffer:,}, all {limits.memory:,}, and {self.held:,} are held; in use: "
            f"{self._in_use() or 'none'}",
            hint="use smaller batches, delete arrays that are no longer needed, or donate_argnums")

    def _in_use(self) -> str:
        """Describe the memory in use by size and source location, largest totals first."""
        counts = Counter([(piece.size, piece.loc) for piece in self._deaths.pending()])
        largest = sorted(counts.items(), key=lambda item: -item[0][0] * item[1])[:_MAX_REPORTED]
        return "; ".join([f"{count} of "
                          f"{size:,}{f' made at {format_location(site)}' if site else ''}"
                          for (size, site), count in largest])

    def call_driver(self, call: Callable[..., T], *args: Any) -> T:
        """Call a driver method that uses this memory.

        Raises:
            DeviceError: the device failed, now or before.
        """
        self.driver.check_process()
        if self.lost:
            raise DeviceError(f"{self.driver.name}: expected an array in memory of a device that "
                              f"works, got one that was lost when {self.lost}",
                              hint="recompute it, or load a saved copy")
        try:
            return call(*args)
        except DeviceError as error:
            raise self.failed(error) from None

    def waited(self, call: Callable[..., None], *args: Any) -> None:
        """Call a driver method that waits for all queued work.

        Raises:
            DeviceError: the device failed, now or before.
        """
        self.call_driver(call, *args)
        self.on_all_done()

    def make_room(self, nbytes: int) -> None:
        """Pass on the oldest copies until host memory has room: they may use ``MAX_PINNED`` bytes
        in all.
        """
        for transfer in self.outgoing.released():
            transfer.drop()
        waiting = [arrival for arrival in self.outgoing.pending() if arrival.nbytes]
        for transfer in waiting:
            if sum([a.nbytes for a in waiting]) + nbytes <= MAX_PINNED:
                return
            owner = transfer.owner()
            if owner is not None:  # while it is alive, nobody else has its memory
                transfer.deliver()

    def _no_op(self) -> None:
        pass

    def _collect_garbage(self) -> None:
        gc.collect()
        self.trim()
        if not self.lost:
            self.driver.wait(self.driver.signal())  # what queued work used can be reused after it

    def _settle(self) -> None:
        """Reclaim the memory of dead owners."""
        for block in self._deaths.released():
            size = block.size
            if self.free_bytes + size <= MAX_FREE_BYTES:
                self._free.setdefault((size, block.from_host), []).append(block.memory)
                self.free_bytes += size
            else:
                self.held -= size
                self._release(block.memory)

    def _release(self, memory: DeviceMemory) -> None:
        if self.lost or self.driver.pid != os.getpid():
            return  # a driver that failed, or is another process's, may hang
        self.driver.free(memory)

    def trim(self) -> None:
        """Return all free memory to the driver."""
        with self._lock:
            self._settle()
            for (size, _), free in self._free.items():
                while free:
                    self._release(free.pop())
                    self.held -= size
                    self.free_bytes -= size

    def stats(self) -> dict[str, int]:
        """Bytes taken from the driver, and how many of them are free."""
        with self._lock:
            self._settle()
        return {"held": self.held, "free": self.free_bytes}


class ArenaMemory:
    """Memory that is freed with this object."""

    __slots__ = ("__weakref__", "piece")

    def __init__(self, pool: GpuPool, nbytes: int) -> None:
        self.piece = pool.take(self, nbytes)

    @property
    def memory(self) -> DeviceMemory:
        """The driver's handle."""
        return self.piece.memory


class HostCopy:
    """An asynchronous copy of a storage to the host.

    Attributes:
        nbytes: bytes that were not taken yet.
    """

    __slots__ = ("_chunks", "_pool", "nbytes", "owner")

    def __init__(self, owner: GpuStorage) -> None:
        self._pool, self.owner, self.nbytes = owner.pool, weakref.ref(owner), 0
        self._chunks: deque[tuple[int, AsyncRead]] = deque()
        for start in range(0, owner.nbytes, MAX_BLOCK):
            size = min(MAX_BLOCK, owner.nbytes - start)
            self._chunks.append((start, self._pool.call_driver(
                self._pool.driver.fetch, owner.memory, start, size)))
            self.nbytes += size

    def deliver(self, remaining: int = 0) -> None:
        """Copy to the host array of the storage."""
        owner = self.owner()
        if owner is not None:
            owner.host()

    def take(self, to: HostBytes) -> None:
        """Wait for the bytes, and copy them."""
        for start, fetched in self._chunks:
            self._pool.call_driver(fetched.wait)
            to[start:start + fetched.nbytes] = fetched.content()
        self.drop()

    def drop(self) -> None:
        """Drop them: nobody needs them any more."""
        self.nbytes = 0
        while self._chunks:
            self._chunks.popleft()[1].release()


class GpuStorage(DeviceStorage):
    """Device memory, with a copy in host memory once the host has read it.

    Attributes:
        piece: its memory.
        incoming: a copy that must be completed before the memory is used.
        timeline: 0, as a reader of ``ptr`` has waited.
    """

    __slots__ = ("__weakref__", "_host_copy", "_host", "_shared", "incoming", "is_aliased",
                 "nbytes", "piece", "placed", "pool")
    timeline = 0
    _shared: GpuStorage  # the storage that owns the memory

    def __init__(self, pool: GpuPool, nbytes: int, from_host: bool = False, size: int = 0
                 ) -> None:
        self.pool, self.nbytes, self.is_aliased = pool, nbytes, False
        self._host: HostBytes | None = None
        self.incoming: IncomingCopy | None = None
        self._host_copy: HostCopy | None = None
        self.piece = pool.take(self, nbytes, from_host, size)

    @property
    def memory(self) -> DeviceMemory:
        """The driver's handle. Work queued from now on finds the content there."""
        if self.incoming is not None:
            self.incoming.deliver()
            self.incoming = None
        return self.piece.memory

    @property
    def device_name(self) -> str:
        """The name of the device."""
        return self.pool.driver.name

    def shared(self) -> GpuStorage:
        """Return another storage on this memory, so that neither may be overwritten."""
        alias = object.__new__(GpuStorage)
        alias.pool, alias.nbytes, alias.piece = self.pool, self.nbytes, self.piece
        alias._host, alias._shared, alias.incoming = self._host, self, self.incoming
        alias._host_copy = None
        alias.is_aliased = self.is_aliased = True
        return alias

    def written(self) -> None:
        """Invalidate host copies: the content changes."""
        self._host = None
        if self._host_copy is not None:
            self._host_copy.drop()
            self._host_copy = None

    def start_host_copy(self) -> None:
        """Start an asynchronous copy to the host, where ``host`` finds it."""
        if self._host is None and self._host_copy is None and 0 < self.nbytes <= MAX_PINNED:
            self.pool.make_room(self.nbytes)
            self._host_copy = HostCopy(self)
            self.pool.outgoing.watch(self, self._host_copy)

    def host(self) -> HostBytes:
        """Return the bytes in host memory, aligned to 64; waits for them."""
        if self._host is None:
            host_bytes = aligned_empty(self.nbytes)
            if self._host_copy is not None:
                self._host_copy.take(host_bytes)
                self._host_copy = None
            elif self.nbytes:
                self.pool.waited(self.pool.driver.read, self.memory, 0, host_bytes)
            self._host = host_bytes
        return self._host

    @property
    def ptr(self) -> int:  # type: ignore[override]
        """The address for host kernels. What they read there is not changed."""
        self.is_aliased = True
        return self.host().ctypes.data

    def window(self) -> HostBytes:
        """The bytes, for readers."""
        return self.host()

    def wait(self) -> None:
        """Wait for the value."""
        driver, _ = self.pool.driver, self.memory
        self.pool.waited(lambda: driver.wait(driver.signal()))

    def copy_to(self, to: DeviceStorage) -> None:
        """Copy the bytes to newly allocated host memory, without an intermediate copy."""
        if not self.nbytes:
            return
        target = np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(to.ptr))
        if self._host is not None:
            target[...] = self._host
        else:
            self.pool.waited(self.pool.driver.read, self.memory, 0, target)

    def view(self, np_dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return a read-only array of the value."""
        count = math.prod(shape)
        data: Any = self.host().data.toreadonly() if count else bytes(8)
        try:
            return np.frombuffer(data, np_dtype, count).reshape(shape)
        except ValueError as error:
            raise ShapeError(f"expected a shape that NumPy takes, got {shape}: {error}") from None

    def fill(self, value: np.ndarray[Any, Any]) -> None:
        """Copy the elements of an array here, row-major."""
        if value.nbytes:
            self.pool.call_driver(self.pool.driver.write, self.memory, 0,
                                  np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        self.written()


def aligned_empty(nbytes: int) -> HostBytes:
    """Allocate host bytes aligned to 64."""
    padded = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -padded.ctypes.data % _ALIGNMENT
    window: HostBytes = padded[start:start + nbytes]
    return window
