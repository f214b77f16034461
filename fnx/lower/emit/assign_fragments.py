"""Fragments: give a warp-level MMA the fragment registers of each thread.

    before  MMA(a[8*mi + g, w], b[w, 2*t + nj], w)      g THREAD 8, t THREAD 4; mi, nj UNROLL 2
    after   MMA(a, b, w, a[8*mi + g, t + 4*h], b[t + 4*h, g], 2*mi + nj, h)            h UNROLL 2

The value is unchanged, and the interpreter computes it as before. The added operands are the
fragment registers of a thread, for h = 0, 1, and which of its four results this is. A warp is 32
threads, 4 * g + t, of the innermost two THREAD ranges. The layout is that of m16n8k16 for 16-bit
terms (docs/units.md names the manual), in 32-bit registers of two terms: thread 4 * g + t holds
registers t and t + 4 of rows g and g + 8 of a, and of column g of b, and of the result columns
2 * t and 2 * t + 1 of rows g and g + 8. In registers, the layout of the other types is the same.

>>> from fnx.core.ir import build_kernel_loops, dtypes
>>> g, t = build.range_(8, 0, "THREAD"), build.range_(4, 1, "THREAD")
>>> mi, nj, w = build.range_(2, 2, "UNROLL"), build.range_(2, 3, "UNROLL"), build.range_(8, 4)
>>> row, column = Expr(mi) * 8 + Expr(g), Expr(t) * 2 + Expr(nj)
>>> a = build.load(build.index_into(build.ref(0, dtypes.uint32, (16, 8)), row.node, w))
>>> b = build.load(build.index_into(build.ref(1, dtypes.uint32, (8, 8)), w, column.node))
>>> total = build_kernel_loops.mma(a, b, [w], dtypes.float32, "mma_bf16")
>>> o = build.index_into(build.ref(2, dtypes.float32, (16, 8)), row.node, column.node)
>>> made = assign_fragments(build.kernel([build.store(o, total)], "mma", (0, 1, 2, 3, 4)))
>>> mma, = [n for n in toposort([made]) if n.op is ops.MMA]
>>> [sorted(r.arg.id for r in s.ranges) for s in mma.src[3:6]]
[[0, 1, 2, 5], [0, 1, 5], [2, 3]]
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import bound_ranges, extent
from fnx.core.ir.expr import Expr
from fnx.core.ir.matrix_units import UNITS
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.support.errors import KernelError
from fnx.lower.analysis.canonicalize import simplify_indices, with_stores


def assign_fragments(kernel: UOp) -> UOp:
    """Return the KERNEL whose warp-level MMAs have the fragments of each thread.

    Raises:
        KernelError: the ranges of an MMA are not mapped to a warp.
    """
    nodes = toposort(kernel.src)
    if not any(n.op is ops.MMA and UNITS[n.arg.unit].layout == "warp" for n in nodes):
        return kernel
    rank = {id: i for i, id in enumerate(kernel.arg.order)}
    threads = sorted([n for n in nodes if n.op is ops.RANGE and n.arg.kind == "THREAD"],
                     key=lambda r: rank[r.arg.id])
    h = build.range_(2, 1 + max(n.arg.id for n in nodes if n.op is ops.RANGE), "UNROLL", "h")
    substitution = {n: _with_fragments(n, threads, h, rank) for n in nodes
                    if n.op is ops.MMA and UNITS[n.arg.unit].layout == "warp"}
    return with_stores(kernel, substitute(kernel.src, substitution), (*kernel.arg.order, h.arg.id))


def _with_fragments(mma: UOp, threads: Sequence[UOp], h: UOp, rank: dict[int, int]) -> UOp:
    a, b, *k_ranges = *mma.src[:2], *bound_ranges(mma)
    if [extent(r).arg for r in threads[-2:]] != [8, 4]:
        raise KernelError(f"tensorize: expected threads of 8 rows and 4 columns innermost, for "
                          f"{mma.arg.unit}", hint="split both, and bind the parts to THREAD")
    g, t = threads[-2:]
    row_half, parity = _innermost_pair(a, b, rank), _innermost_pair(b, a, rank)
    if len(k_ranges) != 1 or row_half is None or parity is None or g in b.ranges or t in a.ranges:
        raise KernelError(f"tensorize: expected 2 unrolled rows and 2 unrolled columns of each "
                          f"thread, for {mma.arg.unit}",
                          hint="of the left factor the rows, of the right one the columns")
    k = (Expr(t) + Expr(h) * 4).node
    row, = substitute([a], {k_ranges[0]: k})
    column, = substitute([b], {k_ranges[0]: k, t: (Expr(g) // 2).node, parity: (Expr(g) % 2).node})
    fragments = rebuild([row, column], simplify_indices)
    result_index = (Expr(row_half) * 2 + Expr(parity)).node
    return UOp(ops.MMA, mma.dtype, (a, b, *k_ranges, *fragments, result_index, h), mma.arg)


def _innermost_pair(factor: UOp, other: UOp, rank: dict[int, int]) -> UOp | None:
    """Return the innermost UNROLL range of extent 2 that only one factor has, or None.

    Any such range is right, since the rows and columns of an instruction have no inherent order.
    """
    candidates = [r for r in factor.ranges - other.ranges
                  if r.arg.kind == "UNROLL" and extent(r) is build.index_const(2)]
    return max(candidates, key=lambda r: rank[r.arg.id], default=None)
