"""Row epilogues: vectorize the epilogue of row reductions across rows.

    before  STORE(out[r0], TANH(REDUCE(LOAD(x[r0, r1]), r1)))          r0 < 64, r1 < 300
    after   STORE(out[r3], TANH(LOAD(STAGE(REDUCE(LOAD(x[r2, r1]), r1), r2)[r3])))
                                                                       r2 < 64, r3 < 64

A reduction of contiguous rows is vectorized along the rows, so each result is a scalar, and its
epilogue would be scalar, too: sixteen times the work of SIMD code. So the results of a block of
rows are staged, and the epilogue is vectorized along the block. Rows of a few elements are unrolled
instead, with lanes along the results.

>>> from fnx.core.ir import dtypes
>>> r, c = build.range_(64, 0), build.range_(300, 1)
>>> x, o = (build.ref(i, dtypes.float32, d) for i, d in enumerate(((64, 300), (64,))))
>>> row = build.reduce_ranges(build.load(build.index_into(x, r, c)), ops.ADD, [c])
>>> tanh = UOp(ops.TANH, dtypes.float32, (row,))
>>> store = build.store(build.index_into(o, r), tanh)
>>> after = stage_row_epilogues(build.kernel([store], "rows", (0, 1)))
>>> place, value = after.src[0].src
>>> value.src[0].op, value.src[0].src[0].src[0].op, after.arg.order
(LOAD, STAGE, (2, 1, 3))
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import bound_ranges, value
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.lower.analysis.canonicalize import with_stores
from fnx.lower.analysis.workload import (
    SHORT_EXTENT,
    epilogue_cost,
    extent,
    is_short,
    is_static,
    leaf_loads,
    stride,
    volume,
)

MIN_EPILOGUE_COST = 6          # cost of an epilogue above which a STAGE pays
MIN_ROWS, MAX_ROWS = 8, 256  # rows of a block


def stage_row_epilogues(kernel: UOp) -> UOp:
    """Stage the reductions of blocks of rows, if their epilogue is expensive."""
    nodes = toposort(kernel.src)
    if any(n.op in _UNSUPPORTED for n in nodes) or any(s.arg is not None for s in kernel.src):
        return kernel
    epilogue = toposort(kernel.src, stop=lambda n: n.op is ops.REDUCE)
    reductions = [n for n in epilogue if n.op is ops.REDUCE]
    r = _row_range(kernel, reductions)
    if r is None or epilogue_cost([s for s in kernel.src if r in s.ranges]) < MIN_EPILOGUE_COST:
        return kernel
    block = _block_rows(extent(r))
    rows = [n for n in reductions if r in n.ranges]
    return kernel if block is None else _stage_rows(kernel, rows, r, block)


_UNSUPPORTED = frozenset({ops.STAGE, ops.LOOP, ops.CARRY})


def _row_range(kernel: UOp, reductions: list[UOp]) -> UOp | None:
    """Return the innermost range of the results that reductions are computed for, if all these are
    of contiguous rows along it, and not all are short. Lanes go along the elements of a row that
    are written, unless they are few. Rows that several results read, as of distances, are no such
    rows: lanes go along the results, which share what they read (schedule/multi_row.py)."""
    range_of = {r.arg.id: r for s in kernel.src for r in s.ranges}
    ranges = [range_of[i] for i in kernel.arg.order if i in range_of]
    at = max([ranges.index(r) for n in reductions for r in n.ranges], default=-1)
    if at < 0 or not all(map(is_static, ranges[at:])) or volume(ranges[at + 1:]) > SHORT_EXTENT:
        return None
    r = ranges[at]
    rows = [n for n in reductions if r in n.ranges]
    if all(is_short(bound_ranges(n)) for n in rows):
        return None
    for reduction in rows:
        loads = [n for n in leaf_loads(value(reduction)) if r in n.ranges]
        contiguous = [n for n in loads if any(stride(n, c) == 1 for c in bound_ranges(reduction))]
        if not contiguous or any(stride(n, r) == 1 for n in loads) or \
                not all(n.ranges.issuperset(ranges[:at + 1]) for n in contiguous):
            return None
    return r


def _block_rows(n: int) -> int | None:
    """Return how many rows are reduced before the epilogue: all, else a divisor."""
    if n <= MAX_ROWS:
        return n if n >= MIN_ROWS else None
    return next((b for b in range(MAX_ROWS, MIN_ROWS - 1, -1) if n % b == 0), None)


def _stage_rows(kernel: UOp, reductions: list[UOp], r: UOp, block: int) -> UOp:
    count = extent(r)
    fresh = max(kernel.arg.order) + 1
    fill, lane = build.range_(block, fresh), build.range_(block, fresh + 1)
    outer = build.range_(count // block, r.arg.id)

    def row_index(inner: UOp) -> UOp:
        return inner if count == block else (Expr(outer) * block + Expr(inner)).node

    stages = {}
    for i, reduction in enumerate(reductions):
        filled, = substitute([reduction], {r: row_index(fill)})
        stages[reduction] = build.load(build.index_into(build.stage(filled, [fill], i), lane))
    stores = substitute(kernel.src, {**stages, r: row_index(lane)})
    first = kernel.arg.order.index(r.arg.id)
    order = [*kernel.arg.order[:first], *([r.arg.id] if count != block else []), fresh,
             *kernel.arg.order[first + 1:], fresh + 1]
    return with_stores(kernel, stores, tuple(order))
