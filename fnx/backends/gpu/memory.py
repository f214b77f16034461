"""Memory of a device: storages of arrays, and a pool of what is free.

    take(nbytes)  ->  a Block, of a size class at least as large     its death gives it back
    free          ->  kept up to a bound, for the next of its class

Work is queued in order, so a block that is given back may be taken at once: who writes it next does
so behind those that read it.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fnx.backends.allocator import size_class
from fnx.backends.base import DeviceStorage
from fnx.backends.gpu.driver import DeviceMemory, HostBytes, QueueDriver
from fnx.core.errors import OutOfMemoryError, ShapeError
from fnx.core.process import fork_safe_lock
from fnx.core.weak import Deaths

KEPT = 1 << 28  # bytes of free memory at most
_LEAST, _BITS = 256, 3  # of size classes
_ALIGNED = 64  # of memory of the host that kernels of the host read


class GpuPool:
    """Memory of one driver, by size class."""

    def __init__(self, driver: QueueDriver) -> None:
        self.driver = driver
        self.held = self.kept = 0
        self.freed: Callable[[DeviceMemory], None] = lambda memory: None
        self._free: dict[int, list[DeviceMemory]] = {}
        self._used: Counter[int] = Counter()
        self._deaths: Deaths[tuple[int, DeviceMemory]] = Deaths()
        self._lock = fork_safe_lock()

    def take(self, owner: object, nbytes: int) -> DeviceMemory:
        """Memory of so many bytes for as long as ``owner`` lives.

        Raises:
            OutOfMemoryError: there is none, also when all that is free was given back.
        """
        size = size_class(nbytes, _LEAST, _BITS)
        with self._lock:
            self._settle()
            free = self._free.get(size)
            if free:
                memory = free.pop()
                self.kept -= size
            else:
                memory = self._alloc(size, nbytes)
            self._used[size] += 1
            self._deaths.watch(owner, (size, memory))
        return memory

    def _alloc(self, size: int, nbytes: int) -> DeviceMemory:
        if size <= self.driver.limits.buffer:
            for release in (self._nothing, self.trim, self._collect):
                release()
                try:
                    memory = self.driver.alloc(size)
                except MemoryError:
                    continue
                self.held += size
                return memory
        largest = ", ".join([f"{count} of {n:,}" for n, count in
                             sorted(self._used.items(), reverse=True)[:3] if count])
        raise OutOfMemoryError(
            f"{self.driver.name}: expected {nbytes:,} bytes of memory, one array may have "
            f"{self.driver.limits.buffer:,} and {self.held:,} are held; the largest that are in "
            f"use: {largest or 'none'}",
            hint="use smaller batches, delete arrays that are no longer needed, or donate_argnums")

    def _nothing(self) -> None:
        pass

    def _collect(self) -> None:
        gc.collect()
        self.trim()

    def _settle(self) -> None:
        """Take back what died."""
        for size, memory in self._deaths.take():
            self._used[size] -= 1
            if self.kept + size <= KEPT:
                self._free.setdefault(size, []).append(memory)
                self.kept += size
            else:
                self.held -= size
                self._release(memory)

    def _release(self, memory: DeviceMemory) -> None:
        self.freed(memory)
        self.driver.free(memory)

    def trim(self) -> None:
        """Give back all that is free."""
        with self._lock:
            self._settle()
            for size, free in self._free.items():
                while free:
                    self._release(free.pop())
                    self.held -= size
                    self.kept -= size

    def stats(self) -> dict[str, int]:
        """HostBytes that are held, and how many of them are free."""
        with self._lock:
            self._settle()
        return {"held": self.held, "free": self.kept}


class ArenaMemory:
    """Memory for as long as this lives."""

    __slots__ = ("__weakref__", "memory")

    def __init__(self, pool: GpuPool, nbytes: int) -> None:
        self.memory = pool.take(self, nbytes)


class GpuStorage(DeviceStorage):
    """Memory of a device, and a copy of it in the host's memory once somebody looked at it.

    Attributes:
        memory: as the driver calls it.
        timeline: 0, as who reads ``ptr`` has waited.
    """

    __slots__ = ("__weakref__", "_host", "lent", "memory", "nbytes", "pool")
    timeline = 0

    def __init__(self, pool: GpuPool, nbytes: int) -> None:
        self.pool, self.nbytes, self.lent = pool, nbytes, False
        self._host: HostBytes | None = None
        self.memory = pool.take(self, nbytes)

    @classmethod
    def several(cls, pool: GpuPool, sizes: Iterable[int]) -> list[GpuStorage]:
        """Storages of so many bytes."""
        return [cls(pool, nbytes) for nbytes in sizes]

    def written(self) -> None:
        """Its content is another one from now on."""
        self._host = None

    def host(self) -> HostBytes:
        """The bytes in the host's memory, at a multiple of 64; waits for them."""
        if self._host is None:
            driver = self.pool.driver
            driver.check_process()
            found = aligned(self.nbytes)
            if self.nbytes:
                driver.read(self.memory, 0, found)
            self._host = found
        return self._host

    @property
    def ptr(self) -> int:  # type: ignore[override]
        """Where kernels of the host find it; what they read there stays."""
        self.lent = True
        return self.host().ctypes.data

    def window(self) -> HostBytes:
        """The bytes, for who reads them."""
        return self.host()

    def wait(self) -> None:
        """Return when the value is there."""
        driver = self.pool.driver
        driver.check_process()
        driver.wait(driver.signal())

    def view(self, np_dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """A read-only array of the value."""
        count = math.prod(shape)
        data: Any = self.host().data.toreadonly() if count else bytes(8)
        try:
            return np.frombuffer(data, np_dtype, count).reshape(shape)
        except ValueError as why:
            raise ShapeError(f"expected a shape that NumPy takes, got {shape}: {why}") from None

    def fill(self, value: np.ndarray[Any, Any]) -> None:
        """Copy an array's elements here, row-major."""
        driver = self.pool.driver
        driver.check_process()
        if value.nbytes:
            driver.write(self.memory, 0, np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        self.written()


def aligned(nbytes: int) -> HostBytes:
    """HostBytes of the host at a multiple of 64."""
    whole = np.empty(nbytes + _ALIGNED, np.uint8)
    start = -whole.ctypes.data % _ALIGNED
    found: HostBytes = whole[start:start + nbytes]
    return found
