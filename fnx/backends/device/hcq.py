"""Hardware-independent command queues: command decoding, the timeline, and in-flight resources.

A COMMANDS node becomes a tuple of ``Command``; a backend encodes each by its op. Submissions to one
queue run in order, and each has a number on the queue's timeline (``Signal``). A call acquires what
it writes apart from its arguments (an argument block and an arena), and ``InFlight`` retains all of
it until the number is reached. So calls in flight, threads and re-entrant calls never share memory.

    COMMANDS(EXEC(KERNEL, SLOT in 0, SLOT out 0, CONST 16)) -> (Command(kernel, slots, (16,)),)
    COMMANDS(CMD_LOOP(COMMANDS(...)))                       -> (Loop(None, body, trips),)
"""

from __future__ import annotations

import ctypes
import itertools
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fnx.backends.device.allocator import BlockOwner, Pool, PoolBlock, size_class
from fnx.backends.device.base import CommandBuffer, DeviceStorage
from fnx.core.array.placement import not_addressable, placement_of
from fnx.core.ir import accessors, dtypes, op_args, ops
from fnx.core.ir.kernel_code import KernelRun
from fnx.core.ir.linalg import apply_routine
from fnx.core.ir.numpy_semantics import fft_step, sort_operands
from fnx.core.ir.uop import UOp
from fnx.core.scope import callbacks
from fnx.core.support.errors import ShapeError, SpecError

_MAX_SHARED_BLOCK, _MIN_SHARED = 1024, 3  # bytes of a block that several results share; results
_FIRST_STRIP = 64  # iterations of a loop that may overrun, before it is known how long it runs
_SMALL_COPY = 256  # bytes up to which an extra copy is faster than looking up the address
_CALLEES = (ops.KERNEL, ops.CMD_LOOP, ops.CALLBACK, ops.SORT, ops.FFT_STEP, ops.LINALG,
            ops.LINKED)


def to_signed(pattern: int) -> int:
    """Reinterpret 64 bits as a signed number."""
    return pattern - (1 << 64) if pattern >> 63 else pattern


class Command:
    """An EXEC: ``slots`` of the kernel's REFs, ``scalars`` (64-bit patterns) of its VARs.

    A slot is a SLOT, or a SWAP of them. If it runs a CALLBACK, then ``kernel`` is that, the slots
    are its handle, operands and results, and the scalar is the address of this object, where
    machine code finds it; ``sizes`` are the bytes of the slots. ``profile_entry`` is that of a run,
    once a profile has asked for it.
    """

    __slots__ = ("kernel", "name", "node", "profile_entry", "scalars", "sizes", "slots")

    def __init__(self, node: UOp) -> None:
        kernel, *operands = node.src
        if kernel.op not in _CALLEES:
            raise SpecError(f"expected EXEC of one of {_CALLEES}, got {kernel}")
        self.node, self.kernel = node, kernel
        self.name = node.arg.label
        self.profile_entry: KernelRun | None = None
        self.slots: tuple[UOp, ...] = tuple(s for s in operands if s.op is not ops.CONST)
        self.scalars: tuple[int, ...] = tuple(
            int(s.arg) & ((1 << 64) - 1) for s in operands if s.op is ops.CONST)
        if kernel.op is ops.CALLBACK:
            self.scalars = (id(self),)
            arg = kernel.arg
            self.sizes = [4, *[math.prod(shape) * t.itemsize
                               for shape, t in (*arg.ins, *arg.outs[arg.effect:])]]

    @property
    def memory(self) -> tuple[UOp, ...]:
        return self.slots


def run_callback(arg: op_args.Callback, memory: Sequence[np.ndarray[Any, Any]]) -> None:
    """Call the Python function of a CALLBACK on the bytes of its handle, operands and results."""
    types = (((), dtypes.uint32), *arg.ins, *arg.outs[arg.effect:])
    arrays = [part[:math.prod(shape) * t.itemsize].view(t.np).reshape(shape)
              for part, (shape, t) in zip(memory, types)]
    first_out = 1 + len(arg.ins)
    token = [np.zeros(0, np.bool_)] * arg.effect
    targets = arrays[first_out:]
    results = callbacks.run_callback(arg, [arrays[0], *token, *arrays[1:first_out]], targets)
    for target, value in zip(targets, results[arg.effect:]):
        if value is not target:
            target[...] = value


