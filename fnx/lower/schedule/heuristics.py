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

from fnx.core.ir import accessors, dtypes, ops, tiling
from fnx.core.ir.accessors import bound_ranges
from fnx.core.ir.tiling import Schedule, Transform
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.target import Target
from fnx.lower.analysis.conditions import INEQUALITIES
from fnx.lower.analysis.loops import name_of, ranges_of
from fnx.lower.analysis.tuning import CHUNK_WORK, LONG_BODY, MAX_PADDING, SHORT_BODY
from fnx.lower.analysis.workload import (
    extent,
    is_chain,
    is_short,
    is_short_range,
    is_static,
    itemsize,
    iteration_ranges,
    stride,
    total_work,
    trip_count,
    volume,
)
from fnx.lower.schedule import contraction, contraction_tiling, transposed_blocks
from fnx.lower.schedule.blocked_summation import alternative_chains, balanced_chain, split_sum
from fnx.lower.schedule.column_reductions import (
    chains_at_once,
    columns_at_once,
    length_of_sums,
)
from fnx.lower.schedule.knobs import HEURISTIC, TuningKnobs
from fnx.lower.schedule.legality import carried_ranges, ordered_ranges
from fnx.lower.schedule.multi_row import MultiRow
from fnx.lower.schedule.small_inner_dim import transpose_in_registers
from fnx.lower.schedule.statement_cost import (
    BLOCK_SIDE,
    UNROLL,
    StatementCost,
    find_gap_range,
    instructions,
)
from fnx.lower.schedule.tile_units import find_tile_unit, schedule_tile_unit
from fnx.lower.schedule.unroll_and_jam import UnrollAndJam, find_unroll_and_jam

# additions (or equivalent work) below which waking a worker does not pay
_MIN_PARALLEL_WORK = 1 << 16
_UNKNOWN_WORK = 1 << 62  # assumed work if a length is unknown
_SCATTER_PASSES = 4  # of a scatter over its index range, each for a part of the elements of a row
_PROCESSORS = 4  # that should have even shares of columns that are read more than once
_CHAIN_TERMS = 64  # terms of a sum per accumulator


def choose_schedule(kernel: UOp, target: Target) -> Schedule:
    """Return the schedule of a kernel for a target. How a sum associates follows from the kernel
    and the vector width only, never from the number of workers. The schedule is the first of the
    candidates (lower/candidates.py): the one the cost heuristics prefer.

    >>> from fnx.core.ir import build, dtypes
    >>> i = build.range_(1000, 0)
    >>> x, o = (build.index_into(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> choose_schedule(copy, Target("cpu"))[-1]
    vectorize('r0_l')
    """
    return schedule_for_knobs(kernel, target, TuningKnobs(HEURISTIC))


def schedule_for_knobs(kernel: UOp, target: Target, knobs: TuningKnobs) -> Schedule:
    """Return the schedule for these knobs, and record the legal alternatives of each."""
    if any(symbolic.bounds(accessors.extent(r))[1] == 0 for r in ranges_of(kernel)):
        return ()
    matmul = contraction.match_contraction(kernel)
    if matmul is not None:
        unit = find_tile_unit(matmul, target)
        return tuple(contraction_tiling.schedule(matmul, target, knobs) if unit is None else
                     schedule_tile_unit(matmul, unit))
    return tuple(LoopPlan(kernel, target, knobs).schedule())


