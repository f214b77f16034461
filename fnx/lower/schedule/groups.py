"""choose_groups: the schedule of a kernel whose loops are given out to groups of threads.

    kernel      schedule
    rows        STORE(o[r, c], f(x[r, c], REDUCE(x[r, k], k)))      a group for each row r; its
                threads share k, and c: neighbours read neighbours, folds meet in SHARED memory
    map         STORE(o[r, c], f(x[r, c]))        a thread for each place; folds are loops of it
    product     REDUCE(x[m, k] * w[k, n], k)      a group for each block of the result, a thread
                for each tile of it, in registers; blocks of both factors are SHARED
    in order    a scatter that combines           ranges whose iterations may not meet are given
                out as in a map; the others are loops

Which it is follows from the kernel and the target's row, so equal kernels associate their sums
alike on every device of a kind. At most three ranges are given to groups; more are loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import ops, parts, tiling
from fnx.core.parts import closed
from fnx.core.range_kinds import RANGE_KINDS
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.tiling import Bind, Schedule, Transform
from fnx.core.uop import UOp
from fnx.lower.schedule import contraction
from fnx.lower.schedule.choose import LoopPlan
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.loops import name_of, ranges_of
from fnx.lower.schedule.warps import by_warps, warp_unit
from fnx.lower.schedule.workload import extent, loads_below, product, stride

_LONG = 64        # iterations that threads share: with fewer a thread does a row
_MANY = 1 << 13   # rows that keep a device busy with a thread each
_LEAST = 32       # threads of a group
_SIDE = 16        # threads along each side of a block of a product, and terms of a block of sums
_TILE = 4         # rows, and columns, of a thread


def choose_groups(kernel: UOp, target: Target) -> Schedule:
    """The schedule for a kernel on a target with groups of threads.

    >>> from fnx.core import build, dtypes
    >>> i = build.range_(1000, 0)
    >>> x, o = (build.at(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> choose_groups(copy, Target("gpu", threads=256))[:2]
    (split('r0', 128, 'r0_g', 'r0_t'), bind('r0_g', 'GRID'))
    """
    if any(symbolic.bounds(parts.extent(r))[1] == 0 for r in ranges_of(kernel)):
        return ()
    return tuple(_GroupPlan(kernel, target).schedule())


def _tiled_product(kernel: UOp) -> Contraction | None:
    """The product that a kernel is, where a block of it is worth the memory that it shares."""
    found = contraction.find(kernel)
    if found is None or not all(r.src[0].op is ops.CONST for r in ranges_of(kernel)):
        return None
    sides = extent(found.rows[-1]), extent(_near(found.right, found.columns)), \
        extent(found.summed[-1])
    return found if min(sides) >= _SIDE // 2 else None


def _near(factor: UOp, ranges: Sequence[UOp]) -> UOp:
    """The range along which a factor is contiguous, or the last."""
    loads = loads_below(factor)
    return next((r for r in ranges if any(stride(n, r) == 1 for n in loads)), ranges[-1])


class _GroupPlan:
    """Collects the transforms of a kernel."""

    def __init__(self, kernel: UOp, target: Target) -> None:
        self.loops, self.target = LoopPlan(kernel, target), target
        self.common = self.loops.common
        self.rows = [r for r in self.common if r in self.loops.outer]
        self.steps: list[Transform] = []
        self.parts: dict[UOp, tuple[str, ...]] = {r: (name_of(r),) for r in self.loops.ranges}
        self.shared: list[UOp] = []
        self.groups: list[str] = []
        self.threads: list[str] = []
        self.product = _tiled_product(kernel)

    def schedule(self) -> list[Transform]:
        if self.product is not None:
            self._tiles(self.product)
            return self.steps
        self.shared = self._columns()
        if self.shared:
            self._rows(self.shared)
        else:
            self._map()
        self._order()
        return self.steps

    # ---- rows

    def _columns(self) -> list[UOp]:
        """The ranges that threads of a group share: one of each fold, stage and store that
        depends on nothing but the row. None where a thread does a row."""
        plan = self.loops
        if not plan.closing or any(n.op in (ops.ITER, ops.PAIR) for n in plan.nodes) or \
                plan.kept or \
                self._are_many_rows():
            return []
        rows = frozenset(self.rows)
        found: list[UOp] = []
        for node in plan.closing:
            if node.ranges <= rows:
                found.append(self._along(closed(node)))
        for store in plan.stores:
            own = [r for r in plan.ranges if r in store.ranges and r not in rows]
            if own:
                found.append(self._along(own))
        found = list(dict.fromkeys(found))
        nested = any(not n.ranges <= rows for n in plan.closing
                     if not set(found).isdisjoint(closed(n)))
        return [] if nested or max(map(extent, found), default=0) < _LONG else found

    def _are_many_rows(self) -> bool:
        """Whether there are rows for all threads, side by side in memory."""
        if product(self.rows) < _MANY:
            return False
        loads = [n for n in self.loops.nodes if n.op is ops.LOAD]
        inner = {r for n in self.loops.closing for r in closed(n)}
        return not any(stride(n, r) == 1 for n in loads for r in inner)

    def _along(self, ranges: Sequence[UOp]) -> UOp:
        """The one along which memory is contiguous, or the longest."""
        accesses = [n for n in self.loops.nodes if n.op is ops.LOAD] + list(self.loops.stores)
        near = [r for r in ranges if any(stride(n, r) == 1 for n in accesses)]
        return max(near or ranges, key=extent)

    def _rows(self, shared: Sequence[UOp]) -> None:
        longest = max(map(extent, shared))
        threads = _LEAST
        while threads < min(self.target.threads, longest // 4):
            threads *= 2
        for r in self.rows:
            self._give(r)
        for r in shared:
            self._split(r, threads, "o", "t")

    # ---- products

    def _tiles(self, found: Contraction) -> None:
        """Blocks of rows and columns, of which each thread has some of both; sums in blocks."""
        row, k = found.rows[-1], found.summed[-1]
        column = _near(found.right, found.columns)
        unit = warp_unit(found, self.target)
        if unit is not None:
            self.steps += by_warps(found, unit, row, column, k)
            return
        m, n, s = map(name_of, (row, column, k))
        tiles = {r: _TILE if extent(r) >= _SIDE * _TILE else 1 for r in (row, column)}
        high, wide = tiles[row], tiles[column]
        self.steps += [
            tiling.split(m, _SIDE * high, f"{m}_g", f"{m}_r"),
            tiling.split(f"{m}_r", high, f"{m}_t", f"{m}_i"),
            tiling.split(n, _SIDE * wide, f"{n}_g", f"{n}_r"),
            tiling.split(f"{n}_r", _SIDE, f"{n}_j", f"{n}_t"),
            tiling.split(s, _SIDE, f"{s}_o", f"{s}_k")]
        others = [name_of(r) for r in (*found.batch, *found.rows, *found.columns)
                  if r not in (row, column)]
        for name in (f"{m}_g", f"{n}_g", *others):
            if len(self.groups) < (RANGE_KINDS["GRID"].most or 0):
                self._bind(name, "GRID", self.groups)
        for name in (f"{m}_t", f"{n}_t"):
            self._bind(name, "THREAD", self.threads)
        summed = [name_of(r) for r in found.summed if r is not k]
        self.steps += [
            tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"),
            tiling.order(*self.groups, *[x for x in others if x not in self.groups],
                         *self.threads, *summed, f"{s}_o", f"{s}_k", f"{m}_i", f"{n}_j")]
        both = {*contraction.slots_of(found.left)} & {*contraction.slots_of(found.right)}
        self.steps += [
            tiling.stage(slot, f"{s}_o", "SHARED", along if slot in both else None)
            for side, along in ((found.left, m), (found.right, n))
            for slot in contraction.slots_of(side)[:1]]

    # ---- maps

    def _map(self) -> None:
        """Threads along the range in which stores are contiguous, then along those outside."""
        inner = [r for r in self.common
                 if all(stride(s, r) == 1 for s in self.loops.stores)][:1]
        left = min(128, self.target.threads)
        for r in [*inner, *reversed([r for r in self.common if r not in inner])]:
            threads = min(left, 1 << (extent(r) - 1).bit_length())
            left //= threads
            if threads == 1:
                self._give(r)
            else:
                self._split(r, threads, "g", "t")

    # ---- what becomes of a range

    def _give(self, r: UOp) -> None:
        """To groups, as long as these have a dimension left."""
        if len(self.groups) < (RANGE_KINDS["GRID"].most or 0):
            self._bind(self.parts[r][0], "GRID", self.groups)

    def _split(self, r: UOp, threads: int, outer: str, inner: str) -> None:
        name = name_of(r)
        self.parts[r] = f"{name}_{outer}", f"{name}_{inner}"
        self.steps.append(tiling.split(name, threads, *self.parts[r]))
        if outer == "g":
            self._give(r)
        self._bind(self.parts[r][1], "THREAD", self.threads)

    def _bind(self, name: str, kind: str, names: list[str]) -> None:
        self.steps.append(Bind(name, kind))
        names.append(name)

    def _order(self) -> None:
        """Groups, then threads that do all of a row, then the loops in their order."""
        nested = self.loops.loop_order()
        names = [x for r in nested
                 for x in (reversed(self.parts[r]) if r in self.shared else self.parts[r])]
        given = [x for x in names if x in self.groups]
        whole = [] if self.shared else [x for x in names if x in self.threads]
        rest = [x for x in names if x not in given and x not in whole]
        self.steps.append(tiling.order(*given, *whole, *rest))
