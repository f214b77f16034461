"""choose_groups: the schedule of a kernel whose loops are mapped to workgroups of threads.

    kernel      schedule
    rows        STORE(o[r, c], f(x[r, c], REDUCE(x[r, k], k)))      a group for each row r; its
                threads share k and c with coalesced reads, and reduce in SHARED memory
    columns     STORE(o[c], REDUCE(x[k, c], k))     a group for a block of columns, with coalesced
                reads; its other threads reduce, and store, other rows; if there are many columns,
                a thread for each
    map         STORE(o[r, c], f(x[r, c]))        a thread for each element; reductions are loops
    product     REDUCE(x[m, k] * w[k, n], k)      a group for each block of the result, a thread
                for each tile of it, in registers; blocks of both factors are SHARED
    in order    a scatter that combines           ranges whose iterations never write one element
                are mapped as in a map; the others are loops

The choice follows from the kernel and the target's entry, so equal kernels associate their sums
alike on every device of a kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import ops, parts, tiling
from fnx.core.parts import closed
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.tiling import Bind, Schedule, Transform
from fnx.core.uop import UOp, toposort
from fnx.lower.schedule import contraction
from fnx.lower.schedule.choose import LoopPlan
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.loops import name_of, ranges_of
from fnx.lower.schedule.plan import MODEL, Decisions
from fnx.lower.schedule.warps import by_warps, warp_unit
from fnx.lower.schedule.workload import extent, itemsize, loads_below, product, stride

_LONG = 64        # iterations shared by threads; with fewer, a thread computes a whole row
_MANY = 1 << 13   # rows that keep a device busy with a thread each
_LEAST = 32       # least threads of a workgroup
_SIDE = 16        # threads along each side of a block of a product; terms per block of the sum
_TILES = (8, 8), (8, 4), (4, 8), (4, 4), (2, 4), (4, 2), (2, 2), (1, 4), (1, 2), (2, 1), (1, 1)
_SPARE = 32       # registers of a thread with a tile, for addresses and temporaries;
                  # three times as many if an elementary function follows the sums:
_DEAR = 5         # ... an op that costs more than a division
_BUSY = 128       # workgroups that keep a device busy
_EVEN = 1.3       # most work of the tiles relative to the least, as tiles round up
_LINES = 192      # most lines of code for the elements of a thread


def choose_groups(kernel: UOp, target: Target) -> Schedule:
    """Return the schedule of a kernel for a target with workgroups of threads.

    >>> from fnx.core import build, dtypes
    >>> i = build.range_(1000, 0)
    >>> x, o = (build.at(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> choose_groups(copy, Target("gpu", threads=256))[:2]
    (split('r0', 128, 'r0_g', 'r0_t'), grid('r0_g'))
    """
    return decided_for_groups(kernel, target, Decisions(MODEL))


def decided_for_groups(kernel: UOp, target: Target, decisions: Decisions) -> Schedule:
    """Return the schedule for these knobs, and record the legal alternatives of each."""
    if any(symbolic.bounds(parts.extent(r))[1] == 0 for r in ranges_of(kernel)):
        return ()
    return tuple(_GroupPlan(kernel, target, decisions).schedule())


def _tiled_product(kernel: UOp) -> Contraction | None:
    """Match a product large enough that blocks of it pay for the memory they share. None if it is
    not."""
    found = contraction.find(kernel)
    if found is None or not all(r.src[0].op is ops.CONST for r in ranges_of(kernel)):
        return None
    return found if min(map(extent, _sides(found))) >= _SIDE // 2 else None


def _sides(found: Contraction) -> tuple[UOp, UOp, UOp]:
    """Return the row, column and summed range that blocks are made of."""
    return (_near(found.left, found.rows), _near(found.right, found.columns),
            _near(found.left, found.summed))


def _near(factor: UOp, ranges: Sequence[UOp]) -> UOp:
    """Return the range along which a factor is contiguous, or the last; the longest if that one is
    short, as a window is."""
    loads = loads_below(factor)
    near = next((r for r in ranges if any(stride(n, r) == 1 for n in loads)), ranges[-1])
    return near if extent(near) >= _SIDE else max(ranges, key=extent)


def _tile(kernel: UOp, found: Contraction, target: Target, decisions: Decisions
          ) -> tuple[int, int]:
    """Choose rows and columns per thread: of the tiles that fit the registers and leave enough
    workgroups, the one with the least loads per multiply-add."""
    row, column, _ = map(extent, _sides(found))
    others = product((*found.batch, *found.rows, *found.columns)) // (row * column)
    size = itemsize([found.reduce, found.left, found.right])
    behind = toposort(kernel.src, stop=lambda n: n is found.reduce)
    dear = any(n.op.cost > _DEAR for n in behind)

    def blocks(high: int, wide: int) -> int:
        return -(-row // (_SIDE * high)) * -(-column // (_SIDE * wide)) * others

    def fits(high: int, wide: int, spare: int = _SPARE) -> bool:
        words = size // 4 or 1
        return words * (high * wide + high + wide) + spare <= target.vector_registers and \
            2 * _SIDE * _SIDE * (high + wide) * size <= target.shared

    def computed(high: int, wide: int) -> int:
        return blocks(high, wide) * high * wide

    least, fitting = computed(1, 1), [tile for tile in _TILES if fits(*tile)]
    model = next((tile for tile in fitting if fits(*tile, 3 * _SPARE if dear else _SPARE)
                  and computed(*tile) <= _EVEN * least
                  and blocks(*tile) >= min(_BUSY, blocks(2, 2))), (1, 1))
    return decisions.of("tile", model, lambda: fitting)


class _GroupPlan:
    """Collect the transforms of a kernel."""

    def __init__(self, kernel: UOp, target: Target, decisions: Decisions) -> None:
        self.loops, self.target, self.decisions = LoopPlan(kernel, target), target, decisions
        self.common = self.loops.common
        self.rows = [r for r in self.common if r in self.loops.outer]
        self.steps: list[Transform] = []
        self.parts: dict[UOp, tuple[str, ...]] = {r: (name_of(r),) for r in self.loops.ranges}
        self.lanes: dict[UOp, str] = {}  # the unrolled lanes of a range
        self.shared: list[UOp] = []
        self.groups: list[str] = []
        self.threads: list[str] = []
        self.kernel, self.product = kernel, _tiled_product(kernel)

    def schedule(self) -> list[Transform]:
        if self.product is not None:
            self._tiles(self.product)
            return self.steps
        across = self._across()
        self.shared = across or self._columns()
        if across:
            self._blocks_of_columns(across)
        elif self.shared:
            self._rows(self.shared)
        else:
            self._map()
        self._order()
        return self.steps

    # ---- vectors

    def _lanes(self, r: UOp, left: int = 1) -> int:
        """Return how many adjacent elements along a range a thread takes: as many as one vector
        access moves, if they are aligned and enough elements remain for other threads."""
        plan = self.loops
        accesses = [n for n in plan.nodes if n.op is ops.LOAD] + list(plan.stores)
        sizes = [n.src[0].dtype.itemsize for n in accesses if stride(n, r) == 1
                 and not n.src[0].dtype.is_bool]
        known = r.src[0].op is ops.CONST
        if not sizes or not known or plan.kept or any(n.op is ops.ITER for n in plan.nodes):
            return 1
        widest = self.target.lanes(max(sizes))
        lanes = self.decisions.of("vector", widest, lambda: [
            n for n in (2 * widest, widest // 2, 1) if n])
        computed = sum(bool(n.op.cost) and n.dtype.kind != "index" for n in plan.nodes)
        while lanes > 1 and (extent(r) % lanes or extent(r) // lanes < left
                             or computed * lanes > _LINES):
            lanes //= 2
        return lanes

    def _cut_lanes(self, r: UOp, lanes: int) -> str:
        """Return the loop over vectors of a range; its lanes are unrolled."""
        name = name_of(r)
        if lanes == 1:
            return name
        self.steps += [tiling.split(name, lanes, f"{name}_q", f"{name}_v"),
                       tiling.unroll(f"{name}_v")]
        self.lanes[r] = f"{name}_v"
        return f"{name}_q"

    # ---- rows

    def _columns(self) -> list[UOp]:
        """Return the ranges that threads of a workgroup share: one of each reduction, stage and
        store that depends on nothing but the row. Empty if a thread computes a whole row."""
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

    def _across(self) -> list[UOp]:
        """Return the ranges, the longest of each reduction and store, that threads share while
        their neighbors walk along memory. Empty unless this is the only coalesced access, or if
        there are enough columns for a thread each."""
        plan, c = self.loops, self._contiguous()
        if c not in self.rows or plan.kept or product(self.rows) >= _MANY or \
                any(n.op in (ops.ITER, ops.PAIR) for n in plan.nodes):
            return []
        rows = frozenset(self.rows)
        folded = [r for n in plan.closing for r in closed(n)]
        loads = [n for n in plan.nodes if n.op is ops.LOAD]
        if any(not n.ranges <= rows for n in plan.closing) or \
                any(stride(n, r) == 1 for n in loads for r in folded) or \
                not any(stride(n, c) == 1 and not n.ranges.isdisjoint(folded) for n in loads):
            return []
        own = [[r for r in plan.ranges if r in s.ranges and r not in rows] for s in plan.stores]
        walked = [*map(closed, plan.closing), *filter(None, own)]
        found = list(dict.fromkeys([max(ranges, key=extent) for ranges in walked]))
        return found if max(map(extent, found)) >= _LONG else []

    def _contiguous(self) -> UOp | None:
        """Return the range along which all stores are contiguous."""
        return next((r for r in self.common
                     if all(stride(s, r) == 1 for s in self.loops.stores)), None)

    def _blocks_of_columns(self, folded: Sequence[UOp]) -> None:
        c = self._contiguous()
        assert c is not None
        for r in self.rows:
            if r is not c:
                self._give(r)
        self._split(c, 1, _LEAST, "g", "t")
        beside = max(2, self._group(self.target.threads) // _LEAST)
        for r in folded:
            self._split(r, 1, beside, "o", "t")

    def _are_many_rows(self) -> bool:
        """Return whether there are rows for all threads, adjacent in memory."""
        if product(self.rows) < _MANY:
            return False
        loads = [n for n in self.loops.nodes if n.op is ops.LOAD]
        inner = {r for n in self.loops.closing for r in closed(n)}
        return not any(stride(n, r) == 1 for n in loads for r in inner)

    def _along(self, ranges: Sequence[UOp]) -> UOp:
        """Return the range along which memory is contiguous, or the longest."""
        accesses = [n for n in self.loops.nodes if n.op is ops.LOAD] + list(self.loops.stores)
        near = [r for r in ranges if any(stride(n, r) == 1 for n in accesses)]
        return max(near or ranges, key=extent)

    def _rows(self, shared: Sequence[UOp]) -> None:
        longest = max(map(extent, shared))
        threads = _LEAST
        while threads < min(self.target.threads, longest // 4):
            threads *= 2
        threads = self._group(threads)
        for r in self.rows:
            self._give(r)
        for r in shared:
            self._split(r, self._lanes(r, threads), threads, "o", "t")

    def _group(self, model: int) -> int:
        """Return the threads of a workgroup."""
        return self.decisions.of("group", model, lambda: [
            n for n in (2 * model, model // 2, 4 * model, model // 4)
            if _LEAST <= n <= self.target.threads])

    # ---- products

    def _tiles(self, found: Contraction) -> None:
        """Tile rows and columns in blocks, with a register tile per thread; split the sum in
        blocks."""
        row, column, k = _sides(found)
        unit = warp_unit(found, self.target)
        if unit is not None and self.decisions.of("unit", True, lambda: [False]):
            self.steps += by_warps(found, unit, row, column, k, self.decisions)
            return
        m, n, s = map(name_of, (row, column, k))
        high, wide = _tile(self.kernel, found, self.target, self.decisions)
        lanes = min(wide, self.target.lanes(itemsize([found.reduce, found.left, found.right])))
        self.steps += [
            tiling.split(m, _SIDE * high, f"{m}_g", f"{m}_r"),
            tiling.split(f"{m}_r", high, f"{m}_t", f"{m}_i"),
            tiling.split(n, _SIDE * wide, f"{n}_g", f"{n}_r"),
            tiling.split(f"{n}_r", _SIDE * lanes, f"{n}_j", f"{n}_x"),
            tiling.split(f"{n}_x", lanes, f"{n}_t", f"{n}_v"),
            tiling.split(s, _SIDE, f"{s}_o", f"{s}_k")]
        others = [name_of(r) for r in (*found.batch, *found.rows, *found.columns)
                  if r not in (row, column)]
        for name in (*others, f"{m}_g", f"{n}_g"):
            self._bind(name, "GRID", self.groups)
        for name in (f"{m}_t", f"{n}_t"):
            self._bind(name, "THREAD", self.threads)
        summed = [name_of(r) for r in found.summed if r is not k]
        self.steps += [
            tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"), tiling.unroll(f"{n}_v"),
            tiling.order(*self.groups, *self.threads, *summed, f"{s}_o", f"{s}_k",
                         f"{m}_i", f"{n}_j", f"{n}_v")]
        both = {*contraction.slots_of(found.left)} & {*contraction.slots_of(found.right)}
        self.steps += [
            tiling.stage(slot, f"{s}_o", "SHARED", along if slot in both else None,
                         double=self.decisions.of("double", True, lambda: [False]))
            for side, along in ((found.left, m), (found.right, n))
            for slot in contraction.slots_of(side)[:1]]

    # ---- maps

    def _map(self) -> None:
        """Map threads along the range in which stores are contiguous, then along those outside. If
        there are many columns, a thread that reduces a column stores all of it."""
        near = self._contiguous()
        common = self.rows if self.rows and self._are_many_rows() else self.common
        inner = [near] if near in common else []
        left = self._group(min(128, self.target.threads))
        for r in [*inner, *reversed([r for r in common if r not in inner])]:
            busy = -(-_MANY * extent(r) // product(common))
            lanes = self._lanes(r, busy) if r in inner else 1
            threads = min(left, 1 << (extent(r) // lanes - 1).bit_length())
            left //= threads
            if threads == 1 and lanes == 1:
                self._give(r)
            else:
                self._split(r, lanes, threads, "g", "t")

    # ---- mapping a range

    def _give(self, r: UOp) -> None:
        """Map a range to workgroups."""
        self._bind(self.parts[r][0], "GRID", self.groups)

    def _split(self, r: UOp, lanes: int, threads: int, outer: str, inner: str) -> None:
        """Split a range into vectors for threads, and a loop outside of these."""
        name = name_of(r)
        self.parts[r] = f"{name}_{outer}", f"{name}_{inner}"
        self.steps.append(tiling.split(self._cut_lanes(r, lanes), threads, *self.parts[r]))
        if outer == "g":
            self._give(r)
        self._bind(self.parts[r][1], "THREAD", self.threads)

    def _bind(self, name: str, kind: str, names: list[str]) -> None:
        self.steps.append(Bind(name, kind))
        names.append(name)

    def _order(self) -> None:
        """Order workgroups first, then threads that compute a whole row, then the loops."""
        nested = self.loops.loop_order()
        names = [x for r in nested
                 for x in (reversed(self.parts[r]) if r in self.shared else self.parts[r])]
        given = [x for x in names if x in self.groups]
        among = {x for r in self.shared for x in self.parts[r]}
        whole = [x for x in names if x in self.threads and x not in among]
        rest = [x for x in names if x not in given and x not in whole]
        self.steps.append(tiling.order(*given, *whole, *rest, *self.lanes.values()))