def _is_uneven(blocks: int) -> bool:
    """Return whether some processors would have far more of so many blocks than others."""
    return -(-blocks // _PROCESSORS) * _PROCESSORS > MAX_PADDING * blocks


class LoopPlan:
    """Collect the transforms of a kernel that is not a contraction."""

    def __init__(self, kernel: UOp, target: Target, knobs: TuningKnobs | None = None) -> None:
        self.knob = (knobs or TuningKnobs(HEURISTIC)).value
        self.nodes = toposort(kernel.src)
        self.ranges = ranges_of(kernel)
        self.ordered = {r for s in kernel.src
                        for r in ordered_ranges(s)}.union(carried_ranges(self.nodes))
        self.common_ranges = [r for r in self.ranges if r not in self.ordered
                              and all(r in s.ranges for s in kernel.src)]
        self.target, self.lanes = target, target.vector_lanes(itemsize(self.nodes))
        if len(kernel.src) > UNROLL * len({*map(accessors.buffer, kernel.src)}):
            self.lanes = min(BLOCK_SIDE, self.lanes)  # each store is a row of columns
        self.unroll_and_jam: UnrollAndJam | None = None
        self.rolled: UOp | None = None  # the range whose vectors a loop after the sums goes over
        closing = [n for n in self.nodes if n.op in (ops.REDUCE, ops.STAGE, ops.LOOP)]
        self.closers, self.stores = closing, kernel.src
        inner = {r for n in closing for r in bound_ranges(n)}
        free_ranges = {r for n in closing for r in n.ranges} - inner
        # a stage is filled in each iteration of its free ranges, so these stay loops
        self.stage_ranges = {r for n in closing if n.op is ops.STAGE for r in n.ranges}
        self.outer = [r for r in self.ranges if r in free_ranges]
        self.statements = [
            StatementCost(n, ranges, target.permute_bytes, target.l1) for n, ranges in (
                *[(n, bound_ranges(n)) for n in closing],
                *[(s, [r for r in self.ranges if r in s.ranges and r not in free_ranges])
                  for s in kernel.src])]
        share_loops = len({frozenset(s.own_ranges) for s in self.statements}) == 1
        for s in self.statements:
            s.is_alone, s.shares_loops = len(self.statements) == 1, share_loops
        # reductions inside loops of other reductions: a node may depend on ranges of both
        loops = {r for n in closing if n.op is ops.REDUCE for r in bound_ranges(n)}
        self.nested_reductions = [n for n in closing
                                  if n.op is ops.REDUCE and
                                  not loops.isdisjoint(n.ranges)]
        self.unrolled = self._find_unrolled()
        self.chained = {r for n in closing if n.op is ops.REDUCE and is_chain(n)
                        for r in bound_ranges(n)}
        # rows of stages that are read on beyond their ends: vectors would leave gaps between
        read_on = [n for n in self.nodes if n.op is ops.INDEX and accessors.buffer(n).op is
                   ops.STAGE and accessors.indices(n)[-1].op is ops.REM]
        self.compact = {bound_ranges(accessors.buffer(n))[-1] for n in read_on}
        self.offsets = set(toposort([i for n in read_on for i in accessors.indices(n)]))
        self.transposed_operands: list[int] = []
        self.steps: list[Transform] = []
        self.trip_counts: dict[str, int | None] = {}  # trip counts of the loops made by splits
        self.parts: dict[UOp, tuple[list[str], list[str]]] = {
            r: ([name_of(r)], []) for r in self.ranges}  # (loop names, lane names)

    def schedule(self) -> list[Transform]:
        row = self._rows()
        if row is not None:
            return self._interleave_rows(row)
        vectors = self.vector_ranges()
        self.unroll_and_jam = self._find_unroll_and_jam(vectors)
        blocked_ranges = transposed_blocks.strided_ranges(self, vectors)
        self.transposed_operands = transposed_blocks.transposed_operands(self, vectors)
        parallel_range = self._parallel_range(vectors, blocked_ranges)
        multi_row = None if blocked_ranges else self._multi_row_range(vectors)
        for r in self.ranges:
            if self.unroll_and_jam is not None and r is self.unroll_and_jam.row:
                self._unroll_rows(r, r is parallel_range, self.unroll_and_jam.rows)
            elif self.unroll_and_jam is not None and r is self.unroll_and_jam.term:
                self._unroll_fully(r)
            elif r in vectors:
                self._vectorize(r, r is parallel_range, not blocked_ranges)
            elif r in self.unrolled and r is not parallel_range and r not in blocked_ranges:
                self._unroll_fully(r)
            elif r in blocked_ranges:
                transposed_blocks.block(self, r, vectors)
            elif multi_row is not None and r is multi_row[0]:
                self._unroll_rows(r, r is parallel_range, multi_row[1])
            elif r is parallel_range and is_static(r) and (chunk := self._chunk_size(r)) > 1:
                self.split_loop(r, chunk, "p", "c")
        self._order(parallel_range, blocked_ranges)
        return self.steps

    # ---- rows walked by loops with carried values

    def _rows(self) -> UOp | None:
        """Return the innermost range whose iterations each walk contiguous memory in a LOOP."""
        loops = [n for n in self.nodes if n.op is ops.LOOP]
        if len(loops) != 1 or not self.common_ranges:
            return None
        t, r = bound_ranges(loops[0])[0], self.common_ranges[-1]
        accesses = [n for s in self.statements for n in s.nodes
                    if n.op in (ops.LOAD, ops.STORE) and t in n.ranges]
        walks_rows = all(abs(stride(n, t)) == 1 and abs(stride(n, r)) > 1 for n in accesses)
        return r if accesses and walks_rows and extent(r) >= UNROLL else None

    def _interleave_rows(self, r: UOp) -> list[Transform]:
        """Interleave a few rows: while one waits for its carried value, others proceed."""
        name = name_of(r)
        is_parallel = total_work(self.nodes) >= _MIN_PARALLEL_WORK
        outer = [name_of(x) for x in self.ranges if x in self.common_ranges and x is not r]
        others = [name_of(x) for x in self.ranges if x not in self.common_ranges]
        self.steps += [tiling.split(name, UNROLL, f"{name}_o", f"{name}_u"),
                       tiling.unroll(f"{name}_u"),
                       tiling.order(*outer, f"{name}_o", *others, f"{name}_u")]
        if is_parallel:
            self.steps.append(tiling.parallel(outer[0] if outer else f"{name}_o"))
        return self.steps

    # ---- lanes

    def vector_ranges(self) -> list[UOp]:
        """Choose the vectorized ranges: one outer range for all statements, or one for each
        statement."""
        separate, cost = self._per_statement()
        common_lanes = [(sum(s.cost(r, self.lane_count(r)) for s in self.statements), [r])
                        for r in self.outer if r in self.common_ranges]
        options = sorted([(cost, separate), *common_lanes], key=lambda option: option[0])
        lanes = options[self.knob("lanes", 0, lambda: range(len(options)))][1]
        self.unrolled += self._gap_ranges(lanes)
        return lanes

    def _gap_ranges(self, lanes: Sequence[UOp]) -> list[UOp]:
        """Return the short ranges that fill the gaps between strided lanes; they are unrolled,
        unless that would repeat a long reduction."""
        gaps = {find_gap_range(n, r, self.target.permute_bytes) for s in self.statements
                for n in s.nodes
                for r in lanes if n.op in (ops.LOAD, ops.STORE) and r in n.ranges}
        if not self.are_rows_short():
            gaps = gaps.difference(*[n.ranges.union(bound_ranges(n)) for n in self.closers])
        return [r for r in self.ranges
                if r in gaps and r not in (*lanes, *self.ordered, *self.unrolled)]

    def _per_statement(self) -> tuple[list[UOp], float]:
        """Choose the lanes of each statement: in the order of the kernel, or where it is cheaper
        the most expensive first, as lanes of one statement exclude some of the others."""
        by_cost = sorted(self.statements, key=lambda s: -s.cost(None, 1))
        options = [self._lanes_in_order(order) for order in (self.statements, by_cost)]
        return min(options, key=lambda option: option[1])

    def _lanes_in_order(self, statements: Sequence[StatementCost]) -> tuple[list[UOp], float]:
        chosen: list[UOp] = []
        total = 0.0
        for s in statements:
            already = [r for r in s.own_ranges if r in chosen]
            options: list[UOp | None] = [*already[:1]] or [
                None, *[r for r in s.own_ranges if self._can_vectorize(r, chosen)]]
            costs = [s.cost(r, self.lane_count(r)) for r in options]
            lowest = min(costs)
            choice = options[costs.index(lowest)]
            total += lowest
            if choice is not None and choice not in chosen:
                chosen.append(choice)
        return chosen, total

    def _can_vectorize(self, r: UOp, chosen: Sequence[UOp]) -> bool:
        """Return whether lanes along r are legal and do not meet other lanes in one value."""
        return r not in self.ordered and r not in self.stage_ranges and r not in self.unrolled and \
            r not in self.chained and r not in self.compact and extent(r) > 1 and not any(
            r in s.own_ranges and any(c in s.own_ranges for c in chosen)
            for s in self.statements) and not any(
            r in iteration_ranges(n) and not iteration_ranges(n).isdisjoint(chosen)
            for n in self.nested_reductions)

    def lane_count(self, r: UOp | None) -> int:
        """Return the number of lanes along r, no more than a short range fills."""
        if r is None:
            return 1
        return min(self.lanes, 1 << (extent(r) - 1).bit_length())

    def unroll_factor(self, r: UOp, lanes: int, is_parallel: bool) -> int:
        """Choose the vectors per iteration: 4, or more of columns; fewer if the code would be long
        or the remainder large, if the stages for so many columns, or the lines of so many strided
        lanes, would not fit the cache, or if columns that are read again would not, or would make
        blocks that workers cannot share evenly."""
        arithmetic = sum(instructions(n) for n in self.nodes
                         if n.op in ops.ELEMENTWISE and n not in self.offsets)
        vectors = -(-extent(r) // lanes)
        sums = length_of_sums(self, r, arithmetic)
        if sums is not None:
            arithmetic, self.rolled = sums, r
        copies = volume([x for x in self.unrolled
                         if any(n.ranges.issuperset((x, r)) for n in self.nodes)])
        count = max(arithmetic * copies, UNROLL * len(self.stores))
        chains = chains_at_once(self.closers, r, vectors, arithmetic * copies)
        unroll = chains or (columns_at_once(self, r, vectors, arithmetic) if count <= SHORT_BODY
                            else 2 if count <= LONG_BODY else 1)
        if copies > 1:
            unroll = max(1, min(unroll, UNROLL // copies))
        stage_bytes = lanes * sum(volume(bound_ranges(n)) * n.dtype.itemsize for n in self.closers
                                  if n.op is ops.STAGE and r in n.ranges)
        columns = [n for n in self.closers if r in n.ranges]
        is_reread = is_parallel and len(columns) > 1
        column_bytes = lanes * max([volume(bound_ranges(n)) * n.dtype.itemsize for n in columns],
                                   default=0)
        while unroll > 1 and (-(-vectors // unroll) * unroll > MAX_PADDING * vectors
                              or stage_bytes * unroll > self.target.l2
                              or is_reread and (_is_uneven(-(-vectors // unroll))
                                                or column_bytes * unroll > self.target.l2 // 2)
                              or any(s.loses_lines(r, lanes * unroll) for s in self.statements)):
            unroll //= 2
        if self.unroll_and_jam is not None:
            return self.unroll_and_jam.vectors
        max_vectors = min(vectors, 2 * UNROLL)
        return min(vectors, self.knob("unroll", unroll, lambda: [
            n for n in (2 * unroll, unroll // 2, 2 * UNROLL, 1) if 1 <= n <= max_vectors]))

    def _vectorize(self, r: UOp, is_parallel: bool, may_unroll: bool) -> None:
        name, lanes = name_of(r), self.lane_count(r)
        unroll = self.unroll_factor(r, lanes, is_parallel) if may_unroll else 1
        step, remaining = lanes * unroll, name
        loops, lane_names = [f"{name}_o"], [f"{name}_l"]
        if is_parallel and not self._is_peeled(r):
            remaining = f"{name}_t"
            loops.insert(0, f"{name}_p")
            max_steps = max(1, self._chunk_size(r) // step)
            if self.ordered and is_static(r):  # all other operands are read again for each chunk
                max_steps = max(max_steps, -(-extent(r) // (_SCATTER_PASSES * step)))
            chunk = max_steps * step
            self.steps.append(tiling.split(name, chunk, loops[0], remaining))
        inner = f"{name}_v" if unroll > 1 else f"{name}_l"
        self.steps.append(tiling.split(remaining, step, f"{name}_o", inner))
        self.trip_counts[f"{name}_o"] = trip_count(r, step)
        if unroll > 1:
            lane_names.insert(0, f"{name}_u")
            self.steps += [tiling.split(inner, lanes, *lane_names), tiling.unroll(lane_names[0])]
            self.steps += [tiling.collect(lane_names[0])] * (r is self.rolled)
        self.parts[r] = (loops, lane_names)

    def _is_peeled(self, r: UOp) -> bool:
        """Return whether conditions cut the loop over r (emit/loop_peeling.py). Workers then
        share the loop over blocks of lanes itself, in which the cuts are constants."""
        return not self.ordered and any(n.op in INEQUALITIES and n.src[0].dtype is dtypes.index
                                        and r in n.ranges for n in self.nodes)

    def _find_unrolled(self) -> list[UOp]:
        """Return the ranges to unroll: those of short rows; reductions of a few terms inside loops
        of other reductions, and short ranges of the results that such a reduction does not depend
        on."""
        nested_reductions = [n for n in self.nested_reductions if is_short(bound_ranges(n))]
        unrolled = {r for n in (self.closers if self.are_rows_short() else nested_reductions)
                    for r in bound_ranges(n)}
        unrolled |= {r for r in self.outer if nested_reductions and is_short_range(r)
                     and all(r not in n.ranges for n in nested_reductions)}
        return [r for r in self.ranges
                if r in unrolled and r not in self.ordered and
                r not in self.stage_ranges and not self._is_long(r)]

    def _is_long(self, r: UOp) -> bool:
        """Return whether the code of a range would be long, were it unrolled; a loop takes as
        much time, and its code is a part of that to compile."""
        count = sum(instructions(n) for n in self.nodes
                    if n.op in ops.ELEMENTWISE and r in n.ranges)
        return count * extent(r) > LONG_BODY * UNROLL

    def are_rows_short(self) -> bool:
        """Return whether every reduction and stage covers only a few elements of each row."""
        return all(n.op is not ops.LOOP and n.ranges and is_short(bound_ranges(n))
                   for n in self.closers)

    # ---- several rows at once

    def _multi_row_range(self, vectors: Sequence[UOp]) -> tuple[UOp, int] | None:
        """Return (range of rows that are reduced together, how many at once), or None."""
        rows = MultiRow(self, vectors)
        if rows.row is None or rows.row in self.stage_ranges:
            return None
        n = extent(rows.row)
        count = self.knob("rows", rows.count(), lambda: [
            x for x in (UNROLL, 2, 2 * UNROLL, 1) if 2 * x <= n])
        return None if count == 1 else (rows.row, count)

    def _find_unroll_and_jam(self, vectors: Sequence[UOp]) -> UnrollAndJam | None:
        """Match rows that share loads, unless the knobs turn unroll-and-jam off."""
        lane = vectors[0] if len(vectors) == 1 else None
        match = find_unroll_and_jam(self.stores, self.closers, lane, self.lane_count(lane),
                                    self.target)
        if match is None or self.unrolled or not self.knob("unroll_and_jam", True, lambda: [False]):
            return None
        return match

    def _unroll_fully(self, r: UOp) -> None:
        self.parts[r] = ([], [name_of(r)])
        self.steps.append(tiling.unroll(name_of(r)))

    def _unroll_rows(self, r: UOp, is_parallel: bool, count: int = UNROLL) -> None:
        name = name_of(r)
        loops, remaining = [f"{name}_o"], name
        if is_parallel:
            chunk = -(-self._chunk_size(r) // count) * count
            loops.insert(0, f"{name}_p")
            remaining = f"{name}_c"
            self.steps.append(tiling.split(name, chunk, f"{name}_p", remaining))
        self.steps += [tiling.split(remaining, count, f"{name}_o", f"{name}_u"),
                       tiling.unroll(f"{name}_u")]
        self.parts[r] = (loops, [f"{name}_u"])

    def split_loop(self, r: UOp, factor: int, outer: str, inner: str) -> None:
        """Split a range in two; the loop names end in ``outer`` and ``inner``."""
        name = name_of(r)
        loops = [f"{name}_{outer}", f"{name}_{inner}"]
        self.steps.append(tiling.split(name, factor, *loops))
        self.trip_counts |= {loops[0]: trip_count(r, factor), loops[1]: factor}
        self.parts[r] = (loops, [])

    # ---- workers

    def _parallel_range(self, vectors: Sequence[UOp], blocked_ranges: Sequence[UOp]) -> UOp | None:
        """Choose the range that workers share: the first of sufficient length that every store
        depends on, lanes last. None if each worker would reduce a whole row for its part of it."""
        all_static = all(map(is_static, self.ranges))
        total = total_work(self.nodes) if all_static else _UNKNOWN_WORK
        if not self.knob("parallel", total >= _MIN_PARALLEL_WORK, lambda: [
                total < _MIN_PARALLEL_WORK]
                         if _MIN_PARALLEL_WORK // 8 <= total <= 8 * _MIN_PARALLEL_WORK else []):
            return None
        loops = [r for r in self.common_ranges if r not in vectors and r not in self.unrolled
                 and all(r in n.ranges or self._is_small_reduction(n) for n in self.closers)]
        for r in loops:
            if extent(r) >= UNROLL * (BLOCK_SIDE if r in blocked_ranges else 1):
                return r
        long_lanes = [r for r in self.common_ranges if r in vectors and extent(r) > 4 * self.lanes
                      and all(r in n.ranges or r in bound_ranges(n) or self._is_small_reduction(n)
                              for n in self.closers)]
        return long_lanes[0] if long_lanes else max(loops, key=extent, default=None)

    def _is_small_reduction(self, reduction: UOp) -> bool:
        """Return whether a reduction takes only a few vectors, or is small compared with a worker's
        chunk."""
        elements = volume(reduction.ranges.union(bound_ranges(reduction)))
        if reduction.op is ops.STAGE:  # of values that are read as vectors
            elements //= self.lanes
        return elements <= max(4 * self.lanes, CHUNK_WORK // 64)

    def _chunk_size(self, r: UOp) -> int:
        """Return how many iterations of r make a parallel iteration worth its overhead."""
        unit_work = max(1, total_work(self.nodes) // extent(r))
        chunk = max(1, int(self.knob("chunk", 1.0, lambda: (4.0, 0.25)) * CHUNK_WORK) // unit_work)
        return min(chunk, -(-extent(r) // 8)) if is_static(r) else 4 * chunk

    def loop_order(self) -> list[UOp]:
        """Return the ranges outside of reductions, then the others; the ranges of an ordered store
        keep their order, and what closes a range is inside of the ranges that it depends on."""
        remaining = [*self.outer, *[r for r in self.ranges if r not in self.outer]]
        chains = [[r for r in self.ranges if r in chain] for chain in
                  map(ordered_ranges, self.stores)]
        predecessors = {r: {s for chain in chains if r in chain for s in chain[:chain.index(r)]}
                        for r in remaining}
        for n in self.closers:
            for r in bound_ranges(n):
                predecessors[r] |= n.ranges
        order: list[UOp] = []
        while remaining:
            next_range = next((r for r in remaining if predecessors[r].isdisjoint(remaining)),
                              remaining[0])
            order.append(next_range)
            remaining.remove(next_range)
        return order

    def _order(self, parallel_range: UOp | None, blocked_ranges: Sequence[UOp]) -> None:
        """Order the loops: the shared one, ranges outside of reductions, the others, blocks,
        lanes."""
        parallel_loops = [] if parallel_range is None else self.parts[parallel_range][0][:1]
        blocks = [self.parts[r][0][-1] for r in blocked_ranges if len(self.parts[r][0]) > 1]
        split_loops = self._split_sums(blocks)
        loops = [x for r in self.loop_order() for x in self.parts[r][0]
                 if x not in parallel_loops and x not in blocks]
        if self.transposed_operands:  # blocks adjacent in memory run one after the other
            loops.sort(key=lambda x: any(x == n for r in blocked_ranges
                                         for n in self.parts[r][0][1:]))
        loops, blocks = ([x for name in names for x in split_loops.get(name, [name])]
                         for names in (loops, blocks))
        lanes = [x for r in self.ranges for x in self.parts[r][1]]
        self.steps.append(tiling.order(*parallel_loops, *loops, *blocks, *lanes))
        if parallel_loops:
            self.steps.append(tiling.parallel(parallel_loops[0]))
        self.steps += [tiling.vectorize(x) for x in lanes if x.endswith("_l")]
        self.steps += [tiling.stage(slot, [*parallel_loops, *loops][-1])
                       for slot in self.transposed_operands]
        vector_loops = {r: names[-1] for r, (names, lane_names) in self.parts.items()
                        if names and lane_names[-1:] == [f"{name_of(r)}_l"]}
        self.steps += transpose_in_registers(self.closers, vector_loops, self.lanes)

    def _split_sums(self, blocks: Sequence[str]) -> dict[str, list[str]]:
        """Split the loops of long float sums for blocked summation."""
        order = self.loop_order()
        split_loops: dict[str, list[str]] = {}
        staged = {r for n in self.closers if n.op is ops.STAGE for r in bound_ranges(n)}
        for node in self.closers:
            if node.op is not ops.REDUCE or node.arg.monoid is not ops.ADD \
                    or node.src[0].op is ops.ARG_PAIR or not node.dtype.is_float:
                continue
            loops = [(x, self.trip_counts[x] if x in self.trip_counts else trip_count(r))
                     for r in order if r in bound_ranges(node) for x in self.parts[r][0]]
            loops.sort(key=lambda loop: loop[0] in blocks)
            if any(n is None for _, n in loops) and not staged.isdisjoint(bound_ranges(node)):
                continue  # parts would round up the row, which is at most some hundred steps
            if not any(x in split_loops for x, _ in loops):
                chain = balanced_chain(loops, _CHAIN_TERMS)
                steps, pieces = split_sum(loops, self.knob(
                    "terms", chain, partial(alternative_chains, chain)))
                self.steps += steps
                split_loops |= pieces if steps else {}
        return split_loops
