"""cost: the cycles that a kernel is predicted to take under a schedule; a search tries the least
first.

    of a kernel     those of its parts (what packs a factor is one), and a start of each
    of a part       those of its statements, times the share of the busiest processor
    of a statement  its instructions, and lines of memory from each level

A statement (a STORE, a STAGE, a fold) has a nest of loops. A value is computed in the innermost
loop that it depends on, as often as that loop runs; lanes and repeated code are instructions. A
cache holds what the innermost loops touch, as many of them as fit; what an access touches there
comes from further away each time that the loops outside go on. Rows a power of two apart agree in
the low bits of their addresses, and take up more of a cache than their bytes.

It need only order the schedules of one kernel: those of which it predicts the least take 1.03 times
the best measured of products, 1.06 of other kernels; the best of its first four 1.01 and 1.02.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial

from fnx.core import build, dtypes, ops, parts
from fnx.core.errors import KernelError
from fnx.core.parts import buffer, closed, dims
from fnx.core.range_kinds import OF_WORKERS
from fnx.core.target import Target
from fnx.core.tiling import Schedule
from fnx.core.uop import UOp, rebuild, toposort
from fnx.lower.schedule.staging import split_global
from fnx.lower.schedule.tile import tile
from fnx.lower.schedule.workload import extent, stride

_START = 4000        # cycles to hand a kernel to workers, and to hear that it is done
_BITS = 512          # of vectors, that are multiplied and added in a cycle
_WAIT = 8            # additions that have to be under way: two units, 4 cycles each
_LOOP = 0.5          # cycles of an iteration, and of what it reads beside arithmetic
_BESIDE = 1 / 8
_GATHERED = {ops.LOAD: 0.8, ops.STORE: 1.2}  # instructions of a lane that lies apart
_LINE, _WAYS = 64, 8  # bytes of a line; lines of a cache that agree in the low bits of addresses
_THIRD = 16 << 20    # bytes of the third cache
# Cycles of a line from the second cache, in addition from the third, and from memory: most of what
# takes them goes on beside arithmetic. Fitted to 1,050 schedules of 34 products.
_CYCLES = 0.5, 0.25, 16.0
_WARP, _GROUPS = 32, 128  # threads that step together; groups that keep a device busy


def predicted(kernel: UOp, schedule: Schedule, target: Target) -> float:
    """Cycles of a kernel under a schedule; infinite, where it is not legal.

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
    return sum([_START + _part(part.kernel, target) for part in (*packs, main)])


