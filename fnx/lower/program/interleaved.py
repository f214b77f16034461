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

from fnx.core import build, dtypes, ops, parts
from fnx.core.uop import UOp, substitute, toposort
from fnx.lower.program.addresses import Access, Addresses, Offset, split_lanes
from fnx.lower.program.builder import Lines
from fnx.lower.program.roles import Instance, Replicas, extent_of

MOST = 8  # instances, and thus vectors that each result is shuffled from


def across(place: UOp, permuted: int, conditions: Sequence[UOp], offset: Offset,
           replicas: Replicas) -> UOp | None:
    """Return the UNROLL range whose instances fill the stride between the lanes, or None.

    ``permuted`` is the size in bytes of the smallest elements that the target can permute.
    """
    if offset.stride is None or not 2 <= offset.stride <= MOST or place.dtype.itemsize < permuted \
            or any(n.op is ops.STAGE for n in toposort([*place.src[1:], *conditions])):
        return None
    for r in replicas.unrolled:
        _, own = split_lanes(offset.common, r)
        if own == {(r,): 1} and extent_of(r) == offset.stride:
            return r if all(r not in c.ranges for c in conditions) else None
    return None


def is_strided(place: UOp, permuted: int, offset: Offset) -> bool:
    """Return whether a load has a small stride, and elements that the target can permute."""
    return offset.stride is not None and 2 <= offset.stride <= MOST \
        and place.dtype.itemsize >= permuted and place.src[0].op is ops.REF


def strided(lines: Lines, first: Access, lanes: int, step: int, mask: UOp | None,
            load: Callable[[Access, UOp | None], UOp]) -> UOp:
    """Load lanes with stride ``step`` from the address of the first one.

    ``mask`` covers all lanes; ``load`` loads a contiguous vector under a mask.
    """
    pointer, offset = first.address.src
    dtype, masks = first.address.dtype, dtypes.bool_.vec(lanes)
    span = (lanes - 1) * step + 1
    vectors = []
    for start in range(0, span, lanes):
        address = lines.add(ops.ADDRESS, dtype.vec(lanes), (pointer, lines.plus(offset, start)),
                            math.gcd(first.address.arg, start * dtype.itemsize))
        own = None
        if mask is not None:
            none = lines.add(ops.LANESBELOW, masks, (build.index_const(0),))
            order = [(start + p) // step if (start + p) % step == 0 and start + p < span else lanes
                     for p in range(lanes)]
            own = lines.add(ops.SHUFFLE, masks, (mask, none), tuple(order))
        elif start + lanes > span:
            own = lines.add(ops.LANESBELOW, masks, (build.index_const(span - start),))
        access = first.replace(address=address, stride=1, constant=first.constant + start)
        vectors.append(load(access, own))
    return _picked(lines, vectors, [divmod(p * step, lanes) for p in range(lanes)])


def access(addresses: Addresses, place: UOp, r: UOp, lane: UOp, i: int, at: Instance) -> Access:
    """Return the access of contiguous vector ``i``."""
    neighbours = build.range_(extent_of(lane), r.arg.id, "VEC")
    index = build.add(neighbours, build.index_const(i * extent_of(lane)))
    turned = substitute(parts.indices(place), {lane: build.index_const(0), r: index})
    return addresses.access(build.at(parts.buffer(place), *turned), neighbours, at)


def mask_of(lines: Lines, mask: UOp, count: int, i: int) -> UOp:
    """Return the mask of the elements of contiguous vector ``i``."""
    lanes = mask.dtype.lanes
    order = tuple([(i * lanes + p) // count for p in range(lanes)])
    return lines.add(ops.SHUFFLE, mask.dtype, (mask, mask), order)


def apart(lines: Lines, vectors: Sequence[UOp]) -> list[UOp]:
    """Deinterleave: contiguous vectors -> instances."""
    count, lanes = len(vectors), vectors[0].dtype.lanes
    return [_picked(lines, vectors, [divmod(p * count + u, lanes) for p in range(lanes)])
            for u in range(count)]


def together(lines: Lines, instances: Sequence[UOp]) -> list[UOp]:
    """Interleave: instances -> contiguous vectors."""
    count, lanes = len(instances), instances[0].dtype.lanes
    return [_picked(lines, instances, [divmod(i * lanes + p, count)[::-1] for p in range(lanes)])
            for i in range(count)]


def _picked(lines: Lines, vectors: Sequence[UOp], sources: Sequence[tuple[int, int]]) -> UOp:
    """Build a vector from lanes (vector, lane) of others, by one shuffle per further vector."""
    lanes = len(sources)
    needed = sorted({v for v, _ in sources})
    first, *rest = needed
    out = vectors[first]
    order = [lane for v, lane in sources]
    if not rest:
        return lines.add(ops.SHUFFLE, out.dtype, (out, out), tuple(order))
    placed = False
    for v in rest:
        known = {w for w in needed if w < v}
        step = tuple([lanes + lane if w == v else p if placed else order[p] if w in known else 0
                      for p, (w, lane) in enumerate(sources)])
        out = lines.add(ops.SHUFFLE, out.dtype, (out, vectors[v]), step)
        placed = True
    return out
