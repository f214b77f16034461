"""Interleaved accesses: lanes whose stride is the extent of a short unrolled range.

    x[l, u], l VEC 16, u UNROLL 3        48 neighbors: three contiguous vectors, deinterleaved
                                         by shuffles to one for each u, or interleaved back

    memory       a0 b0 c0 a1 | b1 c1 a2 b2 | c2 a3 b3 c3
    instances    a0 a1 a2 a3,  b0 b1 b2 b3,  c0 c1 c2 c3

A strided load without such a range picks its lanes from the same contiguous vectors, without
reading past the last lane. A gather or scatter would access each element separately.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core.ir import accessors, build, dtypes, ops
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
    if offset.stride is None or not 2 <= offset.stride <= MAX_STRIDE \
            or index.dtype.itemsize < permuted \
            or any(n.op is ops.STAGE for n in toposort([*index.src[1:], *conditions])):
        return None
    for r in replicas.unrolled:
        _, varying = split_lane_terms(offset.common, r)
        if varying == {(r,): 1} and extent_of(r) == offset.stride:
            return r if all(r not in c.ranges for c in conditions) else None
    return None


def is_strided(index: UOp, permuted: int, offset: Offset) -> bool:
    """Return whether a load has a small stride, and elements that the target can permute."""
    return offset.stride is not None and 2 <= offset.stride <= MAX_STRIDE \
        and index.dtype.itemsize >= permuted and index.src[0].op is ops.REF


def load_strided(lines: ProgramBuilder, base: Access, lanes: int, step: int, mask: UOp | None,
                 load: Callable[[Access, UOp | None], UOp]) -> UOp:
    """Load lanes with stride ``step`` from the address of the first one.

    ``mask`` covers all lanes; ``load`` loads a contiguous vector under a mask.
    """
    pointer, offset = base.address.src
    dtype, masks = base.address.dtype, dtypes.bool_.vec(lanes)
    span = (lanes - 1) * step + 1
    vectors = []
    for start in range(0, span, lanes):
        address = lines.add(ops.ADDRESS, dtype.vec(lanes), (pointer, lines.plus(offset, start)),
                            math.gcd(base.address.arg, start * dtype.itemsize))
        lane_mask = None
        if mask is not None:
            no_lanes = lines.add(ops.LANE_MASK, masks, (build.index_const(0),))
            order = [(start + p) // step if (start + p) % step == 0 and start + p < span else lanes
                     for p in range(lanes)]
            lane_mask = lines.add(ops.SHUFFLE, masks, (mask, no_lanes), tuple(order))
        elif start + lanes > span:
            lane_mask = lines.add(ops.LANE_MASK, masks, (build.index_const(span - start),))
        access = base.replace(address=address, stride=1, constant=base.constant + start)
        vectors.append(load(access, lane_mask))
    return _pick(lines, vectors, [divmod(p * step, lanes) for p in range(lanes)])


def access(addresses: Addresses, place: UOp, r: UOp, lane: UOp, i: int, at: Instance) -> Access:
    """Return the access of contiguous vector ``i``."""
    contiguous = build.range_(extent_of(lane), r.arg.id, "VEC")
    position = build.add(contiguous, build.index_const(i * extent_of(lane)))
    indices = substitute(accessors.indices(place), {lane: build.index_const(0), r: position})
    return addresses.access(build.index_into(accessors.buffer(place), *indices), contiguous, at)


def vector_mask(lines: ProgramBuilder, mask: UOp, count: int, i: int) -> UOp:
    """Return the mask of the elements of contiguous vector ``i``."""
    lanes = mask.dtype.lanes
    order = tuple([(i * lanes + p) // count for p in range(lanes)])
    return lines.add(ops.SHUFFLE, mask.dtype, (mask, mask), order)


def deinterleave(lines: ProgramBuilder, vectors: Sequence[UOp]) -> list[UOp]:
    """Deinterleave: contiguous vectors -> instances."""
    count, lanes = len(vectors), vectors[0].dtype.lanes
    return [_pick(lines, vectors, [divmod(p * count + u, lanes) for p in range(lanes)])
            for u in range(count)]


def interleave(lines: ProgramBuilder, instances: Sequence[UOp]) -> list[UOp]:
    """Interleave: instances -> contiguous vectors."""
    count, lanes = len(instances), instances[0].dtype.lanes
    return [_pick(lines, instances, [divmod(i * lanes + p, count)[::-1] for p in range(lanes)])
            for i in range(count)]


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
