"""Instruction emission: a tiled KERNEL -> a PROGRAM, a linear list of lines with explicit vectors.

    i = SEQ range n // 16, l = VEC range 16         FOR i = 0 .. n // 16
    STORE(o[16*i + l], x[16*i + l] * 2)               v = LOAD ADDRESS(x, 16*i)
                                                      w = MUL v SPLAT(2)
                                                      STORE ADDRESS(o, 16*i) w
                                                    ENDFOR

Each node is computed in the innermost loop of its free ranges. UNROLL ranges become one instance
per value; a VEC range becomes lanes (nodes without it stay scalars, broadcast where a vector needs
them). The values that a LOOP carries are PHIs of its loop. A REDUCE has one accumulator for each
instance and lane, carried by its loops; the instances and lanes that it closes are reduced in a
fixed tree at the end. REDUCE(ADD, MUL) of floats is MULACC. Conditions on the counter of a
streaming loop are tested only where they change: the loop is peeled (emit/loop_peeling.py).

The lines of a PROGRAM (level "p"); all integers that address or count are ``index``:

| line | src | arg | means |
|---|---|---|---|
| FOR | (start, stop) | number | begins a loop; its value is the counter, which steps by 1 |
| PHI | (FOR, init) | position | follows its FOR; the carried value in this iteration |
| ENDFOR | (FOR, next of each PHI...) | | ends the innermost open FOR |
| BREAK | (FOR, bool) | | leaves the innermost open FOR if true: its PHIs keep their values |
| LOOP_RESULT | (ENDFOR,) | position | the PHI's value after the loop |
| IF / ENDIF | (bool,) / (IF,) | number / | the lines between run if true |
| REF | () | Ref(slot) | pointer to a buffer |
| SCRATCH | (byte offset,) | Stage | pointer into scratch |
| ADDRESS | (pointer, offset) | alignment | pointer + elements, for the lanes of its dtype; a \
vector of offsets: one address per lane |
| LOAD | (ADDRESS, mask?, last?, first?) | | the lanes at the address; 0 where the mask is false. \
If first <= address <= last, all lanes may be accessed, else only those of the mask |
| STORE | (ADDRESS, value, mask?) | STREAM? | likewise; STREAM: a nontemporal store |
| ASYNC_COPY | (ADDRESS, ADDRESS, mask?) | | asynchronous copy from memory to SHARED memory, \
without registers; 0 where the mask is false; complete after ASYNC_WAIT |
| EXTERN_CALL | (address...) | name | call a function of SciPy's LAPACK or BLAS (host only) |
| ASYNC_WAIT | () | | waits for the ASYNC_COPYs of this thread |
| SPLAT | (scalar,) | | the scalar in all lanes |
| LANES | () | | 0, 1, 2 ... |
| LANE_MASK | (count,) | | lanes below count (any integer) |
| SHUFFLE | (a, b) | lanes | lanes of a, then of b |
| EXTRACT | (vector,) | lane | one lane |
| VECTOR | (scalar...) | | a vector of these lanes |
| MAX, MIN | (a, b) | ANY_ZERO? | elementwise; ANY_ZERO: either of +0 and -0, in reductions |
| WHERE | (bool, a, b) | UNLIKELY? | elementwise; UNLIKELY: the condition is unlikely |
| ALL_LANES | (bool vector,) | | whether all lanes are true |
| PARALLEL_RANGE | () | 2i, 2i + 1 | bounds lo and hi of parallel range i, for this worker |
| ID | () | GRID, THREAD | the index of this thread group, or of this thread in it |
| SHUFFLE_XOR | (scalar,) | distance | the value of the thread whose index differs by this bit |
| SYNC | () | | barrier of the thread group; makes writes to SHARED memory visible |

CONST, VAR and elementwise ops are as at kernel level, lane by lane; all operands have the same
number of lanes. A line may use lines before it in the same or an enclosing loop, and CONST, VAR,
REF, PARALLEL_RANGE, ID, LANES. The arg of a GPU PROGRAM is a ThreadGroup: its launch parameters.
"""

