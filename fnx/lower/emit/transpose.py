"""Transposing a square block in registers: n vectors of n lanes, log2(n) steps of n shuffles.

    a0 a1 a2 a3        a0 b0 a1 b1       a0 b0 c0 d0
    b0 b1 b2 b3   ->   a2 b2 a3 b3  ->   a1 b1 c1 d1
    c0 c1 c2 c3        c0 d0 c1 d1       a2 b2 c2 d2
    d0 d1 d2 d3        c2 d2 c3 d3       a3 b3 c3 d3

Each step takes pairs of vectors and swaps one bit of the row number with one bit of the lane
number, by interleavings that are single instructions within and between 128-bit blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fnx.core.ir import ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.lower.emit.builder import ProgramBuilder

LaneOrder = tuple[int, ...]
Shuffle = tuple[LaneOrder, LaneOrder]  # for the first and second vector of a pair
Labels = list[tuple[int, int]]  # the original (row, lane) of each element of a vector
Row = TypeVar("Row")
_BLOCK_BYTES = 16  # bytes


def transpose(lines: ProgramBuilder, rows: Sequence[UOp]) -> list[UOp]:
    """Return the columns of the block with these ``rows``."""
    dtype = rows[0].dtype

    def shuffled(a: UOp, b: UOp, lanes: LaneOrder) -> UOp:
        return lines.add(ops.SHUFFLE, dtype, (a, b), lanes)

    steps, order = _network(dtype, len(rows))
    vectors = _run(steps, rows, shuffled)
    return [vectors[i] for i in order]


def can_transpose(lanes: int) -> bool:
    """Return whether blocks of this size can be transposed."""
    return lanes >= 4 and lanes & (lanes - 1) == 0


def _run(steps: list[Shuffle], rows: Sequence[Row], shuffle: Callable[[Row, Row, LaneOrder], Row]
         ) -> list[Row]:
    """Run the steps: step ``bit`` pairs the rows whose numbers differ in that bit."""
    out = list(rows)
    for bit, step in enumerate(steps):
        for i in range(len(out)):
            j = i | 1 << bit
            if i != j:
                out[i], out[j] = [shuffle(out[i], out[j], lanes) for lanes in step]
    return out


@memoized
def _network(dtype: DType, n: int) -> tuple[list[Shuffle], list[int]]:
    """Return the two shuffles of each step, and the index of the vector for each column."""
    block = min(n, _BLOCK_BYTES // dtype.itemsize)
    steps = [_interleave_steps(n, block, piece) for piece in (1, 2, 4, 8) if 2 * piece <= block]
    for _ in range((n // block).bit_length() - 1):
        steps.append(_block_steps(n, block))
    columns = _columns(n, steps)
    return steps, [columns.index(c) for c in range(n)]


def _columns(n: int, steps: list[Shuffle]) -> list[int]:
    """Return the column that each vector holds after the steps, by running them on labels."""
    labels = [[(row, lane) for lane in range(n)] for row in range(n)]
    permuted = _run(steps, labels, _shuffle_labels)
    columns = [vector[0][1] for vector in permuted]
    assert permuted == [[(row, c) for row in range(n)] for c in columns]
    return columns


def _shuffle_labels(a: Labels, b: Labels, lanes: LaneOrder) -> Labels:
    both = a + b
    return [both[lane] for lane in lanes]


def _interleave_steps(n: int, block: int, granule: int) -> Shuffle:
    """Interleave pieces of two vectors, from the low or the high half of each block."""
    halves = []
    for half in (0, block // 2):
        starts = [b + half + p for b in range(0, n, block) for p in range(0, block // 2, granule)]
        halves.append(tuple(lane for s in starts for source in (0, n)
                            for lane in range(source + s, source + s + granule)))
    return halves[0], halves[1]


def _block_steps(n: int, block: int) -> Shuffle:
    """Concatenate the even, or the odd, blocks of two vectors."""
    even, odd = (tuple([lane for s in range(first, 2 * n, 2 * block)
                        for lane in range(s, s + block)]) for first in (0, block))
    return even, odd
