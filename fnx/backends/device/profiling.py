"""Profile entries of commands, and profiling of devices by waiting for each command.

The queue of a driver may not report when a kernel began. Then, while a profile is recorded, each
command is waited for: its time is that from the launch until the host knows that it ended. Queues
that know these times give them to a ``SignalProfiler``, and go on as they do without a profile.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from fnx.backends.device.hcq import Command, to_signed
from fnx.backends.device.queues import COMPUTE, CommandLabel
from fnx.core.ir import accessors, ops
from fnx.core.ir.kernel_code import Chunk, KernelRun
from fnx.core.rewriting.peak_rates import arithmetic_type, count_bytes, count_flops

_MAX_RUNS = 1 << 18  # commands in a profile
_MAX_TIMED = 1 << 11  # commands whose times are read together
_COMPARISONS = 5  # of two clocks; the fastest one counts
_COMPARE_AFTER = 10.0  # seconds after which clocks may have drifted


def profile_entry(command: Command) -> KernelRun:
    """Return the profile entry of a command: name, source locations, bytes and arithmetic."""
    if command.profile_entry is None:
        sizes = [accessors.possible_slots(slot)[0].nbytes for slot in command.slots]
        scalars = [to_signed(s) for s in command.scalars]
        nbytes = count_bytes(command.kernel, scalars, sizes)
        arg = command.node.arg
        flop_count = count_flops(command.kernel, scalars) \
            if command.kernel.op in (ops.KERNEL, ops.LINKED) else 0
        command.profile_entry = KernelRun(arg.name, arg.locs, nbytes, flop_count,
                                          arithmetic=arithmetic_type(command.kernel))
    return command.profile_entry


class _Profiler:
    """The commands of a profile. ``workers``: the number of threads or queues."""

    workers = 1

    def __init__(self) -> None:
        self.runs: list[KernelRun] = []
        self.lost = 0

    def time_by_waiting(self, command: Command, submission: int, run: Callable[[], None],
                        wait: Callable[[], None]) -> None:
        """Run a command, and record from when to when the host waited for it."""
        wait()  # for work queued before
        start = time.monotonic_ns()
        run()
        wait()
        stop = time.monotonic_ns()
        if len(self.runs) >= _MAX_RUNS:
            self.lost += 1
            return
        self.runs.append(profile_entry(command).replace(
            start=start, stop=stop, submission=submission))


class SignalProfiler(_Profiler):
    """The commands of a profile, with the times that the queues report."""

    def __init__(self) -> None:
        super().__init__()
        self.submission = 0
        self._queues: dict[str, int] = {}

    def time(self, command: Command, submission: int, run: Callable[[], None],
             wait: Callable[[], None], on_host: bool) -> None:
        """Queue a command; one that runs on the host is waited for."""
        self.submission = submission
        if on_host:
            self.time_by_waiting(command, submission, run, wait)
        else:
            run()

    def add(self, label: CommandLabel, queue: str, start: int, stop: int) -> None:
        """Add a command that a queue has run."""
        if len(self.runs) >= _MAX_RUNS:
            self.lost += 1
            return
        worker = self._queues.setdefault(queue, len(self._queues))
        self.workers = len(self._queues)
        entry = KernelRun(label.name, label.locs, label.nbytes, 0, arithmetic="") \
            if label.command is None else profile_entry(label.command)
        self.runs.append(entry.replace(start=start, stop=stop, submission=label.submission,
                                       chunks=(Chunk(worker, start, stop),)))


class CommandTimes:
    """The times of the commands of a profile, by events of the driver, read many together.

    Args:
        read: waits for the events, and returns the nanoseconds at which their commands began and
            ended, by the device's clock.
        compare: compares the clocks; returns the nanoseconds that this took, and by how many the
            host's is ahead.
        queue: the name of the queue.

    Attributes:
        is_open: whether a profile is being recorded.
    """

    def __init__(self, read: Callable[[list[Any]], Sequence[tuple[int, int]]],
                 compare: Callable[[], tuple[int, int]], queue: str = COMPUTE) -> None:
        self._read, self._compare, self._queue = read, compare, queue
        self._events: list[tuple[Any, CommandLabel]] = []
        self._profiler: SignalProfiler | None = None
        self._ahead, self._compared = 0, -math.inf

    @property
    def is_open(self) -> bool:
        return self._profiler is not None

    def switch(self, profiler: SignalProfiler | None) -> None:
        """Time the commands from now on for another profile, or for none; nothing is reported to
        the one before.
        """
        self._profiler = None
        if profiler is not None:
            self.report()  # to nobody: of a profile whose end was interrupted
            if time.monotonic() - self._compared >= _COMPARE_AFTER:
                self._ahead = min([self._compare() for _ in range(_COMPARISONS)])[1]
                self._compared = time.monotonic()
            self._profiler = profiler

    @property
    def room(self) -> int:
        """How many commands can be added before a report."""
        return _MAX_TIMED - len(self._events)

    def add(self, event: Any, command: Command | None) -> None:
        """Add a command that was queued, with its event."""
        label = CommandLabel("kernel")
        if command is not None and self._profiler is not None:
            label = CommandLabel(command.name, command.node.arg.locs, command,
                                 self._profiler.submission)
        self._events.append((event, label))

    def report(self) -> None:
        """Wait for the commands; tell the profile when they ran."""
        events, self._events = self._events, []
        times = self._read([event for event, _ in events]) if events else ()
        for (_, label), (start, stop) in zip(events, times):
            if self._profiler is not None:
                self._profiler.add(label, self._queue, self._ahead + start, self._ahead + stop)


class SynchronousProfiler(_Profiler):
    """The commands of a profile, each waited for."""

    def time(self, command: Command, submission: int, run: Callable[[], None],
             wait: Callable[[], None], on_host: bool) -> None:
        """Run a command, and record when it began and ended."""
        self.time_by_waiting(command, submission, run, wait)
