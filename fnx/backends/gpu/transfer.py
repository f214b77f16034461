"""Copies from the memory of one device to that of another, through both queues.

    source queue         fetch chunk 0, fetch chunk 1, ...    to pinned host memory
    host                 when the value after chunk 0 is reached, pass chunk 0 on
    destination queue    write chunk 0, ..., kernels that read them

All fetches are queued before ``sent`` returns, so later writes to the source come after them in its
queue. The last ``AHEAD`` chunks are passed on when the destination memory is first needed: the
sender does not wait for them. Each driver opens one device only, so the two devices never belong to
the same driver.
"""

from __future__ import annotations

import weakref
from collections import deque

from fnx.backends.gpu.driver import DeviceMemory, FetchedBytes
from fnx.backends.gpu.memory import GpuPool, GpuStorage
from fnx.backends.gpu.pinned import BLOCK
from fnx.core.process import fork_safe_lock

AHEAD = 4  # chunks of a copy that may wait in host memory


class Arrival:
    """The chunks of a copy that are in host memory, or on their way there.

    Attributes:
        nbytes: size of these chunks.
    """

    __slots__ = ("_chunks", "_lock", "_memory", "_source", "_to", "nbytes", "owner")

    def __init__(self, source: GpuPool, to: GpuPool, owner: GpuStorage) -> None:
        self._source, self._to = source, to
        self._memory: DeviceMemory = owner.piece.memory
        self._chunks: deque[tuple[int, FetchedBytes]] = deque()
        self._lock = fork_safe_lock()
        self.nbytes, self.owner = 0, weakref.ref(owner)

    def fetch(self, memory: DeviceMemory, start: int, nbytes: int) -> None:
        """Queue the fetch of a chunk; pass on earlier ones so that at most ``AHEAD`` wait."""
        self.hand_on(AHEAD - 1)
        self._chunks.append((start, self._source.called(
            self._source.driver.fetch, memory, start, nbytes)))
        self.nbytes += nbytes

    def hand_on(self, left: int = 0) -> None:
        """Write chunks to the destination, in order, until ``left`` remain.

        Raises:
            DeviceError: one of the devices failed.
        """
        with self._lock:
            while len(self._chunks) > left:
                start, fetched = self._chunks[0]
                self._source.called(fetched.wait)
                # Written again if Ctrl-C comes here, which is safe: nobody has used the memory
                # before.
                self._to.called(self._to.driver.write, self._memory, start, fetched.content())
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


def sent(source: GpuStorage, to: GpuPool) -> GpuStorage:
    """Copy a storage to the memory of another device.

    Raises:
        DeviceError: one of the devices failed.
        OutOfMemoryError: the destination has no memory left.
    """
    made = GpuStorage(to, source.nbytes, of_host=True)
    pool, memory = source.pool, source.memory
    arrival = Arrival(pool, to, made)
    pool.make_room(min(source.nbytes, AHEAD * BLOCK))
    pool.leaving.watch(made, arrival)
    for start in range(0, source.nbytes, BLOCK):
        arrival.fetch(memory, start, min(BLOCK, source.nbytes - start))
    made.arriving = arrival
    return made
