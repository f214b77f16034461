"""Rolled epilogues: what follows the sums of a register tile becomes a loop over the tile.

    before  STORE(o[i, j], TANH(REDUCE(a[i, k] * b[k, j], k)))          i unrolled, j lanes
            collect("i")
    after   T = STAGE(REDUCE(a[i, k] * b[k, j], k), i, j)
            STORE(o[i', j'], TANH(LOAD(T[i', j'])))                     i' a loop, j' lanes

Accumulators live in registers, so the code of each sum is unrolled. The epilogue need not be, and
if it is long it makes up most of the code of a kernel.
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import extent
from fnx.core.ir.tiling import Collect
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.errors import KernelError
from fnx.lower.analysis.canonicalize import with_stores
from fnx.lower.analysis.loops import name_of

_REPLICATED_KINDS = ("UNROLL", "VEC")


def roll_epilogue(kernel: UOp, step: Collect) -> UOp:
    """Return a tiled KERNEL with the results of its outermost REDUCEs in STAGEs.

    Raises:
        KernelError: some result does not depend on the range.

    >>> from fnx.core.ir import dtypes
    >>> i, k = build.range_(4, 0, "UNROLL", "i"), build.range_(9, 1, name="k")
    >>> a, o = (build.ref(s, dtypes.float32, d) for s, d in enumerate(((4, 9), (4,))))
    >>> row = build.reduce_ranges(build.load(build.index_into(a, i, k)), ops.ADD, [k])
    >>> tanh = build.store(build.index_into(o, i), UOp(ops.TANH, dtypes.float32, (row,)))
    >>> after = roll_epilogue(build.kernel([tanh], "rows", (0, 1)), Collect("i"))
    >>> [(r.arg.id, r.arg.kind) for r in after.src[0].ranges], after.arg.order
    ([(2, 'SEQ')], (0, 1, 2))
    """
    nodes = toposort(kernel.src, stop=lambda n: n.op in _SCOPE_OPS)
    tile_range = next((n for n in toposort(kernel.src) if n.op is ops.RANGE
                       and name_of(n) == step.range), None)
    reductions = [n for n in nodes if n.op is ops.REDUCE and tile_range in n.ranges]
    if tile_range is not None and any(tile_range not in store.ranges for store in kernel.src):
        raise KernelError(f"{step}: expected a range of all results",
                          hint="name a range of the output tile")
    if tile_range is None or not reductions:  # loops of extent 1 were removed
        return kernel
    positions = {i: at for at, i in enumerate(kernel.arg.order)}
    tile = sorted({r for fold in reductions
                   for r in fold.ranges if r.arg.kind in _REPLICATED_KINDS},
                  key=lambda r: positions[r.arg.id])
    range_id = 1 + max(kernel.arg.order)
    loop_ranges = {r: build.range_(extent(r), range_id + i,
                                   "SEQ" if r is tile_range else r.arg.kind,
                                   f"{name_of(r)}_") for i, r in enumerate(tile)}
    stage_id = 1 + max((n.arg.id for n in toposort(kernel.src) if n.op is ops.STAGE), default=-1)
    replacements = dict(loop_ranges)
    for i, reduction in enumerate(reductions):
        reduction_ranges = [r for r in tile if r in reduction.ranges]
        staged = build.stage(reduction, reduction_ranges, stage_id + i)
        position = [loop_ranges[r] for r in reduction_ranges]
        replacements[reduction] = build.load(build.index_into(staged, *position))
    return with_stores(kernel, substitute(kernel.src, replacements),
                       (*kernel.arg.order, *[r.arg.id for r in loop_ranges.values()]))


_SCOPE_OPS = frozenset({ops.REDUCE, ops.STAGE, ops.LOOP})
