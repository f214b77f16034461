"""Masked loads whose inactive lanes are in bounds, but for the last vector of a buffer.

A masked load with an inactive lane in unmapped memory costs the processor some hundred cycles. So
the bounds of all lanes are checked here. (Only the last lanes of a buffer are past its end where
the active lanes are the first ones, and where lanes are stored.)

| the lanes, all of them | emitted |
|---|---|
| are in bounds | a full load and a WHERE on the mask |
| start in bounds, aligned to the vector's size | a masked load: it crosses no cache line |
| start in bounds, the first of them are active | a masked load |
| have a constant mask | a load of the active run of lanes, if one in-bounds vector has it |
| may be out of bounds at run time | the LOAD also has the last and first in-bounds address |
| share one condition | the mask is a SPLAT of one bit: nothing is read where it is false |

>>> from fnx.core.ir import dtypes
>>> from fnx.core.support.target import Target
>>> from fnx.lower.emit.emit import emit_program
>>> l = build.range_(8, 0, "VEC")
>>> x = build.index_into(build.ref(0, dtypes.float32, (13,)), build.add(l, build.index_const(7)))
>>> o = build.index_into(build.ref(1, dtypes.float32, (8,)), l)
>>> read = build.load(x, build.lt(l, build.index_const(6)))
>>> k = build.kernel([build.store(o, read)], "end", (0,))
>>> loads = [n for n in emit_program(k, Target("cpu")).src if n.op is ops.LOAD]
>>> [(n.dtype.lanes, build.const_of(n.src[0].src[1]), len(n.src)) for n in loads]
[(8, 5, 1)]
"""

from __future__ import annotations

import math

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.active_lanes import active_lanes, may_end_out_of_bounds
from fnx.lower.emit.addresses import Access, Addresses
from fnx.lower.emit.expansion import SINGLE_INSTANCE

_Guards = tuple[UOp, ...]  # the last and the first address from which all lanes are in bounds


def load(addresses: Addresses, access: Access, dtype: DType, mask: UOp | None, depth: int) -> UOp:
    """Load the lanes at an address, 0 where the mask is false; ``dtype`` is a vector type."""
    lines = addresses.lines
    if mask is None:
        return lines.add(ops.LOAD, dtype, (access.address,), min_depth=depth)
    if access.stride is None:
        return lines.add(ops.LOAD, dtype, (_gather(addresses, access, mask), mask), min_depth=depth)
    if mask.op is ops.SPLAT:
        return lines.add(ops.LOAD, dtype, (access.address, mask), min_depth=depth)
    zero = lines.widen(build.const(0, dtype.scalar), dtype.lanes)
    if _is_in_bounds(addresses, access, dtype.lanes):
        loaded = lines.add(ops.LOAD, dtype, (access.address,), min_depth=depth)
        return lines.across(ops.WHERE, dtype.scalar, (mask, loaded, zero))
    active = active_lanes(mask)
    if active == ():
        return zero
    guards = _bounds_guards(addresses, access, dtype, mask)
    vector = _find_vector(addresses, access, active, dtype.lanes) if guards else None
    if vector is None:
        return lines.add(ops.LOAD, dtype, (access.address, mask, *guards), min_depth=depth)
    loaded = _shifted(addresses, access, dtype, *vector, depth)
    return lines.across(ops.WHERE, dtype.scalar, (mask, loaded, zero))


def load_scalar(addresses: Addresses, access: Access, mask: UOp, depth: int) -> UOp:
    """Load one element into the active lanes; the address may be out of bounds."""
    lines, dtype = addresses.lines, access.address.dtype
    address = access.address
    if not _is_in_bounds(addresses, access, 1):
        total = addresses.total(access.terms, access.constant, access.at)
        last = lines.plus(_emit_size(addresses, access.memory), -1)
        clamped = lines.integer(ops.MAX, lines.integer(ops.MIN, total, last), 0)
        address = lines.add(ops.ADDRESS, dtype, (addresses.base(access.memory), clamped),
                            dtype.itemsize)
    loaded = lines.add(ops.LOAD, dtype, (address,), min_depth=depth)
    return lines.across(ops.WHERE, dtype, (mask, loaded, build.const(0, dtype)))


# ---- bounds -----------------------------------------------------------------------------------


