"""Privatize a stage inside UNROLL or VEC ranges: a buffer per instance.

    before  P = STAGE(exp(x[4*io + u, j]), j) read P[k]          u UNROLL 4: four rows at a time
    after   P = STAGE(exp(x[4*io + u, j]), u, j) read P[u, k]

The stage closes these ranges, too, and each reader indexes its own instance. VEC ranges become the
innermost dimension, so that lanes are contiguous.

>>> from fnx.core.ir import dtypes
>>> u, j, c = build.range_(4, 0, "UNROLL"), build.range_(9, 1), build.range_(9, 2)
>>> x = build.load(build.index_into(build.ref(0, dtypes.float32, (4, 9)), u, j))
>>> read = build.load(build.index_into(build.stage(x, [j], 0), c))
>>> o = build.index_into(build.ref(1, dtypes.float32, (4, 9)), u, c)
>>> made = privatize_stages(build.kernel([build.store(o, read)], "copy", (1, 2, 0)), Target("cpu"))
>>> [len(n.src) for n in toposort([made]) if n.op is ops.STAGE]
[3]
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import LoopOrder, bound_ranges, buffer, indices
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.range_kinds import REPLICATED_KINDS
from fnx.core.support.target import Target


def privatize_stages(kernel: UOp, target: Target) -> UOp:
    """Return the KERNEL whose stages have only loops as free ranges."""
    order = LoopOrder(kernel.arg.order)
    free: dict[UOp, tuple[tuple[UOp, ...], tuple[UOp, ...]]] = {}
    for n in toposort(kernel.src):
        if n.op is ops.STAGE and any(r.arg.kind in REPLICATED_KINDS for r in n.ranges):
            free[n] = (order.select_kinds(n.ranges, ("UNROLL",)),
                       order.select_kinds(n.ranges, ("VEC",)))
    if not free:
        return kernel

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in free:
            first, last = free[node]
            return UOp(ops.STAGE, node.dtype, (src[0], *first, *bound_ranges(node), *last),
                       node.arg)
        if node.op is ops.INDEX and buffer(node) in free:
            first, last = free[buffer(node)]
            return build.index_into(src[0], *first, *src[1:1 + len(indices(node))], *last)
        return None

    return kernel.with_operands(tuple(rebuild(kernel.src, visit)))
