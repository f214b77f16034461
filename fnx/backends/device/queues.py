"""Queues and signals: what a command waits for, derived from the memory that it reads and writes.

    compute   EXEC a: reads x, writes t                           signal(compute, 1)
    download  COPY t to the host             wait(compute, 1)     signal(download, 1)
    compute   EXEC b: writes t               wait(download, 1)    the memory is used again

A queue has a signal: a word of memory, whose value only grows, and the time at which it was set. A
command begins after all waits before it in its queue have ended, and a signal is set once all
commands before it in its queue are done. Nothing else is ordered: two commands of one queue may run
in any order, so a command that needs another of its own queue waits for it, too.
docs/queues.md has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from fnx.backends.device.hcq import Command
from fnx.core.support.errors import Location
from fnx.core.support.process import fork_safe_lock
from fnx.core.support.record import Record

# Kinds of queues. Copies to the host have their own, as those that wait for a kernel would hold up
# copies for the next one: signals are set in order. Copies on the device are among the uploads.
KINDS = COMPUTE, UPLOAD, DOWNLOAD = "compute", "upload", "download"
_MAX_COLLECTED = 512  # commands that wait for a submission
_FORGET_AFTER = 4096  # commands between two looks at what is done


class MemoryRange(Record):
    """Bytes of a memory."""

    memory: Hashable
    start: int
    stop: int


class CommandLabel(Record):
    """The name of a command and the user's lines, for faults and profiles.

    ``command`` is the EXEC, None for copies; ``submission`` is the number of its call. ``report``
    gets the queue of the command and the times at which it began and ended.
    """

    name: str
    locs: tuple[Location, ...] = ()
    command: Command | None = None
    submission: int = 0
    nbytes: int = 0
    report: Callable[[CommandLabel, str, int, int], None] | None = None


class MemoryCommand(Record):
    """A command, the queue that runs it, and the memory that it reads and writes.

    Attributes:
        work: calls the verb of the queue.
    """

    queue: str
    reads: tuple[MemoryRange, ...]
    writes: tuple[MemoryRange, ...]
    work: Callable[[Any], None] = lambda queue: None


class ScheduledCommand(Record):
    """A command with the signals, by queue, that it waits for, and the value that its queue signals
    after it; 0: none, as nobody waits for it.
    """

    command: MemoryCommand
    waits: tuple[tuple[str, int], ...]
    signal: int


class _Use:
    """A use of a part of a memory, by the command with this value in its queue."""

    __slots__ = ("queue", "start", "stop", "value", "writes")

    def __init__(self, part: MemoryRange, queue: str, value: int, writes: bool) -> None:
        self.start, self.stop = part.start, part.stop
        self.queue, self.value, self.writes = queue, value, writes


class DependencyPass:
    """Schedules commands on queues so that each sees the memory as if all ran one by one.

    The commands of a queue have the values 1, 2, ... A later command on the same memory waits for
    the last value that it needs from each queue, unless another wait implies it. So memory that is
    freed can be given to another array at once: its next writer waits for its last readers.
    """

    def __init__(self) -> None:
        self.last: defaultdict[str, int] = defaultdict(int)  # value of the last command
        self._uses: defaultdict[Hashable, list[_Use]] = defaultdict(list)
        self._signaled: defaultdict[str, list[int]] = defaultdict(list)
        # For each queue, the values of others that its next command comes after; for each command
        # those that it came after.
        self._after: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._history: dict[tuple[str, int], dict[str, int]] = {}

    def schedule(self, commands: Sequence[MemoryCommand]) -> list[ScheduledCommand]:
        """Schedule commands after all that were scheduled before. The last one of each queue
        signals.
        """
        first = dict(self.last)
        waits_of, values = [], []
        requested: set[tuple[str, int]] = set()
        for command in commands:
            waits = self._waits(command, first)
            requested.update(waits)
            self.last[command.queue] += 1
            waits_of.append(waits)
            values.append((command.queue, self.last[command.queue]))
            self._history[values[-1]] = dict(self._after[command.queue])
            self._use(command, self.last[command.queue])
        requested.update(self.last.items())
        for queue, value in values:
            if (queue, value) in requested:
                self._signaled[queue].append(value)
        return [ScheduledCommand(command, waits, value[1] if value in requested else 0)
                for command, waits, value in zip(commands, waits_of, values)]

    def forget(self, completed: Mapping[str, int]) -> None:
        """Forget commands up to these values: they are done."""
        for memory, uses in list(self._uses.items()):
            uses[:] = [use for use in uses if use.value > completed.get(use.queue, 0)]
            if not uses:
                del self._uses[memory]
        for queue, value in completed.items():
            signaled = self._signaled[queue]
            del signaled[:bisect_left(signaled, value)]
        self._history = {key: after for key, after in self._history.items()
                         if key[1] >= completed.get(key[0], 0)}

    def is_used(self, memory: Hashable, completed: Mapping[str, int]) -> bool:
        """Whether a command after these values uses a memory."""
        return any(use.value > completed[use.queue] for use in self._uses.get(memory, ()))

    def _waits(self, command: MemoryCommand, first: Mapping[str, int]
               ) -> tuple[tuple[str, int], ...]:
        """Return the signals to wait for; ``first``: values before the commands of this call, of
        which only some are signaled.
        """
        after = self._after[command.queue]
        needed = {queue: value for queue, value in self._conflicts(command).items()
                  if value > after.get(queue, 0)}
        for queue, value in needed.items():
            if value <= first.get(queue, 0):
                signaled = self._signaled[queue]
                needed[queue] = signaled[bisect_left(signaled, value)]
        waits = tuple([(queue, value) for queue, value in needed.items() if not any(
            self._history[other].get(queue, 0) >= value
            for other in needed.items() if other[0] != queue)])
        for wait in waits:
            for queue, value in (*self._history[wait].items(), wait):
                after[queue] = max(value, after.get(queue, 0))
        return waits

    def _conflicts(self, command: MemoryCommand) -> dict[str, int]:
        """Return the value of the last command of each queue that this one has to come after."""
        needed: dict[str, int] = {}
        for writes, parts in ((False, command.reads), (True, command.writes)):
            for part in parts:
                for use in self._uses.get(part.memory, ()):
                    if (writes or use.writes) and use.start < part.stop and part.start < use.stop:
                        needed[use.queue] = max(use.value, needed.get(use.queue, 0))
        return needed

    def _use(self, command: MemoryCommand, value: int) -> None:
        """Remember the uses of a command, in place of those that later commands needn't know."""
        for part in command.reads:
            uses = self._uses[part.memory]
            uses[:] = [use for use in uses if use.writes or use.queue != command.queue
                       or use.start < part.start or part.stop < use.stop]
            uses.append(_Use(part, command.queue, value, False))
        for part in command.writes:
            uses = self._uses[part.memory]
            uses[:] = [use for use in uses if use.start < part.start or part.stop < use.stop]
            uses.append(_Use(part, command.queue, value, True))


