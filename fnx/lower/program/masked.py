"""Masked loads that never touch addresses outside the buffer, not even in inactive lanes.

A masked load with an inactive lane in unmapped memory costs the processor some hundred cycles. So
the bounds of all lanes are checked here. (Stores go to fnx's own memory, and only lanes of the last
vectors lie past its end.)

| the lanes, all of them | emitted |
|---|---|
| are in bounds | a full load and a WHERE on the mask |
| start in bounds, aligned to the vector's size | a masked load: it crosses no cache line |
| have a constant mask | a load of the active run of lanes, if one in-bounds vector has it |
| may be out of bounds at run time | the LOAD also has the last and first in-bounds address |
| share one condition | the mask is a SPLAT of one bit: nothing is read where it is false |

>>> from fnx.core import dtypes
>>> from fnx.core.target import Target
>>> from fnx.lower.program.linearize import linearize
>>> l = build.range_(8, 0, "VEC")
>>> x = build.at(build.ref(0, dtypes.float32, (13,)), build.add(l, build.index_const(7)))
>>> o = build.at(build.ref(1, dtypes.float32, (8,)), l)
>>> read = build.load(x, build.lt(l, build.index_const(6)))
>>> k = build.kernel([build.store(o, read)], "end", (0,))
>>> loads = [n for n in linearize(k, Target("cpu")).src if n.op is ops.LOAD]
>>> [(n.dtype.lanes, build.const_of(n.src[0].src[1]), len(n.src)) for n in loads]
[(8, 5, 1)]
"""

from __future__ import annotations

import math

from fnx.core import build, dtypes, ops, parts
from fnx.core.dtypes import DType
from fnx.core.uop import UOp
from fnx.lower.program import lane_masks
from fnx.lower.program.addresses import Access, Addresses
from fnx.lower.program.roles import SINGLE

_Masks = tuple[UOp, ...]  # the last and the first address from which all lanes are in bounds


def load(addresses: Addresses, access: Access, dtype: DType, mask: UOp | None, depth: int) -> UOp:
    """Load the lanes at an address, 0 where the mask is false; ``dtype`` is a vector type."""
    lines = addresses.lines
    if mask is None:
        return lines.add(ops.LOAD, dtype, (access.address,), at_least=depth)
    if access.stride is None:
        return lines.add(ops.LOAD, dtype, (_apart(addresses, access, mask), mask), at_least=depth)
    if mask.op is ops.SPLAT:
        return lines.add(ops.LOAD, dtype, (access.address, mask), at_least=depth)
    zero = lines.widen(build.const(0, dtype.scalar), dtype.lanes)
    if _is_inside(addresses, access, dtype.lanes):
        found = lines.add(ops.LOAD, dtype, (access.address,), at_least=depth)
        return lines.across(ops.WHERE, dtype.scalar, (mask, found, zero))
    held = lane_masks.held(mask)
    if held == ():
        return zero
    guards = _guards(addresses, access, dtype)
    one = _vector(addresses, access, held, dtype.lanes) if guards else None
    if one is None:
        return lines.add(ops.LOAD, dtype, (access.address, mask, *guards), at_least=depth)
    found = _moved(addresses, access, dtype, *one, depth)
    return lines.across(ops.WHERE, dtype.scalar, (mask, found, zero))


def scalar(addresses: Addresses, access: Access, mask: UOp, depth: int) -> UOp:
    """Load one element into the active lanes; the address may be out of bounds."""
    lines, dtype = addresses.lines, access.address.dtype
    address = access.address
    if not _is_inside(addresses, access, 1):
        total = addresses.total(access.terms, access.constant, access.at)
        last = lines.plus(_size(addresses, access.memory), -1)
        near = lines.integer(ops.MAX, lines.integer(ops.MIN, total, last), 0)
        address = lines.add(ops.ADDRESS, dtype, (addresses.base(access.memory), near),
                            dtype.itemsize)
    found = lines.add(ops.LOAD, dtype, (address,), at_least=depth)
    return lines.across(ops.WHERE, dtype, (mask, found, build.const(0, dtype)))


# ---- bounds -----------------------------------------------------------------------------------


