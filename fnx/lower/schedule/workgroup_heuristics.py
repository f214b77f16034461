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

from fnx.core.ir import accessors, ops, tiling
from fnx.core.ir.accessors import bound_ranges
from fnx.core.ir.tiling import Bind, Schedule, Transform
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of, ranges_of
from fnx.lower.analysis.tuning import BUSY_GROUPS
from fnx.lower.analysis.workload import extent, itemsize, leaf_loads, stride, volume
from fnx.lower.schedule import contraction
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.heuristics import LoopPlan
from fnx.lower.schedule.knobs import HEURISTIC, TuningKnobs
from fnx.lower.schedule.warp_units import find_warp_unit, schedule_warp_unit, shared_stages

# iterations shared by threads; with fewer, a thread computes a whole row
_MIN_SHARED_EXTENT = 64
_MIN_BUSY_ROWS = 1 << 13   # rows that keep a device busy with a thread each
_MIN_THREADS = 32       # least threads of a workgroup
# threads along each side of a block of a product; terms per block of the sum
_BLOCK_SIDE = 16
_TILES = (8, 8), (8, 4), (4, 8), (4, 4), (2, 4), (4, 2), (2, 2), (1, 4), (1, 2), (2, 1), (1, 1)
_SPARE_REGISTERS = 32       # registers of a thread with a tile, for addresses and temporaries;
                  # three times as many if an elementary function follows the sums:
_EXPENSIVE_COST = 5         # ... an op that costs more than a division
_MAX_PADDING = 1.3       # most work of the tiles relative to the least, as tiles round up
_MAX_CODE_LINES = 192      # most lines of code for the elements of a thread


def choose_workgroups(kernel: UOp, target: Target) -> Schedule:
    """Return the schedule of a kernel for a target with workgroups of threads.

    >>> from fnx.core.ir import build, dtypes
    >>> i = build.range_(1000, 0)
    >>> x, o = (build.index_into(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> choose_workgroups(copy, Target("gpu", threads=256))[:2]
    (split('r0', 128, 'r0_g', 'r0_t'), grid('r0_g'))
    """
    return workgroups_for_knobs(kernel, target, TuningKnobs(HEURISTIC))


def workgroups_for_knobs(kernel: UOp, target: Target, knobs: TuningKnobs) -> Schedule:
    """Return the schedule for these knobs, and record the legal alternatives of each."""
    if any(symbolic.bounds(accessors.extent(r))[1] == 0 for r in ranges_of(kernel)):
        return ()
    return tuple(_WorkgroupPlan(kernel, target, knobs).schedule())


def _match_tiled_product(kernel: UOp) -> Contraction | None:
    """Match a product large enough that blocks of it pay for the memory they share. None if it is
    not."""
    matmul = contraction.match_contraction(kernel)
    if matmul is None or not all(r.src[0].op is ops.CONST for r in ranges_of(kernel)):
        return None
    return matmul if min(map(extent, _block_ranges(matmul))) >= _BLOCK_SIDE // 2 else None


def _block_ranges(matmul: Contraction) -> tuple[UOp, UOp, UOp]:
    """Return the row, column and summed range that blocks are made of."""
    return (_contiguous_range(matmul.left, matmul.rows),
            _contiguous_range(matmul.right, matmul.columns),
            _contiguous_range(matmul.left, matmul.summed))


def _contiguous_range(factor: UOp, ranges: Sequence[UOp]) -> UOp:
    """Return the range along which a factor is contiguous, or the last; the longest if that one is
    short, as a window is."""
    loads = leaf_loads(factor)
    contiguous_range = next((r for r in ranges if any(stride(n, r) == 1 for n in loads)),
                            ranges[-1])
    return contiguous_range if extent(contiguous_range) >= _BLOCK_SIDE else max(ranges, key=extent)


