"""A driver of several queues: commands say which memory they read and write, and their group
(device/queues.py) decides what each waits for.

A timeline value of the host stands for a value of each queue. Host bytes go through pinned blocks,
which are used again once the timeline has passed their copies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import deque
from collections.abc import Callable, Mapping

from fnx.backends.device.profiling import SignalProfiler
from fnx.backends.device.queues import (
    COMPUTE,
    DOWNLOAD,
    KINDS,
    UPLOAD,
    CommandLabel,
    HardwareQueue,
    MemoryCommand,
    MemoryRange,
    QueueGroup,
)
from fnx.backends.gpu.cancellation import AbortableDriver
from fnx.backends.gpu.driver import HostBytes, QueuedLaunch
from fnx.backends.gpu.pinned_memory import MAX_BLOCK, PinnedCopy, PinnedPool
from fnx.core.ir.uop import current_loc
from fnx.core.support.errors import DeviceError


class QueuesDriver(AbortableDriver):
    """A driver over a queue of each kind. Memory is an address that all can access.

    Args:
        queues: the queues by name; names in a group are distinct.
        group: of the devices that can wait for one another's signals.
    """

    can_reopen = True

    def __init__(self, queues: Mapping[str, HardwareQueue], group: QueueGroup) -> None:
        self.pid = os.getpid()
        self._group, self.queues = group, dict(queues)
        group.queues.update(queues)
        self._queue_of = {kind: name for name in queues for kind in KINDS if name.endswith(kind)}
        self._signals = 0
        self._timeline: deque[tuple[int, dict[str, int]]] = deque()
        self._free: deque[tuple[int, int]] = deque()
        self._profiler: SignalProfiler | None = None
        self.pinned = PinnedPool(self.alloc, self.done, self.wait)

    # ---- memory

    def free(self, memory: int) -> None:
        """Free memory once all that is queued is done."""
        with self._group.lock:
            self._free.append((self.signal(), memory))
            while self._free and self._is_reached(self._free[0][0]):
                self.release(self._free.popleft()[1])

    def is_idle(self, memory: int) -> bool:
        """Whether all commands that use memory are done."""
        return self._group.is_idle(memory)

    def release(self, memory: int) -> None:
        """Return memory that nothing uses to the system."""
        raise NotImplementedError

    def write(self, memory: int, offset: int, value: HostBytes) -> None:
        """Copy to a pinned block, and queue a copy from there."""
        for start in range(0, value.nbytes, MAX_BLOCK):
            chunk = value[start:start + MAX_BLOCK]
            with self._group.lock:  # else another thread's signal may precede the copy
                block = self.pinned.acquire_block(chunk.nbytes)
                ctypes.memmove(block[1], chunk.ctypes.data, chunk.nbytes)
                self._add_copy(UPLOAD, block[1], memory, offset + start, chunk.nbytes,
                               "copy to the device", (),
                               (_range(memory, offset + start, chunk.nbytes),))
                self.pinned.return_block(self.signal(), block)

    def read(self, memory: int, offset: int, to: HostBytes) -> None:
        """Copy through pinned blocks, so that a wait can be left."""
        for start in range(0, to.nbytes, MAX_BLOCK):
            super().read(memory, offset + start, to[start:start + MAX_BLOCK])

    def fetch(self, memory: int, offset: int, nbytes: int) -> PinnedCopy:
        """Queue a copy to a pinned block."""
        with self._group.lock:
            block = self.pinned.acquire_block(nbytes)
            self._add_copy(DOWNLOAD, memory + offset, block[1], 0, nbytes,
                           "copy to the host", (_range(memory, offset, nbytes),), ())
            return PinnedCopy(self.pinned, block, nbytes, self.signal(), self.wait)

    def copy(self, source: int, source_offset: int, to: int, offset: int, nbytes: int) -> None:
        """Queue a copy on the device."""
        self._add_copy(UPLOAD, source + source_offset, to, offset, nbytes, "copy",
                       (_range(source, source_offset, nbytes),), (_range(to, offset, nbytes),))

    def _add_copy(self, kind: str, source: int, to: int, offset: int, nbytes: int, name: str,
                  reads: tuple[MemoryRange, ...], writes: tuple[MemoryRange, ...]) -> None:
        loc = current_loc.loc
        label = CommandLabel(name, () if loc is None else (loc,), None, self._submission(), nbytes,
                             self._report)
        self._group.add(MemoryCommand(self._queue_of[kind], reads, writes, lambda queue: queue.copy(
            source, to + offset, nbytes, label)))

    # ---- work

    def exec(self, launch: QueuedLaunch) -> None:
        """Queue a kernel on the compute queue."""
        command = launch.command
        label = CommandLabel("kernel") if command is None else CommandLabel(
            command.name, command.node.arg.locs, command, self._submission(), 0, self._report)
        parts = [_range(memory, offset, nbytes)
                 for (memory, offset), nbytes in zip(launch.buffers, launch.sizes)]
        reads = tuple([p for i, p in enumerate(parts) if i not in launch.written])
        writes = tuple([p for i, p in enumerate(parts) if i in launch.written])
        self._group.add(MemoryCommand(self._queue_of[COMPUTE], reads, writes,
                                      lambda queue: queue.exec(launch, label)))

    def _submission(self) -> int:
        return 0 if self._profiler is None else self._profiler.submission

    @property
    def _report(self) -> Callable[[CommandLabel, str, int, int], None] | None:
        return None if self._profiler is None else self._profiler.add

    def set_profiler(self, profiler: SignalProfiler | None) -> bool:
        """Give the profiler the times of the commands."""
        self._profiler = profiler
        return True

    def submit(self) -> None:
        """Schedule and queue what was collected."""
        if not self.aborted:
            self._group.submit()

    # ---- the timeline

    def signal(self) -> int:
        """Submit, and return a timeline value after the last value of each queue."""
        with self._group.lock:
            self.submit()
            self._signals += 1
            self._timeline.append((self._signals, {
                name: self._group.dependencies.last[name] for name in self.queues}))
            return self._signals

    def done(self, value: int) -> bool:
        """Whether all queues have reached their values."""
        if self._is_reached(value):
            return True
        self._check()
        return False

    def _is_reached(self, value: int) -> bool:
        with self._group.lock:
            while self._timeline and self._timeline[0][0] <= value:
                if any(self.queues[name].completed() < last
                       for name, last in self._timeline[0][1].items()):
                    return False
                self._timeline.popleft()
            return True

    def _check(self) -> None:
        """Raise if a queue has failed."""
        self.check_not_aborted()
        for queue in self.queues.values():
            if failure := queue.failure():
                self.stuck = self.running()
                raise DeviceError(f"{self.name}: {queue.name} queue: {failure}")

    def running(self) -> tuple[CommandLabel, ...]:
        """The commands that queues run, or should run."""
        return tuple([label for queue in self.queues.values()
                      if (label := queue.running()) is not None])

    def last(self) -> int:
        """The last timeline value."""
        return self._signals

    def abort(self) -> None:
        """Stop the queues."""
        self.aborted = True
        for queue in self.queues.values():
            queue.stop()

    def close(self) -> None:
        """Stop the queues of a device that has failed."""
        with contextlib.suppress(DeviceError):
            self.abort()


def _range(memory: int, offset: int, nbytes: int) -> MemoryRange:
    return MemoryRange(memory, offset, offset + nbytes)
