"""The interpreter with a log: one line per command, with operand shapes and elapsed time.

    2/3 contract_max (model.py:12): float32[128, 10] <- float32[128, 784], float32[784, 10]; 310 us

``fnx.config.device = "trace"``, or FNX_DEVICE=trace, shows the commands that a queue receives, in
order.

>>> import sys
>>> import fnx
>>> from fnx.backends.device.base import get_device
>>> from fnx.core.support.config import override
>>> with override(device="trace"), get_device("trace").redirect_log(sys.stdout):
...     print(fnx.numpy.asarray([1.0, 2.0]) + 1)
1/1 map_add (...): float32[2] <- float32[2]; ... us
[2. 3.]
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from fnx.backends.device.hcq import Command, Commands, decode_commands
from fnx.backends.interp import Bytes, InterpCommand, InterpCommandBuffer, InterpDevice
from fnx.core.ir import accessors, ops
from fnx.core.ir.kernel_code import KernelCode
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import extent
from fnx.core.support.record import Record
from fnx.core.support.target import Target

_MAX_LOG = 10_000


class LogLine(Record):
    """One executed command: its index in the buffer, name, operands as text, and time."""

    position: str
    name: str
    written: tuple[str, ...]
    read: tuple[str, ...]
    microseconds: float

    def __str__(self) -> str:
        return f"{self.position} {self.name}: {', '.join(self.written)} <- " \
            f"{', '.join(self.read) or 'nothing'}; {self.microseconds:.0f} us"


class _LoggedCommand(InterpCommand):
    """An interpreted command that is timed and logged."""

    __slots__ = ("line", "log")

    def __init__(self, command: Command, position: str, log: Callable[[LogLine], None]) -> None:
        super().__init__(command)
        self.log = log
        self.line = LogLine(position, command.name, *_operands(command.kernel, self.scalars),
                            0.0)

    def run(self, memory: Callable[[UOp], Bytes]) -> None:
        start = time.perf_counter()
        super().run(memory)
        elapsed = (time.perf_counter() - start) * 1e6
        self.log(self.line.replace(microseconds=elapsed))


def _operands(kernel: UOp, scalars: list[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the written and the read-only operands of a kernel: dtype and shape by slot."""
    written = accessors.written_slots(kernel)
    described = {ref.arg.slot: f"{ref.dtype}{[extent(d, scalars) for d in ref.src]}"
                 for ref in toposort([kernel]) if ref.op is ops.REF}
    return (tuple([described[slot] for slot in sorted(described) if slot in written]),
            tuple([described[slot] for slot in sorted(described) if slot not in written]))


class TraceCommandBuffer(InterpCommandBuffer):
    """A command buffer for the interpreter that logs each command."""

    __slots__ = ()

    def __init__(self, commands: Commands, arena: int, log: Callable[[LogLine], None]) -> None:
        super().__init__(commands, arena)
        count = len(self._calls)
        self._calls = {c: _LoggedCommand(c, f"{i}/{count}", log)
                       for i, c in enumerate(self._calls, 1)}


class TraceDevice(InterpDevice):
    """The NumPy interpreter as a device that logs its commands.

    Attributes:
        log: the last 10,000 commands that ran.
        file: where each line is printed once its command has run. None: nowhere.
    """

    name = "trace"

    def __init__(self) -> None:
        super().__init__()
        self.target = Target("trace", kind="kernels")
        self.log: deque[LogLine] = deque(maxlen=_MAX_LOG)
        self.file: TextIO | None = sys.stderr

    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode],
               arena: int) -> TraceCommandBuffer:
        """Wrap the commands unchanged; ``code`` is not used."""
        return TraceCommandBuffer(decode_commands(commands), arena, self._log_command)

    def _log_command(self, line: LogLine) -> None:
        self.log.append(line)
        if self.file is not None:
            print(line, file=self.file)

    @contextlib.contextmanager
    def redirect_log(self, file: TextIO | None) -> Iterator[TraceDevice]:
        """Print to another file for the duration of a ``with`` block."""
        previous, self.file = self.file, file
        try:
            yield self
        finally:
            self.file = previous


def device() -> TraceDevice:
    """Return the device, for ``get_device``."""
    return TraceDevice()
