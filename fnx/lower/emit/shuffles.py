"""Shuffles of whole vectors: interleaved accesses, and transposed blocks.

Lanes whose stride is the extent of a short unrolled range are interleaved:

    x[l, u], l VEC 16, u UNROLL 3        48 neighbors: three contiguous vectors, deinterleaved
                                         by shuffles to one for each u, or interleaved back

    memory       a0 b0 c0 a1 | b1 c1 a2 b2 | c2 a3 b3 c3
    instances    a0 a1 a2 a3,  b0 b1 b2 b3,  c0 c1 c2 c3

A strided load without such a range picks its lanes from the same contiguous vectors, without
reading past the last lane. Where lanes go backwards (a mirrored image), the last one comes first in
memory. A gather or scatter would access each element separately.

A square block of n vectors of n lanes is transposed in log2(n) steps of n shuffles:

    a0 a1 a2 a3        a0 b0 a1 b1       a0 b0 c0 d0
    b0 b1 b2 b3   ->   a2 b2 a3 b3  ->   a1 b1 c1 d1
    c0 c1 c2 c3        c0 d0 c1 d1       a2 b2 c2 d2
    d0 d1 d2 d3        c2 d2 c3 d3       a3 b3 c3 d3

Each step takes pairs of vectors and swaps one bit of the row number with one bit of the lane
number, by interleavings that are single instructions within and between 128-bit blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.lower.emit.addresses import Access, Addresses, Offset, split_lane_terms
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.expansion import Expansion, Instance, extent_of

MAX_STRIDE = 8  # instances, and thus vectors that each result is shuffled from


def find_range(index: UOp, permuted: int, conditions: Sequence[UOp], offset: Offset,
               replicas: Expansion) -> UOp | None:
    """Return the UNROLL range whose instances fill the stride between the lanes, or None.

    ``permuted`` is the size in bytes of the smallest elements that the target can permute.
    """
    if offset.stride is None or not 2 <= abs(offset.stride) <= MAX_STRIDE \
            or index.dtype.itemsize < permuted \
            or any(n.op is ops.STAGE for n in toposort([*index.src[1:], *conditions])):
        return None
    for r in replicas.unrolled:
        _, varying = split_lane_terms(offset.common, r)
        if varying == {(r,): 1} and extent_of(r) == abs(offset.stride):
            return r if all(r not in c.ranges for c in conditions) else None
    return None


def is_strided(index: UOp, permuted: int, offset: Offset) -> bool:
    """Return whether a load has a small stride, and elements that the target can permute."""
    return offset.stride is not None and 2 <= abs(offset.stride) <= MAX_STRIDE \
        and index.dtype.itemsize >= permuted and index.src[0].op is ops.REF


def load_strided(lines: ProgramBuilder, base: Access, lanes: int, step: int, mask: UOp | None,
                 load: Callable[[Access, UOp | None], UOp]) -> UOp:
    """Load lanes with stride ``step`` from the address of the one that is first in memory.

    ``mask`` covers all lanes; ``load`` loads a contiguous vector under a mask.
    """
    pointer, offset = base.address.src
    dtype, masks = base.address.dtype, dtypes.bool_.vec(lanes)
    order, step = _lane_order(lanes, step < 0), abs(step)
    span = (lanes - 1) * step + 1
    vectors = []
    for start in range(0, span, lanes):
        address = lines.add(ops.ADDRESS, dtype.vec(lanes), (pointer, lines.plus(offset, start)),
                            math.gcd(base.address.arg, start * dtype.itemsize))
        lane_mask = None
        if mask is not None:
            no_lanes = lines.add(ops.LANE_MASK, masks, (build.index_const(0),))
            active = [order[(start + p) // step] if (start + p) % step == 0 and start + p < span
                      else lanes for p in range(lanes)]
            lane_mask = lines.add(ops.SHUFFLE, masks, (mask, no_lanes), tuple(active))
        elif start + lanes > span:
            lane_mask = lines.add(ops.LANE_MASK, masks, (build.index_const(span - start),))
        access = base.replace(address=address, stride=1, constant=base.constant + start)
        vectors.append(load(access, lane_mask))
    return _pick(lines, vectors, [divmod(p * step, lanes) for p in order])


def _lane_order(lanes: int, backwards: bool) -> Sequence[int]:
    """Return the position in memory of each lane, and also the lane at each position."""
    return range(lanes)[::-1] if backwards else range(lanes)


def access(addresses: Addresses, index: UOp, r: UOp, lane: UOp, i: int, at: Instance) -> Access:
    """Return the access of contiguous vector ``i``."""
    lanes = extent_of(lane)
    contiguous = build.range_(lanes, r.arg.id, "VEC")
    position = build.add(contiguous, build.index_const(i * lanes))
    first = lanes - 1 if is_backwards(addresses, index, lane) else 0
    indices = substitute(accessors.indices(index), {lane: build.index_const(first), r: position})
    return addresses.access(build.index_into(accessors.buffer(index), *indices), contiguous, at)


def is_backwards(addresses: Addresses, index: UOp, lane: UOp) -> bool:
    """Return whether the last lane comes first in memory."""
    stride = addresses.offset(index, lane).stride
    return stride is not None and stride < 0


def vector_mask(lines: ProgramBuilder, mask: UOp, count: int, i: int, backwards: bool = False
                ) -> UOp:
    """Return the mask of the elements of contiguous vector ``i``."""
    lanes = mask.dtype.lanes
    lane_at = _lane_order(lanes, backwards)
    order = tuple([lane_at[(i * lanes + p) // count] for p in range(lanes)])
    return lines.add(ops.SHUFFLE, mask.dtype, (mask, mask), order)


def deinterleave(lines: ProgramBuilder, vectors: Sequence[UOp], backwards: bool = False
                 ) -> list[UOp]:
    """Deinterleave: contiguous vectors -> instances."""
    count, lanes = len(vectors), vectors[0].dtype.lanes
    return [_pick(lines, vectors, [divmod(p * count + u, lanes)
                                   for p in _lane_order(lanes, backwards)]) for u in range(count)]


def interleave(lines: ProgramBuilder, instances: Sequence[UOp], backwards: bool = False
               ) -> list[UOp]:
    """Interleave: instances -> contiguous vectors."""
    count, lanes = len(instances), instances[0].dtype.lanes
    lane_at = _lane_order(lanes, backwards)
    sources = [[divmod(i * lanes + p, count)[::-1] for p in range(lanes)] for i in range(count)]
    return [_pick(lines, instances, [(v, lane_at[lane]) for v, lane in vector])
            for vector in sources]


def _pick(lines: ProgramBuilder, vectors: Sequence[UOp], sources: Sequence[tuple[int, int]]) -> UOp:
    """Build a vector from lanes (vector, lane) of others, by one shuffle per further vector."""
    lanes = len(sources)
    sources_used = sorted({v for v, _ in sources})
    first, *others = sources_used
    out = vectors[first]
    order = [lane for v, lane in sources]
    if not others:
        return lines.add(ops.SHUFFLE, out.dtype, (out, out), tuple(order))
    started = False
    for v in others:
        seen = {w for w in sources_used if w < v}
        step = tuple([lanes + lane if w == v else p if started else order[p] if w in seen else 0
                      for p, (w, lane) in enumerate(sources)])
        out = lines.add(ops.SHUFFLE, out.dtype, (out, vectors[v]), step)
        started = True
    return out


# ---- transposition ------------------------------------------------------------------------------


LaneOrder = tuple[int, ...]
Shuffle = tuple[LaneOrder, LaneOrder]  # for the first and second vector of a pair
Labels = list[tuple[int, int]]  # the original (row, lane) of each element of a vector
Row = TypeVar("Row")
_BLOCK_BYTES = 16  # bytes


def transpose(lines: ProgramBuilder, rows: Sequence[UOp], parts: int = 1) -> list[UOp]:
    """Return the columns of the block with these ``rows``; each number has so many lanes."""
    dtype = rows[0].dtype

    def shuffled(a: UOp, b: UOp, numbers: LaneOrder) -> UOp:
        lanes = tuple([i * parts + part for i in numbers for part in range(parts)])
        return lines.add(ops.SHUFFLE, dtype, (a, b), lanes)

    steps, order = _network(dtype, len(rows), parts)
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
def _network(dtype: DType, n: int, parts: int = 1) -> tuple[list[Shuffle], list[int]]:
    """Return the two shuffles of each step, and the index of the vector for each column."""
    block = min(n, _BLOCK_BYTES // (dtype.itemsize * parts))
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