def _run_on_arrays(run: Callable[[Any, Sequence[Any]], Iterable[Any]], arg: Any,
                   memory: Sequence[np.ndarray[Any, Any]]) -> None:
    """Run a SORT or a LINALG on the bytes of its operands and its results."""
    arrays = [part[:math.prod(shape) * t.itemsize].view(t.np).reshape(shape)
              for part, (shape, t) in zip(memory, (*arg.ins, *arg.outs))]
    for target, value in zip(arrays[len(arg.ins):], run(arg, arrays[:len(arg.ins)])):
        target[...] = value


def _run_fft_step(arg: op_args.FftStep, memory: Sequence[np.ndarray[Any, Any]]) -> None:
    """Run an FFT_STEP on the bytes of its array, its table and its result."""
    assert arg.lengths is not None
    x, _, out = memory
    source, target = [part[:math.prod(shape) * arg.dtype.itemsize].view(arg.dtype.np).reshape(shape)
                      for part, shape in ((x, arg.shape), (out, arg.outs[0][0]))]
    target[...] = fft_step(arg, source)[0]


# How the host runs commands other than KERNELs: op -> function of (arg, bytes of the slots).
HOST_COMMANDS: dict[ops.Op, Callable[[Any, Sequence[np.ndarray[Any, Any]]], None]] = {
    ops.CALLBACK: run_callback, ops.SORT: partial(_run_on_arrays, sort_operands),
    ops.FFT_STEP: _run_fft_step, ops.LINALG: partial(_run_on_arrays, apply_routine)}


class QueuedLoop:
    """A CMD_LOOP: runs ``body`` ``trips`` times, or while ``test`` writes true to ``flag``.

    If it ``may_overrun``, a device queues ``strip`` iterations at once.
    """

    __slots__ = ("body", "flag", "may_overrun", "name", "strip", "test", "trips")

    def __init__(self, node: UOp) -> None:
        self.name, self.trips = node.arg.label, node.arg.trips
        self.may_overrun, self.strip = node.arg.may_overrun, _FIRST_STRIP
        self.body = decode_commands(node.src[-1])
        self.test: Commands = decode_commands(node.src[0]) if len(node.src) > 1 else ()
        self.flag = node.src[1] if len(node.src) > 1 else None

    @property
    def memory(self) -> tuple[UOp, ...]:
        flags = () if self.flag is None else (self.flag,)
        return (*flags, *slots_of(self.test), *slots_of(self.body))


class QueuedBranch:
    """A BRANCH: runs the commands selected by the int32 in ``branch_index``, clamped to range."""

    __slots__ = ("branches", "name", "branch_index")

    def __init__(self, node: UOp) -> None:
        self.name, self.branch_index = node.arg.label, node.src[0]
        self.branches = tuple(map(decode_commands, node.src[1:]))

    @property
    def memory(self) -> tuple[UOp, ...]:
        return (self.branch_index, *[slot for branch in self.branches for slot in slots_of(branch)])


AnyCommand = Command | QueuedLoop | QueuedBranch
Commands = tuple[AnyCommand, ...]
_DECODERS: dict[ops.Op, Callable[[UOp], AnyCommand]] = {
    ops.EXEC: Command, ops.CMD_LOOP: QueuedLoop, ops.BRANCH: QueuedBranch}


def decode_commands(node: UOp) -> Commands:
    """Decode a COMMANDS node into commands, in order."""
    if node.op is not ops.COMMANDS:
        raise SpecError(f"expected COMMANDS, got {node}")
    return tuple(map(_decode, node.src))


def _decode(node: UOp) -> AnyCommand:
    return _DECODERS[node.op](node)


def slots_of(commands: Commands) -> list[UOp]:
    """Return all SLOTs and SWAPs of commands."""
    return [slot for c in commands for slot in c.memory]


def collect_execs(commands: Commands) -> list[Command]:
    """Return all EXECs among commands, including those in loops and branches."""
    out: list[Command] = []
    stack: list[AnyCommand] = [*reversed(commands)]
    while stack:
        command = stack.pop()
        if isinstance(command, Command):
            out.append(command)
        elif isinstance(command, QueuedLoop):
            stack += [*reversed(command.body), *reversed(command.test)]
        else:
            stack += [c for branch in reversed(command.branches) for c in reversed(branch)]
    return out


def check_arguments(commands: Commands, ins: int, outs: int) -> None:
    """Check that a submission has as many arguments as its commands use.

    Raises:
        SpecError: there are too few; names the expected count.
    """
    counts = {"in": ins, "out": outs}
    slots = [slot for memory in slots_of(commands) for slot in accessors.possible_slots(memory)]
    for kind, count in counts.items():
        indices = [s.index for s in slots if s.kind == kind]
        if indices and max(indices) >= count:
            raise SpecError(f"expected {max(indices) + 1} arguments of kind {kind!r}, got {count}")