class HardwareQueue(ABC):
    """A queue of a device: verbs that are queued, and a signal.

    A command begins after the waits before it; a signal comes after the commands before it.

    Attributes:
        name: its kind, after the name of the device if there are several.
    """

    name: str

    @abstractmethod
    def exec(self, launch: Any, label: CommandLabel) -> None:
        """Queue a kernel."""

    @abstractmethod
    def copy(self, source: int, to: int, nbytes: int, label: CommandLabel) -> None:
        """Queue a copy between addresses that the device can access."""

    @abstractmethod
    def wait(self, queue: Any, value: int) -> None:
        """Queue a wait until the signal of a queue, this or another one, has the value."""

    @abstractmethod
    def signal(self, value: int) -> None:
        """Queue setting the signal of this queue."""

    @abstractmethod
    def submit(self) -> None:
        """Ring the bell: what is queued may begin."""

    @abstractmethod
    def completed(self) -> int:
        """The value of the signal."""

    @abstractmethod
    def failure(self) -> str:
        """Why no more commands are run; empty if they are."""

    @abstractmethod
    def running(self) -> CommandLabel | None:
        """The command that runs, or that should: the first that waits for nothing."""

    @abstractmethod
    def stop(self) -> None:
        """End what runs, if possible, and run nothing more."""


class QueueGroup:
    """Queues, of one device or more, that can wait for each other's signals.

    Commands collect here in the order of the program until they are submitted.
    """

    def __init__(self) -> None:
        self.queues: dict[str, HardwareQueue] = {}
        self.dependencies = DependencyPass()
        self.lock = fork_safe_lock()
        self._collected: list[MemoryCommand] = []
        self._remembered = 0

    def add(self, command: MemoryCommand) -> None:
        """Collect a command."""
        with self.lock:
            self._collected.append(command)
            if len(self._collected) >= _MAX_COLLECTED:
                self.submit()

    def submit(self) -> None:
        """Queue what was collected, with its waits and signals, and ring the bells."""
        with self.lock:
            collected, self._collected = self._collected, []
            self._remembered += len(collected)
            if self._remembered > _FORGET_AFTER:
                self._remembered = 0
                self.dependencies.forget(self._completed())
            used: dict[str, HardwareQueue] = {}
            for step in self.schedule(collected):
                queue = used[step.command.queue] = self.queues[step.command.queue]
                for other, value in step.waits:
                    queue.wait(self.queues[other], value)
                step.command.work(queue)
                if step.signal:
                    queue.signal(step.signal)
            for queue in used.values():
                queue.submit()

    def is_idle(self, memory: Hashable) -> bool:
        """Whether no command that is queued uses a memory."""
        with self.lock:
            self.submit()
            return not self.dependencies.is_used(memory, self._completed())

    def _completed(self) -> dict[str, int]:
        return {name: queue.completed() for name, queue in self.queues.items()}

    def schedule(self, commands: list[MemoryCommand]) -> list[ScheduledCommand]:
        """Return the commands with their waits and signals."""
        return self.dependencies.schedule(commands)