from __future__ import annotations

from functools import reduce

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.accessors import bound_ranges, extent, value
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import ID_KINDS
from fnx.core.support.target import Target
from fnx.lower.emit import interleave_groups, loop_peeling, stores
from fnx.lower.emit.accumulators import Accumulators, CarriedValues
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.loop_nest import LoopNest, Statement, build_loop_nest
from fnx.lower.emit.shared_memory import (
    BarrierPlan,
    DoubleBuffers,
    thread_group,
    threads_cooperate,
)
from fnx.lower.emit.stores import nontemporal_slots
from fnx.lower.emit.update_runs import emit_runs, find_update, sample
from fnx.lower.emit.values import Values


def emit_program(kernel: UOp, target: Target) -> UOp:
    """Emit the PROGRAM of a tiled KERNEL whose elementwise ops the target supports.

    Raises:
        KernelError: the kernel's schedule cannot be implemented.

    >>> from fnx.core.ir import dtypes
    >>> r = build.range_(8, 0)
    >>> o = build.index_into(build.ref(0, dtypes.float32, (8,)), r)
    >>> k = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
    >>> [line.op for line in emit_program(k, Target("cpu")).src]
    [FOR, ADDRESS, ADDRESS, STORE, ENDFOR]
    """
    lines = ProgramBuilder(target.fma, target.has_round, target.permute_bytes)
    _Emitter(kernel, lines, nontemporal_slots(kernel, target), target).kernel(kernel)
    return lines.program(thread_group(kernel))


