"""The host as a queue device: pooled memory, kernels from LLVM, a native command loop.

A command buffer is encoded once into words that the native loop interprets (runtime.py). A call
writes its argument pointers into a pooled block and passes two addresses to the native loop. Short
buffers run on the calling thread if nothing is pending; longer ones are queued for the workers. PAR
ranges are split into chunks whose limits depend only on the kernel and the target, so the number of
workers changes no bit of a result.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from fnx.backends.cpu import callbacks, layout
from fnx.backends.cpu.call_entry import MAX_STACK_WORDS
from fnx.backends.cpu.encoding import UNBOUNDED, Encoder, RecordInfo
from fnx.backends.cpu.layout import MOST_CHUNKS
from fnx.backends.cpu.native_call import NativeCallFactory
from fnx.backends.cpu.native_runtime import native_runtime
from fnx.backends.cpu.profile_events import EventRecording
from fnx.backends.cpu.queue import CpuQueue
from fnx.backends.device.allocator import Pool, PoolBlock, machine_memory, reserved_bytes
from fnx.backends.device.base import check_no_open_profile
from fnx.backends.device.cost_model import estimate_ns
from fnx.backends.device.hcq import (
    Command,
    Commands,
    HostStorage,
    PooledCommandBuffer,
    QueuedBranch,
    QueuedLoop,
    check_arguments,
    collect_execs,
    decode_commands,
    slots_of,
    to_signed,
)
from fnx.backends.device.host import HostDevice
from fnx.backends.llvm import binding
from fnx.backends.llvm.host_cpu import cache_bytes
from fnx.backends.llvm.kernel_cache import KernelCache, LinkedKernel
from fnx.core.ir import accessors, build_calls, ops
from fnx.core.ir.kernel_args import Linked
from fnx.core.ir.kernel_code import (
    KernelCode,
    MissingObjectError,
    NativeCall,
    RunTrace,
    linked_code,
)
from fnx.core.ir.uop import UOp, drop_dead_entries, substitute
from fnx.core.rewriting.algebra import evaluate
from fnx.core.rewriting.peak_rates import accessed_bytes, arithmetic_type, count_flops
from fnx.core.scope import callbacks as host
from fnx.core.support.config import config
from fnx.core.support.errors import OutOfMemoryError, SpecError
from fnx.core.support.process import at_exit, at_fork, fork_safe_lock
from fnx.core.support.target import Target

# Estimated nanoseconds up to which a buffer runs on the calling thread: elapsed, and of idle
# workers' time, in which the caller could do something else. The hand-off to workers and back costs
# some 50,000.
SHORT_NS, MAX_IDLE_NS = 2_000_000.0, 150_000.0
TINY_NS = 5_000.0  # ... and up to which the GIL is not released, as that would cost more
MIN_SHARED_NS = 120_000.0  # nanoseconds of work up to which waking a worker does not pay
MIN_CHUNK_NS = 15_000.0  # least nanoseconds of a chunk, if there are more chunks than workers
MIN_SHARE_NS = 3_000.0  # ... if there are not
MAX_CHUNK_NS = 20_000_000.0  # ... and most, roughly: work can be aborted between chunks
CHUNKS_PER_CORE = 16
STEP_NS, SLOT_NS = 20.0, 8.0  # nanoseconds per loop iteration, and per slot of its commands

T = TypeVar("T")

_pointer = attrgetter("ptr")
_encode_lock = fork_safe_lock()


class _KernelPlan:
    """The launch plan of a kernel with given scalars: its expressions evaluated."""

    __slots__ = ("chunk", "chunks", "idle", "iterations", "kernel", "scratch", "short",
                 "elapsed_ns", "work")

    def __init__(self, command: Command, code: KernelCode, kernel: LinkedKernel, cores: int
                 ) -> None:
        self.kernel = kernel
        if command.kernel.op is ops.LINKED:
            arg = command.kernel.arg
            self.iterations, self.scratch, self.work = arg.parallel, arg.scratch, arg.nanoseconds
            if self.scratch > machine_memory():  # it can't have run on this machine
                raise MissingObjectError(f"{arg.name} with {self.scratch} bytes of scratch")
        else:
            env: dict[UOp | int, int] = {i: to_signed(s) for i, s in enumerate(command.scalars)}
            self.iterations = evaluate(code.extents["parallel"], env)
            self.scratch = evaluate(code.extents["scratch"], env)
            self.work = estimate_ns(command.kernel, env)
        # equal parts for all
        rounds = min(CHUNKS_PER_CORE, int(self.work / (MIN_CHUNK_NS * cores)))
        max_chunks = min(int(self.work / MIN_SHARE_NS), cores * max(1, rounds))
        max_chunks = min(self.iterations, MOST_CHUNKS,
                         max(max_chunks, int(self.work / MAX_CHUNK_NS)))
        self.chunk = max(1, -(-self.iterations // max(1, max_chunks)))
        self.chunks = -(-self.iterations // self.chunk)
        self.short = int(self.work) if self.work < MIN_SHARED_NS else 0
        self.elapsed_ns = self.work / max(1, min(cores, self.chunks))
        self.idle = self.elapsed_ns - self.work / cores


def _linked_exec(command: Command, plan: _KernelPlan) -> UOp:
    """Return the EXEC of a command, over a LINKED."""
    kernel, scalars = command.kernel, [to_signed(s) for s in command.scalars]
    accessed = accessed_bytes(kernel, scalars)
    arg = Linked(kernel.arg.name, plan.kernel.key, tuple(sorted(accessors.written_slots(kernel))),
                 plan.iterations, plan.scratch, plan.work, count_flops(kernel, scalars),
                 arithmetic_type(kernel), None if accessed is None else tuple(accessed.items()))
    return command.node.replace(src=(build_calls.linked_callee(arg), *command.node.src[1:]))


def _total_ns(commands: Commands, cost_of: Mapping[Command, float]) -> float:
    """Return the sum of ``cost_of`` over commands, with loop overhead; infinite for a loop with a
    condition.
    """
    total = 0.0
    for c in commands:
        if isinstance(c, Command):
            total += cost_of[c]
        elif isinstance(c, QueuedBranch):
            total += max([_total_ns(branch, cost_of) for branch in c.branches])
        elif c.trips is None:
            return math.inf
        else:
            count = len(slots_of(c.body))
            total += c.trips * (STEP_NS + SLOT_NS * count + _total_ns(c.body, cost_of))
    return total


def _inline_steps(commands: Commands, plans: Mapping[Command, _KernelPlan | callbacks.CallbackPlan]
                  ) -> int:
    """Return how many loop steps run on the calling thread before workers continue.

    All steps of short work. For a loop with a condition, which may be short: as many as take a
    short time.
    """
    span = _total_ns(commands, {c: plan.elapsed_ns for c, plan in plans.items()})
    if span <= SHORT_NS and _total_ns(commands,
                                      {c: plan.idle for c, plan in plans.items()}) <= MAX_IDLE_NS:
        return UNBOUNDED
    longest = _single_pass_ns(commands, plans)[1]
    return max(1, int(MAX_IDLE_NS / longest)) if math.isinf(span) and longest <= MAX_IDLE_NS else 0


def _single_pass_ns(commands: Commands,
                    plans: Mapping[Command, _KernelPlan | callbacks.CallbackPlan]
                    ) -> tuple[float, float]:
    """Estimate the nanoseconds of commands with one iteration of each loop, and of the longest path
    from the end of one iteration to the next such end.
    """
    total = longest = 0.0
    for c in commands:
        if isinstance(c, Command):
            total += plans[c].work
            continue
        bodies = [(*c.test, *c.body)] if isinstance(c, QueuedLoop) else c.branches
        parts = [_single_pass_ns(part, plans) for part in bodies]
        once = max([part for part, _ in parts]) + STEP_NS
        total += once
        longest = max(longest, once, *[step for _, step in parts])
    return total, max(total, longest)


class CpuCommandBuffer(PooledCommandBuffer):
    """Encoded commands. The number of arguments is fixed by the first submission."""

    __slots__ = ("_commands", "_counts", "_encoded", "_enter", "_entries", "_entry", "_inline",
                 "_needs_allocation", "_pack", "_plans", "_pool", "_private", "_program", "_queue",
                 "_run", "_scratch", "_shared", "_steps", "_temporary", "_words", "effects", "work")

    def __init__(self, device: CpuDevice, commands: Commands,
                 plans: dict[Command, _KernelPlan | callbacks.CallbackPlan], arena: int) -> None:
        self._queue, self._pool = device.queue, device.pool
        self._commands = commands
        self._plans = plans  # retains the kernels: their code lives as long as this does
        self.names = tuple([c.name for c in plans])
        self.work = _total_ns(commands, {c: plan.work for c, plan in plans.items()})
        self.effects = any(c.kernel.op is ops.CALLBACK for c in plans)
        self._steps = _inline_steps(commands, plans)
        self._shared = max([p.chunks for p in plans.values()], default=1) > 1
        self._entries = device.native.entries
        self._run = device.native.run_held if self.work <= TINY_NS else device.native.run
        self._scratch = max([p.scratch for p in plans.values()], default=0)
        self._private = -(-arena // 64) * 64  # offset of scratch in the temporary memory
        self._temporary = self._private + (self._scratch if self._steps else 0)
        # smaller temporaries are on the stack
        self._needs_allocation = self._temporary > 8 * MAX_STACK_WORDS
        self.free_call_states: list[tuple[Any, int]] = []
        self._counts: tuple[int, int] | None = None
        self._inline = False  # set at the first submission, if the work is short

    def submit(self, ins: Sequence[Any], outs: Sequence[Any],
               on_commit: Callable[[], None] | None = None) -> None:
        """Queue the commands, or run them here if they are short and nothing is pending."""
        if not (self._inline and self._queue.clear) and self._submit(ins, outs, on_commit):
            return
        # most calls, so each line here adds latency
        if on_commit is None and not self._needs_allocation:
            if self._enter(ins, outs, 0):
                return
            raise self._count_error(ins, outs)
        block, address = None, 0
        if self._needs_allocation:
            block, push = self._allocate_temporary(self._pool.take)
            address = block.ptr
        try:
            if on_commit is not None and self._counts == (len(ins), len(outs)):
                on_commit()
            if not self._enter(ins, outs, address):
                raise self._count_error(ins, outs)
        finally:
            if block is not None:
                push(block)

    def native_record(self, call: NativeCall) -> Any | None:
        """Return a record for calls without Python, or None if this is not short enough."""
        if not self._inline or self._needs_allocation or \
                self._counts != (len(call.arguments) + len(call.captured), len(call.results)):
            return None
        return NativeCallFactory.record(call, self._entry, self._pool, self._queue, self)

    def _submit(self, ins: Sequence[Any], outs: Sequence[Any],
                on_commit: Callable[[], None] | None) -> bool:
        """Handle the general case: first submission, long work, or something is pending.

        Returns False if the work is short after all and nothing is pending: then it runs like later
        calls.
        """
        queue = self._queue
        queue.raise_failure()
        if self._counts is None:
            self._encode_words(len(ins), len(outs))
        if self._counts != (len(ins), len(outs)):
            raise self._count_error(ins, outs)
        for storage in ins:
            queue.check(storage.timeline)
        if host.in_callback():
            self._run_inline(ins, outs, on_commit)
            return True
        here = self._steps and queue.idle() and queue.recording is None
        if here and self._inline:
            for storage in outs:
                storage.timeline = 0
            if self._shared:
                queue.ensure_workers(self._scratch)
            return False
        state = self.free_call_states.pop() if self.free_call_states else self._new_call_state()
        temporary = self._allocate_temporary(functools.partial(PoolBlock, self._pool))
        self._pack(state[0], 0, temporary.ptr + self._private, temporary.ptr, 0,
                   *map(_pointer, ins), *map(_pointer, outs))
        if here:
            for storage in outs:
                storage.timeline = 0
            run, block = self._run, state[1]
            if on_commit is not None:  # as in ``CpuQueue.submit``: nothing comes in between
                on_commit()
                on_commit = None
            if not run(self._program, block, self._steps, 0):
                self.free_call_states.append(state)
                return True
        nbytes = sum([storage.nbytes for storage in outs], temporary.nbytes)
        queue.submit(self._program, state[1], self._scratch, outs, nbytes, on_commit, self, state,
                     temporary, tuple(ins), tuple(outs))
        if self.effects:
            queue.last_effect = queue.submitted
        return True

    def _run_inline(self, ins: Sequence[Any], outs: Sequence[Any],
                    on_commit: Callable[[], None] | None) -> None:
        """Run it here, in a callback, however long it takes; its memory is freed at the end."""
        for storage in ins:
            storage.wait()
        state = self.free_call_states.pop() if self.free_call_states else self._new_call_state()
        temporary = PoolBlock(self._pool, self._private + max(64, self._scratch))
        scratch = temporary.ptr + self._private
        self._pack(state[0], 0, scratch, temporary.ptr, 0, *map(_pointer, ins),
                   *map(_pointer, outs))
        if on_commit is not None:
            on_commit()
        self._queue.run_inline(self._program, state[1], scratch)
        self.free_call_states.append(state)

    def _allocate_temporary(self, alloc: Callable[[int], T]) -> T:
        """Allocate the arena of one call, with scratch after it."""
        try:
            return alloc(self._temporary)
        except OutOfMemoryError as e:
            kernels = ", ".join(dict.fromkeys(self.names))
            raise OutOfMemoryError(f"{e.message}; they are for the temporaries of {kernels}",
                                   hint=e.hint, loc=e.loc) from None

    def linked(self, commands: UOp) -> UOp:
        """Return its commands over LINKED; a CALLBACK stays."""
        replacements = {c.node: c.node if isinstance(plan, callbacks.CallbackPlan)
                        else _linked_exec(c, plan)
                        for c, plan in self._plans.items()}
        return substitute([commands], replacements)[0]

    def _new_call_state(self) -> tuple[Any, int]:
        """Allocate an argument block; return its memory and address."""
        memory = (ctypes.c_char * (8 * self._words))()
        return memory, ctypes.addressof(memory)

    def _count_error(self, ins: Sequence[Any], outs: Sequence[Any]) -> SpecError:
        return SpecError(f"expected {self._counts} inputs and outputs, got "
                         f"{(len(ins), len(outs))}")

    # ---- encoding -----------------------------------------------------------------------------

    def _encode_words(self, ins: int, outs: int) -> None:
        """Number the arguments and write the words that the native loop interprets."""
        check_arguments(self._commands, ins, outs)
        with _encode_lock:
            if self._counts is not None:
                return
            self._encoded = Encoder(self._plans, ins, outs).encode(self._commands)
            self._program, self._words = self._encoded.address, self._encoded.words
            self._pack = struct.Struct(f"{layout.ARGUMENTS + ins + outs}q").pack_into
            self._counts = (ins, outs)
            self._enter, self._entry = self._entries.enter(
                self._program, ins, outs, self._words, self._private, self.work <= TINY_NS,
                self._queue.queue_ptr if self._shared else 0, self._scratch,
                0 if self._needs_allocation else self._temporary)
            self._inline = self._steps == UNBOUNDED and self._words <= MAX_STACK_WORDS and \
                not self.effects

    @property
    def temporary_bytes(self) -> int:
        """Bytes of the arena, and of scratch if it runs on the calling thread."""
        return self._temporary

    @property
    def scratch(self) -> int:
        """Bytes of the workers' scratch, if they run it."""
        alone = self._steps and not (self._inline and self._shared)
        return 0 if alone else max(64, self._scratch) * self._queue.workers()

    @property
    def places(self) -> tuple[RecordInfo, ...]:
        """Description of each record."""
        return self._encoded.places

    def running(self, record: int, call_state: tuple[Any, int]) -> str:
        """Describe what a record does, and the iteration of each loop around it."""
        info = self._encoded.places[record]
        words = (ctypes.c_int64 * self._words).from_address(call_state[1])
        loops = [f"iteration {words[register]} of {name}" for name, register in info.loops]
        return " in ".join([info.name, *reversed(loops)])