class Signal(ABC):
    """A timeline: submissions have increasing numbers and complete in order."""

    @abstractmethod
    def wait(self, value: int) -> None:
        """Wait for the submission with this number.

        Raises:
            DeviceError: it was aborted, or the wait took longer than ``config.time_limit``.
        """


class PooledCommandBuffer(CommandBuffer):
    """A command buffer with a list of argument blocks that no call uses now."""

    __slots__ = ("free_call_states", "names")
    free_call_states: list[Any]
    names: tuple[str, ...]

    @abstractmethod
    def running(self, record: int, call_state: Any) -> str:
        """Describe what the record with this number does, in a call with this state."""


class _InFlightEntry:
    """A submission in flight. ``start`` and ``stop`` are byte counts accumulated over all
    submissions.

    Every submission creates one, so it is not a Record, whose construction takes four times as
    long.
    """

    __slots__ = ("value", "start", "stop", "buffer", "call_state", "resources")

    def __init__(self, value: int, start: int, stop: int, buffer: PooledCommandBuffer,
                 call_state: Any, resources: tuple[Any, ...]) -> None:
        self.value, self.start, self.stop = value, start, stop
        self.buffer, self.call_state, self.resources = buffer, call_state, resources


class InFlight:
    """The resources of submitted work, retained until it is done."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[_InFlightEntry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of results and temporaries in flight."""
        entries = self._entries
        return entries[-1].stop - entries[0].start if entries else 0

    @property
    def oldest(self) -> int:
        """Timeline value of the oldest submission; there must be one."""
        return self._entries[0].value

    def keep(self, value: int, nbytes: int, buffer: PooledCommandBuffer, call_state: Any,
             *resources: Any) -> None:
        """Retain ``resources`` until the timeline has passed ``value``; then return the
        call state."""
        start = self._entries[-1].stop if self._entries else 0
        self._entries.append(_InFlightEntry(value, start, start + nbytes, buffer, call_state,
                                            resources))

    def release(self, completed: int) -> None:
        """Release everything up to a timeline value."""
        entries = self._entries
        while entries and entries[0].value <= completed:
            done = entries.popleft()
            done.buffer.free_call_states.append(done.call_state)

    def running(self, record: int) -> str:
        """Describe what a record of the oldest submission in flight does."""
        if not self._entries:
            return "the queue"
        return self._entries[0].buffer.running(record, self._entries[0].call_state)


class SharedBlock:
    """Small results of a call that are adjacent in one block: the offset and bytes of each."""

    __slots__ = ("nbytes", "parts")

    def __init__(self, sizes: Sequence[int]) -> None:
        rounded = [size_class(nbytes) for nbytes in sizes]
        self.nbytes = sum(rounded)
        self.parts = list(zip(itertools.accumulate(rounded, initial=0), sizes))


