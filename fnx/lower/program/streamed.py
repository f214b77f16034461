"""Streaming stores: large results go past the caches, which they would only empty.

A store of part of a cache line reads the line first, and what is written last pushes out what
others would read again. So a buffer larger than a cache that cores share is written by whole
vectors at lines of their own, which memory takes as they are. Such stores are in no order with
others: the kernel ends with a fence.

>>> from fnx.core import dtypes
>>> r = build.range_(1 << 24, 0)
>>> x, o = (build.at(build.ref(s, dtypes.float32, (1 << 24,)), r) for s in (0, 1))
>>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
>>> streamed(copy, Target("cpu", triple="x86_64-linux"))
frozenset({1})
"""

from __future__ import annotations

import math

from fnx.core import build, ops
from fnx.core.parts import buffer, dims
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort

LEAST = 32 << 20  # bytes of a buffer that would not be in a cache when it is read
LINE = 64


def streamed(kernel: UOp, target: Target) -> frozenset[int]:
    """The slots of buffers that a kernel only writes, and that no cache holds."""
    if target.kind != "host" or not target.triple.startswith("x86"):
        return frozenset()
    read = {buffer(n).arg.slot for n in toposort(kernel.src)
            if n.op is ops.LOAD and buffer(n).op is ops.REF}
    return frozenset([buffer(s).arg.slot for s in kernel.src
                      if s.arg is None and is_large(buffer(s))]) - read


def is_large(ref: UOp) -> bool:
    """Whether no cache holds a buffer, as far as that is known."""
    sides = dims(ref)
    return ref.op is ops.REF and ref.arg.large or all(n.op is ops.CONST for n in sides) and \
        math.prod(map(build.const_of, sides)) * ref.dtype.itemsize >= LEAST


def is_line(address: UOp, value: UOp, least: int = LINE // 2) -> bool:
    """Whether a vector of so many bytes at least is at a place where it crosses no line."""
    size = value.dtype.lanes * value.dtype.itemsize
    return least <= size <= LINE and (address.arg or 1) >= size