def _choose_tile(kernel: UOp, matmul: Contraction, target: Target, knobs: TuningKnobs
                 ) -> tuple[int, int]:
    """Choose rows and columns per thread: of the tiles that fit the registers and leave enough
    workgroups, the one with the least loads per multiply-add."""
    row, column, _ = map(extent, _block_ranges(matmul))
    other_results = volume((*matmul.batch, *matmul.rows, *matmul.columns)) // (row * column)
    size = itemsize([matmul.reduce, matmul.left, matmul.right])
    epilogue = toposort(kernel.src, stop=lambda n: n is matmul.reduce)
    is_expensive = any(n.op.cost > _EXPENSIVE_COST for n in epilogue)

    def block_count(rows: int, columns: int) -> int:
        return -(-row // (_BLOCK_SIDE * rows)) * \
            -(-column // (_BLOCK_SIDE * columns)) * other_results

    def fits_registers(rows: int, columns: int, spare_registers: int = _SPARE_REGISTERS) -> bool:
        registers = size // 4 or 1
        return registers * (rows * columns + rows + columns) + spare_registers \
            <= target.vector_registers and \
            2 * _BLOCK_SIDE * _BLOCK_SIDE * (rows + columns) * size <= target.shared

    def tile_count(rows: int, columns: int) -> int:
        return block_count(rows, columns) * rows * columns

    min_tiles, tiles = tile_count(1, 1), [tile for tile in _TILES if fits_registers(*tile)]
    spare_registers = 3 * _SPARE_REGISTERS if is_expensive else _SPARE_REGISTERS
    default = next((tile for tile in tiles
                    if fits_registers(*tile, spare_registers)
                    and tile_count(*tile) <= _MAX_PADDING * min_tiles
                    and block_count(*tile) >= min(BUSY_GROUPS, block_count(2, 2))), (1, 1))
    return knobs.value("tile", default, lambda: tiles)


class _WorkgroupPlan:
    """Collect the transforms of a kernel."""

    def __init__(self, kernel: UOp, target: Target, knobs: TuningKnobs) -> None:
        self.loops, self.target, self.knobs = LoopPlan(kernel, target), target, knobs
        self.common_ranges = self.loops.common_ranges
        self.rows = [r for r in self.common_ranges if r in self.loops.outer]
        self.steps: list[Transform] = []
        self.parts: dict[UOp, tuple[str, ...]] = {r: (name_of(r),) for r in self.loops.ranges}
        self.lanes: dict[UOp, str] = {}  # the unrolled lanes of a range
        self.shared: list[UOp] = []
        self.groups: list[str] = []
        self.threads: list[str] = []
        self.kernel, self.matmul = kernel, _match_tiled_product(kernel)

    def schedule(self) -> list[Transform]:
        if self.matmul is not None:
            self._map_product(self.matmul)
            return self.steps
        column_blocks = self._column_block_ranges()
        self.shared = column_blocks or self._thread_ranges()
        if column_blocks:
            self._map_column_blocks(column_blocks)
        elif self.shared:
            self._rows(self.shared)
        else:
            self._map()
        self._order()
        return self.steps

    # ---- vectors

    def _vector_width(self, r: UOp, min_remaining: int = 1) -> int:
        """Return how many adjacent elements along a range a thread takes: as many as one vector
        access moves, if they are aligned and enough elements remain for other threads."""
        plan = self.loops
        accesses = [n for n in plan.nodes if n.op is ops.LOAD] + list(plan.stores)
        sizes = [n.src[0].dtype.itemsize for n in accesses if stride(n, r) == 1
                 and not n.src[0].dtype.is_bool]
        is_static = r.src[0].op is ops.CONST
        if not sizes or not is_static or plan.ordered or any(n.op is ops.LOOP for n in plan.nodes):
            return 1
        widest = self.target.vector_lanes(max(sizes))
        lanes = self.knobs.value("vector", widest, lambda: [
            n for n in (2 * widest, widest // 2, 1) if n])
        instructions = sum(bool(n.op.cost) and n.dtype.kind != "index" for n in plan.nodes)
        while lanes > 1 and (extent(r) % lanes or extent(r) // lanes < min_remaining
                             or instructions * lanes > _MAX_CODE_LINES):
            lanes //= 2
        return lanes

    def _split_lanes(self, r: UOp, lanes: int) -> str:
        """Return the loop over vectors of a range; its lanes are unrolled."""
        name = name_of(r)
        if lanes == 1:
            return name
        self.steps += [tiling.split(name, lanes, f"{name}_q", f"{name}_v"),
                       tiling.unroll(f"{name}_v")]
        self.lanes[r] = f"{name}_v"
        return f"{name}_q"

    # ---- rows

    def _thread_ranges(self) -> list[UOp]:
        """Return the ranges that threads of a workgroup share: one of each reduction, stage and
        store that depends on nothing but the row. Empty if a thread computes a whole row."""
        plan = self.loops
        if not plan.closers or any(n.op in (ops.LOOP, ops.ARG_PAIR) for n in plan.nodes) or \
                plan.ordered or \
                self._has_many_rows():
            return []
        rows = frozenset(self.rows)
        shared_ranges: list[UOp] = []
        for node in plan.closers:
            if node.ranges <= rows:
                shared_ranges.append(self._thread_range(bound_ranges(node)))
        for store in plan.stores:
            inner_ranges = [r for r in plan.ranges if r in store.ranges and r not in rows]
            if inner_ranges:
                shared_ranges.append(self._thread_range(inner_ranges))
        shared_ranges = list(dict.fromkeys(shared_ranges))
        is_nested = any(not n.ranges <= rows for n in plan.closers
                        if not set(shared_ranges).isdisjoint(bound_ranges(n)))
        return [] if is_nested or \
            max(map(extent, shared_ranges), default=0) < _MIN_SHARED_EXTENT else shared_ranges

    def _column_block_ranges(self) -> list[UOp]:
        """Return the ranges, the longest of each reduction and store, that threads share while
        their neighbors walk along memory. Empty unless this is the only coalesced access, or if
        there are enough columns for a thread each."""
        plan, contiguous_range = self.loops, self._store_range()
        if contiguous_range not in self.rows or plan.ordered or \
                volume(self.rows) >= _MIN_BUSY_ROWS or \
                any(n.op in (ops.LOOP, ops.ARG_PAIR) for n in plan.nodes):
            return []
        rows = frozenset(self.rows)
        reduced = [r for n in plan.closers for r in bound_ranges(n)]
        loads = [n for n in plan.nodes if n.op is ops.LOAD]
        if any(not n.ranges <= rows for n in plan.closers) or \
                any(stride(n, r) == 1 for n in loads for r in reduced) or \
                not any(stride(n, contiguous_range) == 1 and not n.ranges.isdisjoint(reduced)
                        for n in loads):
            return []
        inner_ranges = [[r for r in plan.ranges if r in s.ranges and r not in rows]
                        for s in plan.stores]
        candidates = [*map(bound_ranges, plan.closers), *filter(None, inner_ranges)]
        longest = list(dict.fromkeys([max(ranges, key=extent) for ranges in candidates]))
        return longest if max(map(extent, longest)) >= _MIN_SHARED_EXTENT else []

    def _store_range(self) -> UOp | None:
        """Return the range along which all stores are contiguous."""
        return next((r for r in self.common_ranges
                     if all(stride(s, r) == 1 for s in self.loops.stores)), None)

    def _map_column_blocks(self, reduced: Sequence[UOp]) -> None:
        contiguous_range = self._store_range()
        assert contiguous_range is not None
        for r in self.rows:
            if r is not contiguous_range:
                self._map_to_grid(r)
        self._split(contiguous_range, 1, _MIN_THREADS, "g", "t")
        rows_at_once = max(2, self._group_size(self.target.threads) // _MIN_THREADS)
        for r in reduced:
            self._split(r, 1, rows_at_once, "o", "t")

    def _has_many_rows(self) -> bool:
        """Return whether there are rows for all threads, adjacent in memory."""
        if volume(self.rows) < _MIN_BUSY_ROWS:
            return False
        loads = [n for n in self.loops.nodes if n.op is ops.LOAD]
        inner = {r for n in self.loops.closers for r in bound_ranges(n)}
        return not any(stride(n, r) == 1 for n in loads for r in inner)

    def _thread_range(self, ranges: Sequence[UOp]) -> UOp:
        """Return the range along which memory is contiguous, or the longest."""
        accesses = [n for n in self.loops.nodes if n.op is ops.LOAD] + list(self.loops.stores)
        contiguous_ranges = [r for r in ranges if any(stride(n, r) == 1 for n in accesses)]
        return max(contiguous_ranges or ranges, key=extent)

    def _rows(self, shared: Sequence[UOp]) -> None:
        longest = max(map(extent, shared))
        threads = _MIN_THREADS
        while threads < min(self.target.threads, longest // 4):
            threads *= 2
        threads = self._group_size(threads)
        for r in self.rows:
            self._map_to_grid(r)
        for r in shared:
            self._split(r, self._vector_width(r, threads), threads, "o", "t")

    def _group_size(self, default: int) -> int:
        """Return the threads of a workgroup."""
        return self.knobs.value("group", default, lambda: [
            n for n in (2 * default, default // 2, 4 * default, default // 4)
            if _MIN_THREADS <= n <= self.target.threads])

    # ---- products

    def _map_product(self, matmul: Contraction) -> None:
        """Tile rows and columns in blocks, with a register tile per thread; split the sum in
        blocks."""
        row, column, k = _block_ranges(matmul)
        unit = find_warp_unit(matmul, self.target)
        if unit is not None and self.knobs.value("unit", True, lambda: [False]):
            self.steps += schedule_warp_unit(matmul, unit, row, column, k, self.knobs)
            return
        m, n, s = map(name_of, (row, column, k))
        tile_rows, tile_columns = _choose_tile(self.kernel, matmul, self.target, self.knobs)
        lanes = min(tile_columns,
                    self.target.vector_lanes(itemsize([matmul.reduce, matmul.left, matmul.right])))
        self.steps += [
            tiling.split(m, _BLOCK_SIDE * tile_rows, f"{m}_g", f"{m}_r"),
            tiling.split(f"{m}_r", tile_rows, f"{m}_t", f"{m}_i"),
            tiling.split(n, _BLOCK_SIDE * tile_columns, f"{n}_g", f"{n}_r"),
            tiling.split(f"{n}_r", _BLOCK_SIDE * lanes, f"{n}_j", f"{n}_x"),
            tiling.split(f"{n}_x", lanes, f"{n}_t", f"{n}_v"),
            tiling.split(s, _BLOCK_SIDE, f"{s}_o", f"{s}_k")]
        other_loops = [name_of(r) for r in (*matmul.batch, *matmul.rows, *matmul.columns)
                       if r not in (row, column)]
        for name in (*other_loops, f"{m}_g", f"{n}_g"):
            self._bind(name, "GRID", self.groups)
        for name in (f"{m}_t", f"{n}_t"):
            self._bind(name, "THREAD", self.threads)
        sum_loops = [name_of(r) for r in matmul.summed if r is not k]
        self.steps += [
            tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"), tiling.unroll(f"{n}_v"),
            tiling.order(*self.groups, *self.threads, *sum_loops, f"{s}_o", f"{s}_k",
                         f"{m}_i", f"{n}_j", f"{n}_v")]
        self.steps += shared_stages(matmul, f"{s}_o", m, n, self.knobs)

    # ---- maps

    def _map(self) -> None:
        """Map threads along the range in which stores are contiguous, then along those outside. If
        there are many columns, a thread that reduces a column stores all of it."""
        contiguous_range = self._store_range()
        common = self.rows if self.rows and self._has_many_rows() else self.common_ranges
        inner = [contiguous_range] if contiguous_range in common else []
        threads_left = self._group_size(min(128, self.target.threads))
        for r in [*inner, *reversed([r for r in common if r not in inner])]:
            min_remaining = -(-_MIN_BUSY_ROWS * extent(r) // volume(common))
            lanes = self._vector_width(r, min_remaining) if r in inner else 1
            threads = min(threads_left, 1 << (extent(r) // lanes - 1).bit_length())
            threads_left //= threads
            if threads == 1 and lanes == 1:
                self._map_to_grid(r)
            else:
                self._split(r, lanes, threads, "g", "t")

    # ---- mapping a range

    def _map_to_grid(self, r: UOp) -> None:
        """Map a range to workgroups."""
        self._bind(self.parts[r][0], "GRID", self.groups)

    def _split(self, r: UOp, lanes: int, threads: int, outer: str, inner: str) -> None:
        """Split a range into vectors for threads, and a loop outside of these."""
        name = name_of(r)
        self.parts[r] = f"{name}_{outer}", f"{name}_{inner}"
        self.steps.append(tiling.split(self._split_lanes(r, lanes), threads, *self.parts[r]))
        if outer == "g":
            self._map_to_grid(r)
        self._bind(self.parts[r][1], "THREAD", self.threads)

    def _bind(self, name: str, kind: str, names: list[str]) -> None:
        self.steps.append(Bind(name, kind))
        names.append(name)

    def _order(self) -> None:
        """Order workgroups first, then threads that compute a whole row, then the loops."""
        ordered = self.loops.loop_order()
        names = [x for r in ordered
                 for x in (reversed(self.parts[r]) if r in self.shared else self.parts[r])]
        grid_loops = [x for x in names if x in self.groups]
        shared_loops = {x for r in self.shared for x in self.parts[r]}
        row_threads = [x for x in names if x in self.threads and x not in shared_loops]
        others = [x for x in names if x not in grid_loops and x not in row_threads]
        self.steps.append(tiling.order(*grid_loops, *row_threads, *others, *self.lanes.values()))
