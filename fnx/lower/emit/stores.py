"""Writes: the instances of a STORE (or of a STAGE's fill), collected first, emitted later.

If the lanes are strided in memory but an unrolled range is contiguous, the block of instances and
lanes is transposed in registers, and whole vectors are written:

    o[l, u], l VEC 16, u UNROLL 14      16 vectors of lanes along l, of which 14 are computed
                                        transpose -> 16 vectors along u, written at l = 0 .. 15

If the unrolled range fills the stride between two lanes, instances and lanes are interleaved in
memory (emit/shuffles.py).

Large results bypass the caches, which they would only pollute: a store of part of a cache line
reads the line first, and large results evict data that would be reused. So a buffer larger than the
shared cache is written in whole aligned vectors that memory takes without reading, by nontemporal
stores. So is a smaller one whose kernel's operands evict it. Nontemporal stores are weakly ordered,
so the kernel ends with a fence.

>>> from fnx.core.ir import dtypes
>>> r = build.range_(1 << 24, 0)
>>> x, o = (build.index_into(build.ref(s, dtypes.float32, (1 << 24,)), r) for s in (0, 1))
>>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
>>> nontemporal_slots(copy, Target("cpu", triple="x86_64-linux"))
frozenset({1})
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.accessors import buffer, dims
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.errors import KernelError
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.emit import shuffles
from fnx.lower.emit.addresses import is_strided, split_lane_terms
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.expansion import Expansion, Instance, extent_of
from fnx.lower.emit.shuffles import can_transpose, transpose
from fnx.lower.emit.values import FALSE, Values

MIN_BYTES = 32 << 20  # bytes: a larger buffer would not be in a cache when it is read
CACHE_BYTES = 44 << 20  # bytes of all buffers of a kernel, from which on
MIN_PART_BYTES = 8 << 20       # ... a result of as many bytes is evicted by the operands
CACHE_LINE = 64


def nontemporal_slots(kernel: UOp, target: Target) -> frozenset[int]:
    """Return the slots of write-only buffers of a kernel that do not fit in a cache."""
    if target.kind != "host" or not target.triple.startswith("x86"):
        return frozenset()
    nodes = toposort(kernel.src)
    read = {buffer(n).arg.slot for n in nodes
            if n.op is ops.LOAD and buffer(n).op is ops.REF}
    large = large_results(nodes)
    return frozenset([buffer(s).arg.slot for s in kernel.src
                      if s.arg is None and buffer(s) in large]) - read


def large_results(nodes: Sequence[UOp]) -> set[UOp]:
    """Return the REFs that a kernel writes and that are known not to fit in a cache."""
    sizes = {n: _bytes(n) for n in nodes if n.op is ops.REF}
    slots: dict[int, int] = {}
    for ref, nbytes in sizes.items():
        slots[ref.arg.slot] = max(nbytes, slots.get(ref.arg.slot, 0))
    min_bytes = MIN_PART_BYTES if sum(slots.values()) >= CACHE_BYTES else MIN_BYTES
    written = {buffer(n) for n in nodes if n.op is ops.STORE}
    return {ref for ref in written if ref.op is ops.REF and
            (ref.arg.exceeds_cache or sizes[ref] >= min_bytes)}


def _bytes(ref: UOp) -> int:
    """Return the bytes of a buffer; 0 if its shape is dynamic."""
    lengths = dims(ref)
    if any(n.op is not ops.CONST for n in lengths):
        return 0
    return math.prod([int(build.const_of(n)) for n in lengths]) * ref.dtype.itemsize


def fits_line(address: UOp, value: UOp, min_bytes: int = CACHE_LINE // 2) -> bool:
    """Return whether a vector has at least ``min_bytes`` bytes and crosses no cache line."""
    size = value.dtype.lanes * value.dtype.itemsize
    return min_bytes <= size <= CACHE_LINE and (address.arg or 1) >= size


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
            if combine not in (None, ops.STORE, ops.SCATTER):
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
    return shuffles.find_range(index, values.lines.permuted, values.conditions.unproven(valid),
                                   values.addresses.offset(index, replicas.lane), replicas)


def _interleave(values: Values, store: UOp, replicas: Expansion, gap_range: UOp) -> list[Write]:
    """Return the writes of interleaved instances and lanes."""
    unrolled, lane, lanes = replicas
    assert lane is not None
    lines, count, out = values.lines, extent_of(gap_range), []
    index = accessors.index_node(store)
    backwards = shuffles.is_backwards(values.addresses, index, lane)
    others = replicas.replace(unrolled=tuple([r for r in unrolled if r is not gap_range]))
    for instance in others.instances():
        block = [lines.widen(values.value(accessors.value(store), {**instance, gap_range: i}),
                             lanes)
                 for i in range(count)]
        condition, mask = values.masks(store.src[2:], {**instance, gap_range: 0})
        if condition is FALSE:
            continue
        for i, vector in enumerate(shuffles.interleave(lines, block, backwards)):
            access = shuffles.access(values.addresses, index, gap_range, lane, i, instance)
            lane_mask = None if mask is None else \
                shuffles.vector_mask(lines, mask, count, i, backwards)
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
    index, valid = build.index_into(buffer, *substituted[:len(indices)]), substituted[len(indices):]
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
            access = values.addresses.access(index, lane_range, at)
            streaming = mask is None and is_nontemporal(values, store) and \
                fits_line(access.address, column, CACHE_LINE)
            out.append(Write(access.address, column, condition, mask, None, streaming))
    return out
