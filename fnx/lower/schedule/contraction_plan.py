"""What is packed for a contraction, who shares what, in which order tiles follow: priced in cycles.

A plan is priced by the lines of memory that its loops fetch (footprint.py): of both factors, in
place or packed, and of the results. Products of few terms write more than they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fnx.core.ir import accessors
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.tuning import IN_FLIGHT, LATENCY, PACK_COST
from fnx.lower.analysis.workload import extent, leaf_loads, stride, volume
from fnx.lower.schedule.contraction import Contraction, count_contiguous
from fnx.lower.schedule.footprint import (
    Factor,
    Footprint,
    Walk,
    footprint,
    level_of,
    product_cycles,
    result_cycles,
)
from fnx.lower.schedule.register_tiles import (
    MAX_ACCUMULATORS,
    Tile,
    max_tile_rows,
    tile_cycles,
)

_MARGIN = 0.05  # cycles that packing the left factor must save, relative to all


class Plan(Record):
    """Whether workers share column panels, whether each factor is packed, and whether tiles follow
    each other along rows, rather than down columns."""

    shares_panels: bool
    left: bool
    right: bool
    along_rows: bool = False


class RightReading:
    """How long it takes to read the right factor of a product once for each tile of rows.

    The first pass fetches its lines from the level of memory that holds all of it, the next ones
    from the level that holds a panel. Arithmetic on lines that are read in place hides their
    latency, as far as it takes as long; copies are made before."""

    def __init__(self, matmul: Contraction, column: UOp, target: Target) -> None:
        self.matmul, self.column, self.target = matmul, column, target
        self.load = max(leaf_loads(matmul.right), key=lambda x: volume(x.ranges), default=None)

    def cycles(self, passes: int, arithmetic: float, width: int) -> float:
        """Return the cycles of all passes, given those of their arithmetic, over panels of so many
        columns."""
        if self.load is None:
            return arithmetic
        panel = self._touched((*self.matmul.summed, self.column), {self.column: width})
        lines = panel.lines * volume(self.matmul.columns) / width
        first, again = (
            lines * LATENCY[level] / IN_FLIGHT if level > 1 else 0.0 for level in (
                level_of([self._touched(self.load.ranges, {})], self.target),
                level_of([panel], self.target)))
        each = arithmetic / passes
        return min(max(first, each) + (passes - 1) * max(again, each), first + arithmetic)

    def _touched(self, ranges: Iterable[UOp], extents: Mapping[UOp, int]) -> Footprint:
        assert self.load is not None
        size = self.load.dtype.itemsize
        return footprint([(abs(stride(self.load, r)) * size, extents.get(r, extent(r)))
                          for r in ranges], size)


def tile_of_fewer_passes(default: Tile, rows: int, depth: int, reading: RightReading) -> Tile:
    """Return a tile of one vector by so many rows that one or two passes read the right factor,
    where fetching its lines takes longer than the arithmetic of the default tile, else that. It
    may have to pack the left factor, as its rows are many streams."""
    target, lanes, columns = reading.target, default.lanes, extent(reading.column)

    def cycles(tile: Tile) -> float:
        width = tile.vectors * lanes
        return reading.cycles(-(-rows // tile.rows), depth * tile_cycles(
            rows, columns, tile.rows, width, lanes), width)

    highest = max_tile_rows(1, target, MAX_ACCUMULATORS)
    tiles = [Tile(height, 1, lanes) for passes in (1, 2)
             if (height := -(-rows // passes)) <= highest]
    best = min(tiles, key=cycles, default=default)
    return best if (1 + 2 * _MARGIN) * cycles(best) < cycles(default) else default


class PlanPrices:
    """The prices of plans for a contraction with a register tile.

    Attributes:
        row, column: the ranges that the tile is of.
        block: row tiles that are packed together.
        depth: terms of the sum, or register words of a matrix unit, of ``itemsize`` bytes.
    """

    def __init__(self, matmul: Contraction, row: UOp, column: UOp, tile: Tile, block: int,
                 depth: int, itemsize: int, target: Target) -> None:
        self.matmul, self.row, self.column, self.tile = matmul, row, column, tile
        self.block, self.depth, self.itemsize, self.target = block, depth, itemsize, target
        self.width = volume(matmul.columns)
        # what plans have in common
        self._walks: dict[tuple[UOp, int], Walk] = {}
        self._results: dict[bool, float] = {}

    def cycles(self, plan: Plan) -> float:
        """Return the cycles to pack and to read the factors, and to fetch the lines of results."""
        matmul, tile = self.matmul, self.tile
        width, rows = tile.vectors * tile.lanes, volume(matmul.rows)
        block = rows if plan.shares_panels else min(tile.rows * self.block, rows)
        left = self._factor(matmul.left, self.row, tile.rows, block, rows, plan.left)
        right = self._factor(matmul.right, self.column, width, self.width, self.width, plan.right)
        factors = product_cycles(left, right, -(-rows // block), plan.shares_panels, self.target,
                                 plan.along_rows)
        if plan.along_rows not in self._results:
            self._results[plan.along_rows] = sum(
                [self._result_cycles(x, rows, plan.along_rows) for x in matmul.results])
        return (1 + _MARGIN * plan.left) * factors + self._results[plan.along_rows]

    def _result_cycles(self, access: UOp, rows: int, along_rows: bool) -> float:
        """Return the cycles to fetch the lines of an array that lies as the results do."""
        tile, step = self.tile, abs(stride(access, self.row))
        if stride(access, self.column) != 1 or not step:
            return 0.0
        size = accessors.buffer(access).dtype.itemsize
        return volume(self.matmul.batch) * result_cycles(
            rows, self.width, (tile.rows, tile.vectors * tile.lanes), step * size, size,
            along_rows, self.target)

    def _factor(self, factor: UOp, r: UOp, tile: int, block: int, results: int, packs: bool
                ) -> Factor:
        walk = self._walks.get((factor, block))
        if walk is None:
            walk = self._walks[factor, block] = self._walk(factor, r, tile, block)
        return Factor(walk, tile * self.depth * self.itemsize,
                      self.packing(factor, r, tile, results) if packs else None)

    def _walk(self, factor: UOp, r: UOp, tile: int, block: int) -> Walk:
        """Return how tiles of so many rows or columns read a factor in place."""
        load = max(leaf_loads(factor), key=lambda x: volume(x.ranges), default=None)
        if load is None:  # it is computed from indices alone
            return Walk(Footprint(0, 0, 0), Footprint(0, 0, 0), -(-block // tile))
        size = load.dtype.itemsize
        summed = [(abs(stride(load, x)) * size, extent(x)) for x in self.matmul.summed]
        step = abs(stride(load, r)) * size
        return Walk(footprint([*summed, (step, tile)], size),
                    footprint([*summed, (step, block)], size), -(-block // tile))

    def packing(self, factor: UOp, r: UOp, tile: int, results: int) -> float:
        """Return the cycles to pack a factor, with lanes along the tile or the sum."""
        lanes = min(self.tile.lanes, tile) if count_contiguous(factor, [r]) else \
            self.tile.lanes if count_contiguous(factor, self.matmul.summed) else 1
        return results * self.depth / lanes * PACK_COST
