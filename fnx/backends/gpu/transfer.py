"""Copies from the memory of one device to that of another, through both queues.

    source queue         fetch chunk 0, fetch chunk 1, ...    to pinned host memory
    host                 when the value after chunk 0 is reached, pass chunk 0 on
    destination queue    write chunk 0, ..., kernels that read them

All fetches are queued before ``send`` returns, so later writes to the source come after them in its
queue. The last ``MAX_CHUNKS_AHEAD`` chunks are passed on when the destination memory is first
needed: the sender does not wait for them. Each driver opens one device only, so the two devices
never belong to the same driver.
"""

from __future__ import annotations

import weakref
from collections import deque

from fnx.backends.gpu.driver import AsyncRead, DeviceMemory
from fnx.backends.gpu.memory import GpuPool, GpuStorage
from fnx.backends.gpu.pinned_memory import MAX_BLOCK
from fnx.core.support.process import fork_safe_lock

MAX_CHUNKS_AHEAD = 4  # chunks of a copy that may wait in host memory


class Transfer:
    """The chunks of a copy that are in host memory, or on their way there.

    Attributes:
        nbytes: size of these chunks.
    """

    __slots__ = ("_chunks", "_lock", "_memory", "_source", "_destination", "nbytes", "owner")

    def __init__(self, source: GpuPool, destination: GpuPool, owner: GpuStorage) -> None:
        self._source, self._destination = source, destination
        self._memory: DeviceMemory = owner.piece.memory
        self._chunks: deque[tuple[int, AsyncRead]] = deque()
        self._lock = fork_safe_lock()
        self.nbytes, self.owner = 0, weakref.ref(owner)

    def fetch(self, memory: DeviceMemory, start: int, nbytes: int) -> None:
        """Queue the fetch of a chunk; pass on earlier ones so that at most ``MAX_CHUNKS_AHEAD``
        wait."""
        self.deliver(MAX_CHUNKS_AHEAD - 1)
        self._chunks.append((start, self._source.call_driver(
            self._source.driver.fetch, memory, start, nbytes)))
        self.nbytes += nbytes

    def deliver(self, remaining: int = 0) -> None:
        """Write chunks to the destination, in order, until ``remaining`` remain.

        Raises:
            DeviceError: one of the devices failed.
        """
        with self._lock:
            while len(self._chunks) > remaining:
                start, fetched = self._chunks[0]
                self._source.call_driver(fetched.wait)
                # Written again if Ctrl-C comes here, which is safe: nobody has used the memory
                # before.
                self._destination.call_driver(self._destination.driver.write, self._memory, start,
                                              fetched.content())
                self._drop()

    def drop(self) -> None:
        """Drop all chunks: nobody needs them any more."""
        with self._lock:
            while self._chunks:
                self._drop()

    def _drop(self) -> None:
        _, fetched = self._chunks.popleft()
        self.nbytes -= fetched.nbytes
        fetched.release()


def send(source: GpuStorage, destination: GpuPool) -> GpuStorage:
    """Copy a storage to the memory of another device.

    Raises:
        DeviceError: one of the devices failed.
        OutOfMemoryError: the destination has no memory left.
    """
    copy = GpuStorage(destination, source.nbytes, from_host=True)
    pool, memory = source.pool, source.memory
    transfer = Transfer(pool, destination, copy)
    pool.make_room(min(source.nbytes, MAX_CHUNKS_AHEAD * MAX_BLOCK))
    pool.outgoing.watch(copy, transfer)
    for start in range(0, source.nbytes, MAX_BLOCK):
        transfer.fetch(memory, start, min(MAX_BLOCK, source.nbytes - start))
    copy.incoming = transfer
    return copy
