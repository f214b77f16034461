"""Cost model: the time of a kernel in nanoseconds, accurate to a factor of a few.

It decides where a command buffer runs (on the calling thread or on the workers) and into how many
chunks a PAR range is split; no result depends on it. The estimate is the maximum of compute time
and memory traffic of the buffers (a roofline).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fnx.core import build, ops
from fnx.core.parts import buffer, dims, extent, place
from fnx.core.rewriting.evaluate import evaluate
from fnx.core.uop import UOp, toposort

VECTOR = 1 / 32  # nanoseconds per element in vector code
SCALAR = 1 / 2  # ... and in scalar code
NEAR = 1 / 80  # nanoseconds per byte in cache
FAR = 1 / 20   # ... and not in cache
PORTION = 40_000.0  # of one strip of a loop that is relaunched: lower/loops/loop_kernels.py
CACHED = 16 << 20  # bytes that caches hold


def nanoseconds(kernel: UOp, scalars: Mapping[UOp | int, int]) -> float:
    """Estimate the time of a KERNEL whose VARs have these values (by slot)."""
    if kernel.op is ops.SORT:
        elements = math.prod([scalars[0], scalars[1]] if kernel.arg.lengths else
                             kernel.arg.ins[0][0]) * len(kernel.arg.ins)
        return SCALAR * kernel.op.cost * elements
    if kernel.op is ops.LOOP:
        if kernel.arg.portion:
            return PORTION
        return (kernel.arg.trips or 1) * sum([_of_command(c) for s in kernel.src for c in s.src])
    extents: dict[UOp, int] = {}
    total = 0.0
    touched: dict[UOp, int] = {}  # elements of each buffer
    inside = _enclosing(kernel)
    for node in toposort([kernel]):
        if not node.op.cost or node.dtype.kind == "index" or node.op is ops.REDUCE:
            continue
        count, vector = 1, False
        for r in inside.get(node, node.ranges):
            if r not in extents:
                extents[r] = max(0, evaluate(extent(r), scalars))
            count *= extents[r]
            vector = vector or r.arg.kind == "VEC"
        total += node.op.cost * count * (VECTOR if vector else SCALAR)
        if node.op in (ops.LOAD, ops.STORE) and buffer(node).op is ops.REF:
            moved = math.prod([extents[r] for r in place(node).ranges])
            touched[buffer(node)] = max(moved, touched.get(buffer(node), 0))
    nbytes = sum([min(n, math.prod([evaluate(d, scalars) for d in dims(ref)])) * ref.dtype.itemsize
                  for ref, n in touched.items()])
    return max(total, nbytes * (NEAR if nbytes <= CACHED else FAR))


def _of_command(command: UOp) -> float:
    """Estimate the time of a command in a LOOP; for a BRANCH, of the longest one."""
    if command.op is ops.BRANCH:
        return max([sum(map(_of_command, s.src)) for s in command.src[1:]])
    if command.op is ops.LOOP:
        return nanoseconds(command, {})
    scalars = [build.const_of(s) for s in command.src if s.op is ops.CONST]
    return nanoseconds(command.src[0], dict(enumerate(scalars)))


def _enclosing(kernel: UOp) -> dict[UOp, frozenset[UOp]]:
    """Return the ranges that enclose each STORE: all ranges of its operands."""
    return {s: frozenset().union(*(o.ranges for o in s.src)) for s in kernel.src
            if s.op is ops.STORE}
