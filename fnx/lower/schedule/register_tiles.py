"""Register tiles: how many rows by how many vectors of a product one loop over the sum computes.

    for k:  w0 w1 w2 w3 = 4 vectors of a row of the right factor
            for 4 rows i:  x = x[i, k];  sum[i, 0..3] += x * w0..3         16 accumulators

A step takes as long as its multiply-adds or as its loads, whichever is more, if enough independent
ones are in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fnx.core.support.record import Record
from fnx.core.support.target import Target

MAX_ACCUMULATORS = 16  # most of a tile: they hide the latency of two multiply-adds per cycle
MAX_TILE_ROWS = 14  # most rows of a tile
_MAX_DOT_SIDE = 8  # most rows or columns of a tile of dot products
# alternatives that a search tries; most cost relative to the best
_MAX_ALTERNATIVES, _MAX_COST_RATIO = 12, 1.5


class Tile(Record):
    """A register tile: ``rows`` by ``vectors`` of ``lanes``."""

    rows: int
    vectors: int
    lanes: int


def choose_register_tile(rows: int, columns: int, size: int, target: Target,
                         allowed: Iterable[tuple[int, int]] | None = None, processors: int = 1,
                         max_rows: int = MAX_TILE_ROWS, lane_cycles: float = 0.0) -> Tile:
    """Choose the tile that wastes the least time in arithmetic units or loads per step of k; one of
    ``allowed`` (rows, vectors) if given. ``processors`` is the number of processors that share the
    tiles of rows: the busiest one counts. Each lane of a tile takes ``lane_cycles`` more per step,
    for operands beside the sum whose lines go down its rows.

    >>> (choose_register_tile(1024, 1024, 4, Target("cpu")),
    ...  choose_register_tile(1024, 10, 8, Target("cpu")))
    (Tile(rows=4, vectors=4, lanes=16), Tile(rows=8, vectors=2, lanes=8))
    >>> choose_register_tile(1024, 1024, 4, Target("cpu", vector_bits=256, vector_registers=16))
    Tile(rows=6, vectors=2, lanes=8)
    >>> [choose_register_tile(36, 16, 4, Target("cpu"), processors=n).rows for n in (1, 2)]
    [12, 9]
    """
    lanes = target.vector_lanes(size)
    best, lowest = Tile(1, 1, lanes), float("inf")
    for tile_rows, vectors in _all_tiles(rows, target) if allowed is None else allowed:
        if tile_rows > max_tile_rows(vectors, target, max_rows):
            continue
        cost = tile_cycles(rows, columns, tile_rows, vectors * lanes, lanes, processors,
                            lane_cycles)
        if cost < lowest * 0.99:
            best, lowest = Tile(tile_rows, vectors, lanes), cost
    return best


def tile_cycles(rows: int, columns: int, tile_rows: int, tile_width: int, lanes: int,
                 processors: int = 1, lane_cycles: float = 0.0) -> float:
    """Return the approximate cycles of all tiles for one step of the sum."""
    tiles = -(-rows // (tile_rows * processors)) * processors * -(-columns // tile_width)
    vectors = tile_width // lanes
    return tiles * (max(tile_rows * vectors, tile_rows + vectors, 8)
                    + 0.5 + (tile_rows + vectors) / 8 + tile_width * lane_cycles)


def alternative_tiles(rows: int, columns: int, lanes: int, target: Target) -> list[tuple[int, int]]:
    """Return (rows, vectors) of the tiles that are not much worse than the best, which comes
    first."""
    return _best({(height, vectors): tile_cycles(rows, columns, height, vectors * lanes, lanes)
                  for height, vectors in _all_tiles(rows, target)})


def dot_tiles(rows: int, columns: int, target: Target) -> list[tuple[int, int]]:
    """Return (rows, columns) of tiles whose every result is a vector of its own, with lanes along
    the sum; the best first. The accumulators and a vector of each row and column fit the registers,
    but for two, which multiply-adds read from memory.

    >>> dot_tiles(400, 4, Target("cpu", vector_registers=16))[0]
    (5, 2)
    >>> [dot_tiles(400, n, Target("cpu"))[0] for n in (4, 5, 32)]
    [(6, 4), (4, 5), (6, 4)]
    """
    registers = target.vector_registers + 2
    fitting = [(r, c) for c in range(1, min(columns, _MAX_DOT_SIDE) + 1)
               for r in range(min(rows, _MAX_DOT_SIDE), 0, -1) if r * c + r + c <= registers]
    return _best({tile: tile_cycles(rows, columns, *tile, lanes=1) for tile in fitting})


def _best(cost: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Return the tiles that are not much worse than the best, which comes first; of equal ones the
    first given."""
    ranked = sorted(cost, key=cost.__getitem__)
    return [tile for tile in ranked[:_MAX_ALTERNATIVES]
            if cost[tile] < _MAX_COST_RATIO * cost[ranked[0]]]


def max_tile_rows(vectors: int, target: Target, max_rows: int = MAX_TILE_ROWS) -> int:
    """Return the most rows of a tile whose accumulators fit the registers. More than hide the
    latency would not be faster, and the code would take LLVM twice as long."""
    accumulators = min(target.vector_registers - 2 - vectors, MAX_ACCUMULATORS)
    return min(accumulators // vectors, max_rows)


def _all_tiles(rows: int, target: Target) -> Iterator[tuple[int, int]]:
    for vectors in (2, 1, 3, 4):
        for tile_rows in range(min(max_tile_rows(vectors, target), max(rows, 1)), 0, -1):
            yield tile_rows, vectors