class CpuDevice(HostDevice):
    """This machine."""

    name = "cpu"

    def __init__(self) -> None:
        self.shared_cache = cache_bytes(3, 0)
        self.pool = Pool(self._reclaim)
        self.native = native_runtime()
        self.queue = CpuQueue(self.pool)
        self.allocate = functools.partial(HostStorage.allocate_all, self.pool, self.queue)
        self._kernels: dict[Target, KernelCache] = {}
        self._compiling = fork_safe_lock()

    @property
    def target(self) -> Target:  # type: ignore[override]
        """This processor, with the instructions that ``config.cpu`` allows."""
        return binding.host_target(config.cpu, not config.disable_most_optimizations)

    @property
    def kernels(self) -> KernelCache:
        """The kernels of the current target."""
        target = self.target
        cache = self._kernels.get(target)
        if cache is None:
            with self._compiling:
                cache = self._kernels.get(target)
                if cache is None:
                    cache = self._kernels[target] = KernelCache(target)
                    at_exit(cache.compiler_threads.end)
                    at_fork(in_child=cache.in_child)
        return cache

    def native_method(self, cls: type, slot: str, python: Callable[..., Any]) -> Any | None:
        """Return a native ``__call__`` for a class whose objects hold call records in a slot."""
        return self.native.direct.native_method(cls, slot, python)

    def results(self, sizes: Sequence[int]) -> Callable[[], list[HostStorage]]:
        """Return a function that allocates the results of a call."""
        if len(sizes) == 1:
            return HostStorage.single_allocator(self.pool, self.queue, sizes[0])
        return super().results(sizes)

    def zeros(self, nbytes: int) -> HostStorage | None:
        """Map new zero pages, if the block is large: filling memory touches each page at once."""
        return HostStorage.zeros(self.pool, self.queue, nbytes)

    def prepare(self, code: KernelCode) -> None:
        """Compile a kernel on a helper thread."""
        self.kernels.prepare(code)

    def warm_up_compiler(self) -> None:
        """Start the helper threads."""
        self.kernels.compiler_threads.start()

    def encode(self, commands: UOp, code: Mapping[UOp, KernelCode], arena: int) -> CpuCommandBuffer:
        """Compile or fetch the kernels, link them, and encode the commands."""
        decoded = decode_commands(commands)
        executed = collect_execs(decoded)
        codes = {c.kernel: linked_code(c.kernel.arg.key) if c.kernel.op is ops.LINKED else
                 code[c.kernel] for c in executed if c.kernel.op is not ops.CALLBACK}
        kernels = dict(zip(codes, self.kernels.get(list(codes.values()))))
        plan_cache: dict[Any, _KernelPlan | callbacks.CallbackPlan] = {}  # by kernel and scalars
        plans: dict[Command, _KernelPlan | callbacks.CallbackPlan] = {}
        for c in executed:
            key = c.kernel, c.scalars
            if c.kernel.op is ops.CALLBACK:
                plan_cache[key] = callbacks.CallbackPlan(self.queue.caller)
            elif key not in plan_cache:
                plan_cache[key] = _KernelPlan(c, codes[c.kernel], kernels[c.kernel],
                                              self.target.cores)
            plans[c] = plan_cache[key]
        return CpuCommandBuffer(self, decoded, plans, arena)

    def assembly(self, text: str) -> str:
        """Return the assembly of LLVM IR."""
        return binding.assembly(text, self.target)

    is_timed = True

    @property
    def is_recording(self) -> bool:
        """Whether a profile is being recorded."""
        return self.queue.recording is not None

    def record(self) -> Callable[[], RunTrace]:
        """Record when each kernel runs; one profile at a time."""
        check_no_open_profile(self.queue.recording)
        recording = EventRecording()
        self.queue.record(recording)

        def stop() -> RunTrace:
            self.queue.record(None)
            return recording.runs(self.queue.scratch_addresses())
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
        drop_dead_entries()

    def held(self, sizes: Iterable[int]) -> int:
        """Bytes that the pool takes from the system for memory of these sizes."""
        return reserved_bytes(sizes)

    def stats(self) -> dict[str, int]:
        """Kernels compiled, fetched from disk or memory; microseconds of printing, LLVM (concurrent
        with lowering) and linking; bytes held and free; submissions.
        """
        return {**self.kernels.counts, **self.pool.stats(), "submitted": self.queue.submitted}


def device() -> CpuDevice:
    """Return the device, for ``get_device``."""
    return CpuDevice()
