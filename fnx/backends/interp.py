"""The interpreter as a device: the same commands, each kernel run by core/levels/interp_kernel.py.

Slow, and right by definition: the reference for every other device. Submissions run synchronously
on the calling thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.backends.device.allocator import Pool
from fnx.backends.device.base import CommandBuffer
from fnx.backends.device.hcq import (
    HOST_COMMANDS,
    Command,
    Commands,
    HostStorage,
    QueuedBranch,
    QueuedLoop,
    Signal,
    check_arguments,
    collect_execs,
    decode_commands,
)
from fnx.backends.device.host import HostDevice
from fnx.core.ir import accessors, build_calls, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.kernel_code import KernelCode
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.support.target import Target

Bytes = np.ndarray[Any, Any]


class CompletedSignal(Signal):
    """The timeline of a device that finishes all work before ``submit`` returns."""

    def wait(self, value: int) -> None:
        """Return at once: nothing is ever pending."""


class InterpCommand:
    """A command with the dtypes of its kernel's arguments, or one that calls Python."""

    __slots__ = ("command", "dtypes", "scalars", "written")

    def __init__(self, command: Command) -> None:
        self.command = command
        nodes = toposort([command.kernel])
        self.written = accessors.written_slots(command.kernel)
        refs = {n.arg.slot: n.dtype for n in nodes if n.op is ops.REF}
        variables = {n.arg.slot: n.dtype for n in nodes if n.op is ops.VAR}
        self.dtypes = [refs.get(i) for i in range(len(command.slots))]
        self.scalars = [_decode_scalar(s, variables.get(i)) for i, s in enumerate(command.scalars)]

    def run(self, memory: Callable[[UOp], Bytes]) -> None:
        """Run the kernel; ``memory`` returns the bytes of a slot."""
        kernel, parts = self.command.kernel, [memory(slot) for slot in self.command.slots]
        if kernel.op in HOST_COMMANDS:
            HOST_COMMANDS[kernel.op](kernel.arg, parts)
            return
        if kernel.op is ops.CMD_LOOP:
            _run_loop(kernel, parts)
            return
        buffers = [part.view(np.uint8 if dtype is None else dtype.np)
                   for part, dtype in zip(parts, self.dtypes)]
        written = {_address(buffers[i]) for i in self.written}
        for i, buffer in enumerate(buffers):  # read operands as before any write
            if i not in self.written and _address(buffer) in written:
                buffers[i] = buffer.copy()
        run_kernel(kernel, buffers, self.scalars)


def _run_loop(loop: UOp, memory: Sequence[Bytes]) -> None:
    """Run a CMD_LOOP of commands as a kernel."""
    commands = decode_commands(build_calls.commands([loop]))
    calls = {c: InterpCommand(c) for c in collect_execs(commands)}
    submission = Submission(calls, (), (), 0)
    submission.memory["in"] = list(memory)
    submission.run(commands)
    if loop.arg.strip_length:  # all of it ran at once
        memory[-1][:] = 0


def _address(buffer: Bytes) -> int:
    address: int = buffer.__array_interface__["data"][0]
    return address


def _decode_scalar(pattern: int, dtype: DType | None) -> Any:
    """Decode a scalar argument from its bit pattern. No dtype (no VAR reads it): the pattern
    itself.
    """
    raw = pattern.to_bytes(8, "little")
    return pattern if dtype is None else np.frombuffer(raw, dtype.np, 1)[0]


class Submission:
    """One submission: its memory, and the current iteration of each loop, outermost first."""

    def __init__(self, calls: Mapping[Command, InterpCommand], ins: Sequence[Any],
                 outs: Sequence[Any], arena: int) -> None:
        self.calls = calls
        self.memory = {"in": [s.window() for s in ins], "out": [s.window() for s in outs],
                       "arena": [np.zeros(arena, np.uint8)]}
        self.iteration: dict[int, int] = {}

    def slot(self, memory: UOp) -> Bytes:
        """The bytes of a SLOT or SWAP in the current iteration."""
        slot = accessors.resolve_slot(memory, self.iteration)
        start = slot.offset + sum(s * self.iteration[i] for i, s in enumerate(slot.strides) if s)
        if slot.kind == "numbers":
            return np.arange(start // 4, (start + slot.nbytes) // 4, dtype=np.int32).view(np.uint8)
        buffer = self.memory[slot.kind][slot.index]
        window: Bytes = buffer[start:start + slot.nbytes]
        return window

    def run(self, commands: Commands, depth: int = 0) -> None:
        """Run commands inside ``depth`` loops."""
        for command in commands:
            if isinstance(command, Command):
                self.calls[command].run(self.slot)
            elif isinstance(command, QueuedBranch):
                which = int(self.slot(command.branch_index)[:4].view(np.int32)[0])
                self.run(command.branches[min(max(which, 0), len(command.branches) - 1)], depth)
            else:
                self._loop(command, depth)

    def _loop(self, loop: QueuedLoop, depth: int) -> None:
        self.iteration[depth] = 0
        while self.iteration[depth] != loop.trips:
            if loop.flag is not None:
                self.run(loop.test, depth + 1)
                if not self.slot(loop.flag)[0]:
                    break
            self.run(loop.body, depth + 1)
            self.iteration[depth] += 1


class InterpCommandBuffer(CommandBuffer):
    """A command buffer that the interpreter walks."""

    __slots__ = ("_arena", "_calls", "commands")

    def __init__(self, commands: Commands, arena: int) -> None:
        self.commands, self._arena = commands, arena
        self._calls = {c: InterpCommand(c) for c in collect_execs(commands)}

    def submit(self, ins: Sequence[Any], outs: Sequence[Any],
               on_commit: Callable[[], None] | None = None) -> None:
        """Run the commands synchronously."""
        check_arguments(self.commands, len(ins), len(outs))
        for storage in (*ins, *outs):
            storage.wait()
        if on_commit is not None:
            on_commit()
        Submission(self._calls, ins, outs, self._arena).run(self.commands)


class InterpDevice(HostDevice):
    """The NumPy interpreter as a device."""

    name = "interp"

    def __init__(self) -> None:
        self.target = Target("interp", kind="kernels")
        self.allocate = functools.partial(HostStorage.allocate_all, Pool(), CompletedSignal())

    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode],
               arena: int) -> InterpCommandBuffer:
        """Wrap the commands unchanged; ``code`` is not used."""
        return InterpCommandBuffer(decode_commands(commands), arena)


def device() -> InterpDevice:
    """Return the device, for ``get_device``."""
    return InterpDevice()
