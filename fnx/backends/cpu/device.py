"""The host as a queue device: pooled memory, kernels from LLVM, a native command loop.

A command buffer is encoded once into words that the native loop interprets (runtime.py). A call
writes its argument pointers into a leased block and passes two addresses to the native loop. Short
buffers run on the calling thread if nothing is pending; longer ones are queued for the workers. PAR
ranges are split into chunks whose limits depend only on the kernel and the target, so the number of
workers changes no bit of a result.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from fnx.backends.allocator import Pool, PoolBlock, held, machine_memory
from fnx.backends.base import refuse_second_profile
from fnx.backends.cost_estimate import nanoseconds
from fnx.backends.cpu import callbacks, layout
from fnx.backends.cpu.direct import Direct
from fnx.backends.cpu.encoding import FOREVER, Encoder, Place
from fnx.backends.cpu.entry import MOST_WORDS
from fnx.backends.cpu.layout import MOST_CHUNKS
from fnx.backends.cpu.queue import CpuQueue, native
from fnx.backends.cpu.recording import Recording
from fnx.backends.hcq import (
    Command,
    Commands,
    HostDevice,
    HostStorage,
    Leasing,
    QueuedBranch,
    QueuedLoop,
    check_arguments,
    commands_of,
    executions,
    memory_of,
    signed,
)
from fnx.backends.llvm import binding
from fnx.backends.llvm.host import cache_bytes
from fnx.backends.llvm.kernels import Kernels, LinkedKernel
from fnx.core import build_commands, host, ops, parts
from fnx.core.arithmetic import flops
from fnx.core.config import config
from fnx.core.direct import DirectCall
from fnx.core.errors import OutOfMemoryError, SpecError
from fnx.core.limits import arithmetic_of
from fnx.core.op_args import Linked
from fnx.core.process import at_fork, fork_safe_lock
from fnx.core.program import KernelCode, MissingObjectError, Recorded, known_by_key
from fnx.core.rewriting.evaluate import evaluate
from fnx.core.target import Target
from fnx.core.uop import UOp, forget_dead, substitute

# Estimated nanoseconds up to which a buffer runs on the calling thread: elapsed, and of idle
# workers' time, in which the caller could do something else. The hand-off to workers and back costs
# some 50,000.
SHORT, IDLE = 2_000_000.0, 150_000.0
TINY = 5_000.0  # ... and up to which the GIL is not released, as that would cost more
ALONE = 120_000.0  # nanoseconds of work up to which waking a worker does not pay
CHUNK = 15_000.0  # least nanoseconds of a chunk, if there are more chunks than workers
SHARE = 3_000.0  # ... if there are not
LONG_CHUNK = 20_000_000.0  # ... and most, roughly: work can be aborted between chunks
CHUNKS_PER_CORE = 16
STEP, SLOT = 20.0, 8.0  # nanoseconds per loop iteration, and per slot of its commands

T = TypeVar("T")

_pointer = attrgetter("ptr")
_laying_out = fork_safe_lock()


class _KernelPlan:
    """The launch plan of a kernel with given scalars: its expressions evaluated."""

    __slots__ = ("chunk", "chunks", "idle", "iterations", "kernel", "scratch", "short", "span",
                 "work")

    def __init__(self, command: Command, code: KernelCode, kernel: LinkedKernel, cores: int
                 ) -> None:
        self.kernel = kernel
        if command.kernel.op is ops.LINKED:
            arg = command.kernel.arg
            self.iterations, self.scratch, self.work = arg.parallel, arg.scratch, arg.nanoseconds
            if self.scratch > machine_memory():  # it can't have run on this machine
                raise MissingObjectError(f"{arg.name} with {self.scratch} bytes of scratch")
        else:
            env: dict[UOp | int, int] = {i: signed(s) for i, s in enumerate(command.scalars)}
            self.iterations = evaluate(code.extents["parallel"], env)
            self.scratch = evaluate(code.extents["scratch"], env)
            self.work = nanoseconds(command.kernel, env)
        rounds = min(CHUNKS_PER_CORE, int(self.work / (CHUNK * cores)))  # equal parts for all
        most = min(int(self.work / SHARE), cores * max(1, rounds))
        most = min(self.iterations, MOST_CHUNKS, max(most, int(self.work / LONG_CHUNK)))
        self.chunk = max(1, -(-self.iterations // max(1, most)))
        self.chunks = -(-self.iterations // self.chunk)
        self.short = int(self.work) if self.work < ALONE else 0
        self.span = self.work / max(1, min(cores, self.chunks))
        self.idle = self.span - self.work / cores


def _linked(command: Command, plan: _KernelPlan) -> UOp:
    """Return the EXEC of a command, over a LINKED."""
    kernel, scalars = command.kernel, [signed(s) for s in command.scalars]
    arg = Linked(kernel.arg.name, plan.kernel.key, tuple(sorted(parts.written_slots(kernel))),
                 plan.iterations, plan.scratch, plan.work, flops(kernel, scalars),
                 arithmetic_of(kernel))
    return command.node.replace(src=(build_commands.linked(arg), *command.node.src[1:]))


def _sum(commands: Commands, of: Mapping[Command, float]) -> float:
    """Return the sum of ``of`` over commands, with loop overhead; infinite for a loop with a
    condition.
    """
    total = 0.0
    for c in commands:
        if isinstance(c, Command):
            total += of[c]
        elif isinstance(c, QueuedBranch):
            total += max([_sum(branch, of) for branch in c.branches])
        elif c.trips is None:
            return math.inf
        else:
            count = len(memory_of(c.body))
            total += c.trips * (STEP + SLOT * count + _sum(c.body, of))
    return total


def _steps_here(commands: Commands, plans: Mapping[Command, _KernelPlan | callbacks.HostPlan]
                ) -> int:
    """Return how many loop steps run on the calling thread before workers continue.

    All steps of short work. For a loop with a condition, which may be short: as many as take a
    short time.
    """
    span = _sum(commands, {c: plan.span for c, plan in plans.items()})
    if span <= SHORT and _sum(commands, {c: plan.idle for c, plan in plans.items()}) <= IDLE:
        return FOREVER
    longest = _once(commands, plans)[1]
    return max(1, int(IDLE / longest)) if math.isinf(span) and longest <= IDLE else 0


def _once(commands: Commands, plans: Mapping[Command, _KernelPlan | callbacks.HostPlan]
          ) -> tuple[float, float]:
    """Estimate the nanoseconds of commands with one iteration of each loop, and of the longest path
    from the end of one iteration to the next such end.
    """
    total = longest = 0.0
    for c in commands:
        if isinstance(c, Command):
            total += plans[c].work
            continue
        inside = [(*c.test, *c.body)] if isinstance(c, QueuedLoop) else c.branches
        parts = [_once(part, plans) for part in inside]
        once = max([part for part, _ in parts]) + STEP
        total += once
        longest = max(longest, once, *[step for _, step in parts])
    return total, max(total, longest)


class CpuCommandBuffer(Leasing):
    """Encoded commands. The number of arguments is fixed by the first submission."""

    __slots__ = ("_commands", "_counts", "_encoded", "_enter", "_entries", "_entry", "_inline",
                 "_leased", "_pack", "_plans", "_pool", "_private", "_program", "_queue", "_run",
                 "_scratch", "_shared", "_steps", "_temporary", "_words", "effects", "work")

    def __init__(self, device: CpuDevice, commands: Commands,
                 plans: dict[Command, _KernelPlan | callbacks.HostPlan], arena: int) -> None:
        self._queue, self._pool = device.queue, device.pool
        self._commands = commands
        self._plans = plans  # retains the kernels: their code lives as long as this does
        self.names = tuple([c.name for c in plans])
        self.work = _sum(commands, {c: plan.work for c, plan in plans.items()})
        self.effects = any(c.kernel.op is ops.HOST for c in plans)
        self._steps = _steps_here(commands, plans)
        self._shared = max([p.chunks for p in plans.values()], default=1) > 1
        self._entries = device.native.entries
        self._run = device.native.run_held if self.work <= TINY else device.native.run
        self._scratch = max([p.scratch for p in plans.values()], default=0)
        self._private = -(-arena // 64) * 64  # offset of scratch in the temporary memory
        self._temporary = self._private + (self._scratch if self._steps else 0)
        self._leased = self._temporary > 8 * MOST_WORDS  # smaller temporaries are on the stack
        self.leases: list[tuple[Any, int]] = []
        self._counts: tuple[int, int] | None = None
        self._inline = False  # set at the first submission, if the work is short

    def submit(self, ins: Sequence[Any], outs: Sequence[Any],
               begin: Callable[[], None] | None = None) -> None:
        """Queue the commands, or run them here if they are short and nothing is pending."""
        if not (self._inline and self._queue.clear) and self._submit(ins, outs, begin):
            return
        if begin is None and not self._leased:  # most calls, so each line here adds latency
            if self._enter(ins, outs, 0):
                return
            raise self._miscounted(ins, outs)
        block, at = None, 0
        if self._leased:
            block, give = self._memory_for_call(self._pool.take)
            at = block.ptr
        try:
            if begin is not None and self._counts == (len(ins), len(outs)):
                begin()
            if not self._enter(ins, outs, at):
                raise self._miscounted(ins, outs)
        finally:
            if block is not None:
                give(block)

    def direct(self, call: DirectCall) -> Any | None:
        """Return a record for calls without Python, or None if this is not short enough."""
        if not self._inline or self._leased or \
                self._counts != (len(call.arguments) + len(call.captured), len(call.results)):
            return None
        return Direct.record(call, self._entry, self._pool, self._queue, self)

    def _submit(self, ins: Sequence[Any], outs: Sequence[Any],
                begin: Callable[[], None] | None) -> bool:
        """Handle the general case: first submission, long work, or something is pending.

        Returns False if the work is short after all and nothing is pending: then it runs like later
        calls.
        """
        queue = self._queue
        queue.raise_failure()
        if self._counts is None:
            self._lay_out(len(ins), len(outs))
        if self._counts != (len(ins), len(outs)):
            raise self._miscounted(ins, outs)
        for storage in ins:
            queue.check(storage.timeline)
        if host.inside():
            self._run_inside(ins, outs, begin)
            return True
        here = self._steps and queue.idle() and queue.recording is None
        if here and self._inline:
            for storage in outs:
                storage.timeline = 0
            if self._shared:
                queue.share(self._scratch)
            return False
        lease = self.leases.pop() if self.leases else self._lease()
        temporary = self._memory_for_call(functools.partial(PoolBlock, self._pool))
        self._pack(lease[0], 0, temporary.ptr + self._private, temporary.ptr, 0,
                   *map(_pointer, ins), *map(_pointer, outs))
        if here:
            for storage in outs:
                storage.timeline = 0
            run, block = self._run, lease[1]
            if begin is not None:  # as in ``CpuQueue.submit``: nothing comes in between
                begin()
                begin = None
            if not run(self._program, block, self._steps, 0):
                self.leases.append(lease)
                return True
        nbytes = sum([storage.nbytes for storage in outs], temporary.nbytes)
        queue.submit(self._program, lease[1], self._scratch, outs, nbytes, begin, self, lease,
                     temporary, tuple(ins), tuple(outs))
        if self.effects:
            queue.last_effect = queue.submitted
        return True

    def _run_inside(self, ins: Sequence[Any], outs: Sequence[Any],
                    begin: Callable[[], None] | None) -> None:
        """Run it here, in a callback, however long it takes; its memory is freed at the end."""
        for storage in ins:
            storage.wait()
        lease = self.leases.pop() if self.leases else self._lease()
        temporary = PoolBlock(self._pool, self._private + max(64, self._scratch))
        scratch = temporary.ptr + self._private
        self._pack(lease[0], 0, scratch, temporary.ptr, 0, *map(_pointer, ins),
                   *map(_pointer, outs))
        if begin is not None:
            begin()
        self._queue.run_inside(self._program, lease[1], scratch)
        self.leases.append(lease)

    def _memory_for_call(self, alloc: Callable[[int], T]) -> T:
        """Allocate the arena of one call, with scratch after it."""
        try:
            return alloc(self._temporary)
        except OutOfMemoryError as e:
            kernels = ", ".join(dict.fromkeys(self.names))
            raise OutOfMemoryError(f"{e.message}; they are for the temporaries of {kernels}",
                                   hint=e.hint, site=e.site) from None

    def linked(self, commands: UOp) -> UOp:
        """Return its commands over LINKED; a HOST stays."""
        to = {c.node: c.node if isinstance(plan, callbacks.HostPlan) else _linked(c, plan)
              for c, plan in self._plans.items()}
        return substitute([commands], to)[0]

    def _lease(self) -> tuple[Any, int]:
        """Allocate an argument block; return its memory and address."""
        memory = (ctypes.c_char * (8 * self._words))()
        return memory, ctypes.addressof(memory)

    def _miscounted(self, ins: Sequence[Any], outs: Sequence[Any]) -> SpecError:
        return SpecError(f"expected {self._counts} inputs and outputs, got "
                         f"{(len(ins), len(outs))}")

    # ---- encoding -----------------------------------------------------------------------------

    def _lay_out(self, ins: int, outs: int) -> None:
        """Number the arguments and write the words that the native loop interprets."""
        check_arguments(self._commands, ins, outs)
        with _laying_out:
            if self._counts is not None:
                return
            self._encoded = Encoder(self._plans, ins, outs).encode(self._commands)
            self._program, self._words = self._encoded.address, self._encoded.words
            self._pack = struct.Struct(f"{layout.ARGUMENTS + ins + outs}q").pack_into
            self._counts = (ins, outs)
            self._enter, self._entry = self._entries.enter(
                self._program, ins, outs, self._words, self._private, self.work <= TINY,
                self._queue.home if self._shared else 0, self._scratch,
                0 if self._leased else self._temporary)
            self._inline = self._steps == FOREVER and self._words <= MOST_WORDS and \
                not self.effects

    @property
    def temporary(self) -> int:
        """Bytes of the arena, and of scratch if it runs on the calling thread."""
        return self._temporary

    @property
    def scratch(self) -> int:
        """Bytes of the workers' scratch, if they run it."""
        alone = self._steps and not (self._inline and self._shared)
        return 0 if alone else max(64, self._scratch) * self._queue.workers()

    @property
    def places(self) -> tuple[Place, ...]:
        """Description of each record."""
        return self._encoded.places

    def running(self, record: int, lease: tuple[Any, int]) -> str:
        """Describe what a record does, and the iteration of each loop around it."""
        place = self._encoded.places[record]
        words = (ctypes.c_int64 * self._words).from_address(lease[1])
        loops = [f"iteration {words[register]} of {name}" for name, register in place.loops]
        return " in ".join([place.name, *reversed(loops)])


