"""Row epilogues: vectorize the epilogue of row reductions across rows.

    before  STORE(out[r0], TANH(REDUCE(LOAD(x[r0, r1]), r1)))          r0 < 64, r1 < 300
    after   STORE(out[r3], TANH(LOAD(STAGE(REDUCE(LOAD(x[r2, r1]), r1), r2)[r3])))
                                                                       r2 < 64, r3 < 64

A reduction of contiguous rows is vectorized along the rows, so each result is a scalar, and its
epilogue would be scalar, too: sixteen times the work of SIMD code. So the results of a block of
rows are staged, and the epilogue is vectorized along the block.

>>> from fnx.core import dtypes
>>> r, c = build.range_(64, 0), build.range_(300, 1)
>>> x, o = (build.ref(i, dtypes.float32, d) for i, d in enumerate(((64, 300), (64,))))
>>> row = build.reduce_ranges(build.load(build.at(x, r, c)), ops.ADD, [c])
>>> tanh = UOp(ops.TANH, dtypes.float32, (row,))
>>> after = row_epilogues(build.kernel([build.store(build.at(o, r), tanh)], "rows", (0, 1)))
>>> place, value = after.src[0].src
>>> value.src[0].op, value.src[0].src[0].src[0].op, after.arg.order
(LOAD, STAGE, (2, 1, 3))
"""

from __future__ import annotations

from fnx.core import build, ops
from fnx.core.expr import Expr
from fnx.core.parts import closed, extent, value
from fnx.core.uop import UOp, substitute, toposort
from fnx.lower.kernel.canonical import over_stores
from fnx.lower.schedule.workload import epilogue_cost, loads_below, stride

DEAR = 6          # cost of an epilogue above which a STAGE pays
FEWEST, MOST = 8, 256  # rows of a block


def row_epilogues(kernel: UOp) -> UOp:
    """Stage the reductions of blocks of rows, if their epilogue is expensive."""
    nodes = toposort(kernel.src)
    if any(n.op in _OTHERS for n in nodes) or any(s.arg is not None for s in kernel.src):
        return kernel
    epilogue = toposort(kernel.src, stop=lambda n: n.op is ops.REDUCE)
    rows = [n for n in epilogue if n.op is ops.REDUCE]
    r = _row(kernel, rows)
    if epilogue_cost(kernel.src) < DEAR or r is None:
        return kernel
    block = _block(int(build.const_of(extent(r))))
    return kernel if block is None else _staged(kernel, rows, r, block)


_OTHERS = frozenset({ops.STAGE, ops.ITER, ops.CARRY})


def _row(kernel: UOp, rows: list[UOp]) -> UOp | None:
    """Return the innermost range of the results, if all reductions are of contiguous rows along
    it."""
    own = [i for i in kernel.arg.order if any(i == r.arg.id for r in kernel.src[0].ranges)]
    r = next((r for r in kernel.src[0].ranges if own and r.arg.id == own[-1]), None)
    if r is None or not rows or extent(r).op is not ops.CONST or \
            any(r not in store.ranges for store in kernel.src):
        return None
    for fold in rows:
        loads = [n for n in loads_below(value(fold)) if r in n.ranges]
        along = [n for n in loads if any(stride(n, c) == 1 for c in closed(fold))]
        if not along or any(stride(n, r) == 1 for n in loads):
            return None
    return r


def _block(n: int) -> int | None:
    """Return how many rows are reduced before the epilogue: all, else a divisor."""
    if n <= MOST:
        return n if n >= FEWEST else None
    return next((b for b in range(MOST, FEWEST - 1, -1) if n % b == 0), None)


def _staged(kernel: UOp, rows: list[UOp], r: UOp, block: int) -> UOp:
    count = int(build.const_of(extent(r)))
    fresh = max(kernel.arg.order) + 1
    fill, lane = build.range_(block, fresh), build.range_(block, fresh + 1)
    outer = build.range_(count // block, r.arg.id)

    def at(inner: UOp) -> UOp:
        return inner if count == block else (Expr(outer) * block + Expr(inner)).node

    stages = {}
    for i, fold in enumerate(rows):
        filled, = substitute([fold], {r: at(fill)})
        stages[fold] = build.load(build.at(build.stage(filled, [fill], i), lane))
    stores = substitute(kernel.src, {**stages, r: at(lane)})
    first = kernel.arg.order.index(r.arg.id)
    order = [*kernel.arg.order[:first], *([r.arg.id] if count != block else []), fresh,
             *kernel.arg.order[first + 1:], fresh + 1]
    return over_stores(kernel, stores, tuple(order))