def group_small_results(sizes: Sequence[int]) -> list[int | SharedBlock]:
    """Group small results of a call into shared blocks; return what to allocate, in order.

    Allocating and freeing a block costs more than all other work for a small result. Whoever
    retains one result retains the block, so a block is no larger than the Python objects of an
    array are anyway.

    >>> [x if isinstance(x, int) else x.parts for x in group_small_results([8, 8, 200, 4096])]
    [[(0, 8), (64, 8), (128, 200)], 4096]
    """
    out: list[int | SharedBlock] = []
    for is_small, run in itertools.groupby(sizes, lambda nbytes: nbytes <= _MAX_SHARED_BLOCK // 4):
        pending = list(run)
        while is_small and len(pending) >= _MIN_SHARED:
            ends = itertools.accumulate(map(size_class, pending))
            count = sum(1 for end in ends if end <= _MAX_SHARED_BLOCK)
            out.append(SharedBlock(pending[:count]))
            pending = pending[count:]
        out += pending
    return out


class HostStorage(DeviceStorage):
    """A block of a pool of host memory, or a part of one, and the timeline value of its last
    writer.
    """

    __slots__ = ("__weakref__", "block", "is_aliased", "nbytes", "placed", "ptr", "signal",
                 "timeline")
    signal: Signal
    timeline: int
    block: PoolBlock  # the block that contains it

    @classmethod
    def allocate_all(cls, pool: Pool, signal: Signal, sizes: Iterable[int | SharedBlock]
                ) -> list[HostStorage]:
        """Allocate storages of the given sizes.

        All results of a call in one function, as each step here adds to the latency of a call.
        """
        storages, free_lists, owners, last_size = [], pool.free_lists, pool.owners, -1
        for nbytes in sizes:
            if isinstance(nbytes, SharedBlock):
                block = PoolBlock(pool, nbytes.nbytes)
                address = block.ptr
                for offset, part_bytes in nbytes.parts:
                    storage = cls()
                    storage.ptr, storage.nbytes, storage.block = address + offset, part_bytes, block
                    storage.signal, storage.timeline, storage.is_aliased = signal, 0, False
                    storages.append(storage)
                continue
            storage = cls()
            storage.nbytes, storage.signal, storage.timeline = nbytes, signal, 0
            storage.is_aliased = False
            try:  # as ``allocator.PoolBlock``
                if nbytes != last_size:
                    pop_iter, push = free_lists[nbytes]
                    last_size = nbytes
                for _free in pop_iter:
                    break
            except LookupError:
                _free, push = pool.take(nbytes)
                last_size = -1  # ``push`` belongs to this size only
            try:
                owner = BlockOwner(storage, push)
            except BaseException:
                push(_free)
                raise
            owner.ptr = storage.ptr = address = _free.ptr
            owners[address] = owner
            storages.append(storage)
        return storages

    @classmethod
    def single_allocator(cls, pool: Pool, signal: Signal,
                         nbytes: int) -> Callable[[], list[HostStorage]]:
        """Return a function that allocates one storage, in half of the time of ``several``."""
        (pop_iter, push), owners = pool.free_list(nbytes), pool.owners

        def make() -> list[HostStorage]:
            storage = cls()
            storage.nbytes, storage.signal, storage.timeline = nbytes, signal, 0
            storage.is_aliased = False
            try:  # as in ``allocator.PoolBlock``
                for _free in pop_iter:
                    break
            except LookupError:
                _free, _ = pool.take(nbytes)
            try:
                owner = BlockOwner(storage, push)
            except BaseException:
                push(_free)
                raise
            owner.ptr = storage.ptr = address = _free.ptr
            owners[address] = owner
            return [storage]
        return make

    @classmethod
    def zeros(cls, pool: Pool, signal: Signal, nbytes: int) -> HostStorage | None:
        """Allocate zeroed memory whose pages are mapped on first use. None if the pool has none."""
        taken = pool.fresh(nbytes)
        if taken is None:
            return None
        storage, (block, push) = cls(), taken
        storage.nbytes, storage.signal, storage.timeline = nbytes, signal, 0
        storage.is_aliased, storage.ptr = False, block.ptr
        try:
            owner = BlockOwner(storage, push)
        except BaseException:
            push(block)
            raise
        owner.ptr = block.ptr
        pool.owners[block.ptr] = owner
        return storage

    def wait(self) -> None:
        """Wait for the value."""
        if self.timeline:
            self.signal.wait(self.timeline)
            self.timeline = 0

    def view(self, np_dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return a read-only array of the value, which keeps this storage alive."""
        if self.timeline:
            self.wait()
        self.is_aliased = True
        # ``frombuffer`` retains the read-only memoryview as the base: it can't be made writable.
        count = math.prod(shape)
        data: Any = memoryview(self._window()).toreadonly() if count else bytes(8)
        try:
            return np.frombuffer(data, np_dtype, count).reshape(shape)
        except ValueError as error:  # too many axes, or lengths beside a 0 whose product overflows
            if (placement := placement_of(self)) is not None and placement.key:
                raise not_addressable("reading a value") from None
            raise ShapeError(f"expected a shape that NumPy takes, got {shape}: {error}") from None

    def window(self) -> np.ndarray[Any, Any]:
        """The bytes as a writable array, for a device that computes with NumPy."""
        return np.ndarray((self.nbytes,), np.uint8, self._window())

    def _window(self) -> Any:
        window: Any = (ctypes.c_char * self.nbytes).from_address(self.ptr)
        window.owner = self
        return window

    def fill(self, value: np.ndarray[Any, Any]) -> None:
        """Copy the elements of an array here, row-major. Only for newly allocated storages."""
        if self.nbytes <= _SMALL_COPY:  # NumPy's fastest way to get at the bytes
            ctypes.memmove(self.ptr, value.tobytes(), self.nbytes)
            return
        if type(value) is not np.ndarray or not value.flags.c_contiguous:
            value = np.ascontiguousarray(value)  # the memory of a NumPy scalar is temporary
        ctypes.memmove(self.ptr, value.__array_interface__["data"][0], self.nbytes)
