"""What a device is: it allocates storage, encodes commands, and its buffers are submitted.

    device = get_device("cpu")                       # loads its module at first use
    buffer = device.encode(commands, code, arena)    # compiles or fetches kernels; immutable
    buffer.submit(ins, outs)                         # returns as soon as the work is queued
    outs[0].view(np.float32, (3, 4))                 # waits until the value is there
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core import ops
from fnx.core.config import DEVICES, GPUS
from fnx.core.direct import DirectCall
from fnx.core.errors import ArgumentError, NotBuiltError
from fnx.core.process import deferred, fork_safe_lock, load
from fnx.core.program import Chunk, KernelCode, KernelRun, Recorded
from fnx.core.target import Target
from fnx.core.uop import UOp

nanoseconds = deferred("fnx.backends.cost_estimate", "nanoseconds")  # for readers only
_SUBMISSIONS = 48  # bits of a device's number of a submission
_LOADING = 16 << 20  # bytes of address space without which no device is loaded


class DeviceStorage(ABC):
    """Memory of a device that holds one array.

    ``lent``: somebody else may look at it: it is not written over.
    ``placed``: a PlacedAt, set where somebody placed it (core/array/committed.py).
    """

    __slots__ = ()
    ptr: int
    nbytes: int
    lent: bool
    placed: Any

    @abstractmethod
    def wait(self) -> None:
        """Return when the last submission that writes it is done."""

    @abstractmethod
    def view(self, np_dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """A read-only array of the value; waits for it, and keeps the storage alive."""


class CommandBuffer(ABC):
    """Encoded commands, immutable; any number of submissions may be in flight."""

    __slots__ = ("__weakref__",)

    @property
    def temporary(self) -> int:
        """Bytes that a call takes, besides those of arguments and results."""
        return 0

    @property
    def scratch(self) -> int:
        """Bytes that the workers keep for themselves, of all calls together."""
        return 0

    @abstractmethod
    def submit(self, ins: Sequence[Any], outs: Sequence[Any],
               begin: Callable[[], None] | None = None) -> None:
        """Queue the commands on these arguments (storages of the same device).

        ``begin`` is called when all is checked and nothing was written yet.
        """

    def direct(self, call: DirectCall) -> Any | None:
        """The record with which the method of the device runs it; None: it does not."""
        return None

    def linked(self, commands: UOp) -> UOp | None:
        """The COMMANDS that it was encoded of, over LINKED: all that has to be known to encode it
        again where the objects of its kernels are stored. None: nothing is stored."""
        return None


class DeviceBase(ABC):
    """A machine that executes command buffers.

    Attributes:
        name: what ``config.device`` calls it.
        target: what the lowering knows of it.
        allocate: fresh memories of so many bytes, their content undefined.
    """

    name: str
    target: Target
    is_timed = False  # whether it can note when kernels run (``record``)
    shared_cache = 0  # bytes of the cache that all processors share; 0: none that is known
    allocate: Callable[[Iterable[Any]], Sequence[DeviceStorage]]

    @property
    def is_recording(self) -> bool:
        """Whether somebody profiles."""
        return False

    def results(self, sizes: Sequence[int]) -> Callable[[], Sequence[DeviceStorage]]:
        """What gives memories for the results of a call, made once; they may share memory."""
        return functools.partial(self.allocate, tuple(sizes))

    def alloc(self, nbytes: int) -> DeviceStorage:
        """Fresh memory of so many bytes."""
        return self.allocate((nbytes,))[0]

    def held(self, sizes: Iterable[int]) -> int:
        """Bytes that are held of the system for memory of these sizes."""
        return sum(sizes)

    @abstractmethod
    def upload(self, value: np.ndarray[Any, Any]) -> DeviceStorage:
        """A storage with a copy of an array, row-major."""

    def zeros(self, nbytes: int) -> DeviceStorage | None:
        """Memory that is zero without being written; None where it has to be."""
        return None

    def borrow(self, value: np.ndarray[Any, Any]) -> DeviceStorage | None:
        """A storage in the memory of an array; None where this device needs it elsewhere."""
        return None

    @abstractmethod
    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode], arena: int) -> CommandBuffer:
        """A COMMANDS node as a command buffer; ``arena`` is the bytes of its temporaries."""

    def method(self, of: type, slot: str, python: Callable[..., Any]) -> Any | None:
        """``__call__`` of a class whose objects have records of calls in a slot: faster than
        ``python``, which has what it does not know. None: there is none."""
        return None

    def prepare(self, code: KernelCode) -> None:  # noqa: B027
        """A kernel that ``encode`` will ask for: compile it beside, where that makes sense."""

    def expect(self) -> None:  # noqa: B027
        """Kernels will be compiled soon: get what compiles them ready, beside."""

    def assembly(self, text: str) -> str:
        """Machine code of LLVM IR, as text; empty where nothing is compiled."""
        return ""

    def estimate(self, kernel: UOp, scalars: Sequence[int]) -> float:
        """Nanoseconds that a kernel is taken to need, on all workers that it is shared by."""
        if kernel.op is ops.HOST:  # as long as Python takes
            return 0.0
        kinds = load("fnx.core.range_kinds").RANGE_KINDS
        shared = kernel.op is not ops.KERNEL or any(
            kinds[r.arg.kind].given for store in kernel.src for r in store.ranges)
        spent: float = nanoseconds(kernel, dict(enumerate(scalars)))
        return spent / (self.target.cores if shared else 1)

    def synchronize(self) -> None:  # noqa: B027
        """Return when all submitted work is done."""

    def record(self) -> Callable[[], Recorded]:
        """Note when each kernel runs, from now on until what is returned is called.

        Raises:
            NotBuiltError: kernels are not timed on this device.
        """
        raise NotBuiltError(f"expected a device whose kernels are timed, got {self.name}",
                            hint='set fnx.config.device = "cpu"')

    def stats(self) -> dict[str, int]:
        """Counters of this process, for tests and profiles."""
        return {}


_devices: dict[str, DeviceBase] = {}
_lock = fork_safe_lock()
_before: list[Callable[[str], None]] = []


def before_each(hook: Callable[[str], None]) -> None:
    """Call this before a device is made, with its name."""
    _before.append(hook)


def get_device(name: str) -> DeviceBase:
    """The device with this name; made at first use.

    >>> get_device("interp").name
    'interp'

    Raises:
        ArgumentError: there is no such device.
        OutOfMemoryError: the process may not have the memory to load it.
    """
    found = _devices.get(name)
    if found is not None:
        return found
    if name not in DEVICES:
        raise ArgumentError(f"expected one of {', '.join(DEVICES)}; got {name!r}",
                            hint="set fnx.config.device to one of them")
    # before, as Python's own errors of memory would not say what it is about
    load("fnx.backends.allocator").require_address_space(_LOADING, f"to load the device {name}")
    for hook in _before:
        hook(name)
    module = load(DEVICES[name])
    with _lock:
        if name not in _devices:
            _devices[name] = module.device()
            if _profile is not None and _devices[name].is_timed:
                _profile[name] = _devices[name].record()
        return _devices[name]


_profile: dict[str, Callable[[], Recorded]] | None = None  # what ends recording, by device


def record(name: str) -> Callable[[], Recorded]:
    """Note when each kernel runs on every device, also on one that is made meanwhile.

    Raises:
        ArgumentError: something is profiled already.
        NotBuiltError: kernels are not timed on the device with this name.
    """
    global _profile
    first = get_device(name)
    with _lock:
        refuse_second_profile(_profile)
        stops = {name: first.record()}
        stops |= {other: device.record() for other, device in _devices.items()
                  if other != name and device.is_timed and not device.is_recording}
        _profile = stops

    def stop() -> Recorded:
        global _profile
        with _lock:
            _profile = None
        return _merged({name: end() for name, end in stops.items()})
    return stop


def _merged(found: Mapping[str, Recorded]) -> Recorded:
    """What devices recorded, in order of time; each has workers and submissions of its own."""
    runs: list[KernelRun] = []
    workers = 0
    for i, (name, recorded) in enumerate(found.items()):
        for run in recorded.runs:
            chunks = run.chunks or (Chunk(0, run.start, run.stop),)
            chunks = tuple([c.replace(worker=c.worker + workers) for c in chunks])
            runs.append(run.replace(device=name, chunks=chunks,
                                    submission=run.submission + (i << _SUBMISSIONS)))
        if recorded.runs or not i:
            workers += recorded.workers
    runs.sort(key=lambda run: run.start)
    return Recorded(runs, sum([recorded.lost for recorded in found.values()]), workers)


def refuse_second_profile(first: object) -> None:
    """One who profiles at a time.

    Raises:
        ArgumentError: there is a first.
    """
    if first is not None:
        raise ArgumentError("expected one profile at a time, got one inside of another",
                            hint="leave the one that is open first")


def row_of(name: str) -> Target:
    """What kernels for a device that is not here are made for: what every one of its kind has.

    >>> row_of("webgpu").threads
    128
    """
    row: Target = load(DEVICES[name]).ROW
    return row


def moved(memory: Any, name: str) -> Any:
    """A storage in the memory of a device: in the same place as this one, or a copy."""
    device: Any = get_device(name)
    if getattr(memory, "device_name", None) == name:
        return memory.shared()
    if name in GPUS:
        return device.received(memory)
    if hasattr(memory, "device_name"):
        made = device.alloc(memory.nbytes)
        memory.copy_to(made)
        return made
    view = memory.view(np.dtype(np.uint8), (memory.nbytes,))
    return device.borrow(view) or device.upload(view)
