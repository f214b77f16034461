"""Instruction emission: a tiled KERNEL -> a PROGRAM, a linear list of lines with explicit vectors.

    i = SEQ range n // 16, l = VEC range 16         FOR i = 0 .. n // 16
    STORE(o[16*i + l], x[16*i + l] * 2)               v = LOAD ADDRESS(x, 16*i)
                                                      w = MUL v SPLAT(2)
                                                      STORE ADDRESS(o, 16*i) w
                                                    ENDFOR

Each node is computed in the innermost loop of its free ranges. UNROLL ranges become one instance
per value; a VEC range becomes lanes (nodes without it stay scalars, broadcast where a vector needs
them). The values that an ITER carries are PHIs of its loop. A REDUCE has one accumulator for each
instance and lane, carried by its loops; the instances and lanes that it closes are reduced in a
fixed tree at the end. REDUCE(ADD, MUL) of floats is MULACC. Conditions on the counter of a
streaming loop are tested only where they change: the loop is peeled (program/loop_peeling.py).

The lines of a PROGRAM (level "p"); all integers that address or count are ``index``:

| line | src | arg | means |
|---|---|---|---|
| FOR | (start, stop) | number | begins a loop; its value is the counter, which steps by 1 |
| PHI | (FOR, init) | position | follows its FOR; the carried value in this iteration |
| ENDFOR | (FOR, next of each PHI...) | | ends the innermost open FOR |
| BREAK | (FOR, bool) | | leaves the innermost open FOR if true: its PHIs keep their values |
| LAST | (ENDFOR,) | position | the PHI's value after the loop |
| IF / ENDIF | (bool,) / (IF,) | number / | the lines between run if true |
| REF | () | Ref(slot) | pointer to a buffer |
| SCRATCH | (byte offset,) | Stage | pointer into scratch |
| ADDRESS | (pointer, offset) | alignment | pointer + elements, for the lanes of its dtype; a \
vector of offsets: one address per lane |
| LOAD | (ADDRESS, mask?, last?, first?) | | the lanes at the address; 0 where the mask is false. \
If first <= address <= last, all lanes may be accessed, else only those of the mask |
| STORE | (ADDRESS, value, mask?) | STREAM? | likewise; STREAM: a nontemporal store |
| FETCH | (ADDRESS, ADDRESS, mask?) | | asynchronous copy from memory to SHARED memory, without \
registers; 0 where the mask is false; complete after AWAIT |
| AWAIT | () | | waits for the FETCHes of this thread |
| SPLAT | (scalar,) | | the scalar in all lanes |
| LANES | () | | 0, 1, 2 ... |
| LANESBELOW | (count,) | | lanes below count (any integer) |
| SHUFFLE | (a, b) | lanes | lanes of a, then of b |
| EXTRACT | (vector,) | lane | one lane |
| VECTOR | (scalar...) | | a vector of these lanes |
| MAX, MIN | (a, b) | ANY_ZERO? | elementwise; ANY_ZERO: either of +0 and -0, in reductions |
| WHERE | (bool, a, b) | SELDOM? | elementwise; SELDOM: the condition is unlikely |
| EVERY | (bool vector,) | | whether all lanes are true |
| PART | () | 2i, 2i + 1 | bounds lo and hi of parallel range i, for this worker |
| ID | () | GRID, THREAD | the index of this thread group, or of this thread in it |
| SHUFFLE_XOR | (scalar,) | distance | the value of the thread whose index differs by this bit |
| SYNC | () | | barrier of the thread group; makes writes to SHARED memory visible |

CONST, VAR and elementwise ops are as at kernel level, lane by lane; all operands have the same
number of lanes. A line may use lines before it in the same or an enclosing loop, and CONST, VAR,
REF, PART, ID, LANES. The arg of a GPU PROGRAM is a ThreadGroup: its launch parameters.
"""

from __future__ import annotations

from fnx.core import build, dtypes, ops
from fnx.core.errors import KernelError
from fnx.core.parts import closed, extent, value
from fnx.core.range_kinds import NUMBERED
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort
from fnx.lower.program import interleaved_groups, loop_peeling, stores
from fnx.lower.program.accumulators import Accumulators
from fnx.lower.program.builder import Lines
from fnx.lower.program.carries import CarriedValues
from fnx.lower.program.double_buffers import DoubleBuffers
from fnx.lower.program.loop_nest import Nest, Statement, nest
from fnx.lower.program.streamed import streamed
from fnx.lower.program.together import SyncPlan, group_of
from fnx.lower.program.values import Values


