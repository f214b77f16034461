"""A device that records submissions and computes nothing: for tests of planning, and for counting.

No memory is allocated. A view shows NaN (0 for integers), so that a value that was never computed
can't be mistaken for one that was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.backends.device.base import CommandBuffer, DeviceBase, DeviceStorage
from fnx.backends.device.hcq import Commands, check_arguments, collect_execs, decode_commands
from fnx.core.ir.kernel_code import KernelCode
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target


class NullStorage(DeviceStorage):
    """A size in bytes, without memory."""

    __slots__ = ("is_aliased", "nbytes", "placed", "ptr")

    def __init__(self, nbytes: int) -> None:
        self.ptr, self.nbytes, self.is_aliased = 0, nbytes, False

    def fill(self, value: np.ndarray[Any, Any]) -> None:
        """Discard the value."""

    def wait(self) -> None:
        """Return at once: nothing is ever pending."""

    def view(self, np_dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return NaN, or zeros of a type without NaN."""
        dtype = np.dtype(np_dtype)
        fill = np.full((), np.nan if dtype.kind in "fc" else 0, dtype)
        return np.broadcast_to(fill, shape)


class NullCommandBuffer(CommandBuffer):
    """Commands that are only counted."""

    __slots__ = ("_device", "arena", "commands")

    def __init__(self, device: NullDevice, commands: Commands, arena: int) -> None:
        self._device, self.commands, self.arena = device, commands, arena

    def submit(self, ins: Sequence[Any], outs: Sequence[Any],
               on_commit: Callable[[], None] | None = None) -> None:
        """Record the submission."""
        check_arguments(self.commands, len(ins), len(outs))
        if on_commit is not None:
            on_commit()
        self._device.submissions.append(self)


class NullDevice(DeviceBase):
    """A device that records the requests it gets.

    Attributes:
        submissions: the submitted command buffers, newest last (the last 10,000).
        allocated: bytes requested.
    """

    name = "null"

    def __init__(self) -> None:
        self.target = Target("null", kind="kernels")
        self.submissions: deque[NullCommandBuffer] = deque(maxlen=10_000)
        self.allocated = 0

    def allocate(self, sizes: Iterable[int]) -> list[NullStorage]:
        storages = [NullStorage(n) for n in sizes]
        self.allocated += sum([storage.nbytes for storage in storages])
        return storages

    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode],
               arena: int) -> NullCommandBuffer:
        """Wrap the commands unchanged."""
        return NullCommandBuffer(self, decode_commands(commands), arena)

    def stats(self) -> dict[str, int]:
        """Commands submitted and bytes requested."""
        return {"submissions": len(self.submissions), "allocated": self.allocated,
                "commands": sum(len(collect_execs(b.commands)) for b in self.submissions)}


def device() -> NullDevice:
    """Return the device, for ``get_device``."""
    return NullDevice()
