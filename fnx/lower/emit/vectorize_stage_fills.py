"""Vectorize the fill of a stage whose layout is transposed to its source.

    before  A = STAGE(x[14*ir + i, k], ir, k, i)       i UNROLL 14: 14 scalars, 14 rows apart

If readers take one element at a time, rows keep the layout of the source, and a loop copies them:

    after   A = STAGE(x[14*ir + i, 16*ko + kl], ir, i, ko, kl)             i SEQ 14, kl VEC 16
            reads  A[ir, k, i]  ->  A[ir, i, k // 16, k % 16]         (the same offset: K*i + k)

If the lanes of a reader run along i, and in a GLOBAL stage, which is read as one stream, blocks of
vectors are transposed (emit/stores.py):

    after   A = STAGE(x[14*ir + i, 16*ko + kl] where 16*ko + kl < K, ir, ko, kl, i)
            reads  A[ir, k, i]  ->  A[ir, k // 16, k % 16, i]         (the same offset: 14*k + i)

Each row of a block is a copy of the code. Long work is done row by row instead, by a loop that
fills a block, which is then transposed:

    after   B = STAGE(tanh(x[14*ir + r, 16*ko + v]), r, v)                 r SEQ 14, v VEC 16
            A = STAGE(B[i, kl], ir, ko, kl, i)

The stage is padded to whole vectors, with zeros past the end of its source. Rows that are multiples
of a kilobyte get one more vector: otherwise rows that are read together would map to few cache
sets. This runs before GLOBAL stages become kernels. If the source is contiguous along a short row
of the stage, the row is one vector:

    before  A = STAGE(x[k, min(13*io + i, M - 1)], k, i)              i UNROLL 13: 13 scalars
    after   A = STAGE(x[k, 13*io + i] where 13*io + i < M, k, i)      i VEC 16

>>> from fnx.core.ir import dtypes
>>> i, k = build.range_(14, 0, "UNROLL"), build.range_(64, 1)
>>> x = build.load(build.index_into(build.ref(0, dtypes.float32, (14, 64)), i, k))
>>> r, c = build.range_(14, 2), build.range_(64, 3)
>>> read = build.load(build.index_into(build.stage(x, [k, i], 0), c, r))
>>> store = build.store(build.index_into(build.ref(1, dtypes.float32, (14, 64)), r, c), read)
>>> made = vectorize_stage_fills(build.kernel([store], "turn", (2, 3, 1, 0)), Target("cpu"))
>>> [(d.arg.kind, extent_of(d)) for n in toposort([made]) if n.op is ops.STAGE for d in n.src[1:]]
[('SEQ', 14), ('SEQ', 4), ('VEC', 16)]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.accessors import bound_ranges, buffer, extent, index_dims, indices, value
from fnx.core.ir.expr import Expr, minimum
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import with_stores
from fnx.lower.analysis.loops import ScheduledLoop
from fnx.lower.analysis.workload import is_contiguous_along, is_long_fill
from fnx.lower.emit.expansion import extent_of
from fnx.lower.emit.shuffles import can_transpose

_MIN_ROWS = 4  # the number of rows from which on vectors pay off
_SET_STRIDE = 1 << 10  # bytes: rows with a multiple of this stride map to few cache sets

T = TypeVar("T")


class _FillPlan(Record):
    """How a stage is filled.

    ``along`` is the range that is split into ``lanes``, ``across`` the one across the source;
    ``rows``: whether rows keep the layout of the source.
    """

    along: UOp
    across: UOp
    lanes: int
    rows: bool


def vectorize_stage_fills(kernel: UOp, target: Target) -> UOp:
    """Return the KERNEL with vectorized stage fills; itself if none qualifies."""
    nodes = toposort(kernel.src)
    vector_read = {buffer(n) for n in nodes if n.op is ops.INDEX and buffer(n).op is ops.STAGE
                   and any(r.arg.kind == "VEC" for r in indices(n)[-1].ranges)}
    plans = {n: plan for n in nodes if n.op is ops.STAGE
             and (plan := _plan_fill(n, n not in vector_read, target)) is not None}
    rows = {n: lanes for n in nodes if n.op is ops.STAGE and n not in plans
            and (lanes := _row_lanes(n, target))}
    return _FillRewriter(kernel, nodes, plans, rows).kernel() if plans or rows else kernel


def _row_lanes(stage: UOp, target: Target) -> int:
    """Return the lanes that a short row of a stage fills if its sources are contiguous; or 0."""
    lanes, across = target.vector_lanes(stage.dtype.itemsize), bound_ranges(stage)[-1]
    if across.arg.kind != "UNROLL" or any(r.arg.kind == "VEC" for r in value(stage).ranges) or \
            not _MIN_ROWS <= extent_of(across) <= lanes or \
            not is_contiguous_along(_without_clamps(value(stage), across), across):
        return 0
    return 1 << (extent_of(across) - 1).bit_length()


def _without_clamps(fill: UOp, r: UOp) -> UOp:
    """Return the value without the MINs that clamp indices which depend on r."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        clamps = node.op is ops.MIN and node.dtype is dtypes.index and r in node.ranges
        return next(s for s in src if r in s.ranges) if clamps else None
    return rebuild([fill], visit)[0]


