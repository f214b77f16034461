"""Copies from the memory of one device to that of another, by the queues of both.

    queue of the source    fetch chunk 0, fetch chunk 1, ...    to pinned memory of the host
    host                   the number behind chunk 0 is reached, chunk 0 is handed on
    queue of the other     write chunk 0, ..., kernels that read them

All chunks are fetched before ``sent`` returns, so whatever writes over the source afterwards is
behind them in its queue. The last ``AHEAD`` of them are handed on when somebody asks for the memory
that they go to: who sends an array does not wait for it. One of a driver is opened, so both
devices are never of one.
"""

from __future__ import annotations

import weakref
from collections import deque

from fnx.backends.gpu.driver import DeviceMemory, FetchedBytes
from fnx.backends.gpu.memory import GpuPool, GpuStorage
from fnx.backends.gpu.pinned import BLOCK
from fnx.core.process import fork_safe_lock

AHEAD = 4  # chunks of a copy that may wait in the host's memory


class Arrival:
    """Chunks of a copy that are in the host's memory, or on their way there.

    Attributes:
        nbytes: of those.
    """

    __slots__ = ("_chunks", "_lock", "_memory", "_source", "_to", "nbytes", "owner")

    def __init__(self, source: GpuPool, to: GpuPool, owner: GpuStorage) -> None:
        self._source, self._to = source, to
        self._memory: DeviceMemory = owner.piece.memory
        self._chunks: deque[tuple[int, FetchedBytes]] = deque()
        self._lock = fork_safe_lock()
        self.nbytes, self.owner = 0, weakref.ref(owner)

    def fetch(self, memory: DeviceMemory, start: int, nbytes: int) -> None:
        """Queue a chunk; of those before it so many are handed on that there are ``AHEAD``."""
        self.hand_on(AHEAD - 1)
        self._chunks.append((start, self._source.called(
            self._source.driver.fetch, memory, start, nbytes)))
        self.nbytes += nbytes

    def hand_on(self, left: int = 0) -> None:
        """Write chunks where they belong, in order, until so many are left.

        Raises:
            DeviceError: one of the devices failed.
        """
        with self._lock:
            while len(self._chunks) > left:
                start, fetched = self._chunks[0]
                self._source.called(fetched.wait)
                # once more, where Ctrl-C comes here: nobody has used the memory before
                self._to.called(self._to.driver.write, self._memory, start, fetched.content())
                self._drop()

    def drop(self) -> None:
        """Nobody needs them any more."""
        with self._lock:
            while self._chunks:
                self._drop()

    def _drop(self) -> None:
        _, fetched = self._chunks.popleft()
        self.nbytes -= fetched.nbytes
        fetched.release()


def sent(source: GpuStorage, to: GpuPool) -> GpuStorage:
    """A copy in the memory of another device.

    Raises:
        DeviceError: one of the devices failed.
        OutOfMemoryError: the other one has no memory left.
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
