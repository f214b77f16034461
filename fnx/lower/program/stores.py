"""Writes: the instances of a STORE (or of a STAGE's fill), collected first, emitted later.

If the lanes are strided in memory but an unrolled range is contiguous, the block of instances and
lanes is transposed in registers, and whole vectors are written:

    o[l, u], l VEC 16, u UNROLL 14      16 vectors of lanes along l, of which 14 are computed
                                        transpose -> 16 vectors along u, written at l = 0 .. 15

If the unrolled range fills the stride between two lanes, instances and lanes are interleaved in
memory (program/interleaved.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fnx.core import build, dtypes, ops, parts
from fnx.core.errors import KernelError
from fnx.core.record import Record
from fnx.core.uop import UOp, substitute, toposort
from fnx.lower.program import interleaved
from fnx.lower.program.addresses import lies_apart, split_lanes
from fnx.lower.program.builder import Lines
from fnx.lower.program.roles import Instance, Replicas, extent_of
from fnx.lower.program.streamed import LINE, is_line
from fnx.lower.program.transpose import can_transpose, transpose
from fnx.lower.program.values import FALSE, Values

_STREAM = "STREAM"  # the arg of a nontemporal STORE


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
    replicas = values.replication[store.ranges]
    between = None if replicas.lane is None else _between(values, store, replicas)
    if between is not None:
        return _interleaved(values, store, replicas, between)
    across = None if replicas.lane is None else _across(values, store, replicas)
    if across is not None:
        return _transposed(values, store, replicas, across)
    return [w for i in replicas.instances() for w in instance(values, store, i, replicas.lane)]


def instance(values: Values, store: UOp, at: Instance, lane: UOp | None) -> Iterator[Write]:
    """Compute one instance of a STORE, in all its lanes."""
    lines = values.lines
    condition, mask = values.masks(store.src[2:], at)
    if condition is FALSE:
        return
    value = values.value(parts.value(store), at)
    access = values.addresses.access(parts.place(store), lane, at)
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
        streams(values, store) and is_line(access.address, value)
    yield Write(access.address, value, condition, mask, store.arg, streaming)


def streams(values: Values, store: UOp) -> bool:
    """Return whether the buffer of a STORE is written by nontemporal stores."""
    ref = parts.buffer(store)
    return ref.op is ops.REF and ref.arg.slot in values.streamed


def write(lines: Lines, writes: Sequence[Write]) -> None:
    """Emit writes; consecutive writes under one condition share a branch."""
    for condition, group in itertools.groupby(writes, key=lambda w: w.condition):
        branch = None if condition is None else lines.branch(condition)
        for address, value, _, mask, combine, streams in group:
            masks = () if mask is None else (mask,)
            if combine is not None and combine is not ops.STORE:
                old = lines.put(ops.LOAD, value.dtype, (address, *masks))
                value = lines.combined(combine, old, value, stays=True)
            how = _STREAM if streams else None
            lines.put(ops.STORE, dtypes.void, (address, value, *masks), how)
        if branch is not None:
            lines.end_branch(branch)


# ---- interleaved lanes and instances -----------------------------------------------------------


def _between(values: Values, store: UOp, replicas: Replicas) -> UOp | None:
    """Return the UNROLL range whose instances fill the stride between the lanes of a store."""
    place, value, *valid = store.src
    if store.arg is not None:
        return None
    return interleaved.across(place, values.lines.permuted, values.conditions.untested(valid),
                              values.addresses.offset(place, replicas.lane), replicas)


def _interleaved(values: Values, store: UOp, replicas: Replicas, between: UOp) -> list[Write]:
    """Return the writes of interleaved instances and lanes."""
    unrolled, lane, lanes = replicas
    assert lane is not None
    lines, count, out = values.lines, extent_of(between), []
    others = replicas.replace(unrolled=tuple([r for r in unrolled if r is not between]))
    for instance in others.instances():
        block = [lines.widen(values.value(parts.value(store), {**instance, between: i}), lanes)
                 for i in range(count)]
        condition, mask = values.masks(store.src[2:], {**instance, between: 0})
        if condition is FALSE:
            continue
        for i, vector in enumerate(interleaved.together(lines, block)):
            access = interleaved.access(values.addresses, parts.place(store), between, lane, i,
                                        instance)
            own = None if mask is None else interleaved.mask_of(lines, mask, count, i)
            streaming = mask is None and streams(values, store) and is_line(access.address, vector)
            out.append(Write(access.address, vector, condition, own, None, streaming))
    return out


# ---- transposed blocks ------------------------------------------------------------------------


def _across(values: Values, store: UOp, replicas: Replicas) -> UOp | None:
    """Return the UNROLL range along which a store with strided lanes is contiguous."""
    place, value, *valid = store.src
    offset = values.addresses.offset(place, replicas.lane)
    if store.arg is not None or not lies_apart(offset, replicas.lane) \
            or not can_transpose(replicas.lanes) or value.dtype.itemsize < 4 \
            or any(n.op is ops.STAGE for n in toposort([*place.src[1:], *valid])):
        return None
    for r in replicas.unrolled:
        _, own = split_lanes(offset.common, r)
        if own == {(r,): 1} and 2 < extent_of(r) <= replicas.lanes:
            return r
    return None


def _transposed(values: Values, store: UOp, replicas: Replicas, across: UOp) -> list[Write]:
    """Return the writes of transposed blocks: ``across`` becomes the lanes, the lanes rows."""
    unrolled, lane, lanes = replicas
    lines, rows = values.lines, extent_of(across)
    assert lane is not None
    across_lane = build.range_(lanes, across.arg.id, "VEC")
    row = build.range_(lanes, lane.arg.id, "UNROLL")
    buffer, indices = parts.buffer(store), parts.indices(store)
    turned = substitute([*indices, *values.conditions.untested(store.src[2:])],
                        {lane: row, across: across_lane})
    place, valid = build.at(buffer, *turned[:len(indices)]), turned[len(indices):]
    if rows < lanes:
        valid.append(build.lt(across_lane, build.index_const(rows)))
    out = []
    others = replicas.replace(unrolled=tuple([r for r in unrolled if r is not across]))
    for instance in others.instances():
        block = [lines.widen(values.value(parts.value(store), {**instance, across: i}), lanes)
                 for i in range(rows)]
        block += block[:1] * (lanes - rows)
        for i, column in enumerate(transpose(lines, block)):
            at = {**instance, row: i}
            condition, mask = values.masks(valid, at)
            if condition is FALSE:
                continue
            access = values.addresses.access(place, across_lane, at)
            streaming = mask is None and streams(values, store) and \
                is_line(access.address, column, LINE)
            out.append(Write(access.address, column, condition, mask, None, streaming))
    return out
