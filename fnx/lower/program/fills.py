"""Vectorize the fill of a stage whose layout is transposed to its source.

    before  A = STAGE(x[14*ir + i, k], ir, k, i)       i UNROLL 14: 14 scalars, 14 rows apart

If readers take one element at a time, rows keep the layout of the source, and a loop copies them:

    after   A = STAGE(x[14*ir + i, 16*ko + kl], ir, i, ko, kl)             i SEQ 14, kl VEC 16
            reads  A[ir, k, i]  ->  A[ir, i, k // 16, k % 16]         (the same offset: K*i + k)

If the lanes of a reader run along i, and in a GLOBAL stage, which is read as one stream, blocks of
vectors are transposed (program/stores.py):

    after   A = STAGE(x[14*ir + i, 16*ko + kl] where 16*ko + kl < K, ir, ko, kl, i)
            reads  A[ir, k, i]  ->  A[ir, k // 16, k % 16, i]         (the same offset: 14*k + i)

The stage is padded to whole vectors, with zeros past the end of its source. Rows that are multiples
of a kilobyte get one more vector: otherwise rows that are read together would map to few cache
sets. This runs before GLOBAL stages become kernels. If the source is contiguous along a short row
of the stage, the row is one vector:

    before  A = STAGE(x[k, min(13*io + i, M - 1)], k, i)              i UNROLL 13: 13 scalars
    after   A = STAGE(x[k, 13*io + i] where 13*io + i < M, k, i)      i VEC 16

>>> from fnx.core import dtypes
>>> i, k = build.range_(14, 0, "UNROLL"), build.range_(64, 1)
>>> x = build.load(build.at(build.ref(0, dtypes.float32, (14, 64)), i, k))
>>> r, c = build.range_(14, 2), build.range_(64, 3)
>>> read = build.load(build.at(build.stage(x, [k, i], 0), c, r))
>>> store = build.store(build.at(build.ref(1, dtypes.float32, (14, 64)), r, c), read)
>>> made = block_fills(build.kernel([store], "turn", (2, 3, 1, 0)), Target("cpu"))
>>> [(d.arg.kind, extent_of(d)) for n in toposort([made]) if n.op is ops.STAGE for d in n.src[1:]]
[('SEQ', 14), ('SEQ', 4), ('VEC', 16)]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

from fnx.core import build, dtypes, op_args, ops
from fnx.core.expr import Expr, minimum
from fnx.core.parts import buffer, closed, dims, extent, indices, value
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.uop import UOp, rebuild, substitute, toposort
from fnx.lower.kernel.canonical import over_stores
from fnx.lower.program.roles import extent_of
from fnx.lower.program.transpose import can_transpose
from fnx.lower.schedule.loops import ScheduledLoop

_LEAST = 4  # the number of rows from which on vectors pay off
_APART = 1 << 10  # bytes: rows with a multiple of this stride map to few cache sets

T = TypeVar("T")


class _Fill(Record):
    """How a stage is filled.

    ``along`` is the range that is split into ``lanes``, ``across`` the one across the source;
    ``rows``: whether rows keep the layout of the source.
    """

    along: UOp
    across: UOp
    lanes: int
    rows: bool


def block_fills(kernel: UOp, target: Target) -> UOp:
    """Return the KERNEL with vectorized stage fills; itself if none qualifies."""
    nodes = toposort(kernel.src)
    turned = {buffer(n) for n in nodes if n.op is ops.INDEX and buffer(n).op is ops.STAGE
              and any(r.arg.kind == "VEC" for r in indices(n)[-1].ranges)}
    plans = {n: plan for n in nodes if n.op is ops.STAGE
             and (plan := _plan(n, n not in turned, target)) is not None}
    rows = {n: lanes for n in nodes if n.op is ops.STAGE and n not in plans
            and (lanes := _row_lanes(n, target))}
    return _Blocks(kernel, nodes, plans, rows).kernel() if plans or rows else kernel


def _row_lanes(stage: UOp, target: Target) -> int:
    """Return the lanes that a short row of a stage fills if its sources are contiguous; or 0."""
    lanes, across = target.lanes(stage.dtype.itemsize), closed(stage)[-1]
    if across.arg.kind != "UNROLL" or any(r.arg.kind == "VEC" for r in value(stage).ranges) or \
            not _LEAST <= extent_of(across) <= lanes or \
            not _loads_along(_unclamped(value(stage), across), across):
        return 0
    return 1 << (extent_of(across) - 1).bit_length()


def _unclamped(filled: UOp, r: UOp) -> UOp:
    """Return the value without the MINs that clamp indices which depend on r."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        clamps = node.op is ops.MIN and node.dtype is dtypes.index and r in node.ranges
        return next(s for s in src if r in s.ranges) if clamps else None
    return rebuild([filled], visit)[0]


def _plan(stage: UOp, singly: bool, target: Target) -> _Fill | None:
    """Plan the fill of a stage, or None. ``singly``: readers take one element at a time."""
    lanes = target.lanes(stage.dtype.itemsize)
    *others, across = closed(stage)
    if across.arg.kind != "UNROLL" or any(r.arg.kind == "VEC" for r in value(stage).ranges) or \
            not can_transpose(lanes) or stage.dtype.itemsize < 4 or \
            not _LEAST <= extent_of(across) <= lanes:
        return None
    for r in others:
        if r.arg.kind == "SEQ" and 2 * symbolic.bounds(extent(r))[1] > lanes and \
                _loads_along(value(stage), r):
            one_stream = stage.arg.space == "GLOBAL"  # read as one stream
            return _Fill(r, across, lanes,
                         singly and not one_stream and extent(r).op is ops.CONST)
    return None


