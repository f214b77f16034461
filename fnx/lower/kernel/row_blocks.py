"""Row blocks: a chain of reductions over short rows, step by step for a block of rows.

    before  for i:  m = max(k: x[i, k])                     softmax of rows of 64: each step waits
                    e[k] = exp(x[i, k] - m), s = sum(k: e)  for the one before, and the next row is
                    o[i, j] = e[j] / s                      too far ahead to start meanwhile

    after   for b:  for r:  M[r] = max(k: x[16*b + r, k])   in each loop, rows do not depend on one
                    for r:  E[r, k] = exp(x[..., k] - M[r]) another
                    for r:  S[r] = sum(k: E[r, k])
                    for r:  o[16*b + r, j] = E[r, j] / S[r]

A horizontal reduction of a row takes as long as a few of its vectors, and so do the steps of exp;
a processor looks some hundred instructions ahead. Rows of more vectors hide that by themselves, and
work that is cheap takes less than it would to load its results again. Rows that lanes go across, as
they fill few, stay as they are.

>>> from fnx.core.ir import dtypes
>>> i, h, k, j = (build.range_(n, at) for at, n in enumerate((640, 64, 64, 64)))
>>> x, o = (build.ref(slot, dtypes.float32, (640, 64)) for slot in (0, 1))
>>> m = build.reduce_ranges(build.load(build.index_into(x, i, h)), ops.MAX, [h])
>>> e, top = (build.exp(build.sub(build.load(build.index_into(x, i, r)), m)) for r in (k, j))
>>> s = build.reduce_ranges(e, ops.ADD, [k])
>>> store = build.store(build.index_into(o, i, j), build.div(top, s))
>>> after = block_rows(build.kernel([store], "rows", (0, 1, 2, 3)), Target("cpu"))
>>> [n.src[0].op.name for n in toposort(after.src) if n.op is ops.STAGE], after.arg.order
(['REDUCE', 'REDUCE'], (0, 4, 1, 5, 2, 6, 3))
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import bound_ranges, buffer, index_node, indices, value
from fnx.core.ir.expr import Expr, minimum
from fnx.core.ir.uop import UOp, copy_locs, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import with_stores
from fnx.lower.analysis.tuning import (
    MIN_LONG_CODE_ELEMENTS,
    ROW_BLOCK,
    SHORT_ROW_VECTORS,
    WAYS,
)
from fnx.lower.analysis.workload import extent, is_static, itemsize, stride, volume
from fnx.lower.schedule.heuristics import LoopPlan

_CLOSERS = frozenset({ops.REDUCE, ops.STAGE})
_UNSUPPORTED = frozenset({ops.LOOP, ops.CARRY, ops.MMA, ops.ARG_PAIR})


def block_rows(kernel: UOp, target: Target) -> UOp:
    """Return the KERNEL with its rows in blocks; itself if it has no chain of reductions over rows
    of a few vectors, with expensive work."""
    nodes = toposort(kernel.src)
    closers = [n for n in nodes if n.op in _CLOSERS]
    row = _row_range(kernel, nodes, closers, target)
    if row is None:
        return kernel
    nbytes = sum([volume(bound_ranges(n) if n.op is ops.STAGE else ()) * n.dtype.itemsize
                  for n in closers])
    rows = min(ROW_BLOCK, target.l1 // WAYS * (WAYS // 2) // nbytes)
    if rows < 2 or extent(row) < 2 * rows:
        return kernel
    blocks = _Blocks(kernel, _stages_first(closers), row, rows)
    blocked = blocks.kernel()
    lanes = LoopPlan(blocked, target).vector_ranges()
    return kernel if any(bound_ranges(n)[0] in lanes for n in blocks.stages.values()) else blocked


def _row_range(kernel: UOp, nodes: Sequence[UOp], closers: Sequence[UOp], target: Target
               ) -> UOp | None:
    """Return the range of the rows, or None."""
    if len(closers) < 2:
        return None
    is_chain = any(not _CLOSERS.isdisjoint([n.op for n in toposort(c.src[:1])])
                   for c in closers if c.op is ops.REDUCE)
    if not is_chain or any(n.op in _UNSUPPORTED for n in nodes) or \
            any(c.op is ops.STAGE and value(c).op is ops.REDUCE for c in closers) or \
            any(s.arg is not None or len(s.src) > 2 for s in kernel.src):
        return None
    position = {id: at for at, id in enumerate(kernel.arg.order)}
    free = {r for n in closers for r in n.ranges}.difference(*map(bound_ranges, closers))
    row = max(free, key=lambda r: position[r.arg.id], default=None)
    if row is None or any(row not in n.ranges for n in (*closers, *kernel.src)) or \
            not all(map(is_static, [r for n in closers for r in (*n.ranges, *bound_ranges(n))])):
        return None
    bound = {r for n in closers for r in bound_ranges(n)}
    if any(n.op is ops.LOAD and not bound.isdisjoint(n.ranges) and stride(n, row) == 1
           for n in nodes):
        return None  # columns: lanes go across them
    lanes = target.vector_lanes(itemsize(nodes))
    lengths = [volume(bound_ranges(n)) for n in closers]
    work = sum([n.op.cost for n in nodes if n.op in ops.ELEMENTWISE and row in n.ranges
                and n.op.cost > ops.DIV.cost])
    is_short = all(lanes // 2 < n <= SHORT_ROW_VECTORS * lanes for n in lengths)
    is_worth_code = volume(free) * max(lengths) >= MIN_LONG_CODE_ELEMENTS
    return row if work and is_short and is_worth_code else None


def _stages_first(closers: Sequence[UOp]) -> list[UOp]:
    """Return reductions and stages, what each depends on before it, and stages as early as they can
    be: what one loop reduces and stages is computed once then, for the stage."""
    needed = {c: {n for n in toposort(c.src[:1]) if n.op in _CLOSERS} for c in closers}
    ordered: dict[UOp, None] = {}
    while len(ordered) < len(closers):
        ready = [c for c in closers if c not in ordered and needed[c] <= ordered.keys()]
        ordered[next((c for c in ready if c.op is ops.STAGE), ready[0])] = None
    return [*ordered]


class _Blocks:
    """The kernel whose closers are staged for a block of rows."""

    def __init__(self, kernel: UOp, closers: Sequence[UOp], row: UOp, rows: int) -> None:
        self.root, self.closers, self.row = kernel, closers, row
        count = extent(row)
        self.rows = next((n for n in range(rows, rows // 2, -1) if count % n == 0), rows)
        self.outer = build.range_(-(-count // self.rows), row.arg.id, "SEQ", row.arg.name)
        self.next_id = 1 + max(kernel.arg.order)
        self.stages: dict[UOp, UOp] = {}  # of a closer, or the value that a STAGE is filled with
        self.filled: dict[UOp, Sequence[UOp]] = {}
        self.order = list(kernel.arg.order)

    def kernel(self) -> UOp:
        for number, closer in enumerate(self.closers):
            bound = bound_ranges(closer)
            r = self._fresh(self.rows, min(map(self._position, bound)))
            inside, = self._at_row(closer.src[:1], r)
            if closer.op is ops.REDUCE:
                reduced = closer.with_operands((inside, *bound))
                self.stages[closer] = build.stage(reduced, [r], number)
                continue
            # ranges of its own: a reduction may have the same ones, and no loop with it
            fresh = {x: self._fresh(extent(x), self._position(x)) for x in bound}
            filled, = substitute([inside], fresh)
            stage = build.stage(filled, [r, *fresh.values()], number)
            self.stages[closer] = self.stages[value(closer)] = stage
            self.filled[value(closer)] = bound
        columns = {x for s in self.root.src for x in s.ranges if self._position(x) >
               self._position(self.row)}
        r = self._fresh(self.rows, min(map(self._position, columns), default=len(self.order)))
        stores: list[UOp] = []
        for s in self.root.src:
            access, new = self._at_row((index_node(s), value(s)), r)
            stores.append(copy_locs(build.store(access, new, self._row_exists(r)), s))
        return with_stores(self.root, stores, self.order)

    def _position(self, r: UOp) -> int:
        return self.order.index(r.arg.id)

    def _fresh(self, count: int, position: int) -> UOp:
        r = build.range_(count, self.next_id)
        self.order.insert(position, self.next_id)
        self.next_id += 1
        return r

    def _at_row(self, roots: Sequence[UOp], r: UOp) -> Sequence[UOp]:
        """Return values of one row of the block, which read the stages there."""
        def visit(n: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if n.op is ops.INDEX and buffer(n) in self.stages:
                return build.index_into(self.stages[buffer(n)], r, *indices(n))
            stage = self.stages.get(n) if n.op is not ops.STAGE else None
            if stage is None:
                return None
            at = () if n.op is ops.REDUCE else self.filled[n]
            return copy_locs(build.load(build.index_into(stage, r, *at)), n)

        position = Expr(self.outer) * self.rows + Expr(r)
        if self._row_exists(r) is not None:
            position = minimum(position, extent(self.row) - 1)
        return substitute(rebuild(roots, visit), {self.row: symbolic.simplify(position.node)})

    def _row_exists(self, r: UOp) -> UOp | None:
        """Return the condition that a row of the block exists; None if all do."""
        condition = symbolic.simplify(
            (Expr(self.outer) * self.rows + Expr(r) < extent(self.row)).node)
        return None if condition.op is ops.CONST else condition
