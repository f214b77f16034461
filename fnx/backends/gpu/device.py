"""A device above its driver: encodes commands, acquires memory, interprets loops and conditions.

A command buffer is checked when it is encoded, and its arguments at each submission, before the
first command is queued. Then EXECs go to the driver in order; what runs in Python (CALLBACK, SORT),
conditions and the flags of loops wait for the queue and read what they need. Arguments in another
device's memory are copied first, and the copies cached for as long as the originals live.

If no command depends on the host, all launches are known in advance (static_launches.py): the
driver links them, and queues them at once.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.backends.device.base import CommandBuffer, DeviceBase, check_no_open_profile
from fnx.backends.device.hcq import (
    HOST_COMMANDS,
    Command,
    Commands,
    QueuedBranch,
    QueuedLoop,
    check_arguments,
    collect_execs,
    decode_commands,
    to_signed,
)
from fnx.backends.device.profiling import SignalProfiler, SynchronousProfiler
from fnx.backends.device.queues import CommandLabel
from fnx.backends.gpu.driver import (
    DeviceMemory,
    HostBytes,
    LoadedKernel,
    QueuedLaunch,
    QueueDriver,
)
from fnx.backends.gpu.memory import ArenaMemory, GpuPool, GpuStorage, aligned_empty, block_size
from fnx.backends.gpu.static_launches import (
    MAX_LAUNCHES,
    LinkHolder,
    StaticLaunchPlan,
    loop_strips,
    static_program,
)
from fnx.backends.gpu.transfer import send
from fnx.core.ir import accessors, ops
from fnx.core.ir.cache import DeathQueue, find_memo, memos_of
from fnx.core.ir.kernel_code import KernelCode, RunTrace
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support import errors
from fnx.core.support.errors import CallbackError, DeviceError, Location, OutOfMemoryError
from fnx.core.support.process import at_exit, fork_safe_lock

_IN_FLIGHT, _MAX_REPORTED = 16, 4  # submissions that a fault may name, and kernels
_WORD = 4  # bytes: drivers read and write whole words
_said: dict[Any, Any] = {}  # the registry of the module warnings: what was said once

MemoryLocation = tuple[DeviceMemory, int]


class _LaunchPlan:
    """An EXEC of a kernel, with its expressions evaluated."""

    __slots__ = ("command", "groups", "kernel", "scalars", "sizes", "slots", "threads", "written")

    def __init__(self, command: Command, code: KernelCode, kernel: LoadedKernel,
                 driver: QueueDriver) -> None:
        env: dict[UOp | int, int] = {i: to_signed(s) for i, s in enumerate(command.scalars)}
        nodes = toposort([command.kernel])
        scalars = accessors.count_slots(nodes, ops.VAR) \
            if command.kernel.op is ops.KERNEL else len(command.scalars)
        self.command, self.kernel, self.slots = command, kernel, command.slots
        self.sizes = tuple([accessors.possible_slots(slot)[0].nbytes for slot in command.slots])
        self.scalars = tuple([env[i] for i in range(scalars)])
        self.groups, self.threads = [evaluate(code.extents[name], env) for name in driver.extents]
        self.written = frozenset(accessors.written_slots(command.kernel))
        limits, max_buffers = driver.limits, driver.target.max_buffers
        buffers_bound = accessors.max_bindings(command.slots) if max_buffers else 0
        if buffers_bound > max_buffers:
            raise DeviceError(
                f"{driver.name}: expected a kernel of at most {max_buffers} buffers, got "
                f"{buffers_bound} for "
                f"{command.name}",
                hint="split it into calls with fewer arrays, or concatenate arrays",
                locs=command.node.arg.locs)
        if self.groups > limits.groups or self.threads > limits.threads:
            raise DeviceError(
                f"{driver.name}: expected at most {limits.groups:,} groups of {limits.threads:,} "
                f"threads, got {self.groups:,} of {self.threads:,} for {command.name}",
                hint="compute it in parts", locs=command.node.arg.locs)


def _result_sites(commands: Commands) -> dict[int, Location]:
    """Return, for each result, the user's source location of the command that fills it."""
    iteration: defaultdict[int, int] = defaultdict(int)
    return {slot.index: command.node.arg.locs[0] for command in collect_execs(commands)
            if command.node.arg.locs for i in accessors.written_slots(command.kernel)
            if (slot := accessors.resolve_slot(command.slots[i], iteration)).kind == "out"}


