"""A device above its driver: encodes commands, leases memory, interprets loops and conditions.

A command buffer is checked when it is encoded, and its arguments at each submission, before the
first command is queued. Then EXECs go to the driver in order; what runs in Python (HOST, SORT),
conditions and the flags of loops wait for the queue and read what they need. Arguments in another
device's memory are copied first, and the copies cached for as long as the originals live.

If no command depends on the host, all launches are known in advance (recorded.py): on memory that
recurs, the driver records them and queues them at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.backends.base import CommandBuffer, DeviceBase, refuse_second_profile
from fnx.backends.gpu.driver import (
    DeviceMemory,
    HostBytes,
    LoadedKernel,
    QueuedLaunch,
    QueueDriver,
)
from fnx.backends.gpu.memory import ArenaMemory, GpuPool, GpuStorage, aligned
from fnx.backends.gpu.recorded import Records, Straight, straight
from fnx.backends.gpu.transfer import sent
from fnx.backends.hcq import (
    Command,
    Commands,
    QueuedBranch,
    QueuedLoop,
    call_host,
    check_arguments,
    commands_of,
    executions,
    run_sort,
    signed,
)
from fnx.backends.kernel_runs import WaitedRuns
from fnx.core import ops, parts
from fnx.core.errors import CallbackError, DeviceError, OutOfMemoryError, Site
from fnx.core.process import fork_safe_lock
from fnx.core.program import KernelCode, Recorded
from fnx.core.rewriting.evaluate import evaluate
from fnx.core.uop import UOp, toposort
from fnx.core.weak import Deaths, WeakMemo

_IN_FLIGHT, _NAMED = 16, 4  # submissions that a fault may name, and kernels

_WORD = 4  # bytes: drivers read and write whole words

MemoryPlace = tuple[DeviceMemory, int]


class _LaunchPlan:
    """An EXEC of a kernel, with its expressions evaluated."""

    __slots__ = ("groups", "kernel", "scalars", "slots", "threads", "written")

    def __init__(self, command: Command, code: KernelCode, kernel: LoadedKernel,
                 driver: QueueDriver) -> None:
        env: dict[UOp | int, int] = {i: signed(s) for i, s in enumerate(command.scalars)}
        nodes = toposort([command.kernel])
        scalars = max([n.arg.slot + 1 for n in nodes if n.op is ops.VAR], default=0)
        self.kernel, self.slots = kernel, command.slots
        self.scalars = tuple([env[i] for i in range(scalars)])
        self.groups = evaluate(code.extents["groups"], env)
        self.threads = evaluate(code.extents["threads"], env)
        self.written = parts.written_slots(command.kernel)
        limits, most = driver.limits, driver.target.buffers
        bound = parts.most_bound(command.slots) if most else 0
        if bound > most:
            raise DeviceError(
                f"{driver.name}: expected a kernel of at most {most} buffers, got {bound} for "
                f"{command.name}",
                hint="several calls, each of fewer arrays; or join arrays to one",
                sites=command.node.arg.sites)
        if self.groups > limits.groups or self.threads > limits.threads:
            raise DeviceError(
                f"{driver.name}: expected at most {limits.groups:,} groups of {limits.threads:,} "
                f"threads, got {self.groups:,} of {self.threads:,} for {command.name}",
                hint="compute it in parts", sites=command.node.arg.sites)


def _result_sites(commands: Commands) -> dict[int, Site]:
    """Return, for each result, the user's source location of the command that fills it."""
    turns: defaultdict[int, int] = defaultdict(int)
    return {slot.index: command.node.arg.sites[0] for command in executions(commands)
            if command.node.arg.sites for i in parts.written_slots(command.kernel)
            if (slot := parts.slot_in(command.slots[i], turns)).kind == "out"}


