"""The device interface: a device allocates storage and encodes commands into command buffers.

    device = get_device("cpu")                       # loads its module at first use
    buffer = device.encode(commands, code, arena)    # compiles or fetches kernels; immutable
    buffer.submit(ins, outs)                         # returns as soon as the work is queued
    outs[0].view(np.float32, (3, 4))                 # waits until the value is there
"""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import ops
from fnx.core.ir.kernel_code import Chunk, KernelCode, KernelRun, NativeCall, RunTrace
from fnx.core.ir.uop import UOp
from fnx.core.support.config import DEVICES, OWN_MEMORY
from fnx.core.support.errors import ArgumentError, NotBuiltError
from fnx.core.support.process import fork_safe_lock, lazy_import, load
from fnx.core.support.target import Target

allocator = lazy_import("fnx.backends.device.allocator")
range_kinds = lazy_import("fnx.core.support.range_kinds")

estimate_ns = lazy_import("fnx.backends.device.cost_model", "estimate_ns")  # used by readers only
_SUBMISSION_BITS = 48  # bits of a submission number that one device uses
_LOAD_ADDRESS_SPACE = 16 << 20  # bytes of address space required to load a device


class DeviceStorage(ABC):
    """Device memory that holds one array.

    ``is_aliased``: the memory is visible outside of fnx or to another node, so it must not be
    overwritten.
    ``placed``: a PlacedAt, set when a user places the array (core/array/placement.py).
    """

    __slots__ = ()
    ptr: int
    nbytes: int
    is_aliased: bool
    placed: Any

    @abstractmethod
    def wait(self) -> None:
        """Wait for the last submission that writes it."""

    @abstractmethod
    def view(self, np_dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return a read-only array of the value. Waits for it, and keeps the storage alive."""

    @abstractmethod
    def fill(self, value: np.ndarray[Any, Any]) -> None:
        """Copy the elements of an array to newly allocated memory, row-major."""


class CommandBuffer(ABC):
    """Encoded commands, immutable. Any number of submissions may be in flight."""

    __slots__ = ("__weakref__",)

    @property
    def temporary_bytes(self) -> int:
        """Bytes that one call allocates besides its arguments and results."""
        return 0

    @property
    def scratch(self) -> int:
        """Bytes of private memory that the workers hold, shared by all calls."""
        return 0

    @abstractmethod
    def submit(self, ins: Sequence[Any], outs: Sequence[Any],
               on_commit: Callable[[], None] | None = None) -> None:
        """Queue the commands on these arguments (storages of the same device).

        ``on_commit`` is called after all checks and before anything is written.
        """

    def native_record(self, call: NativeCall) -> Any | None:
        """Return the native call record with which the device's ``method`` runs this buffer, or
        None.
        """
        return None

    def linked(self, commands: UOp) -> UOp | None:
        """Return the COMMANDS that this was encoded from, over LINKED kernels.

        That is all that is needed to encode it again where the object files of its kernels are
        cached. None: the kernels are not cached.
        """
        return None


class DeviceBase(ABC):
    """A machine that executes command buffers.

    Attributes:
        name: its name in ``config.device``.
        target: what the lowering knows about it.
        allocate: returns new memory blocks of the given sizes in bytes, their content undefined.
    """

    name: str
    target: Target
    is_timed = False  # whether it can time kernels (``record``)
    shared_cache = 0  # bytes of the cache shared by all processors; 0: unknown
    allocate: Callable[[Iterable[Any]], Sequence[DeviceStorage]]

    @property
    def is_recording(self) -> bool:
        """Whether a profile is being recorded."""
        return False

    def results(self, sizes: Sequence[int]) -> Callable[[], Sequence[DeviceStorage]]:
        """Return a function that allocates the results of a call, which may share a block."""
        return functools.partial(self.allocate, tuple(sizes))

    def alloc(self, nbytes: int) -> DeviceStorage:
        """Allocate memory of this many bytes."""
        return self.allocate((nbytes,))[0]

    def held(self, sizes: Iterable[int]) -> int:
        """Bytes taken from the system for memory of these sizes."""
        return sum(sizes)

    def upload(self, value: np.ndarray[Any, Any]) -> DeviceStorage:
        """Copy an array to a new storage, in row-major order."""
        storage = self.allocate((value.nbytes,))[0]
        storage.fill(value)
        return storage

    def zeros(self, nbytes: int) -> DeviceStorage | None:
        """Allocate memory that is zero without being written. None if it has to be written."""
        return None

    def borrow(self, value: np.ndarray[Any, Any], check: Callable[[], None] | None = None
               ) -> DeviceStorage | None:
        """Wrap the memory of an array in a storage. None if the device needs it elsewhere.

        ``check``: if the device can read it, but not in place, the storage copies it when it is
        first used, after this check, which may raise.
        """
        return None

    @abstractmethod
    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode], arena: int) -> CommandBuffer:
        """Encode a COMMANDS node; ``arena`` is the size of its temporaries in bytes."""

    def native_method(self, cls: type, slot: str, python: Callable[..., Any]) -> Any | None:
        """Return a native ``__call__`` for a class whose objects hold call records in a slot.

        It is faster than ``python``, which handles every call that no record matches. None if the
        device has no such method.
        """
        return None

    def prepare(self, code: KernelCode) -> None:  # noqa: B027
        """Start compiling a kernel that ``encode`` will need, in the background where that pays."""

    def warm_up_compiler(self) -> None:  # noqa: B027
        """Warm up the compiler in the background: kernels will be compiled soon."""

    def assembly(self, text: str) -> str:
        """Return the assembly of LLVM IR. Empty if the device compiles nothing."""
        return ""

    def estimate(self, kernel: UOp, scalars: Sequence[int]) -> float:
        """Estimate the nanoseconds of a kernel, on all workers that it is distributed over."""
        if kernel.op is ops.CALLBACK:  # takes as long as the Python function
            return 0.0
        shared = kernel.op is not ops.KERNEL or any(
            range_kinds.RANGE_KINDS[r.arg.kind].is_parallel for store in kernel.src
            for r in store.ranges)
        estimated: float = estimate_ns(kernel, dict(enumerate(scalars)))
        return estimated / (self.target.cores if shared else 1)

    def synchronize(self) -> None:  # noqa: B027
        """Wait for all submitted work."""

    def record(self) -> Callable[[], RunTrace]:
        """Record when each kernel runs, until the returned function is called.

        Raises:
            NotBuiltError: kernels are not timed on this device.
        """
        raise NotBuiltError(f"expected a device whose kernels are timed, got {self.name}",
                            hint='set fnx.config.device = "cpu"')

    def stats(self) -> dict[str, int]:
        """Return counters of this process, for tests and profiles."""
        return {}


_devices: dict[str, DeviceBase] = {}
_lock = fork_safe_lock()
_creation_hooks: list[Callable[[str], None]] = []


def on_device_creation(hook: Callable[[str], None]) -> None:
    """Register a hook that is called with the name of a device before it is created."""
    _creation_hooks.append(hook)


def get_device(name: str) -> DeviceBase:
    """Return the device with this name; it is created at first use.

    >>> get_device("interp").name
    'interp'

    Raises:
        ArgumentError: there is no such device.
        OutOfMemoryError: the process may not have the memory to load it.
    """
    device = _devices.get(name)
    if device is not None:
        return device
    if name not in DEVICES:
        raise ArgumentError(f"expected one of {', '.join(DEVICES)}; got {name!r}",
                            hint="set fnx.config.device to one of them")
    # Checked up front, as Python's own memory errors would not name the cause.
    allocator.require_address_space(_LOAD_ADDRESS_SPACE, f"to load the device {name}")
    for hook in _creation_hooks:
        hook(name)
    module = load(DEVICES[name])
    with _lock:
        if name not in _devices:
            _devices[name] = module.device()
            if _open_profile is not None and _devices[name].is_timed:
                _open_profile[name] = _devices[name].record()
        return _devices[name]


_open_profile: dict[str, Callable[[], RunTrace]] | None = None  # stop functions by device


def record(name: str) -> Callable[[], RunTrace]:
    """Record when each kernel runs on every device, including devices created meanwhile.

    Raises:
        ArgumentError: something is profiled already.
        NotBuiltError: kernels are not timed on the device with this name.
    """
    global _open_profile
    first = get_device(name)
    stops: dict[str, Callable[[], RunTrace]] = {}
    with _lock:
        check_no_open_profile(_open_profile)
        _open_profile, devices = stops, {name: first, **_devices}

    def forget() -> None:
        global _open_profile
        _open_profile = None
    with contextlib.ExitStack() as opened:  # without the lock: a device may wait for its own
        opened.callback(forget)
        for other, device in devices.items():
            if device is first or device.is_timed and not device.is_recording:
                stops[other] = device.record()
                opened.callback(stops[other])
        opened.pop_all()  # nothing failed

    def stop() -> RunTrace:
        with _lock:
            forget()
        recordings: dict[str, RunTrace] = {}

        def end(other: str) -> None:
            recordings[other] = stops[other]()
        with contextlib.ExitStack() as stack:  # all end, though one fails
            for other in reversed(stops):
                stack.callback(end, other)
        return _merge_recordings(recordings)
    return stop


def _merge_recordings(recordings: Mapping[str, RunTrace]) -> RunTrace:
    """Merge the recordings of devices in order of time, with distinct worker and submission
    numbers.
    """
    runs: list[KernelRun] = []
    workers = 0
    for i, (name, recorded) in enumerate(recordings.items()):
        for run in recorded.runs:
            chunks = run.chunks or (Chunk(0, run.start, run.stop),)
            chunks = tuple([c.replace(worker=c.worker + workers) for c in chunks])
            runs.append(run.replace(device=name, chunks=chunks,
                                    submission=run.submission + (i << _SUBMISSION_BITS)))
        if recorded.runs or not i:
            workers += recorded.workers
    runs.sort(key=lambda run: run.start)
    return RunTrace(runs, sum([recorded.lost for recorded in recordings.values()]), workers)


def check_no_open_profile(first: object) -> None:
    """Refuse a profile inside of another one.

    Raises:
        ArgumentError: ``first`` is already open.
    """
    if first is not None:
        raise ArgumentError("expected one profile at a time, got one inside of another",
                            hint="close the open one first")


def generic_target(name: str) -> Target:
    """Return the generic target of a device that need not be present: what all of its kind support.

    >>> generic_target("webgpu").threads
    128
    """
    row: Target = load(DEVICES[name]).ROW
    return row


def transfer_storage(memory: Any, name: str) -> Any:
    """Return a storage in the memory of a device: an alias if it is there already, else a copy."""
    device: Any = get_device(name)
    if getattr(memory, "device_name", None) == name:
        return memory.shared()
    if name in OWN_MEMORY:
        return device.receive(memory)
    if hasattr(memory, "device_name"):
        target = device.alloc(memory.nbytes)
        memory.copy_to(target)
        return target
    view = memory.view(np.dtype(np.uint8), (memory.nbytes,))
    return device.borrow(view) or device.upload(view)
