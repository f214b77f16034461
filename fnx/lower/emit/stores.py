"""Writes: the instances of a STORE (or of a STAGE's fill), collected first, emitted later.

If the lanes are strided in memory but an unrolled range is contiguous, the block of instances and
lanes is transposed in registers, and whole vectors are written:

    o[l, u], l VEC 16, u UNROLL 14      16 vectors of lanes along l, of which 14 are computed
                                        transpose -> 16 vectors along u, written at l = 0 .. 15

If the unrolled range fills the stride between two lanes, instances and lanes are interleaved in
memory (emit/interleaving.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.errors import KernelError
from fnx.core.support.record import Record
from fnx.lower.emit import interleaving
from fnx.lower.emit.addresses import is_strided, split_lane_terms
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.expansion import Expansion, Instance, extent_of
from fnx.lower.emit.nontemporal import CACHE_LINE, fits_line
from fnx.lower.emit.transpose import can_transpose, transpose
from fnx.lower.emit.values import FALSE, Values

_NONTEMPORAL = "STREAM"  # the arg of a nontemporal STORE


class Write(Record):
    """A pending write: address, value, scalar condition and lane mask."""

    address: UOp
    value: UOp
    condition: UOp | None
    mask: UOp | None
    combine: ops.Op | None
    streams: bool = False


def collect(values: Values, store: UOp) -> list[Write]:
    """Compute values and addresses of all instances of a STORE, without writing."""
    replicas = values.expansions[store.ranges]
    gap_range = None if replicas.lane is None else _find_interleaved(values, store, replicas)
    if gap_range is not None:
        return _interleave(values, store, replicas, gap_range)
    contiguous = None if replicas.lane is None else _find_contiguous(values, store, replicas)
    if contiguous is not None:
        return _transpose(values, store, replicas, contiguous)
    return [w for i in replicas.instances() for w in expand_store(values, store, i, replicas.lane)]


def expand_store(values: Values, store: UOp, at: Instance, lane: UOp | None) -> Iterator[Write]:
    """Compute one instance of a STORE, in all its lanes."""
    lines = values.lines
    condition, mask = values.masks(store.src[2:], at)
    if condition is FALSE:
        return
    value = values.value(accessors.value(store), at)
    access = values.addresses.access(accessors.index_node(store), lane, at)
    if lane is not None:
        if access.stride == 0:
            raise KernelError("expected lanes that write to different places, got a VEC range "
                              "that the store's index does not use",
                              hint="vectorize a range that the index uses")
        value = lines.widen(value, extent_of(lane))
        if access.stride == -1:
            value = lines.reverse(value)
            mask = None if mask is None else lines.reverse(mask)
    streaming = lane is not None and access.stride == 1 and mask is None and \
        is_nontemporal(values, store) and fits_line(access.address, value)
    yield Write(access.address, value, condition, mask, store.arg, streaming)


def is_nontemporal(values: Values, store: UOp) -> bool:
    """Return whether the buffer of a STORE is written by nontemporal stores."""
    ref = accessors.buffer(store)
    return ref.op is ops.REF and ref.arg.slot in values.nontemporal


def emit(lines: ProgramBuilder, writes: Sequence[Write]) -> None:
    """Emit writes; consecutive writes under one condition share a branch."""
    for condition, group in itertools.groupby(writes, key=lambda w: w.condition):
        branch = None if condition is None else lines.branch(condition)
        for address, value, _, mask, combine, nontemporal in group:
            masks = () if mask is None else (mask,)
            if combine is not None and combine is not ops.STORE:
                old = lines.put(ops.LOAD, value.dtype, (address, *masks))
                value = lines.apply_monoid(combine, old, value, pinned=True)
            arg = _NONTEMPORAL if nontemporal else None
            lines.put(ops.STORE, dtypes.void, (address, value, *masks), arg)
        if branch is not None:
            lines.end_branch(branch)


# ---- interleaved lanes and instances -----------------------------------------------------------


def _find_interleaved(values: Values, store: UOp, replicas: Expansion) -> UOp | None:
    """Return the UNROLL range whose instances fill the stride between the lanes of a store."""
    index, value, *valid = store.src
    if store.arg is not None:
        return None
    return interleaving.find_range(index, values.lines.permuted, values.conditions.unproven(valid),
                                   values.addresses.offset(index, replicas.lane), replicas)


def _interleave(values: Values, store: UOp, replicas: Expansion, gap_range: UOp) -> list[Write]:
    """Return the writes of interleaved instances and lanes."""
    unrolled, lane, lanes = replicas
    assert lane is not None
    lines, count, out = values.lines, extent_of(gap_range), []
    others = replicas.replace(unrolled=tuple([r for r in unrolled if r is not gap_range]))
    for instance in others.instances():
        block = [lines.widen(values.value(accessors.value(store), {**instance, gap_range: i}),
                             lanes)
                 for i in range(count)]
        condition, mask = values.masks(store.src[2:], {**instance, gap_range: 0})
        if condition is FALSE:
            continue
        for i, vector in enumerate(interleaving.interleave(lines, block)):
            access = interleaving.access(values.addresses, accessors.index_node(store), gap_range,
                                         lane, i, instance)
            lane_mask = None if mask is None else interleaving.vector_mask(lines, mask, count, i)
            streaming = mask is None and is_nontemporal(values, store) and \
                fits_line(access.address, vector)
            out.append(Write(access.address, vector, condition, lane_mask, None, streaming))
    return out


# ---- transposed blocks ------------------------------------------------------------------------


def _find_contiguous(values: Values, store: UOp, replicas: Expansion) -> UOp | None:
    """Return the UNROLL range along which a store with strided lanes is contiguous."""
    index, value, *valid = store.src
    offset = values.addresses.offset(index, replicas.lane)
    if store.arg is not None or not is_strided(offset, replicas.lane) \
            or not can_transpose(replicas.lanes) or value.dtype.itemsize < 4 \
            or any(n.op is ops.STAGE for n in toposort([*index.src[1:], *valid])):
        return None
    for r in replicas.unrolled:
        _, varying = split_lane_terms(offset.common, r)
        if varying == {(r,): 1} and 2 < extent_of(r) <= replicas.lanes:
            return r
    return None


def _transpose(values: Values, store: UOp, replicas: Expansion, contiguous: UOp) -> list[Write]:
    """Return the writes of transposed blocks: ``contiguous`` becomes the lanes, the lanes rows."""
    unrolled, lane, lanes = replicas
    lines, rows = values.lines, extent_of(contiguous)
    assert lane is not None
    lane_range = build.range_(lanes, contiguous.arg.id, "VEC")
    row = build.range_(lanes, lane.arg.id, "UNROLL")
    buffer, indices = accessors.buffer(store), accessors.indices(store)
    substituted = substitute([*indices, *values.conditions.unproven(store.src[2:])],
                             {lane: row, contiguous: lane_range})
    place, valid = build.index_into(buffer, *substituted[:len(indices)]), substituted[len(indices):]
    if rows < lanes:
        valid.append(build.lt(lane_range, build.index_const(rows)))
    out = []
    others = replicas.replace(unrolled=tuple([r for r in unrolled if r is not contiguous]))
    for instance in others.instances():
        block = [lines.widen(values.value(accessors.value(store), {**instance, contiguous: i}),
                             lanes)
                 for i in range(rows)]
        block += block[:1] * (lanes - rows)
        for i, column in enumerate(transpose(lines, block)):
            at = {**instance, row: i}
            condition, mask = values.masks(valid, at)
            if condition is FALSE:
                continue
            access = values.addresses.access(place, lane_range, at)
            streaming = mask is None and is_nontemporal(values, store) and \
                fits_line(access.address, column, CACHE_LINE)
            out.append(Write(access.address, column, condition, mask, None, streaming))
    return out
