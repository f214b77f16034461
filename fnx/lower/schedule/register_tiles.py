"""Register tiles: how many rows by how many vectors of a product one loop over the sum computes.

    for k:  w0 w1 w2 w3 = 4 vectors of a row of the right factor
            for 4 rows i:  x = x[i, k];  sum[i, 0..3] += x * w0..3         16 accumulators

A step takes as long as its multiply-adds or as its loads, whichever is more, if enough independent
ones are in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fnx.core.record import Record
from fnx.core.target import Target

_ACCUMULATORS = 16  # most of a tile: they hide the latency of two multiply-adds per cycle
TALLEST = 14  # most rows of a tile
_TRIED, _WORSE = 12, 1.5  # alternatives that a search tries; most cost relative to the best


class Tile(Record):
    """A register tile: ``rows`` by ``vectors`` of ``lanes``."""

    rows: int
    vectors: int
    lanes: int


def register_tile(rows: int, columns: int, size: int, target: Target,
                  among: Iterable[tuple[int, int]] | None = None, shares: int = 1,
                  tallest: int = TALLEST) -> Tile:
    """Choose the tile that wastes the least time in arithmetic units or loads per step of k; one of
    ``among`` (rows, vectors) if given. ``shares`` is the number of processors that share the tiles
    of rows: the busiest one counts.

    >>> register_tile(1024, 1024, 4, Target("cpu")), register_tile(1024, 10, 8, Target("cpu"))
    (Tile(rows=4, vectors=4, lanes=16), Tile(rows=8, vectors=2, lanes=8))
    >>> register_tile(1024, 1024, 4, Target("cpu", vector_bits=256, vector_registers=16))
    Tile(rows=6, vectors=2, lanes=8)
    >>> [register_tile(36, 16, 4, Target("cpu"), shares=n).rows for n in (1, 2)]
    [12, 9]
    """
    lanes = target.lanes(size)
    best, least = Tile(1, 1, lanes), float("inf")
    for height, vectors in _all_tiles(rows, target) if among is None else among:
        if height > _highest(vectors, target, tallest):
            continue
        cost = _cost_of_tiles(rows, columns, height, vectors * lanes, lanes, shares)
        if cost < least * 0.99:
            best, least = Tile(height, vectors, lanes), cost
    return best


def _cost_of_tiles(rows: int, columns: int, height: int, width: int, lanes: int,
                   shares: int = 1) -> float:
    """Return the approximate cycles of all tiles for one step of the sum."""
    tiles = -(-rows // (height * shares)) * shares * -(-columns // width)
    vectors = width // lanes
    return tiles * (max(height * vectors, height + vectors, 8) + 0.5 + (height + vectors) / 8)


def other_tiles(rows: int, columns: int, lanes: int, target: Target) -> list[tuple[int, int]]:
    """Return (rows, vectors) of the tiles that are not much worse than the best, which comes
    first."""
    found = sorted((_cost_of_tiles(rows, columns, height, vectors * lanes, lanes), i,
                    (height, vectors))
                   for i, (height, vectors) in enumerate(_all_tiles(rows, target)))
    return [tile for cost, _, tile in found[:_TRIED] if cost < _WORSE * found[0][0]]


def _highest(vectors: int, target: Target, tallest: int = TALLEST) -> int:
    """Return the most rows of a tile whose accumulators fit the registers. More than hide the
    latency would not be faster, and the code would take LLVM twice as long."""
    most = min(target.vector_registers - 2 - vectors, _ACCUMULATORS)
    return min(most // vectors, tallest)


def _all_tiles(rows: int, target: Target) -> Iterator[tuple[int, int]]:
    for vectors in (2, 1, 3, 4):
        for height in range(min(_highest(vectors, target), max(rows, 1)), 0, -1):
            yield height, vectors
