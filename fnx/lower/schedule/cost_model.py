"""cost: predict the cycles of a kernel under a schedule; a search tries the cheapest first.

    of a kernel     those of its parts (packing a factor is one), and a start of each
    of a part       those of its statements, times the share of the busiest processor
    of a statement  its instructions, and cache lines from each memory level

A statement (a STORE, a STAGE, a reduction) has a loop nest. A value is computed in the innermost
loop that it depends on, as often as that loop runs; lanes and unrolled code are instructions. A
cache holds what the innermost loops touch, as many loops as fit; what an access touches there comes
from a further level each time an outer loop advances. Rows a power of two apart map to the same
cache sets, and occupy more of a cache than their bytes.

What an earlier statement touched in shared loops is still cached as far as it fits; so is, at the
next call, what the whole kernel touches. Half of the iterations are assumed for loops that a
condition on indices ends.

The model ranks the schedules of one kernel. Its first choice takes 1.03 times the best measured for
products and 1.06 times for other kernels; the best of its first four takes 1.01 and 1.02. It also
decides whether products are computed in attention regions or stored (lower/attention): for 60 pairs
the predicted ratio was mostly within .7 and 1.5 of the measured one.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.accessors import bound_ranges, buffer, dims
from fnx.core.ir.cache import cached_property, memoized
from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import WORKER_KIND
from fnx.core.support.target import Target
from fnx.lower.analysis.conditions import INEQUALITIES, match_masked_reduce
from fnx.lower.analysis.tuning import (
    ADD_LATENCY,
    ARITHMETIC_BITS,
    BUSY_GROUPS,
    CACHED_FRACTION,
    DISPATCH_CYCLES,
    ENDED_FRACTION,
    L2_THROUGHPUT,
    L3_BYTES,
    LINE_BYTES,
    LINE_CYCLES,
    LOOP_CYCLES,
    MEMORY_OVERHEAD,
    STRIDED_COST,
    STRIDED_LANE_CYCLES,
    WARP_THREADS,
)
from fnx.lower.analysis.workload import extent, stride
from fnx.lower.schedule.footprint import footprint
from fnx.lower.schedule.staging import split_global
from fnx.lower.schedule.tile import tile


def predict_cycles(kernel: UOp, schedule: Schedule, target: Target) -> float:
    """Return the predicted cycles of a kernel under a schedule; infinity if it is illegal.

    >>> from fnx.core.ir import tiling
    >>> i = build.range_(1 << 20, 0, name="i")
    >>> x, o = (build.index_into(build.ref(s, dtypes.float32, (1 << 20,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> lanes = (tiling.split("i", 16), tiling.vectorize("ii"))
    >>> predict_cycles(copy, lanes, Target("cpu")) < predict_cycles(copy, (), Target("cpu")) / 2
    True
    """
    try:
        packs, main, _ = split_global(tile(kernel, schedule), WORKER_KIND)
    except KernelError:
        return math.inf
    return sum([kernel_cycles(part.kernel, target) for part in (*packs, main)])


def kernel_cycles(kernel: UOp, target: Target) -> float:
    """Return the cycles of a scheduled kernel including its start: an EXEC of a program."""
    return DISPATCH_CYCLES + _kernel_cycles(kernel, target)


def single_thread_cycles(kernel: UOp, target: Target) -> float:
    """Return the cycles of a scheduled kernel on one thread that is already running."""
    return _kernel_cycles(kernel, target.replace(cores=1))


@memoized
def _kernel_cycles(kernel: UOp, target: Target) -> float:
    kernel, = rebuild([kernel], _drop_clamps)
    order, nodes = accessors.LoopOrder(kernel.arg.order), toposort(kernel.src)
    ended_ranges = frozenset([bound_ranges(n)[0]
                              for n in nodes if n.op is ops.LOOP and _ends_by_index(n)])
    previous: list[_Statement] = []
    total = 0.0
    for s in nodes:
        if s.op in (ops.STORE, ops.STAGE, ops.REDUCE, ops.LOOP):
            statement = _Statement(s, order, target)
            total += statement.cycles(previous) * ENDED_FRACTION ** len(ended_ranges & s.ranges)
            previous.append(statement)

    def kind_extent(kind: str) -> int:
        return math.prod([extent(r) for r in nodes if r.op is ops.RANGE and r.arg.kind == kind])

    threads, groups = kind_extent("THREAD"), kind_extent("GRID")
    processors = target.cores if target.threads == 1 else BUSY_GROUPS
    count = groups * kind_extent(WORKER_KIND)
    return total / min(threads, WARP_THREADS) * -(-count // processors) / count


def _drop_clamps(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Drop clamps of an index: few iterations are beyond the end of a loop."""
    if node.op is ops.MIN and node.dtype is dtypes.index:
        return next((s for s in src if s.ranges), src[0])
    return None


def _ends_by_index(loop: UOp) -> bool:
    """Return whether a loop with carried values ends by a condition on its index; where a condition
    on data ends it is unknown."""
    end = accessors.stop_condition(loop)
    return end is not None and any(
        n.op in INEQUALITIES and n.src[0].dtype is dtypes.index and
        bound_ranges(loop)[0] in n.ranges
        for n in toposort([end]))


class _Access:
    """A LOAD or STORE: the bytes of cache lines that it touches in all loops from each one inwards,
    and the bytes that these occupy in each cache."""

    def __init__(self, n: UOp, ranges: Sequence[UOp], caches: Sequence[int]) -> None:
        self.buffer = buffer(n)
        self._size = (n.dtype if n.op is ops.LOAD else accessors.value(n).dtype).itemsize
        self.steps = {r: abs(stride(n, r)) * self._size for r in ranges}
        self._whole = math.inf
        if all(d.op is ops.CONST for d in dims(buffer(n))):
            self._whole = math.prod([build.const_of(d) for d in dims(buffer(n))]) * self._size
        touched = [footprint([(self.steps[r], extent(r)) for r in ranges[at:]], self._size,
                             self._whole) for at in range(len(ranges) + 1)]
        self.lines = [x.bytes for x in touched]
        self.footprint = [[x.occupied(size) for size in caches] for x in touched]
        lane = next((r for r in ranges if r.arg.kind == "VEC"), None)
        self.is_strided = lane is not None and self.steps[lane] > self._size
        self.crosses_lines = lane is not None and self.steps[lane] == self._size \
            and self._size * extent(lane) >= LINE_BYTES \
            and any(step % LINE_BYTES for r, step in self.steps.items() if r is not lane)


class _Statement:
    """A STORE, STAGE, reduction or loop with carried values, and the nodes computed for it."""

    def __init__(self, s: UOp, order: accessors.LoopOrder, target: Target) -> None:
        self.node, self.target = s, target
        closed_ranges = bound_ranges(s) if s.op is not ops.STORE else ()
        self.ranges = sorted(s.ranges.union(closed_ranges), key=order)
        self.loops = [r for r in self.ranges if r.arg.kind not in ("VEC", "UNROLL")]
        roots: Sequence[UOp] = s.src if s.op in (ops.STORE, ops.LOOP) else s.src[:1]
        masked_value = match_masked_reduce(s) if s.op is ops.REDUCE else None
        if masked_value is not None and masked_value[0].ranges.issubset(self.loops):
            roots = masked_value  # the condition ends a loop, so no lane tests it
        self.folded = roots[-1]
        self.nodes = [*toposort(roots, stop=lambda n: n.op in (
            ops.REDUCE, ops.STAGE, ops.LOAD, ops.LOOP)), s]

        self.caches = target.l1, target.l2, L3_BYTES
        self.of = {n: _Access(n, self.ranges, self.caches) for n in self.nodes
                   if n.op in (ops.LOAD, ops.STORE)}
        self.accesses = tuple(self.of.values())

    def cycles(self, previous: Sequence[_Statement]) -> float:
        """Return its cycles, given the earlier statements whose data may still be cached."""
        lines = self._lines(previous)
        strided_lines = sum([self._lines_loaded(0, a, previous)
                             for a in self.accesses if a.is_strided])
        line_cycles: float = sum(map(operator.mul, lines, LINE_CYCLES))
        return max(self._instructions() + line_cycles,
                   lines[0] * L2_THROUGHPUT) + strided_lines * STRIDED_LANE_CYCLES

    def _instructions(self) -> float:
        costs: dict[int, list[float]] = {}  # by loop depth: arithmetic, memory instructions
        for n in filter(self._is_instruction, self.nodes):
            ranges = self.ranges if n is self.node else [r for r in self.ranges if r in n.ranges]
            depth = max([self.loops.index(r) + 1 for r in ranges if r in self.loops], default=0)
            repeats = math.prod([extent(r) for r in ranges if r.arg.kind == "UNROLL"])
            cost = costs.setdefault(depth, [0.0, 0.0])
            if self._moves(n):
                cost[1] += repeats * self._memory_instructions(n, ranges)
            else:
                cost[0] += repeats * n.op.cost * _vector_cycles(n, ranges)
            if n is self.node and n.op is ops.REDUCE:  # accumulators beyond the registers spill
                cost[1] += 2 * max(0, repeats - self.target.vector_registers)
        is_dependent_sum = self.node.op is ops.REDUCE and self.node.dtype.is_float and \
            self.loops and self.loops[-1] in bound_ranges(self.node)
        return sum([(max(computed, moved,
                         ADD_LATENCY if is_dependent_sum and depth == len(self.loops) else 0)
                     + LOOP_CYCLES + MEMORY_OVERHEAD * moved)
                    * math.prod(map(extent, self.loops[:depth]))
                    for depth, (computed, moved) in costs.items()])

    def _memory_instructions(self, n: UOp, ranges: Sequence[UOp]) -> float:
        """Return the memory instructions of a value, for all its lanes."""
        access = self.of.get(n)
        if access is None:
            return 1.0
        lanes = math.prod([extent(r) for r in ranges if r.arg.kind == "VEC"])
        return STRIDED_COST[n.op] * lanes if access.is_strided \
            else 2.0 if access.crosses_lines else 1.0

    def _moves(self, n: UOp) -> bool:
        return n.op is ops.LOAD or n is self.node and n.op in (ops.STORE, ops.STAGE)

    def _is_instruction(self, n: UOp) -> bool:
        """Return whether a node is an instruction of this statement; a product fused into a
        multiply-add is not."""
        if n.dtype is dtypes.index or n is not self.node and n.op in (
                ops.REDUCE, ops.STAGE, ops.LOOP):
            return False
        is_fused = self.node.op is ops.REDUCE and self.node.arg.monoid is ops.ADD and \
            self.target.fma
        return not (is_fused and n is self.folded and n.op is ops.MUL) and \
            bool(n.op.cost or self._moves(n))

    def _lines(self, previous: Sequence[_Statement]) -> list[float]:
        """Return the lines that come from the second-level cache, the third level and memory."""
        return [sum([self._lines_loaded(level, a, previous) for a in self.accesses])
                for level in range(len(self.caches))]

    @cached_property
    def _cached_loops(self) -> list[int]:
        """The outermost loop, for each cache, whose data it holds."""
        return [next((at for at in range(len(self.ranges)) if self._fits_cache[level][at]),
                     len(self.ranges)) for level in range(len(self.caches))]

    @cached_property
    def _fits_cache(self) -> list[list[bool]]:
        """For each cache and depth, whether it holds what the loops from there inwards touch."""
        return [[sum([a.footprint[depth][level] for a in self.accesses]) <= size
                 for depth in range(len(self.ranges) + 1)]
                for level, size in enumerate(self.caches)]

    def _lines_loaded(self, level: int, access: _Access, previous: Sequence[_Statement]) -> float:
        """Return the lines that an access brings into a cache."""
        depth = self._cached_loops[level]
        if any(other.leaves(level, access, self) for other in previous):
            return 0.0
        # the same lines are touched again
        while depth and not access.steps[self.ranges[depth - 1]]:
            depth -= 1
        lines = access.lines[depth] / LINE_BYTES * math.prod(map(extent, self.ranges[:depth]))
        is_cached = not depth and level == len(self.caches) - 1 and self._fits_cache[level][0]
        return lines * CACHED_FRACTION if is_cached else lines

    def leaves(self, level: int, access: _Access, to: _Statement) -> bool:
        """Return whether a cache still holds what an access of another statement touches next."""
        depth = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1],
                                                   zip(self.ranges, to.ranges)))
        return self._fits_cache[level][depth] and to._fits_cache[level][depth] and any(
            a.buffer is access.buffer and a.lines[depth] >= access.lines[depth]
            and all(a.steps[r] == access.steps[r] for r in self.ranges[:depth])
            for a in self.accesses)


def _vector_cycles(n: UOp, ranges: Sequence[UOp]) -> float:
    """Return the cycles of an instruction."""
    lanes = math.prod([extent(r) for r in ranges if r.arg.kind == "VEC"])
    return max(0.5, lanes * n.dtype.itemsize * 8 / ARITHMETIC_BITS)