def linearize(kernel: UOp, target: Target) -> UOp:
    """Emit the PROGRAM of a tiled KERNEL whose elementwise ops the target supports.

    Raises:
        KernelError: the kernel's schedule cannot be implemented.

    >>> from fnx.core import dtypes
    >>> r = build.range_(8, 0)
    >>> o = build.at(build.ref(0, dtypes.float32, (8,)), r)
    >>> k = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
    >>> [line.op for line in linearize(k, Target("cpu")).src]
    [FOR, ADDRESS, ADDRESS, STORE, ENDFOR]
    """
    lines = Lines(target.fma, target.rounds, target.permuted)
    _KernelWalk(kernel, lines, streamed(kernel, target), target).body(nest(kernel))
    return lines.program(group_of(kernel))


class _KernelWalk:
    """Walk the loop nest from the outside in; the components emit the lines."""

    def __init__(self, kernel: UOp, lines: Lines, streamed: frozenset[int], target: Target
                 ) -> None:
        self.target = target
        self.lines, self.values = lines, Values(kernel, lines, streamed)
        self.accumulators = Accumulators(self.values)
        self.carries = CarriedValues(self.values, toposort(kernel.src))
        self.group = SyncPlan(kernel) if any(
            r.arg.kind in NUMBERED for s in kernel.src for r in s.ranges) else None
        self.guarded = 0  # open ranges in which some threads have no iteration

    def body(self, inner: Nest, ahead: DoubleBuffers | None = None) -> None:
        """Emit the body of a loop.

        Stores are delayed until neighboring statements have loaded, so that a buffer may be
        updated in place.
        """
        waiting: list[stores.Write] = []
        beside: list[UOp] = []
        apart = self.group and self.group.syncs(inner)
        if ahead is not None:
            if self.target.async_copies:
                self.lines.put(ops.AWAIT, dtypes.void, ())
            self.sync(inner)
            ahead.load()
        for item in inner.body:
            if ahead is not None and item in ahead.items:
                continue
            if apart and item in apart:
                self.sync(inner)
            if isinstance(item, Statement) and item.node.op is ops.STORE:
                beside.append(item.node)
                continue
            waiting += interleaved_groups.collect(self.values, beside)
            beside = []
            if isinstance(item, Nest):
                stores.write(self.lines, waiting)
                waiting = []
                self.loop(item)
            elif item.node.op is ops.REDUCE:
                self.accumulators.step(item)
            elif item.node.op is ops.ITER:
                self.carries.step(item)
            else:
                stores.write(self.lines, stores.collect(self.values, self.fill(item.node)))
        waiting += interleaved_groups.collect(self.values, beside)
        stores.write(self.lines, waiting)
        if ahead is not None:
            ahead.store()

    def fill(self, stage: UOp) -> UOp:
        """Return the fill of a STAGE as a STORE."""
        return build.store(build.at(stage, *closed(stage)), value(stage))

    def sync(self, inner: Nest) -> None:
        """Emit a barrier."""
        if self.guarded or any(s.node.op is ops.ITER and s.own < inner.depth
                               for s in inner.statements):
            raise KernelError("expected memory that threads share filled where all of them come",
                              hint="stage it outside of the loop that some of them leave early")
        self.lines.put(ops.SYNC, dtypes.void, ())

    def numbered(self, inner: Nest, r: UOp) -> None:
        """Emit a GRID or THREAD range: each thread group, or thread, runs one iteration."""
        number = UOp(ops.ID, dtypes.index, (), r.arg.kind)
        if self.group is None or self.group.all_have(r):
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

    def loop(self, inner: Nest) -> None:
        """Emit a loop as the spans that peeling splits it into.

        Its REDUCEs carry accumulators, its ITERs their carried values.
        """
        r = inner.range
        assert r is not None
        if r.arg.kind in NUMBERED:
            self.numbered(inner, r)
            return
        carried = [s for s in inner.statements
                   if s.node.op is ops.REDUCE and s.own < inner.depth]
        outermost = [s for s in carried if s.own == inner.depth - 1]
        iters = [s for s in inner.statements
                 if s.node.op is ops.ITER and s.own == inner.depth - 1]
        self.accumulators.start(outermost)
        self.carries.start(iters)
        ahead = DoubleBuffers(inner, self.values, self.lines, self.target)
        ahead.first()
        for start, stop, known, only in loop_peeling.spans(self.values, inner):
            with self.values.conditions.assuming(known):
                loop = self.lines.open(start, stop)
                self.values.enter(r, loop if only is None else build.index_const(only))
                self.accumulators.enter(carried)
                self.carries.enter(iters, loop)
                ahead.start(loop)
                self.body(inner, ahead if ahead.stages else None)
                last = iter(self.lines.close([*self.accumulators.nexts(carried),
                                              *self.carries.nexts(iters)]))
                self.accumulators.leave(carried, last)
                self.carries.leave(iters, last)
                ahead.end()
                self.values.leave(r)
        self.accumulators.finish(outermost)
        self.carries.finish(iters)
