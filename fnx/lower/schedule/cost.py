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
decides whether products are computed in attention regions or stored (lower/blockwise): for 60 pairs
the predicted ratio was mostly within .7 and 1.5 of the measured one.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence

from fnx.core import build, dtypes, ops, parts
from fnx.core.cache import cached
from fnx.core.errors import KernelError
from fnx.core.parts import buffer, closed, dims
from fnx.core.range_kinds import OF_WORKERS
from fnx.core.target import Target
from fnx.core.tiling import Schedule
from fnx.core.uop import UOp, rebuild, toposort
from fnx.lower.program.conditions import INEQUALITIES, masked
from fnx.lower.schedule.staging import split_global
from fnx.lower.schedule.tile import tile
from fnx.lower.schedule.workload import extent, stride

LAUNCH = 60          # cycles of a command besides its kernel, on the thread that walks commands
_START = 4000        # cycles to dispatch a kernel to workers and to learn that it is done
_BITS = 512          # bits of vectors multiplied and added per cycle
_WAIT = 8            # additions in flight that hide the latency: two units, 4 cycles each
_LOOP = 0.5          # cycles per iteration; overhead of memory accesses beside arithmetic
_BESIDE = 1 / 8
_GATHERED = {ops.LOAD: 0.8, ops.STORE: 1.2}  # instructions of a strided lane
_LINE, WAYS = 64, 8  # bytes of a cache line; associativity of a cache
_THIRD = 16 << 20    # bytes of the third-level cache
# Cycles of a line from the second-level cache, additional ones from the third level and from
# memory: most of the latency overlaps with arithmetic. Fitted to 1,050 schedules of 34 products.
_CYCLES = 0.5, 0.25, 16.0
_THROUGH = 2.5       # of a line from the second-level cache, if there is no other work
_ALONE = 8.0         # of a line that a strided lane waits for
_AGAIN = 0.25        # of the memory cost, if the third level still holds it at the next call
_ENDED = 0.5         # fraction of iterations run, of a loop that a condition ends
_WARP, _GROUPS = 32, 128  # threads in lockstep; workgroups that keep a device busy


def predicted(kernel: UOp, schedule: Schedule, target: Target) -> float:
    """Return the predicted cycles of a kernel under a schedule; infinity if it is illegal.

    >>> from fnx.core import tiling
    >>> i = build.range_(1 << 20, 0, name="i")
    >>> x, o = (build.at(build.ref(s, dtypes.float32, (1 << 20,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> lanes = (tiling.split("i", 16), tiling.vectorize("ii"))
    >>> predicted(copy, lanes, Target("cpu")) < predicted(copy, (), Target("cpu")) / 2
    True
    """
    try:
        packs, main, _ = split_global(tile(kernel, schedule), OF_WORKERS)
    except KernelError:
        return math.inf
    return sum([cycles(part.kernel, target) for part in (*packs, main)])


def cycles(kernel: UOp, target: Target) -> float:
    """Return the cycles of a scheduled kernel including its start: an EXEC of a program."""
    return _START + _part(kernel, target)


def alone(kernel: UOp, target: Target) -> float:
    """Return the cycles of a scheduled kernel on one thread that is already running."""
    return _part(kernel, target.replace(cores=1))


