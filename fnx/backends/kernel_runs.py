"""Profile entries of commands, and profiling of devices by waiting for each command.

The queue of a driver does not report when a kernel began. So while a profile is recorded, each
command is waited for: its time is that from the launch until the host knows that it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fnx.backends.hcq import Command, signed
from fnx.core import ops, parts
from fnx.core.arithmetic import flops
from fnx.core.limits import arithmetic_of
from fnx.core.program import KernelRun

_LIMIT = 1 << 18  # commands in a profile


def run_of(command: Command) -> KernelRun:
    """Return the profile entry of a command: name, source locations, bytes and arithmetic."""
    nbytes = sum([parts.slots(slot)[0].nbytes for slot in command.slots])
    scalars = [signed(s) for s in command.scalars]
    arg = command.node.arg
    work = flops(command.kernel, scalars) if command.kernel.op in (ops.KERNEL, ops.LINKED) else 0
    return KernelRun(arg.name, arg.sites, nbytes, work, arithmetic=arithmetic_of(command.kernel))


class WaitedRuns:
    """The commands of a profile, each waited for."""

    def __init__(self) -> None:
        self.runs: list[KernelRun] = []
        self.lost = 0
        self._known: dict[int, tuple[Command, KernelRun]] = {}  # retained: keys are ids of these

    def time(self, command: Command, submission: int, run: Callable[[], None],
             wait: Callable[[], None]) -> None:
        """Run a command, and record when it began and ended."""
        wait()  # for work queued before
        start = time.monotonic_ns()
        run()
        wait()
        stop = time.monotonic_ns()
        if len(self.runs) >= _LIMIT:
            self.lost += 1
            return
        if id(command) not in self._known:
            self._known[id(command)] = command, run_of(command)
        self.runs.append(self._known[id(command)][1].replace(
            start=start, stop=stop, submission=submission))