class GpuCommandBuffer(CommandBuffer):
    """Encoded commands: a launch plan for each EXEC."""

    __slots__ = ("_arena", "_code", "_counts", "_device", "_pool", "_sites", "commands", "plans",
                 "program")

    def __init__(self, device: GpuDevice, commands: Commands, code: Mapping[UOp, KernelCode],
                 arena: int) -> None:
        self._device, self._arena, self._counts = device, arena, (-1, -1)
        self.commands, self._code = commands, code
        self._sites = _result_sites(commands)
        self._load()

    def _load(self) -> None:
        """Load the kernels and create the plans; called again after the device was reopened."""
        device = self._device
        self.plans, self._pool = device.plans(self.commands, self._code), device.pool
        self.program = static_program(self.commands, self.plans, device.pool)

    def _register(self, plan: StaticLaunchPlan) -> None:
        """Release what is linked for a launch list with this command buffer."""
        self._device.dead_links.watch(self, plan.holder)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of the arena."""
        return self._arena

    def submit(self, ins: Sequence[Any], outs: Sequence[Any],
               on_commit: Callable[[], None] | None = None) -> None:
        """Queue the commands; returns when all are queued."""
        device = self._device
        device.reopen_if_lost()
        if self._counts != (len(ins), len(outs)):  # of a call that was checked
            check_arguments(self.commands, len(ins), len(outs))
            self._counts = len(ins), len(outs)
        with device.lock:
            pool = device.pool
            is_local = not [s for s in ins if type(s) is not GpuStorage or s.pool is not pool
                            or s.incoming is not None]
            if not is_local:
                ins = [device.complete_transfer(storage) for storage in ins]
            device.in_flight.append(self)
            try:
                self._queue(ins, outs, on_commit, is_local)
            except DeviceError as error:  # a fault of the device
                raise device.fault(error) from error

    def _queue(self, ins: Sequence[Any], outs: Sequence[Any], on_commit: Callable[[], None] | None,
               is_local: bool) -> None:
        device = self._device
        if self._pool is not device.pool:
            self._load()
        for i, site in self._sites.items():
            outs[i].piece.loc = site
        program = self.program if device.runs is None else None
        if not (is_local or program is None):
            ins = [device.to_device(storage) for storage in ins]
        arena = ArenaMemory(device.pool, self._arena) if self._arena else None
        if on_commit is not None:
            on_commit()
        if program is not None:
            program.queue(ins, outs, arena, lambda slot: _Submission(
                self, device, ins, outs, arena).read(slot), self._register)
        else:
            _Submission(self, device, ins, outs, arena).walk(self.commands)
            device.driver.submit()
        device.submissions += 1


class _Submission:
    """One submission: its memory, and the current iteration of each loop, outermost first."""

    def __init__(self, buffer: GpuCommandBuffer, device: GpuDevice, ins: Sequence[Any],
                 outs: Sequence[Any], arena: ArenaMemory | None) -> None:
        self.plans, self.device, self.driver = buffer.plans, device, device.driver
        self.ins, self.outs, self.arena = [*ins], outs, arena
        self.iteration: dict[int, int] = {}

    # ---- memory

    def place(self, memory: UOp) -> MemoryLocation:
        """Return the memory and offset of a SLOT or SWAP in the current iteration."""
        slot = accessors.resolve_slot(memory, self.iteration)
        offset = slot.offset + sum([s * self.iteration[i] for i, s in enumerate(slot.strides) if s])
        if slot.kind == "arena":
            assert self.arena is not None
            return self.arena.memory, offset
        if slot.kind == "out":
            return self.outs[slot.index].memory, offset
        self.ins[slot.index] = storage = self.device.to_device(self.ins[slot.index])
        return storage.memory, offset

    def invalidate(self, memory: UOp) -> None:
        """Invalidate host copies of a slot that is about to be written."""
        slot = accessors.resolve_slot(memory, self.iteration)
        if slot.kind != "arena":
            (self.outs if slot.kind == "out" else self.ins)[slot.index].written()

    def read(self, memory: UOp) -> HostBytes:
        """Read the bytes of a slot into host memory, after queued work."""
        slot = accessors.resolve_slot(memory, self.iteration)
        if slot.kind == "in" and not self.device.is_on_device(self.ins[slot.index]):
            window: HostBytes = self.ins[slot.index].view(np.dtype(np.uint8),
                                                          (self.ins[slot.index].nbytes,))
            return window[slot.offset:slot.offset + slot.nbytes].copy()
        if not slot.nbytes:
            return aligned_empty(0)
        words, start = self._words(memory)
        if words.nbytes == slot.nbytes:
            return words
        content = aligned_empty(slot.nbytes)
        content[:] = words[start:start + slot.nbytes]
        return content

    def _words(self, memory: UOp) -> tuple[HostBytes, int]:
        """Read the words that contain a slot; also return its offset in them."""
        device_memory, offset = self.place(memory)
        end = offset + accessors.resolve_slot(memory, self.iteration).nbytes
        words = aligned_empty((end + _WORD - 1) // _WORD * _WORD - offset // _WORD * _WORD)
        self.driver.read(device_memory, offset // _WORD * _WORD, words)
        return words, offset % _WORD

    def write(self, memory: UOp, value: HostBytes) -> None:
        """Write a slot; rows of low-precision arrays share words with their neighbors."""
        device_memory, offset = self.place(memory)
        if offset % _WORD or value.nbytes % _WORD:
            words, start = self._words(memory)
            words[start:start + value.nbytes] = value
            offset, value = offset - start, words
        self.driver.write(device_memory, offset, value)

    # ---- commands

    def walk(self, commands: Commands, depth: int = 0) -> None:
        """Queue commands inside ``depth`` loops."""
        for command in commands:
            if isinstance(command, Command):
                self._execute(command)
            elif isinstance(command, QueuedBranch):
                which = int(self.read(command.branch_index)[:4].view(np.int32)[0])
                last = len(command.branches) - 1
                self.walk(command.branches[min(max(which, 0), last)], depth)
            else:
                self._loop(command, depth)

    def _loop(self, loop: QueuedLoop, depth: int) -> None:
        self.iteration[depth] = 0
        if loop.may_overrun:
            for strip in loop_strips(loop, self.read, MAX_LAUNCHES):
                for _ in range(strip):
                    self.walk(loop.body, depth + 1)
            return
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
                      lambda: self.driver.wait(self.driver.signal()), command not in self.plans)

    def _run(self, command: Command) -> None:
        plan = self.plans.get(command)
        if plan is None:
            self._run_on_host(command)
            return
        for i in plan.written:
            self.invalidate(plan.slots[i])
        if plan.groups:
            self.driver.exec(QueuedLaunch(plan.kernel, plan.groups, plan.threads, tuple(
                [self.place(slot) for slot in plan.slots]), plan.scalars, plan.sizes, plan.written,
                plan.command))

    def _run_on_host(self, command: Command) -> None:
        """Run a CALLBACK, SORT or LINALG: read the operands, run Python, write the results."""
        memory = [self.read(slot) for slot in command.slots]
        HOST_COMMANDS[command.kernel.op](command.kernel.arg, memory)
        written = accessors.written_slots(command.kernel)
        for i, (slot, value) in enumerate(zip(command.slots, memory)):
            if i in written and value.size:
                self.invalidate(slot)
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
        self.allocate = lambda sizes: self.results([*sizes])()
        self.lock = fork_safe_lock()
        self.submissions = 0
        self.runs: SignalProfiler | SynchronousProfiler | None = None
        self.dead_links: DeathQueue[LinkHolder] = DeathQueue()
        self.in_flight: deque[GpuCommandBuffer] = deque(maxlen=_IN_FLIGHT)
        self._connect_pool()
        at_exit(self._at_exit)

    # ---- faults

    def _connect_pool(self) -> None:
        self._kernels: dict[bytes, LoadedKernel] = {}
        self.pool.failed = self.fault
        self.pool.on_all_done = self.in_flight.clear

    def fault(self, error: DeviceError) -> DeviceError:
        """Describe a fault: the kernels in flight, and the source location of the first."""
        if isinstance(error, (CallbackError, OutOfMemoryError)) or self.pool.lost:
            return error
        kernels = [*self.driver.stuck] or [
            CommandLabel(c.name, c.node.arg.locs)
            for buffer in self.in_flight for c in collect_execs(buffer.commands)]
        names = list(dict.fromkeys([c.name for c in kernels]))
        more = f" and {len(names) - _MAX_REPORTED} more" if len(names) > _MAX_REPORTED else ""
        running = f"{', '.join(names[:_MAX_REPORTED])}{more}" if names else "nothing"
        self.pool.lost = f"{running} failed"
        return DeviceError(
            f"{error.message}; in flight: {running}",
            hint="the device is reopened at the next call; arrays in its memory are lost"
            if self.driver.can_reopen
            else "restart the process: this driver can't be reopened",
            locs=[site for c in kernels[:1] for site in c.locs])

    def reopen_if_lost(self) -> None:
        """Reopen the device if it has failed.

        Raises:
            DeviceError: it can't be reopened.
        """
        self.driver.check_process()
        if not self.pool.lost:
            return
        with self.lock:
            if not self.driver.can_reopen:
                raise DeviceError(f"{self.name}: expected a device that works, got one that is "
                                  f"lost: {self.pool.lost}", hint="restart the process")
            self.driver.close()
            self.driver = type(self.driver)()
            self.pool = GpuPool(self.driver)
            self.in_flight.clear()
            self.dead_links = DeathQueue()
            self._connect_pool()

    # ---- memory

    def _at_exit(self) -> None:
        """Finish or abort work: the driver's threads must be idle when its library is unloaded."""
        if self.driver.pid == os.getpid():
            with contextlib.suppress(Exception):
                if self.driver.has_interrupted_work():
                    self.driver.abort()
                self.synchronize()

    def results(self, sizes: Sequence[int]) -> Callable[[], list[GpuStorage]]:
        """Return a function that allocates the results of a call."""
        classes = [(nbytes, block_size(nbytes)) for nbytes in sizes]

        def allocate() -> list[GpuStorage]:
            self.reopen_if_lost()
            return [GpuStorage(self.pool, nbytes, False, size) for nbytes, size in classes]
        return allocate

    def is_on_device(self, storage: Any) -> bool:
        """Whether a storage is in the memory of this device."""
        return type(storage) is GpuStorage and storage.pool is self.pool

    def complete_transfer(self, storage: Any) -> Any:
        """Make a storage independent of other devices, which may fail; host storages stay as they
        are.
        """
        if type(storage) is GpuStorage:
            storage = self.to_device(storage)
            storage.memory  # noqa: B018
        return storage

    def to_device(self, storage: Any) -> GpuStorage:
        """Return a storage in the memory of this device: itself, or a copy, which is cached."""
        if type(storage) is GpuStorage and storage.pool is self.pool:
            return storage
        copy: GpuStorage | None = find_memo(storage, self.pool)
        if copy is None:
            storage.is_aliased = True  # it must not change, as the copy would be stale
            copy = memos_of(storage)[self.pool] = self.receive(storage)
        return copy

    def receive(self, storage: Any) -> GpuStorage:
        """Copy a storage from another device, or from the host."""
        if type(storage) is not GpuStorage:
            return self.upload(storage.view(np.dtype(np.uint8), (storage.nbytes,)))
        self.reopen_if_lost()
        return send(storage, self.pool)

    def upload(self, value: np.ndarray[Any, Any]) -> GpuStorage:
        """Copy an array to a new storage."""
        self.reopen_if_lost()
        storage = GpuStorage(self.pool, value.nbytes, from_host=True)
        storage.fill(value)
        return storage

    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode], arena: int
               ) -> GpuCommandBuffer:
        """Encode commands; all kernels that are not loaded yet become one program."""
        self.reopen_if_lost()
        decoded = decode_commands(commands)
        kernel_codes = {c.kernel: code[c.kernel]
                        for c in collect_execs(decoded) if c.kernel.op is ops.KERNEL
                        or self.driver.native_programs and c.kernel in code}
        return GpuCommandBuffer(self, decoded, kernel_codes, arena)

    def plans(self, commands: Commands, code: Mapping[UOp, KernelCode]
              ) -> Mapping[Command, _LaunchPlan]:
        """Create a plan for each EXEC of a kernel; kernels that are not loaded yet become one
        program.
        """
        kernel_commands = [c for c in collect_execs(commands) if c.kernel in code]
        codes = {code[c.kernel].key: code[c.kernel] for c in kernel_commands}
        with self.lock:
            for holder in self.dead_links.released():
                holder.end()
            new_codes = {c.symbol: c for key, c in codes.items() if key not in self._kernels}
            if new_codes:
                loaded = self.driver.load({symbol: c.text() for symbol, c in new_codes.items()})
                self._kernels.update({c.key: loaded[symbol] for symbol, c in new_codes.items()})
            return {c: _LaunchPlan(c, code[c.kernel], self._kernels[code[c.kernel].key],
                                   self.driver)
                    for c in kernel_commands}

    @property
    def is_recording(self) -> bool:
        """Whether a profile is being recorded."""
        return self.runs is not None

    def record(self) -> Callable[[], RunTrace]:
        """Record when each command runs; one profile at a time."""
        check_no_open_profile(self.runs)
        self.reopen_if_lost()
        runs: SignalProfiler | SynchronousProfiler = SignalProfiler()
        with self.lock:  # the driver may change its queue, on which launches are linked
            is_timed = self.pool.call_driver(self.driver.set_profiler, runs)
            self.runs = runs = runs if is_timed else SynchronousProfiler()
        if not is_timed:
            errors.warn(f"{self.name} reports no times: each command of a profile is waited for, "
                        "so none overlap and short ones take longer", UserWarning, ("fnx", 0),
                        _said)

        def stop() -> RunTrace:
            try:
                self.synchronize()
                self.pool.call_driver(self.driver.report_times)
            finally:
                with self.lock, contextlib.suppress(DeviceError):  # that was raised before
                    self.runs = None
                    self.driver.set_profiler(None)
            return RunTrace(runs.runs, runs.lost, runs.workers)
        return stop

    def synchronize(self) -> None:
        """Wait for all submitted work."""
        self.reopen_if_lost()
        with self.lock:
            value = self.driver.signal()
            self.driver.submit()
        self.pool.waited(self.driver.wait, value)

    def stats(self) -> dict[str, int]:
        """Submissions, loaded kernels, bytes taken from the driver and free."""
        return {"submissions": self.submissions, "kernels": len(self._kernels),
                **self.pool.stats()}