def _first_lane_bounds(addresses: Addresses, access: Access) -> tuple[int, int]:
    """Return the bounds of the offset of the first lane."""
    return addresses.bounds(access.terms, access.constant, access.at)


def _element_count(memory: UOp) -> int | None:
    """Return the number of elements of a REF or STAGE; None if known only at run time."""
    lengths = accessors.dims(memory)
    if any(d.op is not ops.CONST for d in lengths):
        return None
    return math.prod([int(build.const_of(d)) for d in lengths])


def _emit_size(addresses: Addresses, memory: UOp) -> UOp:
    """Emit the number of elements of a REF or STAGE."""
    total = build.index_const(1)
    for d in accessors.dims(memory):
        total = addresses.lines.times(addresses.value(d, SINGLE_INSTANCE), total)
    return total


def _is_in_bounds(addresses: Addresses, access: Access, lanes: int, shift: int = 0) -> bool:
    """Return whether ``lanes`` lanes from an address, moved by ``shift``, are in bounds."""
    low, high = _first_lane_bounds(addresses, access)
    count = _element_count(access.memory)
    return count is not None and 0 <= low + shift and high + shift + lanes <= count


def _bounds_guards(addresses: Addresses, access: Access, dtype: DType, mask: UOp) -> _Guards:
    """Return the last and first address from which all lanes are in bounds, or the first lane if
    that suffices. Omit those that are known to hold."""
    lines, memory = addresses.lines, access.memory
    low, high = _first_lane_bounds(addresses, access)
    count = _element_count(memory)
    lanes = 1 if may_end_out_of_bounds(access.address, mask) else dtype.lanes
    ends_in_bounds = count is not None and high + lanes <= count
    if ends_in_bounds and low >= 0:
        return ()
    base = addresses.base(memory)
    last = lines.plus(_emit_size(addresses, memory), -lanes)
    guard_offsets = (last,) if low >= 0 else (last, build.index_const(0))
    return tuple([lines.add(ops.ADDRESS, dtype.scalar, (base, end)) for end in guard_offsets])


# ---- constant masks ---------------------------------------------------------------------------


def _find_vector(addresses: Addresses, access: Access, active: tuple[int, ...] | None, lanes: int
                 ) -> tuple[int, int] | None:
    """Return (first lane, length) of an in-bounds vector with all active lanes, or None."""
    if active is None or active[-1] - active[0] + 1 != len(active):
        return None
    for first in (active[0], active[-1] + 1 - lanes):
        if _is_in_bounds(addresses, access, lanes, first):
            return first, lanes
    count = len(active)
    return (active[0], count) if count & count - 1 == 0 else None


def _shifted_address(addresses: Addresses, access: Access, shift: int, lanes: int) -> UOp:
    """Emit the address of ``lanes`` lanes, moved by ``shift`` elements."""
    pointer, offset = access.address.src
    dtype = access.address.dtype.scalar
    return addresses.lines.add(ops.ADDRESS, dtype.vec(lanes), (
        pointer, addresses.lines.plus(offset, shift)),
        math.gcd(access.address.arg, shift * dtype.itemsize))


def _shifted(addresses: Addresses, access: Access, dtype: DType, first: int, count: int, depth: int
             ) -> UOp:
    """Load ``count`` lanes from ``first`` on into position; other lanes are unspecified."""
    lines, lanes = addresses.lines, dtype.lanes
    loaded = lines.add(ops.LOAD, dtype.scalar.vec(count),
                       (_shifted_address(addresses, access, first, count),), min_depth=depth)
    if count == 1:
        return lines.widen(loaded, lanes)
    order = tuple([min(max(i - first, 0), count - 1) for i in range(lanes)])
    return lines.add(ops.SHUFFLE, dtype, (loaded, loaded), order)


# ---- gathers ----------------------------------------------------------------------------------


def _gather(addresses: Addresses, access: Access, mask: UOp) -> UOp:
    """Emit addresses of a gather; inactive lanes get an in-bounds address."""
    lines, zero = addresses.lines, build.index_const(0)
    pointer, offsets = access.address.src
    if not _is_in_bounds(addresses, access, 1):
        total = addresses.total(access.terms, access.constant, access.at)
        pointer = addresses.base(access.memory)
        offsets = lines.across(ops.ADD, dtypes.index, (offsets, total))
    offsets = lines.across(ops.WHERE, dtypes.index, (mask, offsets, zero))
    return addresses.lane_addresses(pointer, offsets)