def _first(addresses: Addresses, access: Access) -> tuple[int, int]:
    """Return the bounds of the offset of the first lane."""
    return addresses.bounds(access.terms, access.constant, access.at)


def _count(memory: UOp) -> int | None:
    """Return the number of elements of a REF or STAGE; None if known only at run time."""
    sides = parts.dims(memory)
    if any(d.op is not ops.CONST for d in sides):
        return None
    return math.prod([int(build.const_of(d)) for d in sides])


def _size(addresses: Addresses, memory: UOp) -> UOp:
    """Emit the number of elements of a REF or STAGE."""
    total = build.index_const(1)
    for d in parts.dims(memory):
        total = addresses.lines.times(addresses.value(d, SINGLE), total)
    return total


def _is_inside(addresses: Addresses, access: Access, lanes: int, shift: int = 0) -> bool:
    """Return whether ``lanes`` lanes from an address, moved by ``shift``, are in bounds."""
    low, high = _first(addresses, access)
    count = _count(access.memory)
    return count is not None and 0 <= low + shift and high + shift + lanes <= count


def _guards(addresses: Addresses, access: Access, dtype: DType) -> _Masks:
    """Return the last and first address from which all lanes are in bounds, or in a cache line
    with one that is. Omit those that are known to hold."""
    lines, memory = addresses.lines, access.memory
    low, high = _first(addresses, access)
    count = _count(memory)
    in_a_line = access.address.arg >= dtype.itemsize * dtype.lanes
    lanes = 1 if in_a_line else dtype.lanes
    below = count is not None and high + lanes <= count
    if below and low >= 0:
        return ()
    base = addresses.base(memory)
    last = lines.plus(_size(addresses, memory), -lanes)
    ends = (last,) if low >= 0 else (last, build.index_const(0))
    return tuple([lines.add(ops.ADDRESS, dtype.scalar, (base, end)) for end in ends])



# ---- constant masks ---------------------------------------------------------------------------


def _vector(addresses: Addresses, access: Access, held: tuple[int, ...] | None, lanes: int
            ) -> tuple[int, int] | None:
    """Return (first lane, length) of an in-bounds vector with all active lanes, or None."""
    if held is None or held[-1] - held[0] + 1 != len(held):
        return None
    for first in (held[0], held[-1] + 1 - lanes):
        if _is_inside(addresses, access, lanes, first):
            return first, lanes
    count = len(held)
    return (held[0], count) if count & count - 1 == 0 else None


def _address(addresses: Addresses, access: Access, shift: int, lanes: int) -> UOp:
    """Emit the address of ``lanes`` lanes, moved by ``shift`` elements."""
    pointer, offset = access.address.src
    dtype = access.address.dtype.scalar
    return addresses.lines.add(ops.ADDRESS, dtype.vec(lanes), (
        pointer, addresses.lines.plus(offset, shift)),
        math.gcd(access.address.arg, shift * dtype.itemsize))


def _moved(addresses: Addresses, access: Access, dtype: DType, first: int, count: int, depth: int
           ) -> UOp:
    """Load ``count`` lanes from ``first`` on into position; other lanes are unspecified."""
    lines, lanes = addresses.lines, dtype.lanes
    found = lines.add(ops.LOAD, dtype.scalar.vec(count),
                      (_address(addresses, access, first, count),), at_least=depth)
    if count == 1:
        return lines.widen(found, lanes)
    order = tuple([min(max(i - first, 0), count - 1) for i in range(lanes)])
    return lines.add(ops.SHUFFLE, dtype, (found, found), order)


# ---- gathers ----------------------------------------------------------------------------------


def _apart(addresses: Addresses, access: Access, mask: UOp) -> UOp:
    """Emit addresses of a gather; inactive lanes get an in-bounds address."""
    lines, none = addresses.lines, build.index_const(0)
    pointer, places = access.address.src
    if not _is_inside(addresses, access, 1):
        total = addresses.total(access.terms, access.constant, access.at)
        pointer = addresses.base(access.memory)
        places = lines.across(ops.ADD, dtypes.index, (places, total))
    places = lines.across(ops.WHERE, dtypes.index, (mask, places, none))
    return addresses.each_lane(pointer, places)
