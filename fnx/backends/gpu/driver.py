"""What a driver of a device with its own memory provides: the verbs of one in-order queue.

    driver.load(texts)                    kernels of one program, in the driver's language
    driver.exec(launch)                   a kernel, how many groups of threads, arguments
    value = driver.signal()               a number on the timeline, behind all that is queued
    driver.submit()                       what is queued begins
    driver.wait(value)

Work runs in the order in which it was queued, so memory that is given back may be given out again
at once. Nothing is checked here: who calls has checked sizes, places and counts against ``limits``.
Loops and conditions are the host's (device.py) where a driver has none of its own.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.errors import DeviceError
from fnx.core.record import Record
from fnx.core.target import Target

DeviceMemory = Any  # what a driver calls a piece of its memory
LoadedKernel = Any  # ... and a function that it loaded
RecordedLaunches = Any  # ... and launches that it was given before
LinkedLaunches = Any  # ... for any memory
HostBytes = np.ndarray[Any, Any]


class QueuedLaunch(Record):
    """A kernel with its arguments; ``scalars`` are signed, of 64 bits."""

    kernel: LoadedKernel
    groups: int
    threads: int
    buffers: tuple[tuple[DeviceMemory, int], ...]
    scalars: tuple[int, ...]


class PlacedLaunch(Record):
    """A launch whose memory each call names: of each buffer its number, and bytes from its start.
    """

    kernel: LoadedKernel
    groups: int
    threads: int
    buffers: tuple[tuple[int, int], ...]
    scalars: tuple[int, ...]


class DeviceLimits(Record):
    """What a device refuses beyond.

    Attributes:
        memory: bytes of all memory.
        buffer: bytes of one piece of memory.
        groups: of a launch.
        threads: of a group.
        shared: bytes that a group has in common.
    """

    memory: int
    buffer: int
    groups: int
    threads: int
    shared: int


class FetchedBytes(ABC):
    """Bytes of a place on their way to memory of the host.

    Attributes:
        nbytes: how many.
    """

    nbytes: int

    @abstractmethod
    def wait(self) -> None:
        """Return when they are there; Ctrl-C leaves the wait.

        Raises:
            DeviceError: what was queued before them failed.
        """

    @abstractmethod
    def content(self) -> HostBytes:
        """They, when somebody has waited, until ``release``."""

    @abstractmethod
    def release(self) -> None:
        """Their memory is for others, once they are there."""


class QueueDriver(ABC):
    """A queue, and memory.

    Attributes:
        name: of the device, as ``config.device`` has it.
        kind: what the vendor calls it.
        target: what the lowering knows of it.
        limits: what it refuses beyond.
        pid: of the process that opened it: in another one a call may hang.
        links: whether launches are recorded once for any memory (``link``), not for one memory
            (``record``).
        reopens: whether another one can be made in this process when this one has failed.
    """

    links = False
    reopens = False

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
        """Fresh memory, a number or what else has an order; MemoryError where there is none."""

    @abstractmethod
    def free(self, memory: DeviceMemory) -> None:
        """Give it back; queued work may still use it."""

    @abstractmethod
    def write(self, memory: DeviceMemory, offset: int, value: HostBytes) -> None:
        """Copy bytes of the host to a place; they may change afterwards."""

    @abstractmethod
    def read(self, memory: DeviceMemory, offset: int, to: HostBytes) -> None:
        """Copy bytes of a place to the host, when all that is queued is done."""

    @abstractmethod
    def fetch(self, memory: DeviceMemory, offset: int, nbytes: int) -> FetchedBytes:
        """Queue a copy of bytes of a place to memory of the host that the device writes to."""

    @abstractmethod
    def copy(self, source: DeviceMemory, source_offset: int, to: DeviceMemory, offset: int,
             nbytes: int) -> None:
        """Copy from place to place."""

    # ---- work

    @abstractmethod
    def load(self, texts: Mapping[str, str]) -> Mapping[str, LoadedKernel]:
        """The kernels of one program: texts by symbol."""

    @abstractmethod
    def exec(self, launch: QueuedLaunch) -> None:
        """Queue a kernel."""

    def record(self, launches: Sequence[QueuedLaunch]) -> RecordedLaunches | None:
        """Launches that are queued together by ``replay``; None where that is not possible, or
        takes longer than to queue them one by one."""
        return None

    def replay(self, recorded: RecordedLaunches) -> None:
        """Queue all launches of a record at once."""
        raise NotImplementedError

    def forget(self, recorded: RecordedLaunches) -> None:
        """It is not replayed again; what is queued of it still runs."""
        raise NotImplementedError

    def link(self, launches: Sequence[PlacedLaunch]) -> LinkedLaunches:
        """Launches that are queued together by ``launch``, on other memory each time."""
        raise NotImplementedError

    def launch(self, linked: LinkedLaunches, memory: Sequence[DeviceMemory]) -> None:
        """Queue all launches, on this memory."""
        raise NotImplementedError

    def unlink(self, linked: LinkedLaunches) -> None:
        """They are not launched again; what is queued of them still runs."""
        raise NotImplementedError

    @abstractmethod
    def barrier(self) -> None:
        """What follows sees what was written before."""

    @abstractmethod
    def timestamp(self) -> int:
        """Nanoseconds of the device's clock, when all that is queued is done."""

    # ---- the timeline

    @abstractmethod
    def signal(self) -> int:
        """A number that ``done`` compares with, behind all that is queued."""

    @abstractmethod
    def done(self, value: int) -> bool:
        """Whether the work before a number is done.

        Raises:
            DeviceError: it failed.
        """

    @abstractmethod
    def wait(self, value: int) -> None:
        """Return when the work before a number is done; Ctrl-C leaves the wait."""

    def is_left(self) -> bool:
        """Whether work goes on that Ctrl-C left the wait for."""
        return False

    def abort(self) -> None:
        """End what is queued, where the device can be told to; it has failed then."""
        raise NotImplementedError

    @abstractmethod
    def submit(self) -> None:
        """Let what is queued begin."""
