"""What drivers of queues that run their commands in order have in common.

    InOrderDriver   launches are deferred until other work must follow them, and started together
    EventDriver     two queues, of kernels and of long copies, whose events order them
                    (copy_order.py); bytes of the host go through pinned memory

A driver adds the calls of its library: of a queue that it starts launches on, copies with, marks
with an event, and lets wait for one.
"""

from __future__ import annotations

import ctypes
import os
from abc import abstractmethod
from collections.abc import Collection
from typing import Any

from fnx.backends.device.profiling import CommandTimes, SignalProfiler
from fnx.backends.gpu.call_list import CallRunner
from fnx.backends.gpu.cancellation import AbortableDriver, InterruptibleDriver
from fnx.backends.gpu.copy_order import MIN_QUEUED_COPY, CopyOrder
from fnx.backends.gpu.driver import DeviceMemory, HostBytes, QueuedLaunch
from fnx.backends.gpu.pinned_memory import MAX_BLOCK, PinnedCopy, PinnedPool
from fnx.core.support.process import fork_safe_lock


class InOrderDriver(InterruptibleDriver):
    """A driver of a queue that runs its commands in order.

    Attributes:
        runner: of lists of calls.
    """

    def __init__(self) -> None:
        self.pid, self.runner, self._lock = os.getpid(), CallRunner(), fork_safe_lock()
        self._signals = self._passed = 0
        self._pending: list[QueuedLaunch] = []
        self._times = CommandTimes(self._read_times, self._compare_clocks)

    # ---- what a driver gives

    @abstractmethod
    def _start(self) -> None:
        """Start the pending launches; they are pending until nothing can interrupt that."""

    @abstractmethod
    def _read_times(self, events: list[Any]) -> list[tuple[int, int]]:
        """Wait for the commands of a profile; return when they began and ended."""

    @abstractmethod
    def _compare_clocks(self) -> tuple[int, int]:
        """Return how long a command took, and by how much the host's clock is ahead."""

    # ---- work

    def exec(self, launch: QueuedLaunch) -> None:
        """Defer the launch until other work must follow it."""
        with self._lock:
            self._pending.append(launch)
            if len(self._pending) >= self._times.room:
                self._flush()
                self._times.report()

    def _flush(self) -> None:
        """Start the deferred launches."""
        if self._pending:
            self._start()

    def submit(self) -> None:
        """Start the deferred launches."""
        with self._lock:
            self._flush()

    # ---- the timeline

    def signal(self) -> int:
        """Return a timeline value after all that is queued."""
        with self._lock:
            self._flush()
            return self._record()

    def _record(self) -> int:
        """Return a timeline value after all that was started."""
        self._signals += 1
        return self._signals

    def last(self) -> int:
        """The last timeline value."""
        with self._lock:
            return self._signals

    # ---- times

    def set_profiler(self, profiler: SignalProfiler | None) -> bool:
        """Time the commands from now on for a profile, or for none."""
        with self._lock:
            self._flush()
            self._times.switch(profiler)
        return True

    def report_times(self) -> None:
        """Read the times of the profile."""
        with self._lock:
            self._flush()
            self._times.report()


