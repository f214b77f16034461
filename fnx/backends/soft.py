"""A software device: a queue of each kind, which is a thread that runs packets in memory.

Kernels are the cpu's. A seed lets queues take packets in any order that their waits allow, and
leave some for a while: a wait that is missing then shows as a wrong result. For tests of queues:
FNX_DEVICE=soft. docs/queues.md explains waits and signals.

    packet    EXEC: kernel, pointers, scalars, iterations, scratch
              COPY: source, destination, bytes
              WAIT: address of a signal, value
              SIGNAL: value
    signal    value, nanoseconds of time.monotonic_ns at which it was set
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.backends.device.base import get_device
from fnx.backends.device.queues import KINDS, CommandLabel, HardwareQueue, QueueGroup
from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import DeviceLimits, HostBytes, QueuedLaunch
from fnx.backends.gpu.memory import aligned_empty
from fnx.backends.gpu.queues_driver import QueuesDriver
from fnx.backends.llvm.kernel_cache import LinkedKernel
from fnx.core.support.errors import DeviceError
from fnx.core.support.process import fork_safe_lock
from fnx.core.support.record import Record

_EXEC, _COPY, _WAIT, _SIGNAL = range(4)
_KIND, _PACKET_WORDS = 0, 6
_CAPACITY = 1024  # packets of a ring
_WINDOW = 32  # packets among which a queue chooses
_PAUSED = 0.25  # the part of the commands that are left for a while
_VALUE, _TIME, _SIGNAL_WORDS = 0, 1, 8
_FULL_LIMIT = 60.0  # seconds to wait for room in a ring, if config.time_limit is less
_MEMORY = 8 << 30
_Kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)


class Disturbance(Record):
    """How queues disturb the order and the time of their packets.

    Attributes:
        seed: of the order in which a queue takes packets that wait for nothing; None: the oldest
            comes first.
        pauses: by queue, how long some commands are left that wait for nothing, in seconds.
        durations: by queue, the time that a command takes at least, in seconds.
        dies: the number of the command before which a queue dies, by queue.
        hangs: the number of the command that does not end, by queue.
    """

    seed: int | None = None
    pauses: Mapping[str, float] = {}
    durations: Mapping[str, float] = {}
    dies: Mapping[str, int] = {}
    hangs: Mapping[str, int] = {}


class _Ring:
    """What a queue and its thread share: packets and the signal, in words, and a bell."""

    def __init__(self, name: str, bell: threading.Condition) -> None:
        self.name, self.bell = name, bell
        self.words = np.zeros((_CAPACITY, _PACKET_WORDS), np.int64)
        self.signal = np.zeros(_SIGNAL_WORDS, np.int64)
        self.written = self.submitted = self.taken = 0  # numbers of packets
        self.open: list[int] = []  # packets that were taken and are not done, in order
        self.labels: dict[int, CommandLabel] = {}  # by packet
        self.arguments: dict[int, Any] = {}  # retained until the kernel has run
        self.due: dict[int, float] = {}  # by packet, when it may run at the earliest
        self.current: int | None = None  # the command that runs
        self.commands = 0  # how many have run
        self.stopped, self.failure = False, ""
        self.disturb(Disturbance())

    def disturb(self, disturbance: Disturbance) -> None:
        """Disturb the packets that are run from now on."""
        self.disturbance = disturbance
        self.random = random.Random(f"{self.name} {disturbance.seed}")
        self.commands = 0

    # ---- the thread

    def run(self) -> None:
        """Run packets until the queue is stopped."""
        try:
            while (number := self._next()) is not None:
                packet = [int(word) for word in self.words[number % _CAPACITY]]
                if packet[_KIND] != _SIGNAL:
                    self._run_command(number, packet)
                with self.bell:
                    if self.stopped:
                        return
                    if packet[_KIND] == _SIGNAL:
                        self.signal[_TIME] = time.monotonic_ns()
                        self.signal[_VALUE] = packet[1]
                    self._finish(number)
        except _QueueDeathError as error:
            with self.bell:
                self.failure = str(error)
                self.bell.notify_all()

    def _next(self) -> int | None:
        """Choose a packet that waits for nothing; None: the queue is stopped."""
        with self.bell:
            while not self.stopped:
                while self.taken < self.submitted and len(self.open) < _WINDOW:
                    self.open.append(self.taken)
                    self.taken += 1
                candidates = self.candidates()
                for number in candidates:
                    self.due.setdefault(number, time.monotonic() + self._pause(number))
                now = time.monotonic()
                ready = [number for number in candidates if self.due[number] <= now]
                if ready:
                    self.current = ready[0] if self.disturbance.seed is None \
                        else self.random.choice(ready)
                    return self.current
                self.bell.wait(min([self.due[number] for number in candidates]) - now
                               if candidates else None)
        return None

    def _pause(self, number: int) -> float:
        """Draw whether a command that waits for nothing is left for a while."""
        is_left = number in self.labels and self.random.random() < _PAUSED
        return self.disturbance.pauses.get(self.name, 0.0) if is_left else 0.0

    def candidates(self) -> list[int]:
        """Return the packets that can run now; waits that have ended are removed."""
        out: list[int] = []
        for number in list(self.open):
            packet = self.words[number % _CAPACITY]
            if packet[_KIND] == _WAIT:
                if ctypes.c_int64.from_address(int(packet[1])).value < packet[2]:
                    break
                self.open.remove(number)
            elif packet[_KIND] != _SIGNAL or number == self.open[0]:
                out.append(number)
        return out

    def _finish(self, number: int) -> None:
        self.open.remove(number)
        del self.due[number]
        self.labels.pop(number, None)
        self.arguments.pop(number, None)
        self.current = None
        self.bell.notify_all()

    def _run_command(self, number: int, packet: Sequence[int]) -> None:
        disturbance, count = self.disturbance, self.commands
        self.commands += 1
        if disturbance.dies.get(self.name) == count:
            raise _QueueDeathError("it died")
        start = time.monotonic_ns()
        if disturbance.hangs.get(self.name) == count:
            with self.bell:
                self.bell.wait_for(lambda: self.stopped)
            return
        if packet[_KIND] == _COPY:
            ctypes.memmove(packet[2], packet[1], packet[3])
        else:
            scratch = aligned_empty(packet[5])
            _Kernel(packet[1])(packet[2], packet[3], 0, packet[4], scratch.ctypes.data)
        duration = disturbance.durations.get(self.name, 0.0)
        if duration:
            time.sleep(max(0.0, duration - (time.monotonic_ns() - start) / 1e9))
        label = self.labels[number]
        if label.report is not None:
            label.report(label, self.name, start, time.monotonic_ns())

    # ---- the host

    def is_full(self) -> bool:
        """Whether the ring has no room for a packet."""
        return self.written - (self.open[0] if self.open else self.taken) >= _CAPACITY

    def push(self, *words: int, label: CommandLabel | None = None, arguments: Any = None) -> None:
        """Write a packet; the thread sees it once the bell rings."""
        with self.bell:
            if self.is_full():
                self.ring()
                self.bell.wait_for(lambda: not self.is_full() or self.stopped
                                   or bool(self.failure), _FULL_LIMIT)
                if self.is_full():
                    raise DeviceError(f"soft: {self.name} queue: expected room for a packet within "
                                      f"{_FULL_LIMIT:g} s")
            self.words[self.written % _CAPACITY, :len(words)] = words
            if label is not None:
                self.labels[self.written] = label
                self.arguments[self.written] = arguments
            self.written += 1

    def ring(self) -> None:
        """Let the thread see all packets."""
        with self.bell:
            self.submitted = self.written
            self.bell.notify_all()

    def stop(self) -> None:
        """Let the thread end after its packet."""
        with self.bell:
            self.stopped = True
            self.bell.notify_all()


class _QueueDeathError(Exception):
    """A queue dies."""


class SoftQueue(HardwareQueue):
    """A thread that runs packets."""

    def __init__(self, name: str, bell: threading.Condition) -> None:
        self.name, self.shared = name, _Ring(name, bell)
        self._thread = threading.Thread(target=self.shared.run, name=f"fnx-soft-{name}",
                                        daemon=True)
        self._thread.start()
        # Not at the end of the process: work is waited for then.
        weakref.finalize(self, self.shared.stop).atexit = False

    def exec(self, launch: QueuedLaunch, label: CommandLabel) -> None:
        """Write the pointers and scalars of a kernel, and its packet."""
        pointers = np.array([memory + offset for memory, offset in launch.buffers] or [0],
                            np.int64)
        scalars = np.array(launch.scalars or (0,), np.int64)
        self.shared.push(_EXEC, launch.kernel.address, pointers.ctypes.data, scalars.ctypes.data,
                         launch.groups, launch.threads, label=label,
                         arguments=(pointers, scalars, launch.kernel))

    def copy(self, source: int, to: int, nbytes: int, label: CommandLabel) -> None:
        """Write the packet of a copy."""
        self.shared.push(_COPY, source, to, nbytes, label=label)

    def wait(self, queue: SoftQueue, value: int) -> None:
        """Write the packet of a wait."""
        self.shared.push(_WAIT, queue.shared.signal.ctypes.data, value)

    def signal(self, value: int) -> None:
        """Write the packet of a signal."""
        self.shared.push(_SIGNAL, value)

    def submit(self) -> None:
        """Ring the bell."""
        self.shared.ring()

    def completed(self) -> int:
        """Read the signal."""
        return int(self.shared.signal[_VALUE])

    def failure(self) -> str:
        """Why the thread has ended."""
        return self.shared.failure or ("it was stopped" if self.shared.stopped else "")

    def running(self) -> CommandLabel | None:
        """The command that runs, or would run next."""
        shared = self.shared
        with shared.bell:
            ready = [shared.current] if shared.current is not None else shared.candidates()
            return next((shared.labels[n] for n in ready if n in shared.labels), None)

    def stop(self) -> None:
        """End the thread after its packet."""
        self.shared.stop()


class _KernelText:
    """The text of a kernel, for the cache of kernels."""

    is_library_call = False

    def __init__(self, symbol: str, text: str) -> None:
        self.symbol, self._text = symbol, text
        self.key = hashlib.sha256(f"soft {text}".encode()).digest()

    def text(self) -> str:
        return self._text


class SoftDriver(QueuesDriver):
    """Threads, on memory of the host.

    Args:
        prefix: of the names of its queues, if their group has those of another device, too.
        bell: which all queues of a group have in common.
    """

    name, kind = "soft", "threads of the host"
    extents = "parallel", "scratch"
    is_processor = native_programs = True

    def __init__(self, prefix: str = "", group: QueueGroup | None = None,
                 bell: threading.Condition | None = None) -> None:
        self._cpu: Any = get_device("cpu")
        self.target = self._cpu.target.replace(name="soft", cores=1)
        self.limits = DeviceLimits(_MEMORY, _MEMORY, 1 << 62, 1 << 62, 0)
        self._blocks: dict[int, HostBytes] = {}
        bell = bell or threading.Condition(fork_safe_lock())
        super().__init__({prefix + kind: SoftQueue(prefix + kind, bell)
                          for kind in KINDS}, group or QueueGroup())

    def alloc(self, nbytes: int) -> int:
        """Allocate host memory, aligned for kernels."""
        block = aligned_empty(nbytes)
        self._blocks[block.ctypes.data] = block
        return int(block.ctypes.data)

    def release(self, memory: int) -> None:
        """Return memory to the system."""
        del self._blocks[memory]

    def load(self, texts: Mapping[str, str]) -> Mapping[str, LinkedKernel]:
        """Compile kernels as the cpu does."""
        kernels = self._cpu.kernels.get([_KernelText(*item) for item in texts.items()])
        return dict(zip(texts, kernels))

    def disturb(self, disturbance: Disturbance) -> None:
        """Disturb the packets that come from now on."""
        for queue in self.queues.values():
            assert isinstance(queue, SoftQueue)
            queue.shared.disturb(disturbance)


def device() -> GpuDevice:
    """Return the device, for ``get_device``."""
    return GpuDevice(SoftDriver())
