"""How to tile a contraction: a register tile, blocks of tiles, what is packed and where.

    loops    batch..., io (PAR), jr, ir, k..., i (UNROLL), j (UNROLL), l (VEC)
             ir outside of jr where results cost more than factors
    rows     m == io * block * tile + ir * tile + i           columns  n == jr * width + j, l

The accumulators of ``tile`` rows by ``width`` columns stay in registers during the sum. Both
factors are read in place or packed in the order of the tiles, whichever takes fewer cycles
(contraction_plan.py). If the right one is packed, workers share column panels (``tile_panels``):
each packs its panel, which stays in the L2 cache while all rows pass over it. Or, if there are too
few panels or that costs less, they share blocks of rows, and the right factor is packed once for
all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import tiling
from fnx.core.ir.cache import cached_property
from fnx.core.ir.matrix_units import MatrixUnit
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of
from fnx.lower.analysis.tuning import (
    PACK_COST,
    PACK_KERNEL_CYCLES,
    PAGE_BYTES,
    STRIDED_LANE_CYCLES,
)
from fnx.lower.analysis.workload import (
    extent,
    itemsize,
    leaf_loads,
    stride,
    trip_count,
    volume,
)
from fnx.lower.schedule.blocked_summation import (
    alternative_chains,
    balanced_chain,
    flatten,
    split_sum,
)
from fnx.lower.schedule.contraction import (
    MIN_PARALLEL_WORK,
    Contraction,
    contiguous_sum_range,
    count_contiguous,
    has_overlap,
    is_packed_words,
    is_plain,
    is_word_aligned,
    stage_factor,
    word_range,
    work_of_each,
)
from fnx.lower.schedule.contraction_plan import (
    Plan,
    PlanPrices,
    RightReading,
    tile_of_fewer_passes,
)
from fnx.lower.schedule.dot_tiling import dots_pay, fits_dots, schedule_dots
from fnx.lower.schedule.knobs import TuningKnobs
from fnx.lower.schedule.matrix_units import find_unit
from fnx.lower.schedule.register_tiles import (
    MAX_ACCUMULATORS,
    MAX_TILE_ROWS,
    Tile,
    alternative_tiles,
    choose_register_tile,
)

_MIN_PACK_BYTES = 96 << 10  # bytes of a computed right factor above which packing it pays
# vectors of columns, and terms, above which packing the left factor pays
_MIN_PACK_VECTORS, MIN_PACK_TERMS = 6, 16
_MIN_REUSE_ROWS = 112  # rows from which packing a right factor with strided lanes pays
MAX_BLOCK_ROWS = 56  # most rows packed together
# processors; work of the busiest relative to an even share, at most
_PROCESSORS, _MAX_IMBALANCE = 4, 1.05
_MIN_PROCESSORS = 2  # processors of the smallest machine that shares work
_MAX_PANEL_IMBALANCE = 1.34  # ... if row blocks would be even with the right factor packed up front
# terms per accumulator of a tile: in long sums, in others
_CHAIN_TERMS, _MAX_UNSPLIT_TERMS = 64, 72
_MIN_ROLLED_TILE = 8  # accumulators of a tile from which a rolled epilogue pays
_STRIDED_STORE_COST = 24  # cost of a strided store of a vector, in multiply-adds of a vector
# rows and terms from which laying out words for a matrix unit pays
_MIN_UNIT_ROWS, _MIN_UNIT_TERMS = 4, 8
_MIN_EPILOGUE_COST = 2  # epilogue cost from which the epilogue is rolled
# most rows of a tile, from so many rows on
_MAX_STREAM_ROWS, _MIN_STREAMED_ROWS = 8, 56


def schedule(matmul: Contraction, target: Target, knobs: TuningKnobs) -> list[Transform]:
    """Return the transforms that tile a contraction."""
    tiles = ContractionTiling(matmul, target, knobs)
    sum_range = contiguous_sum_range(matmul)
    packed = None
    form = "tile"
    if sum_range is not None and fits_dots(
            matmul, tiles.column, sum_range, tiles.tile.lanes, tiles.is_right_strided):
        form = "dots"
    elif sum_range is None and (along := tiles.range_of_packed_dots()) is not None:
        form, sum_range, packed = "dots", along, matmul.right
    elif not tiles.is_right_strided and tiles.is_cheaper_turned():
        form = "turned"
    elif not tiles.is_right_strided and has_overlap(matmul.right) or tiles.shares_panels():
        form = "windows"
    form = knobs.value("form", form, lambda: [
        "tile", *["dots"] * (sum_range is not None), "windows",
        *["turned"] * (not tiles.is_right_strided)])
    if form == "turned":  # lanes along the results of the other factor, which is packed
        transposed = matmul.replace(rows=matmul.columns, columns=matmul.rows,
                                    left=matmul.right, right=matmul.left)
        tiles = ContractionTiling(transposed, target, knobs)
        return tiles.steps() if tiles.has_row_blocks() else tiles.tile_panels()
    if form == "dots" and sum_range is not None:
        return schedule_dots(matmul, sum_range, target, tiles.packed_unit(sum_range), knobs, packed)
    return tiles.tile_panels() if form == "windows" else tiles.steps()


def _parallel_loop(lengths: dict[str, int]) -> str:
    """Choose the loop that workers share: the outermost whose trip count divides evenly between two
    and four workers, so that caches hold what the inner loops reuse; else the longest."""
    def is_even(n: int) -> bool:
        return all(-(-n // workers) * workers <= _MAX_IMBALANCE * n
                   for workers in (_MIN_PROCESSORS, _PROCESSORS))

    even_loops = [x for x, n in lengths.items() if is_even(n)]
    return even_loops[0] if even_loops else max(lengths, key=lengths.__getitem__)


def _lane_utilization(columns: int, lanes: int) -> float:
    """Return the fraction of vector lanes that so many columns fill."""
    return columns / (-(-columns // lanes) * lanes)


class ContractionTiling:
    """The register tile, the block of tiles and the loops that suit a contraction."""

    def __init__(self, matmul: Contraction, target: Target, knobs: TuningKnobs) -> None:
        self.matmul, self.target, self.knob = matmul, target, knobs.value
        self.row = matmul.rows[-1]
        self.column = next((r for r in matmul.columns if count_contiguous(matmul.right, [r])),
                           matmul.columns[-1])
        self.is_right_strided = any(stride(load, self.column) not in (0, 1)
                                    for load in leaf_loads(matmul.right))
        self.itemsize = itemsize([matmul.reduce, matmul.left, matmul.right])
        self.unit = self._choose_unit()
        self.depth, self.width = volume(matmul.summed), volume(matmul.columns)
        if self.unit is not None:  # register words of the sum, each as wide as a result
            self.depth, self.itemsize = -(-self.depth // self.unit.terms_per_word), 4
        self.tile = self._tile()
        self.block = self._block()
        self.block_loop = f"{name_of(self.row)}_io"  # the loop over blocks of rows

    def _tile(self) -> Tile:
        rows, columns = extent(self.row), extent(self.column)
        is_narrow = self._outer_parallel_range() is None and self._is_parallel(rows * columns) and \
            self.width <= self.target.vector_lanes(self.itemsize) and \
                self._right_bytes() <= self.target.l2
        default = choose_register_tile(rows, columns, self.itemsize, self.target,
                                       processors=_MIN_PROCESSORS if is_narrow else 1,
                                       max_rows=self._max_tile_rows(),
                                       lane_cycles=self._transposed_operands()
                                       * STRIDED_LANE_CYCLES / max(1, self.depth))
        if default.rows < rows <= 2 * MAX_ACCUMULATORS and not self.is_right_strided:
            default = tile_of_fewer_passes(default, rows, self.depth, RightReading(
                self.matmul, self.column, self.target))
        tile_rows, vectors = self.knob(
            "tile", (default.rows, default.vectors),
            lambda: alternative_tiles(rows, columns, default.lanes, self.target))
        return Tile(tile_rows, vectors, default.lanes)

    def _transposed_operands(self) -> int:
        """Return how many arrays beside the sum have lines that go down the rows of a tile."""
        return sum([abs(stride(x, self.column)) > 1 and abs(stride(x, self.row)) == 1
                    for x in self.matmul.results])

    def _max_tile_rows(self) -> int:
        """Return the most rows of a tile. Hardware prefetch follows some eight streams at a time,
        which limits rows that are read once; of rows that lie pages apart the first-level cache
        holds as many as it has ways."""
        is_read_once = self.width <= self.target.vector_lanes(self.itemsize)
        has_many_rows = volume(self.matmul.rows) > _MIN_STREAMED_ROWS
        return _MAX_STREAM_ROWS if has_many_rows and (
            is_read_once or self._has_conflicts(MAX_TILE_ROWS)) else MAX_TILE_ROWS

    def _has_conflicts(self, rows: int) -> bool:
        """Return whether so many rows of the left factor lie pages apart, which share the places
        of one line in the first-level cache."""
        pitch = max([stride(x, self.row) * x.dtype.itemsize
                     for x in leaf_loads(self.matmul.left)], default=0)
        return rows > _MAX_STREAM_ROWS and pitch > 0 and pitch % PAGE_BYTES == 0

    def _choose_unit(self) -> MatrixUnit | None:
        """Return the matrix unit to use, if there is enough work to pay for laying out register
        words."""
        is_small = volume(self.matmul.rows) < _MIN_UNIT_ROWS or \
            volume(self.matmul.summed) < _MIN_UNIT_TERMS
        unit = None if is_small else find_unit(self.matmul.reduce.src[0], self.target, "lanes")
        return unit if unit is None or self.knob("unit", True, lambda: [False]) else None

    def range_of_packed_dots(self) -> UOp | None:
        """Return the summed range along which the left factor is contiguous, if dot products with
        the few columns of the right one, packed along it, take fewer cycles than tiles."""
        matmul = self.matmul
        if self.unit is not None or matmul.batch or len(matmul.summed) != 1 or \
                not is_plain(matmul.left):
            return None
        packing = self._prices.packing(matmul.right, self.column, self.width, self.width)
        return matmul.summed[0] if count_contiguous(matmul.left, matmul.summed) and \
            dots_pay(matmul, self.tile.lanes, packing + PACK_KERNEL_CYCLES) else None

    def is_cheaper_turned(self) -> bool:
        """Return whether lanes along the rows, which fill more of them, pay for strided stores.
        Both factors can then be read in place, or the left one is made of positions (a one-hot),
        or the right one consists of windows."""
        rows, columns = volume(self.matmul.rows), extent(self.column)
        is_free = self.unit is None and (
            count_contiguous(self.matmul.left, self.matmul.rows) or
            not any(stride(load, r) for load in leaf_loads(self.matmul.left)
                    for r in self.matmul.rows))
        return bool(is_free or has_overlap(self.matmul.right)) and \
            self.depth / _lane_utilization(columns, self.tile.lanes) > \
            (self.depth + _STRIDED_STORE_COST) / _lane_utilization(rows, self.tile.lanes)

    def shares_panels(self) -> bool:
        """Return whether workers share column panels, each packed by the worker that reads it, so
        that nobody waits for a kernel that packs all."""
        return self._plan.shares_panels

    def _can_share_panels(self) -> bool:
        """Return whether a panel fits the L2 cache beside what passes over it, and there are panels
        for several workers."""
        panel_width = self.tile.vectors * self.tile.lanes
        panels = -(-self.width // panel_width) * volume(self.matmul.batch)
        rounded_panels = -(-panels // _PROCESSORS) * _PROCESSORS
        return not has_overlap(self.matmul.right) and \
            _PROCESSORS <= panels and rounded_panels <= _MAX_PANEL_IMBALANCE * panels and \
            2 * panel_width * self.depth * self.itemsize <= self.target.l2

    @cached_property
    def _plan(self) -> Plan:
        """The plan that takes the fewest cycles, of those that the factors allow."""
        left, right = self._must_pack_left(), self._must_pack_right()
        lefts, rights = {left}, {right}
        if self.unit is None:  # both can be read in place
            lefts.add(left or self._is_wide())
            rights.add(right or not has_overlap(self.matmul.right))
        plans = [Plan(False, x, r, along_rows) for x in lefts
                 for r in ((right,) if self.matmul.batch else rights)
                 for along_rows in ((False,) if self.unit is not None else (False, True))]
        if True in rights and self._can_share_panels():
            # a kernel that packs the left factor of a whole batch leaves it in no cache
            plans += [Plan(True, x, True) for x in ({left} if self.matmul.batch else lefts)]
        return plans[0] if len(plans) == 1 else min(plans, key=self._prices.cycles)

    @cached_property
    def _prices(self) -> PlanPrices:
        return PlanPrices(self.matmul, self.row, self.column, self.tile, self.block, self.depth,
                          self.itemsize, self.target)

    def _right_bytes(self) -> int:
        return self.width * self.depth * self.itemsize

    def _must_pack_left(self) -> bool:
        """Return whether the left factor is packed in any case: if it is computed (for a unit: not
        in memory as register words) or consists of overlapping windows."""
        left = self.matmul.left
        if self._has_conflicts(self.tile.rows):
            return True
        if self.unit is not None:
            return not is_packed_words(left, word_range(self.matmul, self.unit), self.unit)
        return not is_plain(left) and self.depth >= MIN_PACK_TERMS or \
            self._is_wide() and has_overlap(left)

    def _packs_right(self) -> bool:
        return self._plan.right

    def _goes_along_rows(self) -> bool:
        default = self._plan.along_rows
        return self.knob("along_rows", default, lambda: [not default] * (self.unit is None))

    def _must_pack_right(self) -> bool:
        """Return whether the right factor is packed in any case: if it becomes register words, its
        lanes are strided, or it is computed often."""
        if self.unit is not None and volume(self.matmul.rows) > self.tile.rows:
            return True  # words are laid out once
        return self.is_right_strided or not is_plain(self.matmul.right) and (
            self._is_reused() and self._is_large() or self._pays_to_compute_once())

    def _pays_to_compute_once(self) -> bool:
        """Return whether a kernel that computes the right factor costs less than computing it again
        for each tile of rows."""
        vectors = self._right_bytes() / self.itemsize / self.tile.lanes
        repeats = math.ceil(volume(self.matmul.rows) / self.tile.rows) - 1
        saved = work_of_each(self.matmul.right) * repeats - PACK_COST
        return vectors * saved > PACK_KERNEL_CYCLES

    def _is_wide(self) -> bool:
        """Return whether there are enough columns and terms that packing the left factor pays."""
        return self.width > _MIN_PACK_VECTORS * self.tile.lanes and self.depth >= MIN_PACK_TERMS

    def _is_large(self) -> bool:
        """Return whether the right factor is large enough that packing it pays."""
        return self._right_bytes() > _MIN_PACK_BYTES

    def _is_reused(self) -> bool:
        """Return whether enough rows reuse the right factor."""
        return volume(self.matmul.rows) >= _MIN_REUSE_ROWS

    def packed_unit(self, sum_range: UOp) -> MatrixUnit | None:
        """Return the unit if both factors lie in memory as register words along a summed range."""
        is_packed = self.unit is not None and all(
            is_word_aligned(load, sum_range, self.unit)
            for load in (*leaf_loads(self.matmul.left), *leaf_loads(self.matmul.right)))
        return self.unit if is_packed else None

    def _outer_parallel_range(self) -> UOp | None:
        """Return the first loop outside the row blocks with enough iterations for the workers."""
        outer = (*self.matmul.batch, *self.matmul.rows[:-1])
        return next((r for r in outer if extent(r) >= _PROCESSORS), None)

    def _is_parallel(self, iterations: int) -> bool:
        """Return whether so many sums are shared by workers."""
        total = iterations * self.depth
        return self.knob("parallel", total >= MIN_PARALLEL_WORK, lambda: [
            total < MIN_PARALLEL_WORK]
                         if MIN_PARALLEL_WORK // 8 <= total <= 8 * MIN_PARALLEL_WORK else [])

    def _moves(self, r: UOp) -> bool:
        """Return whether a range is a loop."""
        return extent(r) > 1

    def _block(self) -> int:
        """Choose the row tiles per block: they fit half of the L2 cache and leave four blocks.

        More than a few would not reuse the right factor noticeably better. The blocks are balanced
        between two and between four processors: 10 tiles would be 5 blocks of 2, of which one of
        four processors gets 4 tiles; with one tile per block it gets 3. The last block must not be
        mostly padding, as all of its tiles are computed: 10 tiles would be 12 in blocks of 3.
        """
        rows = self.tile.rows
        fitting = self.target.l2 // 2 // (rows * self.depth * self.itemsize)
        tiles = -(-extent(self.row) // rows)
        is_shared = self._outer_parallel_range() is None
        max_block = max(1, min(fitting, MAX_BLOCK_ROWS // rows,
                               -(-tiles // _PROCESSORS) if is_shared else tiles))

        def busiest_load(block: int) -> int:
            if not is_shared:
                return 1
            blocks = -(-tiles // block)
            return sum(-(-blocks // n) * n * block for n in (_MIN_PROCESSORS, _PROCESSORS))

        lowest = min(map(busiest_load, range(1, max_block + 1)))
        block = max(b for b in range(1, max_block + 1) if busiest_load(b) <= _MAX_IMBALANCE * lowest
                    and -(-tiles // b) * b <= _MAX_IMBALANCE * tiles)
        return self.knob("block", block, lambda: [
            b for b in (2 * block, block // 2, 4 * block, 1) if 1 <= b <= tiles])

    def steps(self) -> list[Transform]:
        matmul, (rows, vectors, lanes) = self.matmul, self.tile
        m, n = name_of(self.row), name_of(self.column)
        steps: list[Transform] = [
            tiling.split(m, rows * self.block, self.block_loop, f"{m}_it"),
            tiling.split(f"{m}_it", rows, f"{m}_ir", f"{m}_i"),
            tiling.split(n, vectors * lanes, f"{n}_jr", f"{n}_jt"),
            tiling.split(f"{n}_jt", lanes, f"{n}_j", f"{n}_l")]
        outer = (*matmul.batch, *matmul.rows[:-1])
        loops = [*map(name_of, outer), self.block_loop]
        if self._is_parallel(volume((*outer, self.row)) * self.width):
            # workers share the first loop with enough iterations
            parallel_range = self._outer_parallel_range()
            parallel_loop = self.block_loop if parallel_range is None else name_of(parallel_range)
            loops.remove(parallel_loop)
            loops.insert(0, parallel_loop)
            steps.append(tiling.parallel(parallel_loop))
        other_columns = [name_of(r) for r in matmul.columns if r is not self.column]
        splits, sum_loops, terms = self._sum_loops()
        tiles = (f"{m}_ir", f"{n}_jr") if self._goes_along_rows() else (f"{n}_jr", f"{m}_ir")
        steps += [*splits, tiling.order(*loops, *other_columns, *tiles, *sum_loops,
                                        f"{m}_i", f"{n}_j", f"{n}_l", *terms),
                  tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"), tiling.vectorize(f"{n}_l"),
                  *self._roll_epilogue()]
        return [*steps, *self._left_stages(loops), *self._right_stages(loops)]

    def tile_panels(self) -> list[Transform]:
        """Pass all of the left factor over each column panel of the right one. A panel is read in
        place if it consists of windows, else packed by the worker that reads it. Workers share
        panels, or the loops outside of them."""
        matmul, (rows, vectors, lanes) = self.matmul, self.tile
        m, n = name_of(self.row), name_of(self.column)
        steps: list[Transform] = [
            tiling.split(m, rows, f"{m}_ir", f"{m}_i"),
            tiling.split(n, vectors * lanes, f"{n}_jr", f"{n}_jt"),
            tiling.split(f"{n}_jt", lanes, f"{n}_j", f"{n}_l")]
        outer = [*matmul.batch, *[r for r in matmul.columns if r is not self.column]]
        lengths = {name_of(r): extent(r) for r in outer}
        lengths[f"{n}_jr"] = -(-extent(self.column) // (vectors * lanes))
        loops = list(lengths)
        if self._is_parallel(volume((*outer, *matmul.rows, self.column))):
            parallel_loop = _parallel_loop(lengths)
            loops.remove(parallel_loop)
            loops.insert(0, parallel_loop)
            steps.append(tiling.parallel(parallel_loop))
        splits, sum_loops, terms = self._sum_loops()
        inner_loops = [*map(name_of, matmul.rows[:-1]), f"{m}_ir", *sum_loops]
        steps += [*splits, tiling.order(*loops, *inner_loops, f"{m}_i", f"{n}_j", f"{n}_l", *terms),
                  tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"), tiling.vectorize(f"{n}_l"),
                  *self._roll_epilogue()]
        has_windows = has_overlap(matmul.right)
        packs_left = self._is_wide() or self.unit is not None if has_windows else self._plan.left
        space = self._stage_space("left", "GLOBAL" if packs_left else "", ["GLOBAL"])
        left_stages = self._stage_factor(matmul.left, None, space) if space else []
        space = self._stage_space("right",
                                  "PRIV" if not has_windows and self._packs_right() else "",
                                  ["PRIV"] * (not has_windows))
        panel_loops = {f"{n}_jr",
                       *[name_of(r) for r in (*matmul.batch, *matmul.columns) if self._moves(r)]}
        right_stages = self._stage_factor(
            matmul.right, _innermost_of(loops, panel_loops), space) if space else []
        return [*steps, *left_stages, *right_stages]

    def _sum_loops(self) -> tuple[list[Transform], list[str], list[str]]:
        """Return the loops of the sum, split if they are long, and the loop over the terms of a
        register word if a unit multiplies: it is split off the range along which more of the
        factors are contiguous."""
        loops = [(name_of(r), trip_count(r)) for r in self.matmul.summed]
        splits: list[Transform] = []
        terms: list[str] = []
        if self.unit is not None:
            sum_range = word_range(self.matmul, self.unit)
            position, name = self.matmul.summed.index(sum_range), name_of(sum_range)
            count = self.unit.terms_per_word
            word_loop, term = f"{name}_w", f"{name}_e"
            loops[position], terms = (word_loop, trip_count(sum_range, count)), [term]
            splits = [tiling.split(name, count, word_loop, term),
                      tiling.tensorize(term, self.unit.name)]
        # if registers hold their accumulators too, blocked sums cost next to nothing
        is_small = 2 * self.tile.rows * self.tile.vectors + self.tile.vectors < \
            self.target.vector_registers
        default = balanced_chain(loops, _CHAIN_TERMS) if is_small else _CHAIN_TERMS
        chain = self.knob("terms", default, lambda: alternative_chains(default))
        steps, split_loops = split_sum(loops, chain,
                                       None if is_small or chain != default else _MAX_UNSPLIT_TERMS)
        return [*splits, *steps], flatten(split_loops), terms

    def _roll_epilogue(self) -> list[Transform]:
        """Roll the epilogue of a tile into a loop over its rows, if that saves enough code."""
        pays = self.matmul.epilogue >= _MIN_EPILOGUE_COST and \
            self.tile.rows * self.tile.vectors >= _MIN_ROLLED_TILE
        return [tiling.collect(f"{name_of(self.row)}_i")] if pays else []

    def has_row_blocks(self) -> bool:
        """Return whether there are several blocks of rows, which workers can share."""
        return extent(self.row) > self.tile.rows * self.block

    def _left_stages(self, loops: list[str]) -> list[Transform]:
        space = self._stage_space("left", "PRIV" if self._plan.left else "", ["PRIV", "GLOBAL"])
        if space != "PRIV":
            return self._stage_factor(self.matmul.left, None, space) if space else []
        moving_loops = {name_of(r)
                        for r in (*self.matmul.batch, *self.matmul.rows) if self._moves(r)}
        if self.has_row_blocks():
            moving_loops.add(self.block_loop)
        return self._stage_factor(self.matmul.left, _innermost_of(loops, moving_loops))

    def _right_stages(self, loops: list[str]) -> list[Transform]:
        matmul = self.matmul
        if not matmul.batch:
            is_reused = self.unit is not None or self._is_reused() or self._is_large() or \
                not self.is_right_strided
            default = ("GLOBAL" if is_reused else "PRIV") if self._packs_right() else ""
            space = self._stage_space("right", default, ["PRIV", "GLOBAL"])
            return self._stage_factor(matmul.right, None, space) if space else []
        batch_loops = {name_of(r) for r in matmul.batch if self._moves(r)}
        is_repeated = self.unit is not None and volume(matmul.rows) > self.tile.rows
        space = self._stage_space("right", "PRIV" if self.is_right_strided or is_repeated else "",
                                  ["PRIV"])
        return self._stage_factor(matmul.right, _innermost_of(loops, batch_loops)) if space else []

    def _stage_space(self, factor: str, default: str, alternatives: Sequence[str]) -> str:
        """Return where a factor is packed. Register words of a matrix unit must be packed."""
        return self.knob(factor, default, lambda: [*alternatives, *[""] * (self.unit is None)])

    def _stage_factor(self, factor: UOp, at: str | None, space: str = "PRIV") -> list[Transform]:
        return stage_factor(self.matmul, factor, at, name_of(self.row), name_of(self.column), space)


def _innermost_of(loops: list[str], names: set[str]) -> str | None:
    return next((x for x in reversed(loops) if x in names), None)
