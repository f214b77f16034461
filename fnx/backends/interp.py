"""The interpreter as a device: the same commands, each kernel run by core/levels/interp_kernel.py.

Slow, and right by definition: what every other device is compared with. Submissions run at
once, on the calling thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.backends.allocator import Pool
from fnx.backends.base import CommandBuffer, Device
from fnx.backends.hcq import Command, HostStorage, Signal, check_arguments, commands_of
from fnx.core import ops
from fnx.core.dtypes import DType
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.program import KernelCode
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort

Bytes = np.ndarray[Any, Any]


class Done(Signal):
    """The timeline of a device that finishes all work before ``submit`` returns."""

    def wait(self, value: int) -> None:
        """Nothing is ever pending."""


class Call:
    """A command with the dtypes of its kernel's arguments."""

    __slots__ = ("command", "dtypes", "scalars")

    def __init__(self, command: Command) -> None:
        self.command = command
        nodes = toposort([command.kernel])
        refs = {n.arg.slot: n.dtype for n in nodes if n.op is ops.REF}
        variables = {n.arg.slot: n.dtype for n in nodes if n.op is ops.VAR}
        self.dtypes = [refs.get(i) for i in range(len(command.slots))]
        self.scalars = [_value(s, variables.get(i)) for i, s in enumerate(command.scalars)]

    def run(self, memory: Callable[[ops.Slot], Bytes]) -> None:
        """Run the kernel; ``memory`` gives the bytes of a slot."""
        buffers = [memory(slot).view(np.uint8 if dtype is None else dtype.np)
                   for slot, dtype in zip(self.command.slots, self.dtypes)]
        run_kernel(self.command.kernel, buffers, self.scalars)


def _value(pattern: int, dtype: DType | None) -> Any:
    """A scalar argument from its bit pattern (of a slot that no VAR reads: the pattern)."""
    raw = pattern.to_bytes(8, "little")
    return pattern if dtype is None else np.frombuffer(raw, dtype.np, 1)[0]


class InterpCommandBuffer(CommandBuffer):
    """Commands that the interpreter walks."""

    __slots__ = ("_arena", "_calls", "commands")

    def __init__(self, commands: tuple[Command, ...], arena: int) -> None:
        self.commands, self._arena = commands, arena
        self._calls = [Call(c) for c in commands]

    def submit(self, ins: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the commands now."""
        check_arguments(self.commands, len(ins), len(outs))
        for storage in (*ins, *outs):
            storage.wait()
        arena = np.zeros(self._arena, np.uint8)
        inputs, outputs = [s.window() for s in ins], [s.window() for s in outs]

        def memory(slot: ops.Slot) -> Bytes:
            whole = arena if slot.kind == "arena" else \
                (inputs if slot.kind == "in" else outputs)[slot.index]
            return whole[slot.offset:slot.offset + slot.nbytes]

        for call in self._calls:
            call.run(memory)


class InterpDevice(Device):
    """NumPy as a machine."""

    name = "interp"
    allocate: Callable[[Iterable[int]], list[HostStorage]]

    def __init__(self) -> None:
        self.target = Target("interp", kind="kernels")
        self.allocate = functools.partial(HostStorage.several, Pool(), Done())

    def upload(self, value: np.ndarray[Any, Any]) -> HostStorage:
        """A copy of an array."""
        storage, = self.allocate((value.nbytes,))
        storage.fill(value)
        return storage

    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode],
               arena: int) -> InterpCommandBuffer:
        """The commands as they are; ``code`` is not used."""
        return InterpCommandBuffer(commands_of(commands), arena)


def device() -> InterpDevice:
    """The device, for ``get_device``."""
    return InterpDevice()
