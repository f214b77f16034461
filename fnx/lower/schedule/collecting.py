"""Rolled epilogues: what follows the sums of a register tile becomes a loop over the tile.

    before  STORE(o[i, j], TANH(REDUCE(a[i, k] * b[k, j], k)))          i unrolled, j lanes
            collect("i")
    after   T = STAGE(REDUCE(a[i, k] * b[k, j], k), i, j)
            STORE(o[i', j'], TANH(LOAD(T[i', j'])))                     i' a loop, j' lanes

Accumulators live in registers, so the code of each sum is unrolled. The epilogue need not be, and
if it is long it makes up most of the code of a kernel.
"""

from __future__ import annotations

from fnx.core import build, ops
from fnx.core.errors import KernelError
from fnx.core.parts import extent
from fnx.core.tiling import Collect
from fnx.core.uop import UOp, substitute, toposort
from fnx.lower.kernel.canonical import over_stores
from fnx.lower.schedule.loops import name_of

_REPEATED = ("UNROLL", "VEC")


def collected(kernel: UOp, step: Collect) -> UOp:
    """Return a tiled KERNEL with the results of its outermost REDUCEs in STAGEs.

    Raises:
        KernelError: some result does not depend on the range.

    >>> from fnx.core import dtypes
    >>> i, k = build.range_(4, 0, "UNROLL", "i"), build.range_(9, 1, name="k")
    >>> a, o = (build.ref(s, dtypes.float32, d) for s, d in enumerate(((4, 9), (4,))))
    >>> row = build.reduce_ranges(build.load(build.at(a, i, k)), ops.ADD, [k])
    >>> tanh = build.store(build.at(o, i), UOp(ops.TANH, dtypes.float32, (row,)))
    >>> after = collected(build.kernel([tanh], "rows", (0, 1)), Collect("i"))
    >>> [(r.arg.id, r.arg.kind) for r in after.src[0].ranges], after.arg.order
    ([(2, 'SEQ')], (0, 1, 2))
    """
    nodes = toposort(kernel.src, stop=lambda n: n.op in _INSIDE)
    named = next((n for n in toposort(kernel.src) if n.op is ops.RANGE
                  and name_of(n) == step.range), None)
    folds = [n for n in nodes if n.op is ops.REDUCE and named in n.ranges]
    if named is not None and any(named not in store.ranges for store in kernel.src):
        raise KernelError(f"{step}: expected a range of all results",
                          hint="what is collected is a tile of results: name one of its ranges")
    if named is None or not folds:  # loops of extent 1 were removed
        return kernel
    place = {i: at for at, i in enumerate(kernel.arg.order)}
    tile = sorted({r for fold in folds for r in fold.ranges if r.arg.kind in _REPEATED},
                  key=lambda r: place[r.arg.id])
    first = 1 + max(kernel.arg.order)
    again = {r: build.range_(extent(r), first + i, "SEQ" if r is named else r.arg.kind,
                             f"{name_of(r)}_") for i, r in enumerate(tile)}
    number = 1 + max((n.arg.id for n in toposort(kernel.src) if n.op is ops.STAGE), default=-1)
    to = dict(again)
    for i, fold in enumerate(folds):
        own = [r for r in tile if r in fold.ranges]
        to[fold] = build.load(build.at(build.stage(fold, own, number + i),
                                       *[again[r] for r in own]))
    return over_stores(kernel, substitute(kernel.src, to),
                       (*kernel.arg.order, *[r.arg.id for r in again.values()]))


_INSIDE = frozenset({ops.REDUCE, ops.STAGE, ops.ITER})