def _plan_fill(stage: UOp, scalar_reads: bool, target: Target) -> _FillPlan | None:
    """Plan the fill of a stage, or None. ``scalar_reads``: readers take one element at a time."""
    lanes = target.vector_lanes(stage.dtype.itemsize)
    *others, across = bound_ranges(stage)
    if across.arg.kind != "UNROLL" or any(r.arg.kind == "VEC" for r in value(stage).ranges) or \
            not can_transpose(lanes) or stage.dtype.itemsize < 4 or \
            not _MIN_ROWS <= extent_of(across) <= lanes:
        return None
    for r in others:
        if r.arg.kind == "SEQ" and 2 * symbolic.bounds(extent(r))[1] > lanes and \
                is_contiguous_along(value(stage), r):
            one_stream = stage.arg.space == "GLOBAL"  # read as one stream
            return _FillPlan(r, across, lanes,
                             scalar_reads and not one_stream and extent(r).op is ops.CONST)
    return None


class _FillRewriter:
    def __init__(self, kernel: UOp, nodes: Sequence[UOp], plans: dict[UOp, _FillPlan],
                 rows: dict[UOp, int]) -> None:
        self.root, self.plans, self.rows = kernel, plans, rows
        self.cut: dict[UOp, ScheduledLoop] = {}
        self.order = list(kernel.arg.order)
        self.next_range_id = 1 + max(n.arg.id for n in nodes if n.op is ops.RANGE)
        self.next_stage_id = 1 + max(n.arg.id for n in nodes if n.op is ops.STAGE)

    def kernel(self) -> UOp:
        return with_stores(self.root, rebuild(self.root.src, self.visit), self.order)

    def visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in self.plans:
            return self.rewrite_fill(node, src)
        if node in self.rows:
            return self.rewrite_row(node, src)
        if node.op is ops.INDEX and buffer(node) in self.plans:
            return self.rewrite_index(node, src)
        return None

    def fresh(self, loop: ScheduledLoop, replaced: UOp) -> UOp:
        """Create a range; it takes the position of the range that it replaces in the order."""
        new_range = loop.final_range = build.range_(loop.extent, self.next_range_id, loop.kind,
                                                    loop.name)
        self.order.insert(self.order.index(replaced.arg.id) if replaced.arg.id in self.order
                          else len(self.order), new_range.arg.id)
        self.next_range_id += 1
        return new_range

    def rewrite_row(self, stage: UOp, src: tuple[UOp, ...]) -> UOp:
        """Return the stage with one vector per row."""
        *others, across = src[1:]
        loop = ScheduledLoop(across.arg.name, build.index_const(self.rows[stage]))
        loop.kind = "VEC"
        lane = self.fresh(loop, across)
        fill, = substitute([_without_clamps(src[0], across)], {across: lane})

        def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is not ops.LOAD or lane not in node.ranges:
                return None
            valid = src[1] if len(src) > 1 else None
            for i, d in index_dims(node):
                in_bounds = build.lt(i, d)
                if lane in i.ranges and not symbolic.prove(in_bounds):
                    valid = in_bounds if valid is None else build.and_(valid, in_bounds)
            return build.load(src[0], valid)

        return UOp(ops.STAGE, stage.dtype, (*rebuild([fill], visit), *others, lane), stage.arg)

    def rewrite_fill(self, stage: UOp, src: tuple[UOp, ...]) -> UOp:
        plan = self.plans[stage]
        loop = self.cut[stage] = ScheduledLoop(plan.along.arg.name, extent(plan.along))
        split_value, guards = self.split(loop, plan, stage.dtype.itemsize)
        loops = {x: x.replace(arg=kernel_args.Range(x.arg.id, "SEQ", x.arg.name))
                 for x in src[1:-1] if x.arg.kind == "UNROLL"}  # a block is enough unrolled code
        if plan.rows:
            loops[plan.across] = self.fresh(
                ScheduledLoop(plan.across.arg.name, extent(plan.across)), loop.ranges()[0])
        fill, = substitute(src[:1], {plan.along: split_value, **loops})
        for in_bounds in guards:
            fill = _restrict_loads(fill, loop.ranges()[1], in_bounds)
        if not plan.rows and is_long_fill(value(stage), plan.across):
            fill = self.fill_block(fill, plan.across, loop.ranges()[1])
        split_ranges = {plan.along: loop.ranges()}
        ranges = [d for old in self.permute_layout(stage, src[1:])
                  for d in split_ranges.get(old, [loops.get(old, old)])]
        return UOp(ops.STAGE, stage.dtype, (fill, *ranges), stage.arg)

    def fill_block(self, fill: UOp, across: UOp, lane: UOp) -> UOp:
        """Return a LOAD of a block that a loop over its rows fills by vectors."""
        row, vector = ScheduledLoop(across.arg.name, extent(across)), \
            ScheduledLoop(lane.arg.name, extent(lane))
        vector.kind = "VEC"
        inner = [self.fresh(row, lane), self.fresh(vector, lane)]
        row_fill, = substitute([fill], dict(zip((across, lane), inner)))
        block = build.stage(row_fill, inner, self.next_stage_id)
        self.next_stage_id += 1
        return build.load(build.index_into(block, across, lane))

    def split(self, loop: ScheduledLoop, plan: _FillPlan, itemsize: int) -> tuple[UOp, list[UOp]]:
        """Return the value of the split range, and the conditions under which it is in bounds."""
        outer, inner = loop.split(plan.lanes, f"{loop.name}s", f"{loop.name}v")
        inner.kind, blocks = "VEC", outer.extent
        is_padded = plan.rows and build.const_of(blocks) * plan.lanes * itemsize % _SET_STRIDE == 0
        if is_padded:
            outer.extent = build.index_const(build.const_of(blocks) + 1)
        self.fresh(outer, plan.along), self.fresh(inner, plan.along)
        if not is_padded:
            return loop.value(), list(loop.guards())
        block = minimum(Expr(outer.value()), Expr(blocks) - 1)
        position = block * plan.lanes + Expr(inner.value())
        in_bounds = symbolic.simplify((position < Expr(loop.extent)).node)
        return symbolic.simplify(position.node), [] if in_bounds.op is ops.CONST else [in_bounds]

    def permute_layout(self, stage: UOp, items: Sequence[T]) -> list[T]:
        """Permute per-dimension items to the layout of the stage.

        If rows keep the layout of the source, the dimension along them is last.
        """
        plan = self.plans[stage]
        if not plan.rows:
            return list(items)
        along = bound_ranges(stage).index(plan.along)
        return [*items[:along], *items[along + 1:], items[along]]

    def rewrite_index(self, index: UOp, src: tuple[UOp, ...]) -> UOp:
        """Rewrite an INDEX into such a stage: the index of the split range becomes two."""
        stage = buffer(index)
        split_dim = bound_ranges(stage).index(self.plans[stage].along)
        digits = [self.cut[stage].digits(i) if dim == split_dim else [i]
                  for dim, i in enumerate(src[1:])]
        return build.index_into(src[0], *chain(*self.permute_layout(stage, digits)))


def _restrict_loads(fill: UOp, lane: UOp, in_bounds: UOp) -> UOp:
    """Restrict loads that depend on the lane to the condition ``in_bounds``."""

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.LOAD or lane not in node.ranges:
            return None
        valid = build.and_(src[1], in_bounds) if len(src) > 1 else in_bounds
        return build.load(src[0], valid)

    return rebuild([fill], visit)[0]