def _part(kernel: UOp, target: Target) -> float:
    kernel, = rebuild([kernel], _without_ends)
    order, nodes = parts.LoopOrder(kernel.arg.order), toposort(kernel.src)
    ended = frozenset([closed(n)[0] for n in nodes if n.op is ops.ITER and _is_ended(n)])
    before: list[_Statement] = []
    total = 0.0
    for s in nodes:
        if s.op in (ops.STORE, ops.STAGE, ops.REDUCE, ops.ITER):
            statement = _Statement(s, order, target)
            total += statement.cycles(before) * _ENDED ** len(ended & s.ranges)
            before.append(statement)

    def given(kind: str) -> int:
        return math.prod([extent(r) for r in nodes if r.op is ops.RANGE and r.arg.kind == kind])

    threads, groups = given("THREAD"), given("GRID")
    processors = target.cores if target.threads == 1 else _GROUPS
    count = groups * given(OF_WORKERS)
    return total / min(threads, _WARP) * -(-count // processors) / count


def _without_ends(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Drop clamps of an index: few iterations are beyond the end of a loop."""
    if node.op is ops.MIN and node.dtype is dtypes.index:
        return next((s for s in src if s.ranges), src[0])
    return None


def _is_ended(loop: UOp) -> bool:
    """Return whether a loop with carried values ends by a condition on its index; where a condition
    on data ends it is unknown."""
    end = parts.stop(loop)
    return end is not None and any(
        n.op in INEQUALITIES and n.src[0].dtype is dtypes.index and closed(loop)[0] in n.ranges
        for n in toposort([end]))


class _Access:
    """A LOAD or STORE: the bytes of cache lines that it touches in all loops from each one inwards,
    and the bytes that these occupy in each cache."""

    def __init__(self, n: UOp, ranges: Sequence[UOp], caches: Sequence[int]) -> None:
        self.buffer = buffer(n)
        self._size = (n.dtype if n.op is ops.LOAD else parts.value(n).dtype).itemsize
        self.steps = {r: abs(stride(n, r)) * self._size for r in ranges}
        self._whole = math.inf
        if all(d.op is ops.CONST for d in dims(buffer(n))):
            self._whole = math.prod([build.const_of(d) for d in dims(buffer(n))]) * self._size
        touched = [self._touched(ranges[at:]) for at in range(len(ranges) + 1)]
        self.lines = [lines for lines, _, _ in touched]
        self.held = [[max(lines, rows * min(apart, held // WAYS)) for held in caches]
                     for lines, rows, apart in touched]
        lane = next((r for r in ranges if r.arg.kind == "VEC"), None)
        self.alone = lane is not None and self.steps[lane] > self._size
        self.crosses = lane is not None and self.steps[lane] == self._size \
            and self._size * extent(lane) >= _LINE \
            and any(step % _LINE for r, step in self.steps.items() if r is not lane)

    def _touched(self, loops: Sequence[UOp]) -> tuple[float, int, int]:
        """Return the bytes of lines, the number of rows, and the power of two that they are
        apart."""
        run, rows, apart = self._size, 1, 0
        for step, n in sorted((self.steps[r], extent(r)) for r in loops):
            if step and n > 1 and step <= max(run, _LINE):  # contiguous with the previous loop
                run += step * (n - 1)
            elif step and n > 1:
                rows, apart = rows * n, apart or step & -step
        lines = min(rows * -(-run // _LINE), -(-self._whole // _LINE))
        return lines * _LINE, rows, apart


class _Statement:
    """A STORE, STAGE, reduction or loop with carried values, and the nodes computed for it."""

    def __init__(self, s: UOp, order: parts.LoopOrder, target: Target) -> None:
        self.s, self.target = s, target
        own = closed(s) if s.op is not ops.STORE else ()
        self.ranges = sorted(s.ranges.union(own), key=order)
        self.loops = [r for r in self.ranges if r.arg.kind not in ("VEC", "UNROLL")]
        roots: Sequence[UOp] = s.src if s.op in (ops.STORE, ops.ITER) else s.src[:1]
        found = masked(s) if s.op is ops.REDUCE else None
        if found is not None and found[0].ranges.issubset(self.loops):
            roots = found  # the condition ends a loop, so no lane tests it
        self.folded = roots[-1]
        self.nodes = [*toposort(roots, stop=lambda n: n.op in (
            ops.REDUCE, ops.STAGE, ops.LOAD, ops.ITER)), s]

        self.caches = target.l1, target.l2, _THIRD
        self.of = {n: _Access(n, self.ranges, self.caches) for n in self.nodes
                   if n.op in (ops.LOAD, ops.STORE)}
        self.accesses = tuple(self.of.values())

    def cycles(self, before: Sequence[_Statement]) -> float:
        """Return its cycles, given the earlier statements whose data may still be cached."""
        lines = self._lines(before)
        alone = sum([self._brought(0, a, before) for a in self.accesses if a.alone])
        spent: float = sum(map(operator.mul, lines, _CYCLES))
        return max(self._instructions() + spent, lines[0] * _THROUGH) + alone * _ALONE

    def _instructions(self) -> float:
        work: dict[int, list[float]] = {}  # by loop depth: arithmetic, memory instructions
        for n in filter(self._counts, self.nodes):
            run = self.ranges if n is self.s else [r for r in self.ranges if r in n.ranges]
            depth = max([self.loops.index(r) + 1 for r in run if r in self.loops], default=0)
            times = math.prod([extent(r) for r in run if r.arg.kind == "UNROLL"])
            spent = work.setdefault(depth, [0.0, 0.0])
            if self._moves(n):
                spent[1] += times * self._moved(n, run)
            else:
                spent[0] += times * n.op.cost * _vectors(n, run)
            if n is self.s and n.op is ops.REDUCE:  # accumulators beyond the registers spill
                spent[1] += 2 * max(0, times - self.target.vector_registers)
        folds = self.s.op is ops.REDUCE and self.s.dtype.is_float and self.loops and \
            self.loops[-1] in closed(self.s)
        return sum([(max(computed, moved, _WAIT if folds and depth == len(self.loops) else 0)
                     + _LOOP + _BESIDE * moved) * math.prod(map(extent, self.loops[:depth]))
                    for depth, (computed, moved) in work.items()])

    def _moved(self, n: UOp, run: Sequence[UOp]) -> float:
        """Return the memory instructions of a value, for all its lanes."""
        access = self.of.get(n)
        if access is None:
            return 1.0
        lanes = math.prod([extent(r) for r in run if r.arg.kind == "VEC"])
        return _GATHERED[n.op] * lanes if access.alone else 2.0 if access.crosses else 1.0

    def _moves(self, n: UOp) -> bool:
        return n.op is ops.LOAD or n is self.s and n.op in (ops.STORE, ops.STAGE)

    def _counts(self, n: UOp) -> bool:
        """Return whether a node is an instruction of this statement; a product fused into a
        multiply-add is not."""
        if n.dtype is dtypes.index or n is not self.s and n.op in (
                ops.REDUCE, ops.STAGE, ops.ITER):
            return False
        added = self.s.op is ops.REDUCE and self.s.arg.monoid is ops.ADD and self.target.fma
        return not (added and n is self.folded and n.op is ops.MUL) and \
            bool(n.op.cost or self._moves(n))

    def _lines(self, before: Sequence[_Statement]) -> list[float]:
        """Return the lines that come from the second-level cache, the third level and memory."""
        return [sum([self._brought(level, a, before) for a in self.accesses])
                for level in range(len(self.caches))]

    @cached
    def _holding(self) -> list[int]:
        """The outermost loop, for each cache, whose data it holds."""
        return [next((at for at in range(len(self.ranges)) if self._holds(level, at)),
                     len(self.ranges)) for level in range(len(self.caches))]

    def _holds(self, level: int, at: int) -> bool:
        """Return whether a cache holds what the loops from a depth inwards touch."""
        return sum([a.held[at][level] for a in self.accesses]) <= self.caches[level]

    def _brought(self, level: int, access: _Access, before: Sequence[_Statement]) -> float:
        """Return the lines that an access brings into a cache."""
        at = self._holding[level]
        if any(other.leaves(level, access, self) for other in before):
            return 0.0
        while at and not access.steps[self.ranges[at - 1]]:  # the same lines are touched again
            at -= 1
        lines = access.lines[at] / _LINE * math.prod(map(extent, self.ranges[:at]))
        there = not at and level == len(self.caches) - 1 and self._holds(level, 0)
        return lines * _AGAIN if there else lines

    def leaves(self, level: int, access: _Access, to: _Statement) -> bool:
        """Return whether a cache still holds what an access of another statement touches next."""
        at = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1],
                                                zip(self.ranges, to.ranges)))
        return self._holds(level, at) and to._holds(level, at) and any(
            a.buffer is access.buffer and a.lines[at] >= access.lines[at]
            and all(a.steps[r] == access.steps[r] for r in self.ranges[:at])
            for a in self.accesses)


def _vectors(n: UOp, run: Sequence[UOp]) -> float:
    """Return the cycles of an instruction."""
    lanes = math.prod([extent(r) for r in run if r.arg.kind == "VEC"])
    return max(0.5, lanes * n.dtype.itemsize * 8 / _BITS)
