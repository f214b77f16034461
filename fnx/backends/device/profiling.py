"""Profile entries of commands, and profiling of devices by waiting for each command.

The queue of a driver does not report when a kernel began. So while a profile is recorded, each
command is waited for: its time is that from the launch until the host knows that it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fnx.backends.device.hcq import Command, to_signed
from fnx.core.ir import accessors, ops
from fnx.core.ir.kernel_code import KernelRun
from fnx.core.rewriting.peak_rates import arithmetic_type, count_bytes, count_flops

_MAX_RUNS = 1 << 18  # commands in a profile


def profile_entry(command: Command) -> KernelRun:
    """Return the profile entry of a command: name, source locations, bytes and arithmetic."""
    sizes = [accessors.possible_slots(slot)[0].nbytes for slot in command.slots]
    scalars = [to_signed(s) for s in command.scalars]
    nbytes = count_bytes(command.kernel, scalars, sizes)
    arg = command.node.arg
    flop_count = count_flops(command.kernel, scalars) \
        if command.kernel.op in (ops.KERNEL, ops.LINKED) else 0
    return KernelRun(arg.name, arg.locs, nbytes, flop_count,
                     arithmetic=arithmetic_type(command.kernel))


class SynchronousProfiler:
    """The commands of a profile, each waited for."""

    def __init__(self) -> None:
        self.runs: list[KernelRun] = []
        self.lost = 0
        # retained: keys are ids of these
        self._entry_cache: dict[int, tuple[Command, KernelRun]] = {}

    def time(self, command: Command, submission: int, run: Callable[[], None],
             wait: Callable[[], None]) -> None:
        """Run a command, and record when it began and ended."""
        wait()  # for work queued before
        start = time.monotonic_ns()
        run()
        wait()
        stop = time.monotonic_ns()
        if len(self.runs) >= _MAX_RUNS:
            self.lost += 1
            return
        if id(command) not in self._entry_cache:
            self._entry_cache[id(command)] = command, profile_entry(command)
        self.runs.append(self._entry_cache[id(command)][1].replace(
            start=start, stop=stop, submission=submission))
