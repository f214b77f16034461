"""Contractions: which kernel is a matrix product, and how to tile one.

A contraction is a REDUCE(ADD) over a product of two values such that some ranges of the result
are in the left factor only (rows), some in the right only (columns), others in both (a batch).
How it was spelled does not matter: what counts is which ranges each factor depends on.

    loops    batch..., io (PAR), jr, ir, k..., i (UNROLL), j (UNROLL), l (VEC)
    rows     m == io * block * tile + ir * tile + i           columns  n == jr * width + j, l

The accumulators of ``tile`` rows by ``width`` columns are all the registers that there are. The
left factor is packed for a block of rows, so that it stays in the L2 cache while all columns
go by; the right factor is packed once for all, unless it is small and its rows are contiguous.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from fnx.core import ops, tiling
from fnx.core.parts import buffer, closed
from fnx.core.target import Target
from fnx.core.tiling import Transform
from fnx.core.uop import UOp, toposort
from fnx.lower.factors import two_factors
from fnx.lower.schedule.loops import name_of, ranges_of
from fnx.lower.schedule.workload import extent, itemsize, loads_below, product, stride

_PACK_COLUMNS = 96 << 10  # bytes of the right factor above which it is packed
_BLOCK = 4  # row tiles packed together at most: 56 rows on AVX-512
_PARALLEL = 1 << 19  # multiply-adds above which workers share the rows


class Contraction(NamedTuple):
    """Ranges by role, in loop order; ``left`` and ``right`` are the factors of ``fold``."""

    fold: UOp
    batch: tuple[UOp, ...]
    rows: tuple[UOp, ...]
    columns: tuple[UOp, ...]
    folded: tuple[UOp, ...]
    left: UOp
    right: UOp


class Tile(NamedTuple):
    """A register tile: ``rows`` by ``vectors`` of ``lanes``."""

    rows: int
    vectors: int
    lanes: int


def find(kernel: UOp) -> Contraction | None:
    """The contraction that a kernel is, or None."""
    nodes = toposort(kernel.src)
    folds = [n for n in nodes if n.op is ops.REDUCE]
    if len(folds) != 1 or any(n.op is ops.STAGE for n in nodes) \
            or any(s.arg is not None for s in kernel.src):
        return None
    fold = folds[0]
    folded = frozenset(closed(fold))
    factors = two_factors(fold, attrgetter("ranges"), folded)
    if factors is None or any(s.ranges != fold.ranges for s in kernel.src):
        return None
    a, b = factors
    only_a, only_b = a.ranges - b.ranges - folded, b.ranges - a.ranges - folded
    inner = [r for r in ranges_of(kernel) if r in fold.ranges]
    lane = _stored_contiguously(kernel, inner)
    if lane in only_a or (lane not in only_b and
                          _contiguous(a, only_a) > _contiguous(b, only_b)):
        a, b, only_a, only_b = b, a, only_b, only_a
    return Contraction(
        fold, tuple(r for r in inner if r not in only_a and r not in only_b),
        tuple(r for r in inner if r in only_a), tuple(r for r in inner if r in only_b),
        tuple(r for r in ranges_of(kernel) if r in folded), a, b)


def _stored_contiguously(kernel: UOp, ranges: list[UOp]) -> UOp | None:
    return next((r for r in ranges if stride(kernel.src[0], r) == 1 and extent(r) > 1), None)


def _contiguous(value: UOp, ranges: frozenset[UOp]) -> int:
    return sum(stride(load, r) == 1 for load in loads_below(value) for r in ranges)


def register_tile(rows: int, columns: int, size: int, target: Target) -> Tile:
    """The tile that wastes least: of time in the arithmetic units or in loads, per step of k.

    >>> register_tile(1024, 1024, 4, Target("cpu")), register_tile(1024, 10, 8, Target("cpu"))
    (Tile(rows=14, vectors=2, lanes=16), Tile(rows=14, vectors=2, lanes=8))
    >>> register_tile(1024, 1024, 4, Target("cpu", vector_bits=256, vector_registers=16))
    Tile(rows=6, vectors=2, lanes=8)
    """
    lanes = target.lanes(size)
    best, least = Tile(1, 1, lanes), float("inf")
    for vectors in (2, 1, 3, 4):
        most = min((target.vector_registers - 2 - vectors) // vectors, 14)
        for height in range(min(most, max(rows, 1)), 0, -1):
            tiles = -(-rows // height) * -(-columns // (vectors * lanes))
            step = max(height * vectors, height + vectors, 8) + 0.5
            if tiles * step < least * 0.99:
                best, least = Tile(height, vectors, lanes), tiles * step
    return best


def schedule(found: Contraction, target: Target) -> list[Transform]:
    """The transforms that tile a contraction."""
    m, n = found.rows[-1], _lane(found)
    size = itemsize([found.fold, found.left, found.right])
    depth = product(found.folded)
    tile = register_tile(extent(m), extent(n), size, target)
    block = _block(tile, depth, size, extent(m), target)
    name = _Names(m, n)
    steps: list[Transform] = [
        tiling.split(name.m, tile.rows * block, name.io, name.it),
        tiling.split(name.it, tile.rows, name.ir, name.i),
        tiling.split(name.n, tile.vectors * tile.lanes, name.jr, name.jt),
        tiling.split(name.jt, tile.lanes, name.j, name.l)]
    outer = [name_of(r) for r in (*found.batch, *found.rows[:-1])]
    across = [name_of(r) for r in found.columns if r is not n]
    folded = [name_of(r) for r in found.folded]
    large = product((*found.batch, *found.rows, *found.columns, *found.folded)) >= _PARALLEL
    shared = _shared(found, name, block * tile.rows)
    loops = [*outer, name.io]
    if large:
        loops.remove(shared)
        loops.insert(0, shared)
        steps.append(tiling.parallel(shared))
    steps += [tiling.order(*loops, *across, name.jr, name.ir, *folded, name.i, name.j, name.l),
              tiling.unroll(name.i), tiling.unroll(name.j), tiling.vectorize(name.l)]
    return steps + _stages(found, tile, block, size, name, loops)


class _Names:
    """Names of the loops that rows and columns are split into."""

    def __init__(self, m: UOp, n: UOp) -> None:
        self.m, self.n = name_of(m), name_of(n)
        self.io, self.it = f"{self.m}_io", f"{self.m}_it"
        self.ir, self.i = f"{self.m}_ir", f"{self.m}_i"
        self.jr, self.jt = f"{self.n}_jr", f"{self.n}_jt"
        self.j, self.l = f"{self.n}_j", f"{self.n}_l"


def _lane(found: Contraction) -> UOp:
    """The column range that the right factor, or the result, has contiguous."""
    for r in found.columns:
        if any(stride(load, r) == 1 for load in loads_below(found.right)):
            return r
    return found.columns[-1]


def _shared(found: Contraction, name: _Names, rows: int) -> str:
    """The loop that the workers share: the first with enough iterations."""
    for r in (*found.batch, *found.rows[:-1]):
        if extent(r) >= 4:
            return name_of(r)
    return name.io


def _block(tile: Tile, depth: int, size: int, rows: int, target: Target) -> int:
    """Row tiles packed together: their panels fit half of the L2 cache, and leave four blocks.

    More than a few would not reuse the right factor noticeably better, and large blocks are
    hard to share evenly.
    """
    fit = target.l2 // 2 // (tile.rows * depth * size)
    return max(1, min(fit, _BLOCK, -(-rows // (4 * tile.rows))))


def _stages(found: Contraction, tile: Tile, block: int, size: int, name: _Names,
            loops: list[str]) -> list[Transform]:
    """Which factors are packed, and where."""
    out: list[Transform] = []
    tiles = -(-product(found.columns) // (tile.vectors * tile.lanes))
    alive = {name_of(r): r for r in (*found.batch, *found.rows)}
    if tiles >= 4 and product(found.folded) >= 16:
        at = next((x for x in reversed(loops) if x == name.io and extent(found.rows[-1])
                   > tile.rows * block or x in alive and extent(alive[x]) > 1), None)
        out += [tiling.stage(slot, at) for slot in _slots(found.left)]
    rough = any(stride(load, _lane(found)) not in (0, 1)
                for load in loads_below(found.right))
    nbytes = product(found.columns) * product(found.folded) * size
    reused = product(found.rows) >= 8 * tile.rows
    if not found.batch and (rough or (reused and nbytes > _PACK_COLUMNS)):
        space = "GLOBAL" if reused or nbytes > _PACK_COLUMNS else "PRIV"
        out += [tiling.stage(slot, None, space) for slot in _slots(found.right)]
    elif rough:
        batch = [name_of(r) for r in found.batch if extent(r) > 1]
        inner = [x for x in loops if x in batch]
        out += [tiling.stage(slot, inner[-1] if inner else None) for slot in _slots(found.right)]
    return out


def _slots(value: UOp) -> list[int]:
    """The operand whose load stands for a factor: that with all of its ranges."""
    slots = [buffer(load).arg.slot for load in loads_below(value)
             if load.ranges == value.ranges and buffer(load).op is ops.REF]
    return slots[:1]