class GpuCommandBuffer(CommandBuffer):
    """Encoded commands: a launch plan for each EXEC."""

    __slots__ = ("_arena", "_code", "_device", "_pool", "_sites", "commands", "plans", "straight")

    def __init__(self, device: GpuDevice, commands: Commands, code: Mapping[UOp, KernelCode],
                 arena: int) -> None:
        self._device, self._arena = device, arena
        self.commands, self._code = commands, code
        self._sites = _result_sites(commands)
        self._load()

    def _load(self) -> None:
        """Load the kernels and create the plans; called again after the device was reopened."""
        device = self._device
        self.plans, self._pool = device.plans(self.commands, self._code), device.pool
        self.straight = straight(self.commands, self.plans, device.pool)
        if self.straight is not None:
            device.replayed.add(self.straight)
            device.ended.watch(self, self.straight.records)

    @property
    def temporary(self) -> int:
        """Bytes of the arena."""
        return self._arena

    def submit(self, ins: Sequence[Any], outs: Sequence[Any],
               begin: Callable[[], None] | None = None) -> None:
        """Queue the commands; returns when all are queued."""
        device = self._device
        device.alive()
        check_arguments(self.commands, len(ins), len(outs))
        with device.lock:
            given = [device.settled(storage) for storage in ins]
            with device.watching(self):
                self._queue(given, outs, begin)

    def _queue(self, ins: Sequence[Any], outs: Sequence[Any], begin: Callable[[], None] | None
               ) -> None:
        device = self._device
        if self._pool is not device.pool:
            self._load()
        for i, site in self._sites.items():
            outs[i].piece.site = site
        run = _Submission(self, device, ins, outs, self._arena)
        if self.straight is not None and device.runs is None:
            given = [device.own(storage) for storage in ins]
            if begin is not None:
                begin()
            self.straight.queue(given, outs, run.arena)
        else:
            if begin is not None:
                begin()
            run.walk(self.commands)
        device.driver.submit()
        device.submissions += 1


