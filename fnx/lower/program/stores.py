"""Writes: the instances of a STORE (or of a STAGE's filling), collected first, written later.

Where lanes lie far apart in memory but an unrolled range lies side by side, the block of
instances and lanes is transposed in registers, and whole vectors are written:

    o[l, u], l VEC 16, u UNROLL 14      16 vectors of lanes along l, of which 14 are computed
                                        transpose -> 16 vectors along u, written at l = 0 .. 15
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from fnx.core import build, dtypes, ops
from fnx.core.errors import KernelError
from fnx.core.uop import UOp, substitute, toposort
from fnx.lower.program.access import Env
from fnx.lower.program.builder import Lines
from fnx.lower.program.loop_nest import extent_of
from fnx.lower.program.transpose import can_transpose, transpose
from fnx.lower.program.values import NOTHING, Values


class Store:
    """A write that is ready: where, what, and under which condition and mask."""

    __slots__ = ("address", "value", "condition", "mask", "combine")

    def __init__(self, address: UOp, value: UOp, condition: UOp | None, mask: UOp | None,
                 combine: ops.Op | None) -> None:
        self.address, self.value, self.combine = address, value, combine
        self.condition, self.mask = condition, mask


def collect(values: Values, store: UOp) -> list[Store]:
    """All instances of a STORE, values and addresses computed, nothing written."""
    shape = values.shape(store.ranges)
    across = _across(values, store) if shape.lane is not None else None
    if across is not None:
        return _transposed(values, store, across)
    return [_instance(values, store, env, values.value(store.src[1], env))
            for env in values.instances(shape.unrolled, NOTHING)]


def _instance(values: Values, store: UOp, env: Env, value: UOp) -> Store:
    """One instance, given its value."""
    lane = values.shape(store.ranges).lane
    address, stride = values.access(store.src[0], env, lane)
    condition, mask = values.masks(store.src[2:], env)
    if lane is not None:
        if stride == 0:
            raise KernelError("expected lanes that write to different places, got a VEC range "
                              "that the store's index does not use",
                              hint="vectorize a range that the index uses")
        value = values.lines.widen(value, extent_of(lane))
        if stride == -1:
            value = values.reversed_(value)
            mask = None if mask is None else values.reversed_(mask)
    return Store(address, value, condition, mask, store.arg)


def write(lines: Lines, stores: Sequence[Store]) -> None:
    """The lines of stores; neighbours under one condition share a branch."""
    for condition, group in itertools.groupby(stores, key=lambda s: s.condition):
        branch = None if condition is None else lines.branch(condition)
        for s in group:
            mask = () if s.mask is None else (s.mask,)
            value = s.value
            if s.combine is not None and s.combine is not ops.STORE:
                old = lines.put(ops.LOAD, value.dtype, (s.address, *mask))
                value = lines.put(s.combine, value.dtype, (old, value))
            lines.put(ops.STORE, dtypes.void, (s.address, value, *mask))
        if branch is not None:
            lines.end_branch(branch)


# ---- transposed blocks ------------------------------------------------------------------------


def _across(values: Values, store: UOp) -> UOp | None:
    """The UNROLL range along which a store whose lanes lie apart is contiguous."""
    shape = values.shape(store.ranges)
    offset = values.addresses.offset(store.src[0], shape.lane)
    if store.arg is not None or shape.lane is None or offset.stride in (0, 1, -1, None) \
            or not can_transpose(shape.lanes) or store.src[1].dtype.itemsize < 4 \
            or any(n.op is ops.STAGE for n in toposort([*store.src[0].src[1:], *store.src[2:]])):
        return None
    for r in shape.unrolled:
        if offset.common.get((r,)) == 1 and 2 < extent_of(r) <= shape.lanes \
                and not any(r in a.ranges for m in offset.common if m != (r,) for a in m):
            return r
    return None


def _transposed(values: Values, store: UOp, across: UOp) -> list[Store]:
    """The stores of transposed blocks: ``across`` gives the lanes and the old lanes the rows."""
    shape, lines = values.shape(store.ranges), values.lines
    lane, lanes, rows = shape.lane, shape.lanes, extent_of(across)
    assert lane is not None
    new_lane = build.range_(lanes, across.arg.id, "VEC")
    new_row = build.range_(lanes, lane.arg.id, "UNROLL")
    buffer, *indices = store.src[0].src
    turned = substitute([*indices, *values.open_conditions(store.src[2:])],
                        {lane: new_row, across: new_lane})
    place, valid = build.at(buffer, *turned[:len(indices)]), turned[len(indices):]
    if rows < lanes:
        valid.append(build.lt(new_lane, build.index_const(rows)))
    out = []
    for env in values.instances([r for r in shape.unrolled if r is not across], NOTHING):
        block = [lines.widen(values.value(store.src[1], {**env, across: i}), lanes)
                 for i in range(rows)]
        block += block[:1] * (lanes - rows)
        for i, column in enumerate(transpose(lines, block)):
            at = {**env, new_row: i}
            condition, mask = values.masks(valid, at)
            out.append(Store(values.access(place, at, new_lane).address, column, condition, mask,
                             None))
    return out