class _Emitter:
    """Walk the loop nest from the outside in; the components emit the lines."""

    def __init__(self, kernel: UOp, lines: ProgramBuilder, nontemporal: frozenset[int],
                 target: Target
                 ) -> None:
        self.target = target
        self.lines, self.values = lines, Values(kernel, lines, nontemporal)
        self.accumulators = Accumulators(self.values)
        self.carries = CarriedValues(self.values, toposort(kernel.src))
        self.group = BarrierPlan(kernel) if any(
            r.arg.kind in ID_KINDS for s in kernel.src for r in s.ranges) else None
        self.guarded = 0  # open ranges in which some threads have no iteration

    def kernel(self, kernel: UOp) -> None:
        """Emit the loop nest of a KERNEL; nothing runs if guards of all STOREs forbid it."""
        nest = build_loop_nest(kernel)
        guards = self._guards(kernel)
        if not guards or not self.target.branch_barriers and threads_cooperate(kernel):
            self.body(nest)
            return
        branch = self.values.branch(self.values.value(reduce(build.and_, guards)))
        with self.values.conditions.assuming((guard, True) for guard in guards):
            self.body(nest)
        self.values.end_branch(branch)

    def _guards(self, kernel: UOp) -> list[UOp]:
        """Return the conditions on memory that all STOREs of a kernel for groups have in common."""
        if self.group is None:
            return []
        first, *others = [accessors.conjuncts(accessors.validity(s)) for s in kernel.src]
        return [c for c in first if not c.ranges and all(c in conditions for conditions in others)
                and any(n.op is ops.LOAD for n in toposort([c]))]

    def body(self, inner: LoopNest, double_buffers: DoubleBuffers | None = None) -> None:
        """Emit the body of a loop.

        Stores are delayed until neighboring statements have loaded, so that a buffer may be
        updated in place.
        """
        pending: list[stores.Write] = []
        store_group: list[UOp] = []
        needs_sync = self.group and self.group.needs_barrier(inner)
        if double_buffers is not None:
            if self.target.async_copies:
                self.lines.put(ops.ASYNC_WAIT, dtypes.void, ())
            self.sync(inner)
            double_buffers.load()
        for item in inner.body:
            if double_buffers is not None and item in double_buffers.items:
                continue
            if needs_sync and item in needs_sync:
                self.sync(inner)
            if isinstance(item, Statement) and item.node.op is ops.STORE:
                store_group.append(item.node)
                continue
            pending += interleave_groups.collect(self.values, store_group)
            store_group = []
            if isinstance(item, LoopNest):
                stores.emit(self.lines, pending)
                pending = []
                self.loop(item)
            elif item.node.op is ops.REDUCE:
                self.accumulators.step(item)
            elif item.node.op is ops.LOOP:
                self.carries.step(item)
            else:
                stores.emit(self.lines, stores.collect(self.values, self.fill(item.node)))
        pending += interleave_groups.collect(self.values, store_group)
        stores.emit(self.lines, pending)
        if double_buffers is not None:
            double_buffers.store()

    def fill(self, stage: UOp) -> UOp:
        """Return the fill of a STAGE as a STORE."""
        return build.store(build.index_into(stage, *bound_ranges(stage)), value(stage))

    def sync(self, inner: LoopNest) -> None:
        """Emit a barrier."""
        if self.guarded or any(s.node.op is ops.LOOP and s.outer_depth < inner.depth
                               for s in inner.statements):
            raise KernelError("expected shared memory to be filled where all threads arrive",
                              hint="stage it outside the loop that some threads leave early")
        self.lines.put(ops.SYNC, dtypes.void, ())

    def numbered(self, inner: LoopNest, r: UOp) -> None:
        """Emit a GRID or THREAD range: each thread group, or thread, runs one iteration."""
        number = UOp(ops.ID, dtypes.index, (), r.arg.kind)
        if self.group is None or self.group.all_run(r):
            self.lines.open_scope()
            self.values.enter(r, number)
            self.body(inner)
            self.values.leave(r)
            self.lines.close_scope()
            return
        end = self.lines.integer(ops.MIN, self.lines.plus(number, 1), self.values.value(extent(r)))
        self.guarded += 1
        self.values.enter(r, self.lines.open(number, end))
        self.body(inner)
        self.lines.close(())
        self.values.leave(r)
        self.guarded -= 1

    def loop(self, inner: LoopNest) -> None:
        """Emit a loop as the spans that peeling splits it into.

        Its REDUCEs carry accumulators, its LOOPs their carried values.
        """
        r = inner.range
        assert r is not None
        if r.arg.kind in ID_KINDS:
            self.numbered(inner, r)
            return
        reduces = [s for s in inner.statements
                   if s.node.op is ops.REDUCE and s.outer_depth < inner.depth]
        outermost = [s for s in reduces if s.outer_depth == inner.depth - 1]
        iters = [s for s in inner.statements
                 if s.node.op is ops.LOOP and s.outer_depth == inner.depth - 1]
        self.accumulators.start(outermost)
        self.carries.start(iters)
        double_buffers = DoubleBuffers(inner, self.values, self.lines, self.target)
        double_buffers.first()
        update = find_update(inner, self.values) if self.target.kind == "host" else None
        for start, stop, known_conditions, iteration in loop_peeling.spans(self.values, inner):
            with self.values.conditions.assuming(known_conditions):
                repeats = None if update is None else sample(self.values, update, r, start, stop)
                if update is not None and repeats is not None:
                    branch = self.values.branch(repeats)
                    emit_runs(self.values, update, r, start, stop)
                    self.values.end_branch(branch)
                    branch = self.values.branch(self.lines.add(ops.NOT, dtypes.bool_, (repeats,)))
                loop = self.lines.open(start, stop)
                self.values.enter(r, loop if iteration is None else build.index_const(iteration))
                self.accumulators.enter(reduces)
                self.carries.enter(iters, loop)
                double_buffers.start(loop)
                self.body(inner, double_buffers if double_buffers.stages else None)
                finals = iter(self.lines.close([*self.accumulators.nexts(reduces),
                                                *self.carries.nexts(iters)]))
                self.accumulators.leave(reduces, finals)
                self.carries.leave(iters, finals)
                double_buffers.end()
                self.values.leave(r)
                if repeats is not None:
                    self.values.end_branch(branch)
        self.accumulators.finish(outermost)
        self.carries.finish(iters)