class CpuDevice(HostDevice):
    """This machine."""

    name = "cpu"

    def __init__(self) -> None:
        host = binding.host_target()
        self.shared_cache = cache_bytes(3, 0)
        self.pool = Pool(self._reclaim)
        self.native = native(host)
        self.queue = CpuQueue(host, self.pool)
        self.allocate = functools.partial(HostStorage.several, self.pool, self.queue)
        self._kernels: dict[str, Kernels] = {}
        self._compiling = fork_safe_lock()

    @property
    def target(self) -> Target:  # type: ignore[override]
        """This processor, with the instructions that ``config.cpu`` allows."""
        return binding.host_target(config.cpu)

    @property
    def kernels(self) -> Kernels:
        """The kernels of the current target."""
        level = config.cpu
        found = self._kernels.get(level)
        if found is None:
            target = binding.host_target(level)
            with self._compiling:
                found = self._kernels.get(level)
                if found is None:
                    found = self._kernels[level] = Kernels(target)
                    atexit.register(found.helpers.end)
                    at_fork(in_child=found.in_child)
        return found

    def method(self, of: type, slot: str, python: Callable[..., Any]) -> Any | None:
        """Return a native ``__call__`` for a class whose objects hold call records in a slot."""
        return self.native.direct.method(of, slot, python)

    def results(self, sizes: Sequence[int]) -> Callable[[], list[HostStorage]]:
        """Return a function that allocates the results of a call."""
        if len(sizes) == 1:
            return HostStorage.one(self.pool, self.queue, sizes[0])
        return super().results(sizes)

    def zeros(self, nbytes: int) -> HostStorage | None:
        """Map new zero pages, if the block is large: filling memory touches each page at once."""
        return HostStorage.zeros(self.pool, self.queue, nbytes)

    def prepare(self, code: KernelCode) -> None:
        """Compile a kernel on a helper thread."""
        self.kernels.prepare(code)

    def expect(self) -> None:
        """Start the helper threads."""
        self.kernels.helpers.start()

    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode], arena: int) -> CpuCommandBuffer:
        """Compile or fetch the kernels, link them, and encode the commands."""
        decoded = commands_of(commands)
        executed = executions(decoded)
        codes = {c.kernel: known_by_key(c.kernel.arg.key) if c.kernel.op is ops.LINKED else
                 code[c.kernel] for c in executed if c.kernel.op is not ops.HOST}
        kernels = dict(zip(codes, self.kernels.get(list(codes.values()))))
        known: dict[Any, _KernelPlan | callbacks.HostPlan] = {}  # by kernel and scalars
        plans: dict[Command, _KernelPlan | callbacks.HostPlan] = {}
        for c in executed:
            key = c.kernel, c.scalars
            if c.kernel.op is ops.HOST:
                known[key] = callbacks.HostPlan(self.queue.caller)
            elif key not in known:
                known[key] = _KernelPlan(c, codes[c.kernel], kernels[c.kernel], self.target.cores)
            plans[c] = known[key]
        return CpuCommandBuffer(self, decoded, plans, arena)

    def assembly(self, text: str) -> str:
        """Return the assembly of LLVM IR."""
        return binding.assembly(text, self.target)

    is_timed = True

    @property
    def is_recording(self) -> bool:
        """Whether a profile is being recorded."""
        return self.queue.recording is not None

    def record(self) -> Callable[[], Recorded]:
        """Record when each kernel runs; one profile at a time."""
        refuse_second_profile(self.queue.recording)
        recording = Recording()
        self.queue.record(recording)

        def stop() -> Recorded:
            self.queue.record(None)
            return recording.runs(self.queue.scratches())
        return stop

    def synchronize(self) -> None:
        """Wait for all submitted work."""
        self.queue.wait_all()
        self.queue.raise_failure()

    def _reclaim(self) -> None:
        """Free what work in flight, dead nodes and reference cycles hold, before an allocation
        fails.
        """
        self.queue.wait_all()
        gc.collect()
        forget_dead()

    def held(self, sizes: Iterable[int]) -> int:
        """Bytes that the pool takes from the system for memory of these sizes."""
        return held(sizes)

    def stats(self) -> dict[str, int]:
        """Kernels compiled, fetched from disk or memory; microseconds of printing, LLVM (concurrent
        with lowering) and linking; bytes held and free; submissions.
        """
        return {**self.kernels.counts, **self.pool.stats(), "submitted": self.queue.submitted}


def device() -> CpuDevice:
    """Return the device, for ``get_device``."""
    return CpuDevice()
