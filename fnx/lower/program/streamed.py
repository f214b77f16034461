"""Streaming stores: large results go past the caches, which they would only empty.

A store of part of a cache line reads the line first, and what is written last pushes out what
others would read again. So a buffer larger than a cache that cores share is written by whole
vectors at lines of their own, which memory takes as they are. So is a part of one whose operands
push it out. Such stores are in no order with others: the kernel ends with a fence.

>>> from fnx.core import dtypes
>>> r = build.range_(1 << 24, 0)
>>> x, o = (build.at(build.ref(s, dtypes.float32, (1 << 24,)), r) for s in (0, 1))
>>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
>>> streamed(copy, Target("cpu", triple="x86_64-linux"))
frozenset({1})
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core import build, ops
from fnx.core.parts import buffer, dims
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort

LEAST = 32 << 20  # bytes of a buffer that would not be in a cache when it is read
TOGETHER = 44 << 20  # ... of all buffers of a kernel, where a result is at least
PART = 8 << 20       # ... as large: what is read pushes it out
LINE = 64


def streamed(kernel: UOp, target: Target) -> frozenset[int]:
    """The slots of buffers that a kernel only writes, and that no cache holds."""
    if target.kind != "host" or not target.triple.startswith("x86"):
        return frozenset()
    nodes = toposort(kernel.src)
    read = {buffer(n).arg.slot for n in nodes
            if n.op is ops.LOAD and buffer(n).op is ops.REF}
    found = large_results(nodes)
    return frozenset([buffer(s).arg.slot for s in kernel.src
                      if s.arg is None and buffer(s) in found]) - read


def large_results(nodes: Sequence[UOp]) -> set[UOp]:
    """The REFs that a kernel writes and that no cache holds afterwards, as far as that is known."""
    sizes = {n: _bytes(n) for n in nodes if n.op is ops.REF}
    slots: dict[int, int] = {}
    for ref, nbytes in sizes.items():
        slots[ref.arg.slot] = max(nbytes, slots.get(ref.arg.slot, 0))
    least = PART if sum(slots.values()) >= TOGETHER else LEAST
    written = {buffer(n) for n in nodes if n.op is ops.STORE}
    return {ref for ref in written if ref.op is ops.REF and
            (ref.arg.large or sizes[ref] >= least)}


def _bytes(ref: UOp) -> int:
    """Of a buffer; 0 where its lengths are arguments."""
    sides = dims(ref)
    if any(n.op is not ops.CONST for n in sides):
        return 0
    return math.prod([int(build.const_of(n)) for n in sides]) * ref.dtype.itemsize


def is_line(address: UOp, value: UOp, least: int = LINE // 2) -> bool:
    """Whether a vector of so many bytes at least is at a place where it crosses no line."""
    size = value.dtype.lanes * value.dtype.itemsize
    return least <= size <= LINE and (address.arg or 1) >= size