class _Submission:
    """One submission: its memory, and the current iteration of each loop, outermost first."""

    def __init__(self, buffer: GpuCommandBuffer, device: GpuDevice, ins: Sequence[Any],
                 outs: Sequence[Any], arena: int) -> None:
        self.plans, self.device, self.driver = buffer.plans, device, device.driver
        self.arena = ArenaMemory(device.pool, arena) if arena else None
        self.ins, self.outs = [*ins], outs
        self.iteration: dict[int, int] = {}

    # ---- memory

    def place(self, memory: UOp) -> MemoryPlace:
        """Return the memory and offset of a SLOT or SWAP in the current iteration."""
        slot = parts.slot_in(memory, self.iteration)
        at = slot.offset + sum([s * self.iteration[i] for i, s in enumerate(slot.strides) if s])
        if slot.kind == "arena":
            assert self.arena is not None
            return self.arena.memory, at
        if slot.kind == "out":
            return self.outs[slot.index].memory, at
        self.ins[slot.index] = own = self.device.own(self.ins[slot.index])
        return own.memory, at

    def touched(self, memory: UOp) -> None:
        """Invalidate host copies of a slot that is about to be written."""
        slot = parts.slot_in(memory, self.iteration)
        if slot.kind != "arena":
            (self.outs if slot.kind == "out" else self.ins)[slot.index].written()

    def read(self, memory: UOp) -> HostBytes:
        """Read the bytes of a slot into host memory, after queued work."""
        slot = parts.slot_in(memory, self.iteration)
        if slot.kind == "in" and not self.device.is_own(self.ins[slot.index]):
            window: HostBytes = self.ins[slot.index].view(np.dtype(np.uint8),
                                                      (self.ins[slot.index].nbytes,))
            return window[slot.offset:slot.offset + slot.nbytes].copy()
        if not slot.nbytes:
            return aligned(0)
        words, after = self._words(memory)
        if words.nbytes == slot.nbytes:
            return words
        found = aligned(slot.nbytes)
        found[:] = words[after:after + slot.nbytes]
        return found

    def _words(self, memory: UOp) -> tuple[HostBytes, int]:
        """Read the words that contain a slot; also return its offset in them."""
        lies, at = self.place(memory)
        end = at + parts.slot_in(memory, self.iteration).nbytes
        words = aligned((end + _WORD - 1) // _WORD * _WORD - at // _WORD * _WORD)
        self.driver.read(lies, at // _WORD * _WORD, words)
        return words, at % _WORD

    def write(self, memory: UOp, value: HostBytes) -> None:
        """Write a slot; rows of low-precision arrays share words with their neighbors."""
        lies, at = self.place(memory)
        if at % _WORD or value.nbytes % _WORD:
            words, after = self._words(memory)
            words[after:after + value.nbytes] = value
            at, value = at - after, words
        self.driver.write(lies, at, value)

    # ---- commands

    def walk(self, commands: Commands, depth: int = 0) -> None:
        """Queue commands inside ``depth`` loops."""
        for command in commands:
            if isinstance(command, Command):
                self._execute(command)
            elif isinstance(command, QueuedBranch):
                which = int(self.read(command.which)[:4].view(np.int32)[0])
                last = len(command.branches) - 1
                self.walk(command.branches[min(max(which, 0), last)], depth)
            else:
                self._loop(command, depth)

    def _loop(self, loop: QueuedLoop, depth: int) -> None:
        self.iteration[depth] = 0
        while loop.flag is not None or self.iteration[depth] != loop.trips:
            if loop.flag is not None:
                self.walk(loop.test, depth + 1)
                if not self.read(loop.flag)[0]:
                    break
            self.walk(loop.body, depth + 1)
            self.iteration[depth] += 1

    def _execute(self, command: Command) -> None:
        runs = self.device.runs
        if runs is None:
            self._run(command)
        else:
            runs.time(command, self.device.submissions, lambda: self._run(command),
                      lambda: self.driver.wait(self.driver.signal()))

    def _run(self, command: Command) -> None:
        plan = self.plans.get(command)
        if plan is None:
            self._on_host(command)
            return
        for i in plan.written:
            self.touched(plan.slots[i])
        if plan.groups:
            self.driver.exec(QueuedLaunch(plan.kernel, plan.groups, plan.threads, tuple(
                [self.place(slot) for slot in plan.slots]), plan.scalars))

    def _on_host(self, command: Command) -> None:
        """Run a HOST or a SORT: read the operands, run Python, write the results."""
        memory = [self.read(slot) for slot in command.slots]
        run = call_host if command.kernel.op is ops.HOST else run_sort
        run(command.kernel.arg, memory)
        written = parts.written_slots(command.kernel)
        for i, (slot, value) in enumerate(zip(command.slots, memory)):
            if i in written and value.size:
                self.touched(slot)
                self.write(slot, value)


class GpuDevice(DeviceBase):
    """A device on top of a driver.

    Attributes:
        submissions: number of submitted command buffers.
        runs: the open profile; None: nothing is profiled.
    """

    is_timed = True

    def __init__(self, driver: QueueDriver) -> None:
        self.driver, self.name, self.target = driver, driver.name, driver.target
        self.pool = GpuPool(driver)
        self.allocate = self._allocate
        self.lock = fork_safe_lock()
        self.submissions = self.launched = 0
        self.runs: WaitedRuns | None = None
        self._kernels: dict[bytes, LoadedKernel] = {}
        self._copies: WeakMemo[Any, GpuStorage] = WeakMemo()
        self.replayed: weakref.WeakSet[Straight] = weakref.WeakSet()
        self.ended: Deaths[Records] = Deaths()
        self.flight: deque[GpuCommandBuffer] = deque(maxlen=_IN_FLIGHT)
        self._watch_pool()
        atexit.register(self._at_exit)

    # ---- faults

    def _watch_pool(self) -> None:
        self.pool.freed, self.pool.failed = self._forget, self._failed
        self.pool.passed = self.flight.clear

    def _failed(self, error: DeviceError) -> DeviceError:
        """Describe a fault: the kernels in flight, and the source location of the first."""
        if isinstance(error, (CallbackError, OutOfMemoryError)) or self.pool.lost:
            return error
        kernels = [c for buffer in self.flight for c in executions(buffer.commands)]
        names = list(dict.fromkeys([c.name for c in kernels]))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        running = f"{', '.join(names[:_NAMED])}{more}" if names else "nothing"
        self.pool.lost = f"{running} failed"
        return DeviceError(
            f"{error.message}; in flight: {running}",
            hint="the device is opened anew at the next call; arrays in its memory are lost"
            if self.driver.reopens else "start the process again: this driver can't be opened anew",
            sites=[site for c in kernels[:1] for site in c.node.arg.sites])

    @contextlib.contextmanager
    def watching(self, buffer: GpuCommandBuffer) -> Iterator[None]:
        """Treat a driver fault while commands are queued as a fault of the device."""
        self.flight.append(buffer)
        try:
            yield
        except DeviceError as error:
            raise self._failed(error) from error

    def alive(self) -> None:
        """Reopen the device if it has failed.

        Raises:
            DeviceError: it can't be reopened.
        """
        self.driver.check_process()
        if not self.pool.lost:
            return
        with self.lock:
            if not self.driver.reopens:
                raise DeviceError(f"{self.name}: expected a device that works, got one that is "
                                  f"lost: {self.pool.lost}", hint="start the process again")
            self.driver = type(self.driver)()
            self.pool = GpuPool(self.driver)
            self.flight.clear()
            self._kernels, self._copies = {}, WeakMemo()
            self.replayed, self.ended = weakref.WeakSet(), Deaths()
            self._watch_pool()

    # ---- memory

    def _at_exit(self) -> None:
        """Finish or abort work: the driver's threads must be idle when its library is unloaded."""
        if self.driver.pid == os.getpid():
            with contextlib.suppress(Exception):
                if self.driver.is_left():
                    self.driver.abort()
                self.synchronize()

    def _forget(self, memory: DeviceMemory) -> None:
        """Drop all records on memory that is returned to the driver."""
        for commands in list(self.replayed):
            commands.forget(memory)

    def _allocate(self, sizes: Iterable[int]) -> list[GpuStorage]:
        self.alive()
        return GpuStorage.several(self.pool, sizes)

    def is_own(self, storage: Any) -> bool:
        """Whether a storage is in the memory of this device."""
        return type(storage) is GpuStorage and storage.pool is self.pool

    def settled(self, storage: Any) -> Any:
        """Make a storage independent of other devices, which may fail; host storages stay as they
        are.
        """
        if type(storage) is GpuStorage:
            storage = self.own(storage)
            storage.memory  # noqa: B018
        return storage

    def own(self, storage: Any) -> GpuStorage:
        """Return a storage in the memory of this device: itself, or a copy, which is cached."""
        if type(storage) is GpuStorage and storage.pool is self.pool:
            return storage
        found = self._copies.get(storage)
        if found is None:
            storage.lent = True  # it must not change, as the copy would be stale
            found = self._copies[storage] = self.received(storage)
        return found

    def received(self, storage: Any) -> GpuStorage:
        """Copy a storage from another device, or from the host."""
        if type(storage) is not GpuStorage:
            return self.upload(storage.view(np.dtype(np.uint8), (storage.nbytes,)))
        self.alive()
        return sent(storage, self.pool)

    def upload(self, value: np.ndarray[Any, Any]) -> GpuStorage:
        """Copy an array to a new storage."""
        self.alive()
        storage = GpuStorage(self.pool, value.nbytes, of_host=True)
        storage.fill(value)
        return storage

    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode], arena: int
               ) -> GpuCommandBuffer:
        """Encode commands; all kernels that are not loaded yet become one program."""
        self.alive()
        decoded = commands_of(commands)
        found = {c.kernel: code[c.kernel] for c in executions(decoded) if c.kernel.op is ops.KERNEL}
        return GpuCommandBuffer(self, decoded, found, arena)

    def plans(self, commands: Commands, code: Mapping[UOp, KernelCode]
              ) -> Mapping[Command, _LaunchPlan]:
        """Create a plan for each EXEC of a kernel; kernels that are not loaded yet become one
        program.
        """
        found = [c for c in executions(commands) if c.kernel.op is ops.KERNEL]
        codes = {code[c.kernel].key: code[c.kernel] for c in found}
        with self.lock:
            for records in self.ended.take():
                records.end()
            fresh = {c.symbol: c for key, c in codes.items() if key not in self._kernels}
            if fresh:
                loaded = self.driver.load({symbol: c.text() for symbol, c in fresh.items()})
                self._kernels.update({c.key: loaded[symbol] for symbol, c in fresh.items()})
            return {c: _LaunchPlan(c, code[c.kernel], self._kernels[code[c.kernel].key],
                                   self.driver)
                    for c in found}

    @property
    def is_recording(self) -> bool:
        """Whether a profile is being recorded."""
        return self.runs is not None

    def record(self) -> Callable[[], Recorded]:
        """Record when each command runs; one profile at a time."""
        refuse_second_profile(self.runs)
        self.runs = runs = WaitedRuns()

        def stop() -> Recorded:
            self.runs = None
            return Recorded(runs.runs, runs.lost)
        return stop

    def synchronize(self) -> None:
        """Wait for all submitted work."""
        self.alive()
        with self.lock:
            value = self.driver.signal()
            self.driver.submit()
        self.pool.waited(self.driver.wait, value)

    def stats(self) -> dict[str, int]:
        """Submissions, loaded kernels, bytes taken from the driver and free."""
        return {"submissions": self.submissions, "kernels": len(self._kernels),
                **self.pool.stats()}
