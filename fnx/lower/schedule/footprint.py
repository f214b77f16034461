"""What loops touch of a buffer: cache lines, in runs some bytes apart, and their cycles.

    x[k, m] of 512 columns of float32, 4 columns of each of 1,000 rows

    lines 1000    runs 1000    step 2048

Caches hold whole lines, and a line can be in a few places of a cache only: runs a power of two
apart share places, so that they occupy more of a cache than their bytes. Prefetchers follow lines
that are close together. A line far from the one before is waited for, also for the address of its
page if the loops touch more pages than a processor has at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.tuning import (
    FAR_BYTES,
    IN_FLIGHT,
    L3_BYTES,
    LATENCY,
    LINE_BYTES,
    PACK_KERNEL_CYCLES,
    PAGE_BYTES,
    PAGE_CYCLES,
    PAGES,
    PREFETCHED,
    WAYS,
)


class Footprint(Record):
    """Lines in runs; ``step`` bytes between neighboring runs."""

    lines: float
    runs: int
    step: int

    @property
    def bytes(self) -> float:
        """The bytes of its lines."""
        return self.lines * LINE_BYTES

    @property
    def pages(self) -> float:
        """The pages that its runs begin on."""
        return self.runs * min(1.0, self.step / PAGE_BYTES)

    def occupied(self, cache: int) -> float:
        """Return the bytes of a cache that it occupies."""
        return max(self.bytes, self.runs * min(self.step & -self.step, cache // WAYS))

    def cycles(self, level: int, misses_pages: bool) -> float:
        """Return the cycles that its lines take from a level: 0 is the first-level cache."""
        far = self.runs if self.step >= FAR_BYTES else 0
        looked_up = self.pages * PAGE_CYCLES if misses_pages else 0
        return (self.lines - far) * LATENCY[level] / PREFETCHED + \
            (far * LATENCY[level] + looked_up) / IN_FLIGHT


def footprint(loops: Iterable[tuple[int, int]], size: int, whole: float = math.inf) -> Footprint:
    """Return what loops touch, given for each the bytes between iterations and their number, of a
    buffer of ``whole`` bytes whose elements have ``size`` bytes.

    >>> footprint([(2048, 1000), (4, 4)], 4)
    Footprint(lines=1000, runs=1000, step=2048)
    """
    run_bytes, runs, step_between = size, 1, 0
    for step, n in sorted(loops):
        # contiguous with the previous loop
        if step and n > 1 and step <= max(run_bytes, LINE_BYTES):
            run_bytes += step * (n - 1)
        elif step and n > 1:
            runs, step_between = runs * n, step_between or step
    return Footprint(min(runs * -(-run_bytes // LINE_BYTES), -(-whole // LINE_BYTES)), runs,
                     step_between)


class Walk(Record):
    """A factor of a product as tiles read it: what one tile touches during the sum, all tiles of a
    block, and how many tiles these are."""

    tile: Footprint
    block: Footprint
    tiles: int


class Factor(Record):
    """A factor of a product: how tiles read it in place, the bytes of a tile during the sum, and
    the cycles to pack it, apart from reading it; None: it is read in place."""

    walk: Walk
    tile_bytes: int
    packing: float | None


def packed(walk: Walk, tile_bytes: int) -> Walk:
    """Return the walk of the same factor with each tile's elements side by side."""
    lines = -(-tile_bytes // LINE_BYTES)
    return Walk(Footprint(lines, 1, 0), Footprint(lines * walk.tiles, 1, 0), walk.tiles)


def read_cycles(walk: Walk, at_block: int, at_tile: int, misses_pages: bool) -> float:
    """Return the cycles to read a block by tiles from a level; lines that another tile of the block
    has touched come from the level ``at_tile``."""
    again = walk.tiles * walk.tile.cycles(at_tile, misses_pages)
    return walk.block.cycles(at_block, misses_pages) + max(
        0.0, again - walk.block.cycles(at_tile, misses_pages))


def product_cycles(left: Factor, right: Factor, blocks: int, copies_left: bool,
                   target: Target, along_rows: bool = False) -> float:
    """Return the cycles to pack and to read both factors; ``copies_left``: a kernel packs all of
    the left one, else of the right one; ``along_rows``: the loop over right tiles is inside."""
    cycles, walks = 0.0, []
    for factor, repeats in ((left, blocks), (right, 1)):
        walk = factor.walk
        if factor.packing is not None:
            cycles += factor.packing + repeats * read_cycles(walk, 2, 1, misses_pages=True)
            walk = packed(walk, factor.tile_bytes)
        walks.append(walk)
    if (left if copies_left else right).packing is not None:
        # it fetches and writes back each line of the copy
        copy = walks[0 if copies_left else 1]
        cycles += PACK_KERNEL_CYCLES + 2 * copy.block.cycles(2, misses_pages=False)
    if along_rows:
        return cycles + blocks * tiles_cycles(walks[1], walks[0], 1, target)
    return cycles + tiles_cycles(walks[0], walks[1], blocks, target)


def tiles_cycles(left: Walk, right: Walk, blocks: int, target: Target) -> float:
    """Return the cycles to read both factors in the loops ``block, right tile, left tile``.

    Between two tiles a cache has to hold one of each factor; until a block is read again, the block
    and a tile of the right factor; until the right factor is read again, all of that and a block.
    """
    at_tile, at_block, at_right = (level_of(touched, target) for touched in (
        (left.tile, right.tile), (left.block, right.tile), (left.block, right.block)))
    misses_pages = left.tile.pages + right.tile.pages > PAGES
    again = (left.tiles - 1) * right.tile.cycles(at_tile, misses_pages)
    return blocks * (right.tiles * (read_cycles(left, at_block, at_tile, misses_pages) + again)
                     + right.block.cycles(at_right, misses_pages))


def result_cycles(rows: int, width: int, tile: tuple[int, int], step: int, size: int,
                  along_rows: bool, target: Target) -> float:
    """Return the cycles to fetch the lines of a result, or of an array that is read beside it.

    Args:
        rows, width: elements of the result.
        tile: rows and elements of a row that are stored at a time, then those below them;
            ``along_rows``: then those to the right of them, which follow in memory.
        step: bytes between rows.
        size: bytes of an element.
        target: the machine.

    >>> from fnx.core.support.target import Target
    >>> [round(result_cycles(1024, 1024, (6, 16), 4096, 4, x, Target("cpu"))) for x in (0, 1)]
    [1097728, 196992]
    """
    height, columns = tile
    level = level_of([footprint([(size, width), (step, rows)], size)], target)
    if along_rows:
        strip = footprint([(size, width), (step, height)], size)
        return -(-rows // height) * strip.cycles(level, strip.pages > PAGES)
    panel = footprint([(size, columns), (step, rows)], size)
    return -(-width // columns) * panel.cycles(level, panel.pages > PAGES)


def level_of(touched: Sequence[Footprint], target: Target) -> int:
    """Return the level that holds what is touched. Pages lie at random in all levels but the first,
    so that about half of one is filled before lines that are needed are evicted."""
    sizes = target.l1, target.l2 // 2, L3_BYTES // 2
    return next((level for level, size in enumerate(sizes)
                 if sum([x.occupied(size) for x in touched]) <= size), len(sizes))
