"""choose: the heuristic schedule of an untiled kernel, by which ranges each access depends on.

    contraction    contraction_tiling.py
    rows           STORE(o[r], REDUCE(x[r, c], c)): lanes along c, workers share r
    columns        STORE(o[c], REDUCE(x[r, c], r)): lanes along c, each worker some of c
    map            STORE(o[r, c], f(x[r, c])): lanes along the contiguous range
    scatter        in order; lanes along a range that is an index of its own

Lanes go where loads and stores are contiguous, as weighed by a cost. Extents known only at run time
are assumed to be large. A small kernel gets no parallel range: the calling thread runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fnx.core import dtypes, ops, parts, tiling
from fnx.core.parts import closed
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.tiling import Schedule, Transform
from fnx.core.uop import UOp, toposort
from fnx.lower.program.conditions import INEQUALITIES
from fnx.lower.schedule import contraction, contraction_tiling
from fnx.lower.schedule.beside import Beside, beside
from fnx.lower.schedule.counted import BLOCK, CHUNK, UNROLL, Counted, between
from fnx.lower.schedule.legality import carried, kept_in_order
from fnx.lower.schedule.loops import name_of, ranges_of
from fnx.lower.schedule.plan import MODEL, Decisions
from fnx.lower.schedule.short_rows import turned_rows
from fnx.lower.schedule.subtotals import even, in_parts, other_chains
from fnx.lower.schedule.tiles import by_tiles, tile_unit
from fnx.lower.schedule.workload import (
    extent,
    is_known,
    itemsize,
    length,
    product,
    run_over,
    stride,
    work,
)

_INLINE = 1 << 16  # additions (or equivalent work) below which waking a worker does not pay
_FAR = 1 << 62  # assumed work if a length is unknown
_PASSES = 4  # of a scatter over its index range, each for a part of the elements of a row
_STRIPS = 4, 32  # adjacent blocks: 256 bytes to 2 KB of each row are read in turn
_STRIPS_EACH = 4  # strips for each processor; at least two processors are assumed
_WIDE = 512  # smallest extent that is cut into strips
_BLOCKS = 16  # least number of column blocks, if columns are read more than once
_CHAIN = 64  # terms of a sum per accumulator


def choose(kernel: UOp, target: Target) -> Schedule:
    """Return the schedule of a kernel for a target. How a sum associates follows from the kernel
    and the vector width only, never from the number of workers. The schedule is the first of the
    candidates (candidates.py): the one the cost heuristics prefer.

    >>> from fnx.core import build, dtypes
    >>> i = build.range_(1000, 0)
    >>> x, o = (build.at(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> choose(copy, Target("cpu"))[-1]
    vectorize('r0_l')
    """
    return decided(kernel, target, Decisions(MODEL))


def decided(kernel: UOp, target: Target, decisions: Decisions) -> Schedule:
    """Return the schedule for these knobs, and record the legal alternatives of each."""
    if any(symbolic.bounds(parts.extent(r))[1] == 0 for r in ranges_of(kernel)):
        return ()
    found = contraction.find(kernel)
    if found is not None:
        unit = tile_unit(found, target)
        return tuple(contraction_tiling.schedule(found, target, decisions) if unit is None else
                     by_tiles(found, unit))
    return tuple(LoopPlan(kernel, target, decisions).schedule())


class LoopPlan:
    """Collect the transforms of a kernel that is not a contraction."""

    def __init__(self, kernel: UOp, target: Target, decisions: Decisions | None = None) -> None:
        self.decide = (decisions or Decisions(MODEL)).of
        self.nodes = toposort(kernel.src)
        self.ranges = ranges_of(kernel)
        self.kept = {r for s in kernel.src for r in kept_in_order(s)}.union(carried(self.nodes))
        self.common = [r for r in self.ranges if r not in self.kept
                       and all(r in s.ranges for s in kernel.src)]
        self.target, self.lanes = target, target.lanes(itemsize(self.nodes))
        if len(kernel.src) > UNROLL * len({*map(parts.buffer, kernel.src)}):
            self.lanes = min(BLOCK, self.lanes)  # each store is a row of columns
        self.beside: Beside | None = None
        closing = [n for n in self.nodes if n.op in (ops.REDUCE, ops.STAGE, ops.ITER)]
        self.closing, self.stores = closing, kernel.src
        inner = {r for n in closing for r in closed(n)}
        free = {r for n in closing for r in n.ranges} - inner
        # a stage is filled in each iteration of its free ranges, so these stay loops
        self.staged = {r for n in closing if n.op is ops.STAGE for r in n.ranges}
        self.outer = [r for r in self.ranges if r in free]
        self.statements = [Counted(n, closed(n), target.permuted) for n in closing] + \
            [Counted(s, [r for r in self.ranges if r in s.ranges and r not in free],
                     target.permuted) for s in kernel.src]
        # reductions inside loops of other reductions: a node may depend on ranges of both
        loops = {r for n in closing if n.op is ops.REDUCE for r in closed(n)}
        self.nested = [n for n in closing if n.op is ops.REDUCE and not loops.isdisjoint(n.ranges)]
        self.few = self._few()
        self.turned: list[int] = []
        self.steps: list[Transform] = []
        self.lengths: dict[str, int | None] = {}  # trip counts of the loops made by splits
        self.parts: dict[UOp, tuple[list[str], list[str]]] = {
            r: ([name_of(r)], []) for r in self.ranges}  # (loop names, lane names)

    def schedule(self) -> list[Transform]:
        row = self._rows()
        if row is not None:
            return self._interleaved(row)
        vectors = self._vectors()
        self.beside = self._beside(vectors)
        blocked = self._transposed(vectors)
        self.turned = self._turned(vectors)
        shared = self._shared(vectors, blocked)
        beside = None if blocked else self._rows_at_once(vectors)
        for r in self.ranges:
            if self.beside is not None and r is self.beside.row:
                self._several_rows(r, r is shared, self.beside.rows)
            elif self.beside is not None and r is self.beside.term:
                self._write_out(r)
            elif r in vectors:
                self._vectorize(r, r is shared, not blocked)
            elif r in self.few and r is not shared and r not in blocked:
                self._write_out(r)
            elif r in blocked:
                self._block(r, vectors)
            elif beside is not None and r is beside[0]:
                self._several_rows(r, r is shared, beside[1])
            elif r is shared and is_known(r) and (chunk := self._chunk_of(r)) > 1:
                self._cut(r, chunk, "p", "c")
        self._order(shared, blocked)
        return self.steps

    # ---- rows walked by loops with carried values

    def _rows(self) -> UOp | None:
        """Return the innermost range whose iterations each walk contiguous memory in an ITER."""
        loops = [n for n in self.nodes if n.op is ops.ITER]
        if len(loops) != 1 or not self.common:
            return None
        t, r = closed(loops[0])[0], self.common[-1]
        places = [n for s in self.statements for n in s.nodes
                  if n.op in (ops.LOAD, ops.STORE) and t in n.ranges]
        along = all(abs(stride(n, t)) == 1 and abs(stride(n, r)) > 1 for n in places)
        return r if places and along and extent(r) >= UNROLL else None

    def _interleaved(self, r: UOp) -> list[Transform]:
        """Interleave a few rows: while one waits for its carried value, others proceed."""
        name = name_of(r)
        shared = work(self.nodes) >= _INLINE
        outer = [name_of(x) for x in self.ranges if x in self.common and x is not r]
        rest = [name_of(x) for x in self.ranges if x not in self.common]
        self.steps += [tiling.split(name, UNROLL, f"{name}_o", f"{name}_u"),
                       tiling.unroll(f"{name}_u"),
                       tiling.order(*outer, f"{name}_o", *rest, f"{name}_u")]
        if shared:
            self.steps.append(tiling.parallel(outer[0] if outer else f"{name}_o"))
        return self.steps

    # ---- lanes

    def _vectors(self) -> list[UOp]:
        """Choose the vectorized ranges: one outer range for all statements, or one for each
        statement."""
        apart, cost = self._apart()
        together = [(sum(s.cost(r, self._lanes_along(r)) for s in self.statements), [r])
                    for r in self.outer if r in self.common]
        options = sorted([(cost, apart), *together], key=lambda option: option[0])
        lanes = options[self.decide("lanes", 0, lambda: range(len(options)))][1]
        self.few += self._short_sides(lanes) if self._are_short_rows() else []
        return lanes

    def _short_sides(self, lanes: Sequence[UOp]) -> list[UOp]:
        """Return the short ranges that fill the gaps between strided lanes; they are unrolled."""
        found = {between(n, r, self.target.permuted) for s in self.statements for n in s.nodes
                 for r in lanes if n.op in (ops.LOAD, ops.STORE) and r in n.ranges}
        return [r for r in self.ranges if r in found and r not in (*lanes, *self.kept, *self.few)
                and all(r not in s.ranges or r in self.common for s in self.stores)]

    def _apart(self) -> tuple[list[UOp], float]:
        chosen: list[UOp] = []
        total = 0.0
        for s in self.statements:
            taken = [r for r in s.own if r in chosen]
            options: list[UOp | None] = [*taken[:1]] or [
                None, *[r for r in s.own if self._is_free(r, chosen)]]
            costs = [s.cost(r, self._lanes_along(r)) for r in options]
            least = min(costs)
            pick = options[costs.index(least)]
            total += least
            if pick is not None and pick not in chosen:
                chosen.append(pick)
        return chosen, total

    def _is_free(self, r: UOp, chosen: Sequence[UOp]) -> bool:
        """Return whether lanes along r are legal and do not meet other lanes in one value."""
        return r not in self.kept and r not in self.staged and r not in self.few and \
            extent(r) > 1 and not any(
            r in s.own and any(c in s.own for c in chosen) for s in self.statements) and not any(
            r in run_over(n) and not run_over(n).isdisjoint(chosen) for n in self.nested)

    def _lanes_along(self, r: UOp | None) -> int:
        """Return the number of lanes along r, no more than a short range fills."""
        if r is None:
            return 1
        return min(self.lanes, 1 << (extent(r) - 1).bit_length())

    def _unroll(self, r: UOp, lanes: int, shared: bool) -> int:
        """Choose the vectors per iteration: 4; fewer if the code would be long or the remainder
        large, if the stages for so many columns would not fit the cache, or if too few blocks of
        columns would be left for the workers."""
        count = sum(n.op in ops.ELEMENTWISE for n in self.nodes)
        vectors = -(-extent(r) // lanes)
        count = max(count * product(self.few), UNROLL * len(self.stores))
        times = UNROLL if count <= 16 else 2 if count <= 48 else 1
        times = max(1, min(times, UNROLL // product(self.few)))
        kept = lanes * sum(product(closed(n)) * n.dtype.itemsize for n in self.closing
                           if n.op is ops.STAGE and r in n.ranges)
        again = sum(r in n.ranges for n in self.closing) > 1
        least = _BLOCKS if shared and again else 1
        while times > 1 and (-(-vectors // times) * times > 1.15 * vectors
                             or kept * times > self.target.l2 // 4
                             or vectors // times < least):
            times //= 2
        if self.beside is not None:
            return self.beside.vectors
        most = min(vectors, 2 * UNROLL)
        return min(vectors, self.decide("unroll", times, lambda: [
            n for n in (2 * times, times // 2, 2 * UNROLL, 1) if 1 <= n <= most]))

    def _vectorize(self, r: UOp, shared: bool, unrolled: bool) -> None:
        name, lanes = name_of(r), self._lanes_along(r)
        times = self._unroll(r, lanes, shared) if unrolled else 1
        step, rest = lanes * times, name
        loops, lane = [f"{name}_o"], [f"{name}_l"]
        if shared and not self._is_cut(r):
            rest = f"{name}_t"
            loops.insert(0, f"{name}_p")
            most = max(1, self._chunk_of(r) // step)
            if self.kept and is_known(r):  # all other operands are read again for each chunk
                most = max(most, -(-extent(r) // (_PASSES * step)))
            chunk = most * step
            self.steps.append(tiling.split(name, chunk, loops[0], rest))
        inner = f"{name}_v" if times > 1 else f"{name}_l"
        self.steps.append(tiling.split(rest, step, f"{name}_o", inner))
        self.lengths[f"{name}_o"] = length(r, step)
        if times > 1:
            lane.insert(0, f"{name}_u")
            self.steps += [tiling.split(inner, lanes, *lane), tiling.unroll(lane[0])]
        self.parts[r] = (loops, lane)

    def _is_cut(self, r: UOp) -> bool:
        """Return whether conditions cut the loop over r (program/loop_peeling.py). Workers then
        share the loop over blocks of lanes itself, in which the cuts are constants."""
        return not self.kept and any(n.op in INEQUALITIES and n.src[0].dtype is dtypes.index
                                     and r in n.ranges for n in self.nodes)

    def _few(self) -> list[UOp]:
        """Return the ranges to unroll: those of short rows; reductions of a few terms inside loops
        of other reductions, and short ranges of the results that such a reduction does not depend
        on."""
        inner = [n for n in self.nested if all(_is_few(r) for r in closed(n))]
        out = {r for n in (self.closing if self._are_short_rows() else inner) for r in closed(n)}
        out |= {r for r in self.outer if inner and _is_few(r)
                and all(r not in n.ranges for n in inner)}
        return [r for r in self.ranges if r in out and r not in self.kept and r not in self.staged]

    def _are_short_rows(self) -> bool:
        """Return whether every reduction and stage covers only a few elements of each row."""
        return all(n.op is not ops.ITER and n.ranges and all(map(_is_few, closed(n)))
                   for n in self.closing)

    # ---- several short rows at once

    def _rows_at_once(self, vectors: Sequence[UOp]) -> tuple[UOp, int] | None:
        """Return (range of rows that are reduced together, how many at once), or None."""
        short = self._short_rows(vectors)
        loops = [r for r in self.common if r not in vectors and r not in self.few]
        row = short
        if row is None and loops and self.closing and self.beside is None and not self.kept and \
                all(n.op is ops.REDUCE and n.src[0].op is not ops.PAIR for n in self.closing):
            row = loops[-1]
        if row is None or not is_known(row) or row in self.staged:
            return None
        count = self.decide("rows", 1 if short is None else UNROLL, lambda: [
            n for n in (UNROLL, 2, 2 * UNROLL, 1) if 2 * n <= extent(row)])
        return None if count == 1 else (row, count)

    def _short_rows(self, vectors: Sequence[UOp]) -> UOp | None:
        """Return the range of rows, if each row is reduced in a few vectors. The horizontal
        reduction of a row's lanes is a chain of dependent steps; other rows proceed meanwhile."""
        if len(self.stores) != 1 or not self.closing or self.kept or sum(
                n.op in ops.ELEMENTWISE for n in self.nodes) > UNROLL * len(self.closing):
            return None
        rows = [r for r in self.common if r not in vectors]
        if not rows or not is_known(rows[-1]) or extent(rows[-1]) < 4 * UNROLL or not all(
                self._is_short_row(n, vectors) for n in self.closing):
            return None
        return rows[-1]

    def _is_short_row(self, node: UOp, vectors: Sequence[UOp]) -> bool:
        """Return whether a reduction is over a few vectors."""
        own = closed(node)
        return node.op is ops.REDUCE and node.src[0].op is not ops.PAIR and len(own) == 1 \
            and own[0] in vectors and is_known(own[0]) \
            and self._lanes_along(own[0]) < extent(own[0]) <= UNROLL * self.lanes

    def _beside(self, vectors: Sequence[UOp]) -> Beside | None:
        """Match rows that share loads, unless the knobs turn unroll-and-jam off."""
        lane = vectors[0] if len(vectors) == 1 else None
        found = beside(self.stores, self.closing, lane, self._lanes_along(lane), self.target)
        if found is None or self.few or not self.decide("beside", True, lambda: [False]):
            return None
        return found

    def _write_out(self, r: UOp) -> None:
        self.parts[r] = ([], [name_of(r)])
        self.steps.append(tiling.unroll(name_of(r)))

    def _several_rows(self, r: UOp, shared: bool, count: int = UNROLL) -> None:
        name = name_of(r)
        loops, rest = [f"{name}_o"], name
        if shared:
            chunk = -(-self._chunk_of(r) // count) * count
            loops.insert(0, f"{name}_p")
            rest = f"{name}_c"
            self.steps.append(tiling.split(name, chunk, f"{name}_p", rest))
        self.steps += [tiling.split(rest, count, f"{name}_o", f"{name}_u"),
                       tiling.unroll(f"{name}_u")]
        self.parts[r] = (loops, [f"{name}_u"])

    # ---- transposed reads

    def _transposed(self, vectors: Sequence[UOp]) -> list[UOp]:
        """Return the contiguous ranges of accesses whose lanes are strided."""
        out: list[UOp] = []
        for s in self.statements:
            lane = next((v for v in vectors if v in s.own), None)
            for n in s.nodes:
                if lane is None or n.op not in (ops.LOAD, ops.STORE) \
                        or stride(n, lane) in (0, 1):
                    continue
                out += [r for r in s.own if r is not lane and stride(n, r) == 1
                        and extent(r) > BLOCK and r not in self.kept and r not in out]
        return out if out and self._side() else []

    def _side(self) -> int:
        """Return the side of a transposed block; 0 for none."""
        return self.decide("side", BLOCK, lambda: (2 * BLOCK, BLOCK // 2, 0))

    def _turned(self, vectors: Sequence[UOp]) -> list[int]:
        """Return the operands that a map reads across its lanes: their blocks are transposed
        first."""
        if len(self.statements) > 1:
            return []
        statement, = self.statements
        return sorted({parts.buffer(n).arg.slot for n in statement.nodes for r in vectors
                       if statement.reads_turned(n, r, self._lanes_along(r))})

    def _block(self, r: UOp, vectors: Sequence[UOp]) -> None:
        """Block r: as an innermost loop, or unrolled if registers hold the block."""
        statement, lane, store = self.statements[0], vectors[0], self.stores[0]
        lanes = self._lanes_along(lane)
        if self.turned:
            name, several = name_of(r), self._strip(extent(r))
            self._cut(r, BLOCK * several, "o", "s" if several > 1 else "b")
            if several > 1:
                self.steps.append(tiling.split(f"{name}_s", BLOCK, f"{name}_n", f"{name}_b"))
                self.lengths |= {f"{name}_n": several, f"{name}_b": BLOCK}
                self.parts[r] = ([f"{name}_o", f"{name}_n", f"{name}_b"], [])
            return
        if len(self.statements) > 1 or abs(stride(store, lane)) <= 1 \
                or not statement.turns(store, lane, lanes):
            self._cut(r, self._side(), "o", "b")
            return
        self._cut(r, min(self._side(), lanes), "o", "b")
        outer, inner = self.parts[r][0]
        self.steps.append(tiling.unroll(inner))
        self.parts[r] = ([outer], [inner])

    def _strip(self, columns: int) -> int:
        """Return the number of adjacent blocks per strip. Hardware prefetch favors long runs of
        each row, so strips are as long as they divide the columns evenly and leave some for all
        processors."""
        if columns < _WIDE:
            return 1
        least, most = _STRIPS
        fit = columns // (BLOCK * _STRIPS_EACH * max(2, self.target.cores))
        strips = [n for n in (least << i for i in range(most.bit_length()))
                  if n <= min(fit, most) and columns % (BLOCK * n) == 0]
        return max(strips, default=least)

    def _cut(self, r: UOp, factor: int, outer: str, inner: str) -> None:
        """Split a range in two; the loop names end in ``outer`` and ``inner``."""
        name = name_of(r)
        loops = [f"{name}_{outer}", f"{name}_{inner}"]
        self.steps.append(tiling.split(name, factor, *loops))
        self.lengths |= {loops[0]: length(r, factor), loops[1]: factor}
        self.parts[r] = (loops, [])

    # ---- workers

    def _shared(self, vectors: Sequence[UOp], blocked: Sequence[UOp]) -> UOp | None:
        """Choose the range that workers share: the first of sufficient length that every store
        depends on, lanes last. None if each worker would reduce a whole row for its part of it."""
        known = all(map(is_known, self.ranges))
        total = work(self.nodes) if known else _FAR
        if not self.decide("shared", total >= _INLINE, lambda: [
                total < _INLINE] if _INLINE // 8 <= total <= 8 * _INLINE else []):
            return None
        loops = [r for r in self.common if r not in vectors and r not in self.few
                 and all(r in n.ranges or self._is_short(n) for n in self.closing)]
        for r in loops:
            if extent(r) >= UNROLL * (BLOCK if r in blocked else 1):
                return r
        long = [r for r in self.common if r in vectors and extent(r) > 4 * self.lanes
                and all(r in n.ranges or r in closed(n) or self._is_short(n)
                        for n in self.closing)]
        return long[0] if long else max(loops, key=extent, default=None)

    def _is_short(self, fold: UOp) -> bool:
        """Return whether a reduction takes only a few vectors, or is small compared with a worker's
        chunk."""
        return product(fold.ranges.union(closed(fold))) <= max(4 * self.lanes, CHUNK // 64)

    def _chunk_of(self, r: UOp) -> int:
        """Return how many iterations of r make a parallel iteration worth its overhead."""
        each = max(1, work(self.nodes) // extent(r))
        chunk = max(1, int(self.decide("chunk", 1.0, lambda: (4.0, 0.25)) * CHUNK) // each)
        return min(chunk, -(-extent(r) // 8)) if is_known(r) else 4 * chunk

    def loop_order(self) -> list[UOp]:
        """Return the ranges outside of reductions, then the others; the ranges of an ordered store
        keep their order."""
        left = [*self.outer, *[r for r in self.ranges if r not in self.outer]]
        kept = [[r for r in self.ranges if r in chain] for chain in
                map(kept_in_order, self.stores)]
        if all(sorted(chain, key=left.index) == chain for chain in kept):
            return left
        after = {r: {s for chain in kept if r in chain for s in chain[:chain.index(r)]}
                 for r in left}
        for n in self.closing:
            for r in closed(n):
                after[r] |= n.ranges
        out: list[UOp] = []
        while left:
            pick = next((r for r in left if after[r].isdisjoint(left)), left[0])
            out.append(pick)
            left.remove(pick)
        return out

    def _order(self, shared: UOp | None, blocked: Sequence[UOp]) -> None:
        """Order the loops: the shared one, ranges outside of reductions, the others, blocks,
        lanes."""
        first = [] if shared is None else self.parts[shared][0][:1]
        blocks = [self.parts[r][0][-1] for r in blocked if len(self.parts[r][0]) > 1]
        cut = self._subtotals(blocks)
        loops = [x for r in self.loop_order() for x in self.parts[r][0]
                 if x not in first and x not in blocks]
        if self.turned:  # blocks adjacent in memory run one after the other
            loops.sort(key=lambda x: any(x == n for r in blocked for n in self.parts[r][0][1:]))
        loops, blocks = ([x for name in names for x in cut.get(name, [name])]
                         for names in (loops, blocks))
        lanes = [x for r in self.ranges for x in self.parts[r][1]]
        self.steps.append(tiling.order(*first, *loops, *blocks, *lanes))
        if first:
            self.steps.append(tiling.parallel(first[0]))
        self.steps += [tiling.vectorize(x) for x in lanes if x.endswith("_l")]
        self.steps += [tiling.stage(slot, [*first, *loops][-1]) for slot in self.turned]
        at = {r: names[-1] for r, (names, own) in self.parts.items()
              if names and own[-1:] == [f"{name_of(r)}_l"]}
        self.steps += turned_rows(self.closing, at, self.lanes)

    def _subtotals(self, blocks: Sequence[str]) -> dict[str, list[str]]:
        """Split the loops of long float sums for blocked summation."""
        order = self.loop_order()
        out: dict[str, list[str]] = {}
        for node in self.closing:
            if node.op is not ops.REDUCE or node.arg.monoid is not ops.ADD \
                    or node.src[0].op is ops.PAIR or not node.dtype.is_float:
                continue
            loops = [(x, self.lengths[x] if x in self.lengths else length(r))
                     for r in order if r in closed(node) for x in self.parts[r][0]]
            loops.sort(key=lambda loop: loop[0] in blocks)
            if not any(x in out for x, _ in loops):
                chain = even(loops, _CHAIN)
                steps, cut = in_parts(loops, self.decide(
                    "terms", chain, partial(other_chains, chain)))
                self.steps += steps
                out |= cut if steps else {}
        return out


def _is_few(r: UOp) -> bool:
    return r.src[0].op is ops.CONST and extent(r) <= UNROLL
