"""The driver interface of a device with its own memory: operations of one in-order queue.

    driver.load(texts)                    kernels of one program, in the driver's language
    driver.exec(launch)                   a kernel, its number of groups, arguments
    value = driver.signal()               a timeline value after all that is queued
    driver.submit()                       start what is queued
    driver.wait(value)

Work runs in the order in which it was queued, so freed memory can be reused at once. Drivers check
nothing: the caller has checked sizes, offsets and counts against ``limits``. Loops and conditions
run on the host (device.py) unless a driver supports them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.backends.device.hcq import Command
from fnx.backends.device.profiling import SignalProfiler
from fnx.backends.device.queues import CommandLabel
from fnx.core.support.errors import DeviceError
from fnx.core.support.record import Record
from fnx.core.support.target import Target

DeviceMemory = Any  # the driver's handle of a piece of memory
LoadedKernel = Any  # ... of a loaded kernel
LinkedLaunches = Any  # ... of launches prepared for any memory
HostBytes = np.ndarray[Any, Any]


class QueuedLaunch(Record):
    """A kernel with its arguments: for each buffer its memory and an offset in bytes; ``scalars``
    are signed 64-bit integers. Before it is bound (``link``), memory is a number.

    For drivers of several queues: the bytes of each buffer, the buffers that are written, and the
    command.
    """

    kernel: LoadedKernel
    groups: int
    threads: int
    buffers: tuple[tuple[DeviceMemory, int], ...]
    scalars: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    written: frozenset[int] = frozenset()
    command: Command | None = None


def bind_launch(launch: QueuedLaunch, memory: Mapping[Any, DeviceMemory] | Sequence[DeviceMemory]
                ) -> QueuedLaunch:
    """Replace the numbers of memory by memory (or the other way round)."""
    return launch.replace(buffers=tuple([(memory[i], offset) for i, offset in launch.buffers]))


def number_memory(launches: Sequence[QueuedLaunch]
                  ) -> tuple[list[QueuedLaunch], list[DeviceMemory]]:
    """Replace memory by numbers; return the launches, and the memory by number."""
    memory = list(dict.fromkeys([m for launch in launches for m, _ in launch.buffers]))
    numbers = {m: i for i, m in enumerate(memory)}
    return [bind_launch(launch, numbers) for launch in launches], memory


class DeviceLimits(Record):
    """Limits of a device.

    Attributes:
        memory: bytes of all memory.
        buffer: bytes of one allocation.
        groups: workgroups of a launch.
        threads: threads of a workgroup.
        shared: bytes of shared memory of a workgroup.
    """

    memory: int
    buffer: int
    groups: int
    threads: int
    shared: int


class AsyncRead(ABC):
    """An asynchronous copy of device memory to host memory.

    Attributes:
        nbytes: size of the copy.
    """

    nbytes: int

    @abstractmethod
    def wait(self) -> None:
        """Wait for the bytes; Ctrl-C leaves the wait.

        Raises:
            DeviceError: work queued before them failed.
        """

    @abstractmethod
    def content(self) -> HostBytes:
        """The bytes, valid from ``wait`` until ``release``."""

    @abstractmethod
    def release(self) -> None:
        """Let the memory be reused once the bytes have arrived."""


class QueueDriver(ABC):
    """A queue and its memory.

    Attributes:
        name: the device's name in ``config.device``.
        kind: the vendor's name of the device.
        target: what the lowering knows about it.
        limits: its limits.
        pid: the process that opened it; in another one a call may hang.
        can_reopen: whether the device can be opened again in this process after a failure.
        is_processor: whether it computes on the host's processors, as PoCL and llvmpipe do.
        extents: names of the launch parameters of a kernel that ``groups`` and ``threads`` are.
        native_programs: whether it runs a SORT, an FFT_STEP or a loop of commands as a kernel.
        stuck: the commands that ran when the device failed, if it knows them.
    """

    can_reopen = False
    is_processor = False
    native_programs = False
    extents = "groups", "threads"
    stuck: tuple[CommandLabel, ...] = ()

    name: str
    kind: str
    target: Target
    limits: DeviceLimits
    pid: int

    def check_process(self) -> None:
        """Refuse to call the driver in a forked child.

        Raises:
            DeviceError: the process is not the one that opened the device.
        """
        if os.getpid() != self.pid:
            raise DeviceError(
                f"{self.name}: expected the process that opened the device, got a child of it",
                hint='start processes by multiprocessing.get_context("spawn"), or use the device '
                     "in the child only")

    # ---- memory

    @abstractmethod
    def alloc(self, nbytes: int) -> DeviceMemory:
        """Allocate memory. Return a handle that can be ordered. MemoryError if there is none."""

    @abstractmethod
    def free(self, memory: DeviceMemory) -> None:
        """Free memory; queued work may still use it."""

    def is_idle(self, memory: DeviceMemory) -> bool:
        """Whether no queued work uses memory, so that its next writer waits for nothing."""
        return True

    @abstractmethod
    def write(self, memory: DeviceMemory, offset: int, value: HostBytes) -> None:
        """Copy host bytes to device memory; the host may change them afterwards."""

    def read(self, memory: DeviceMemory, offset: int, to: HostBytes) -> None:
        """Copy device memory to the host, after all queued work."""
        fetched = self.fetch(memory, offset, to.nbytes)
        try:
            fetched.wait()
            to[:] = fetched.content()
        finally:
            fetched.release()

    @abstractmethod
    def fetch(self, memory: DeviceMemory, offset: int, nbytes: int) -> AsyncRead:
        """Queue a copy of device memory to host memory that the device can write."""

    @abstractmethod
    def copy(self, source: DeviceMemory, source_offset: int, to: DeviceMemory, offset: int,
             nbytes: int) -> None:
        """Copy within device memory."""

    # ---- work

    @abstractmethod
    def load(self, texts: Mapping[str, str]) -> Mapping[str, LoadedKernel]:
        """Load the kernels of one program, given by symbol."""

    @abstractmethod
    def exec(self, launch: QueuedLaunch) -> None:
        """Queue a kernel."""

    def link(self, launches: Sequence[QueuedLaunch], numbers: int) -> LinkedLaunches:
        """Prepare launches that ``launch`` queues together, on ``numbers`` pieces of memory that
        differ from call to call.
        """
        return launches

    def launch(self, linked: LinkedLaunches, memory: list[DeviceMemory]) -> None:
        """Queue all linked launches, on this memory, and start them."""
        for launch in linked:
            self.exec(bind_launch(launch, memory))
        self.submit()

    def unlink(self, linked: LinkedLaunches) -> None:  # noqa: B027
        """Release linked launches; those that are queued still run."""

    # ---- the timeline

    @abstractmethod
    def signal(self) -> int:
        """Return a timeline value after all that is queued, for ``done`` and ``wait``."""

    @abstractmethod
    def done(self, value: int) -> bool:
        """Whether the work before a timeline value is done.

        Raises:
            DeviceError: it failed.
        """

    @abstractmethod
    def wait(self, value: int) -> None:
        """Wait for the work before a timeline value; Ctrl-C leaves the wait."""

    def has_interrupted_work(self) -> bool:
        """Whether unfinished work is left whose wait Ctrl-C interrupted."""
        return False

    def abort(self) -> None:
        """Abort what is queued, if the device supports that. The device has failed then."""
        raise NotImplementedError

    @abstractmethod
    def submit(self) -> None:
        """Start what is queued."""

    def set_profiler(self, profiler: SignalProfiler | None) -> bool:
        """Give the profiler the times of all commands from now on; None: stop, without a wait.
        False: the driver has no times.
        """
        return False

    def report_times(self) -> None:  # noqa: B027
        """Give the profiler the times of all commands so far, if it does not have them."""

    def close(self) -> None:  # noqa: B027
        """Release what a device holds that has failed."""
