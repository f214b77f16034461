"""Nontemporal stores: large results bypass the caches, which they would only pollute.

A store of part of a cache line reads the line first, and large results evict data that would be
reused. So a buffer larger than the shared cache is written in whole aligned vectors that memory
takes without reading. So is a smaller one whose kernel's operands evict it. Nontemporal stores are
weakly ordered, so the kernel ends with a fence.

>>> from fnx.core.ir import dtypes
>>> r = build.range_(1 << 24, 0)
>>> x, o = (build.index_into(build.ref(s, dtypes.float32, (1 << 24,)), r) for s in (0, 1))
>>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
>>> nontemporal_slots(copy, Target("cpu", triple="x86_64-linux"))
frozenset({1})
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import buffer, dims
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.target import Target

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
