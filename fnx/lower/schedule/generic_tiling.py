"""How to tile a contraction whose lengths become arguments: a few tilings serve all shapes."""

from __future__ import annotations

import math

from fnx.core.ir.matrix_units import MatrixUnit
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of
from fnx.lower.analysis.workload import extent, trip_count, volume
from fnx.lower.schedule.blocked_summation import CHAIN_TERMS, flatten, split_sum
from fnx.lower.schedule.contraction import (
    Contraction,
    contiguous_sum_range,
    has_overlap,
)
from fnx.lower.schedule.contraction_tiling import (
    MAX_BLOCK_ROWS,
    ContractionTiling,
)
from fnx.lower.schedule.dot_tiling import fits_dots
from fnx.lower.schedule.knobs import HEURISTIC, TuningKnobs
from fnx.lower.schedule.register_tiles import Tile, choose_register_tile

# (rows, vectors) of tiles that shapes share; those with more results than registers are left out
_SHARED_TILES = (4, 4), (8, 2), (6, 2), (4, 2), (1, 4), (1, 1)
_MIN_OWN_KERNEL_WORK = 1 << 27  # multiply-adds from which each shape gets a kernel of its own


def generic_schedule(matmul: Contraction, target: Target) -> tuple[Transform, ...] | None:
    """Return one schedule for all contractions of this form, whatever their extents: a few tiles
    serve them all. None if this one is worth a kernel of its own (long work, overlapping
    windows)."""
    tiles = GenericTiling(matmul, target, TuningKnobs(HEURISTIC))
    if volume(matmul.reduce.ranges) * tiles.depth > _MIN_OWN_KERNEL_WORK:
        return None
    sum_range = contiguous_sum_range(matmul)
    if sum_range is not None and fits_dots(
            matmul, tiles.column, sum_range, tiles.tile.lanes, tiles.is_right_strided):
        return None
    if not tiles.is_right_strided and has_overlap(matmul.right):
        return None
    return tuple(tiles.tile_panels() if tiles.shares_panels() else tiles.steps())


class GenericTiling(ContractionTiling):
    """One of a few tilings for all shapes: extents are distinguished only coarsely. No matrix unit
    is used, as nothing tells whether register words lie in memory; they would be assembled term by
    term."""

    def _choose_unit(self) -> MatrixUnit | None:
        return None

    def _tile(self) -> Tile:
        return choose_register_tile(extent(self.row), extent(self.column), self.itemsize,
                                    self.target, _SHARED_TILES)

    def _is_parallel(self, iterations: int) -> bool:
        return True

    def _sum_loops(self) -> tuple[list[Transform], list[str], list[str]]:
        """Split the sum as if its lengths were unknown: other lengths have other divisors."""
        lengths = [trip_count(r) for r in self.matmul.summed]
        is_long = None in lengths or math.prod([n or 1 for n in lengths]) > 2 * CHAIN_TERMS
        steps, split_loops = split_sum([(name_of(r), None if is_long else n)
                                        for r, n in zip(self.matmul.summed, lengths)])
        return steps, flatten(split_loops), []

    def _moves(self, r: UOp) -> bool:
        return True

    def has_row_blocks(self) -> bool:
        return True

    def _block(self) -> int:
        return max(1, MAX_BLOCK_ROWS // self.tile.rows) if self._is_reused() else 1

    def shares_panels(self) -> bool:
        """Whether workers share column panels: wherever they can, unless few terms make large
        results. Blocks of rows are of one height, which few lengths divide evenly among workers."""
        return self._can_share_panels() and not self._plan.along_rows

    def _packs_right(self) -> bool:
        return self.shares_panels() or super()._packs_right()