class EventDriver(InOrderDriver, AbortableDriver):
    """A driver of a queue of kernels and one of long copies, and of events.

    Attributes:
        queue, copy_queue: their handles.
        pinned: host memory for copies.
        max_acquired: blocks of it that may be acquired before a value is recorded after their
            copies, so that they can be used again; a value is a command of the queues.
    """

    queue: int
    copy_queue: int
    max_acquired = 64

    def __init__(self) -> None:
        super().__init__()
        self._order, self._copied = CopyOrder(), 0  # the timeline value after the last copy
        self._events: dict[int, list[int]] = {}  # of the queues, by timeline value
        self.pinned = PinnedPool(self._pin, self.done, self.leave)

    # ---- what a driver gives

    @abstractmethod
    def _pin(self, nbytes: int) -> int:
        """Allocate host memory, never freed, that the device reads without another copy."""

    @abstractmethod
    def _copy_in(self, queue: int, memory: DeviceMemory, offset: int, address: int, nbytes: int
                 ) -> None:
        """Queue a copy from pinned memory."""

    @abstractmethod
    def _copy_out(self, queue: int, memory: DeviceMemory, offset: int, address: int, nbytes: int
                  ) -> None:
        """Queue a copy to pinned memory."""

    @abstractmethod
    def _copy_within(self, source: DeviceMemory, source_offset: int, to: DeviceMemory, offset: int,
                     nbytes: int) -> None:
        """Queue a copy on the device."""

    @abstractmethod
    def _read(self, memory: DeviceMemory, offset: int, to: HostBytes) -> None:
        """Copy to the host; all queued work is done."""

    @abstractmethod
    def _mark(self, queue: int) -> int:
        """Return an event after all that a queue has."""

    @abstractmethod
    def _wait_for(self, queue: int, event: int) -> None:
        """Let later work of a queue wait for an event."""

    @abstractmethod
    def _is_complete(self, event: int) -> bool:
        """Whether an event was reached."""

    @abstractmethod
    def _release(self, event: int) -> None:
        """Release an event that nobody asks for any more; work may still wait for it."""

    def _begin(self) -> None:
        """Let what the queues have begin, if it doesn't by itself."""

    # ---- memory

    def write(self, memory: DeviceMemory, offset: int, value: HostBytes) -> None:
        """Copy to pinned memory, one block at a time, from which the device reads."""
        for start in range(0, value.nbytes, MAX_BLOCK):
            chunk = value[start:start + MAX_BLOCK]
            with self._lock:  # else another thread's signal may precede the copy
                self._flush()
                address = self.pinned.acquire(chunk.nbytes)
                ctypes.memmove(address, chunk.ctypes.data, chunk.nbytes)
                self._copy_in(self._queue_for_copy(memory, chunk.nbytes), memory, offset + start,
                              address, chunk.nbytes)
                self._return_pinned()

    def _return_pinned(self) -> None:
        """Return the acquired blocks after a timeline value, if there are many."""
        acquired = self.pinned.acquired
        if len(acquired) >= self.max_acquired or sum([size for size, _ in acquired]) >= MAX_BLOCK:
            self.pinned.behind(self._record())
            self._begin()

    def read(self, memory: DeviceMemory, offset: int, to: HostBytes) -> None:
        """Wait interruptibly (Ctrl-C), then copy."""
        self.wait(self.signal())
        self._read(memory, offset, to)

    def fetch(self, memory: DeviceMemory, offset: int, nbytes: int) -> PinnedCopy:
        """Queue a copy to pinned memory, followed by an event."""
        with self._lock:
            self._flush()
            block = self.pinned.acquire_block(nbytes)
            self._copy_out(self._queue_for_copy(memory, nbytes), memory, offset, block[1], nbytes)
            value = self._record()
            self._begin()
            return PinnedCopy(self.pinned, block, nbytes, value, self.wait)

    def copy(self, source: DeviceMemory, source_offset: int, to: DeviceMemory, offset: int,
             nbytes: int) -> None:
        """Queue a copy on the device."""
        with self._lock:
            self._flush()
            self._before_kernels((source, to))
            self._copy_within(source, source_offset, to, offset, nbytes)

    # ---- the order of the queues, changed under the lock, with the commands

    def _queue_for_copy(self, memory: DeviceMemory, nbytes: int) -> int:
        """Return the queue for a copy from or to memory, which has waited for what it needs."""
        if nbytes < MIN_QUEUED_COPY:
            self._before_kernels((memory,))
            return self.queue
        self._order.before_copy(memory, self._wait_for_kernels)
        self._copied = self._signals + 1
        return self.copy_queue

    def _before_kernels(self, memory: Collection[DeviceMemory]) -> None:
        """Let the queue of kernels wait for the copies that use memory."""
        if self._order.is_open:
            self._order.before_compute(memory, self._wait_for_copies)

    def _wait_for_copies(self) -> None:
        self._wait_between(self.copy_queue, self.queue)

    def _wait_for_kernels(self) -> None:
        self._wait_between(self.queue, self.copy_queue)

    def _wait_between(self, first: int, then: int) -> None:
        """Let later work of a queue wait for all that another one has."""
        event = self._mark(first)
        self._begin()
        self._wait_for(then, event)
        self._release(event)

    # ---- the timeline

    def _record(self) -> int:
        """Mark the queue of kernels, and that of copies if it may have work."""
        self._signals += 1
        self._events[self._signals] = [self._mark(self.queue)]
        if self._copied > self._passed:
            self._events[self._signals].append(self._mark(self.copy_queue))
        return self._signals

    def done(self, value: int) -> bool:
        """Whether the events were reached."""
        with self._lock:
            events = self._events.get(value)
            if value <= self._passed or events is None:
                return True
            self.check_not_aborted()
            for event in events:
                if not self._is_complete(event):
                    return False
            self._passed = value
            for old in [v for v in self._events if v <= value]:
                for event in self._events.pop(old):
                    self._release(event)
            if value >= self._copied:
                self._order.close()
            return True

    def submit(self) -> None:
        """Start the deferred launches, and let all begin."""
        with self._lock:
            self._flush()
            self._begin()