def _loads_along(filled: UOp, r: UOp) -> bool:
    """Return whether all loads that depend on r are contiguous along r."""
    steps = set()
    for node in toposort([filled]):
        if node.op is ops.LOAD and r in node.ranges:
            steps.add(symbolic.coefficient(symbolic.element(node), r))
    return steps == {1}


class _Blocks:
    def __init__(self, kernel: UOp, nodes: Sequence[UOp], plans: dict[UOp, _Fill],
                 rows: dict[UOp, int]) -> None:
        self.root, self.plans, self.rows = kernel, plans, rows
        self.cut: dict[UOp, ScheduledLoop] = {}
        self.order = list(kernel.arg.order)
        self.next_id = 1 + max(n.arg.id for n in nodes if n.op is ops.RANGE)

    def kernel(self) -> UOp:
        return over_stores(self.root, rebuild(self.root.src, self.visit), self.order)

    def visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in self.plans:
            return self.blocked(node, src)
        if node in self.rows:
            return self.in_lanes(node, src)
        if node.op is ops.INDEX and buffer(node) in self.plans:
            return self.place(node, src)
        return None

    def fresh(self, loop: ScheduledLoop, like: UOp) -> UOp:
        """Create a range; it takes the position of the range that it replaces in the order."""
        made = loop.final = build.range_(loop.extent, self.next_id, loop.kind, loop.name)
        self.order.insert(self.order.index(like.arg.id) if like.arg.id in self.order
                          else len(self.order), made.arg.id)
        self.next_id += 1
        return made

    def in_lanes(self, stage: UOp, src: tuple[UOp, ...]) -> UOp:
        """Return the stage with one vector per row."""
        *others, across = src[1:]
        loop = ScheduledLoop(across.arg.name, build.index_const(self.rows[stage]))
        loop.kind = "VEC"
        lane = self.fresh(loop, across)
        filled, = substitute([_unclamped(src[0], across)], {across: lane})

        def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is not ops.LOAD or lane not in node.ranges:
                return None
            valid = src[1] if len(src) > 1 else None
            for i, d in zip(indices(node), dims(buffer(node))):
                end = build.lt(i, d)
                if lane in i.ranges and not symbolic.proves(end):
                    valid = end if valid is None else build.and_(valid, end)
            return build.load(src[0], valid)

        return UOp(ops.STAGE, stage.dtype, (*rebuild([filled], visit), *others, lane), stage.arg)

    def blocked(self, stage: UOp, src: tuple[UOp, ...]) -> UOp:
        plan = self.plans[stage]
        loop = self.cut[stage] = ScheduledLoop(plan.along.arg.name, extent(plan.along))
        at, guards = self.split(loop, plan, stage.dtype.itemsize)
        loops = {x: x.replace(arg=op_args.Range(x.arg.id, "SEQ", x.arg.name))
                 for x in src[1:-1] if x.arg.kind == "UNROLL"}  # a block is enough unrolled code
        if plan.rows:
            loops[plan.across] = self.fresh(
                ScheduledLoop(plan.across.arg.name, extent(plan.across)), loop.ranges()[0])
        filled, = substitute(src[:1], {plan.along: at, **loops})
        for inside in guards:
            filled = _where_inside(filled, loop.ranges()[1], inside)
        cut = {plan.along: loop.ranges()}
        ranges = [d for old in self.laid_out(stage, src[1:])
                  for d in cut.get(old, [loops.get(old, old)])]
        return UOp(ops.STAGE, stage.dtype, (filled, *ranges), stage.arg)

    def split(self, loop: ScheduledLoop, plan: _Fill, itemsize: int) -> tuple[UOp, list[UOp]]:
        """Return the value of the split range, and the conditions under which it is in bounds."""
        outer, inner = loop.split(plan.lanes, f"{loop.name}s", f"{loop.name}v")
        inner.kind, blocks = "VEC", outer.extent
        longer = plan.rows and build.const_of(blocks) * plan.lanes * itemsize % _APART == 0
        if longer:
            outer.extent = build.index_const(build.const_of(blocks) + 1)
        self.fresh(outer, plan.along), self.fresh(inner, plan.along)
        if not longer:
            return loop.value(), list(loop.guards())
        block = minimum(Expr(outer.value()), Expr(blocks) - 1)
        at = block * plan.lanes + Expr(inner.value())
        inside = symbolic.simplify((at < Expr(loop.extent)).node)
        return symbolic.simplify(at.node), [] if inside.op is ops.CONST else [inside]

    def laid_out(self, stage: UOp, old: Sequence[T]) -> list[T]:
        """Permute per-dimension items to the layout of the stage.

        If rows keep the layout of the source, the dimension along them is last.
        """
        plan = self.plans[stage]
        if not plan.rows:
            return list(old)
        along = closed(stage).index(plan.along)
        return [*old[:along], *old[along + 1:], old[along]]

    def place(self, index: UOp, src: tuple[UOp, ...]) -> UOp:
        """Rewrite an INDEX into such a stage: the index of the split range becomes two."""
        stage = buffer(index)
        cut = closed(stage).index(self.plans[stage].along)
        digits = [self.cut[stage].digits(i) if at == cut else [i]
                  for at, i in enumerate(src[1:])]
        return build.at(src[0], *chain(*self.laid_out(stage, digits)))


def _where_inside(filled: UOp, lane: UOp, inside: UOp) -> UOp:
    """Restrict loads that depend on the lane to the condition ``inside``."""

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.LOAD or lane not in node.ranges:
            return None
        valid = build.and_(src[1], inside) if len(src) > 1 else inside
        return build.load(src[0], valid)

    return rebuild([filled], visit)[0]