def _part(kernel: UOp, target: Target) -> float:
    kernel, = rebuild([kernel], _without_ends)
    order, nodes = parts.LoopOrder(kernel.arg.order), toposort(kernel.src)
    total = sum([_Statement(s, order, target).cycles() for s in nodes
                 if s.op in (ops.STORE, ops.STAGE, ops.REDUCE, ops.ITER)])

    def given(kind: str) -> int:
        return math.prod([extent(r) for r in nodes if r.op is ops.RANGE and r.arg.kind == kind])

    threads, groups = given("THREAD"), given("GRID")
    processors = target.cores if target.threads == 1 else _GROUPS
    count = groups * given(OF_WORKERS)
    return total / min(threads, _WARP) * -(-count // processors) / count


def _without_ends(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Places beyond the end of a loop are few: what they are clamped to is left out."""
    if node.op is ops.MIN and node.dtype is dtypes.index:
        return next((s for s in src if s.ranges), src[0])
    return None


class _Access:
    """A LOAD or STORE: bytes of the lines that it touches in all loops from each one on, and bytes
    that these take up of each cache."""

    def __init__(self, n: UOp, ranges: Sequence[UOp], caches: Sequence[int]) -> None:
        self._size = (n.dtype if n.op is ops.LOAD else parts.value(n).dtype).itemsize
        self.steps = {r: abs(stride(n, r)) * self._size for r in ranges}
        self._whole = math.inf
        if all(d.op is ops.CONST for d in dims(buffer(n))):
            self._whole = math.prod([build.const_of(d) for d in dims(buffer(n))]) * self._size
        touched = [self._touched(ranges[at:]) for at in range(len(ranges) + 1)]
        self.lines = [lines for lines, _, _ in touched]
        self.held = [[max(lines, rows * min(apart, held // _WAYS)) for held in caches]
                     for lines, rows, apart in touched]

    def _touched(self, loops: Sequence[UOp]) -> tuple[float, int, int]:
        """Bytes of lines; how many rows, and the power of two that they are apart."""
        run, rows, apart = self._size, 1, 0
        for step, n in sorted((self.steps[r], extent(r)) for r in loops):
            if step and n > 1 and step <= max(run, _LINE):  # it goes on where that ended
                run += step * (n - 1)
            elif step and n > 1:
                rows, apart = rows * n, apart or step & -step
        lines = min(rows * -(-run // _LINE), -(-self._whole // _LINE))
        return lines * _LINE, rows, apart


class _Statement:
    """A STORE, STAGE, fold or loop of carried values, with what is computed for it."""

    def __init__(self, s: UOp, order: parts.LoopOrder, target: Target) -> None:
        self.s, self.target = s, target
        own = closed(s) if s.op is not ops.STORE else ()
        self.ranges = sorted(s.ranges.union(own), key=order)
        self.loops = [r for r in self.ranges if r.arg.kind not in ("VEC", "UNROLL")]
        roots = s.src if s.op in (ops.STORE, ops.ITER) else s.src[:1]
        self.nodes = [*toposort(roots, stop=lambda n: n.op in (
            ops.REDUCE, ops.STAGE, ops.LOAD, ops.ITER)), s]

    def cycles(self) -> float:
        spent: float = sum(map(operator.mul, self._lines(), _CYCLES))
        return self._instructions() + spent

    def _instructions(self) -> float:
        work: dict[int, list[float]] = {}  # of each loop: arithmetic, what is moved
        for n in filter(self._counts, self.nodes):
            run = self.ranges if n is self.s else [r for r in self.ranges if r in n.ranges]
            depth = max([self.loops.index(r) + 1 for r in run if r in self.loops], default=0)
            times = math.prod([extent(r) for r in run if r.arg.kind == "UNROLL"])
            spent = work.setdefault(depth, [0.0, 0.0])
            if self._moves(n):
                spent[1] += times * _moved(n, run)
            else:
                spent[0] += times * n.op.cost * _vectors(n, run)
        folds = self.s.op is ops.REDUCE and self.s.dtype.is_float and self.loops and \
            self.loops[-1] in closed(self.s)
        return sum([(max(computed, moved, _WAIT if folds and depth == len(self.loops) else 0)
                     + _LOOP + _BESIDE * moved) * math.prod(map(extent, self.loops[:depth]))
                    for depth, (computed, moved) in work.items()])

    def _moves(self, n: UOp) -> bool:
        return n.op is ops.LOAD or n is self.s and n.op in (ops.STORE, ops.STAGE)

    def _counts(self, n: UOp) -> bool:
        """Whether a node is an instruction of this statement; a product that is added is none."""
        if n.dtype is dtypes.index or n is not self.s and n.op in (
                ops.REDUCE, ops.STAGE, ops.ITER):
            return False
        added = self.s.op is ops.REDUCE and self.s.arg.monoid is ops.ADD and self.target.fma
        return not (added and n is self.s.src[0] and n.op is ops.MUL) and \
            bool(n.op.cost or self._moves(n))

    def _lines(self) -> list[float]:
        """How many come from the second cache, from the third, from memory."""
        caches = self.target.l1, self.target.l2, _THIRD
        accesses = [_Access(n, self.ranges, caches) for n in self.nodes
                    if n.op in (ops.LOAD, ops.STORE)]
        return [sum(map(partial(self._brought, self._held(accesses, level)), accesses))
                for level in range(len(caches))]

    def _held(self, accesses: Sequence[_Access], level: int) -> int:
        """The first of the loops whose data a cache holds."""
        size, at = (self.target.l1, self.target.l2, _THIRD)[level], len(self.ranges)
        while at and sum([a.held[at - 1][level] for a in accesses]) <= size:
            at -= 1
        return at

    def _brought(self, at: int, access: _Access) -> float:
        """Lines that an access brings, if a cache holds the loops from so many on."""
        while at and not access.steps[self.ranges[at - 1]]:  # what it touched is still there
            at -= 1
        return access.lines[at] / _LINE * math.prod(map(extent, self.ranges[:at]))


def _vectors(n: UOp, run: Sequence[UOp]) -> float:
    """Cycles of an instruction."""
    lanes = math.prod([extent(r) for r in run if r.arg.kind == "VEC"])
    return max(0.5, lanes * n.dtype.itemsize * 8 / _BITS)


def _moved(n: UOp, run: Sequence[UOp]) -> float:
    lane = next((r for r in run if r.arg.kind == "VEC"), None)
    if lane is not None and n.op in _GATHERED and abs(stride(n, lane)) > 1:
        return _GATHERED[n.op] * extent(lane)
    return 1.0
