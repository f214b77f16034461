"""fills: stages that are filled across their source are filled in blocks of vectors.

    before  A = STAGE(x[14*ir + i, k], ir, k, i)       i UNROLL 14: 14 numbers, 14 rows apart
    after   A = STAGE(x[14*ir + i, 16*ko + kl] where 16*ko + kl < K, ir, ko, kl, i)
                                                       kl VEC 16: 14 vectors, to be transposed
            reads  A[ir, k, i]  ->  A[ir, k // 16, k % 16, i]         (the same place: 14*k + i)

The lanes go along the range in which the source is contiguous; stores.py transposes the block.
The stage is rounded up to whole blocks, zero where its source ends. GLOBAL stages, too: so this
comes before each of them becomes a kernel. Where the source is contiguous along a short row of the
stage, the row is one vector:

    before  A = STAGE(x[k, min(13*io + i, M - 1)], k, i)              i UNROLL 13: 13 numbers
    after   A = STAGE(x[k, 13*io + i] where 13*io + i < M, k, i)      i VEC 16

>>> from fnx.core import dtypes
>>> i, k = build.range_(16, 0, "UNROLL"), build.range_(64, 1)
>>> x = build.load(build.at(build.ref(0, dtypes.float32, (16, 64)), i, k))
>>> r, c = build.range_(16, 2), build.range_(64, 3)
>>> read = build.load(build.at(build.stage(x, [k, i], 0), c, r))
>>> store = build.store(build.at(build.ref(1, dtypes.float32, (16, 64)), r, c), read)
>>> made = block_fills(build.kernel([store], "turn", (2, 3, 1, 0)), Target("cpu"))
>>> [d.arg.kind for n in toposort([made]) if n.op is ops.STAGE for d in n.src[1:]]
['SEQ', 'VEC', 'UNROLL']
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, dtypes, op_args, ops
from fnx.core.parts import buffer, closed, dims, extent, indices, value
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.uop import UOp, rebuild, substitute, toposort
from fnx.lower.kernel.canonical import over_stores
from fnx.lower.program.roles import extent_of
from fnx.lower.program.transpose import can_transpose
from fnx.lower.schedule.loops import ScheduledLoop

_LEAST = 4  # rows of a block from which on transposing pays


def block_fills(kernel: UOp, target: Target) -> UOp:
    """The KERNEL with such stages filled in blocks; itself where there are none."""
    nodes = toposort(kernel.src)
    plans = {n: plan for n in nodes if n.op is ops.STAGE
             and (plan := _along(n, target)) is not None}
    rows = {n: lanes for n in nodes if n.op is ops.STAGE and n not in plans
            and (lanes := _row_lanes(n, target))}
    return _Blocks(kernel, nodes, plans, rows).kernel() if plans or rows else kernel


def _row_lanes(stage: UOp, target: Target) -> int:
    """Lanes that a short row of a stage fills, which is a row of all that it is read from; or 0."""
    lanes, across = target.lanes(stage.dtype.itemsize), closed(stage)[-1]
    if across.arg.kind != "UNROLL" or any(r.arg.kind == "VEC" for r in value(stage).ranges) or \
            not _LEAST <= extent_of(across) <= lanes or \
            not _loads_along(_unclamped(value(stage), across), across):
        return 0
    return 1 << (extent_of(across) - 1).bit_length()


def _unclamped(filled: UOp, r: UOp) -> UOp:
    """The value without what holds places back that move with r."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        clamps = node.op is ops.MIN and node.dtype is dtypes.index and r in node.ranges
        return next(s for s in src if r in s.ranges) if clamps else None
    return rebuild([filled], visit)[0]


def _along(stage: UOp, target: Target) -> tuple[UOp, int] | None:
    """The range to cut into lanes, and how many."""
    lanes = target.lanes(stage.dtype.itemsize)
    *others, across = closed(stage)
    if across.arg.kind != "UNROLL" or any(r.arg.kind == "VEC" for r in value(stage).ranges) or \
            not can_transpose(lanes) or stage.dtype.itemsize < 4 or \
            not _LEAST <= extent_of(across) <= lanes:
        return None
    for r in others:
        if r.arg.kind == "SEQ" and 2 * symbolic.bounds(extent(r))[1] > lanes and \
                _loads_along(value(stage), r):
            return r, lanes
    return None


def _loads_along(filled: UOp, r: UOp) -> bool:
    """Whether all that is loaded, and moves with r, lies side by side along r."""
    steps = set()
    for node in toposort([filled]):
        if node.op is ops.LOAD and r in node.ranges:
            steps.add(symbolic.coefficient(symbolic.element(node), r))
    return steps == {1}


class _Blocks:
    def __init__(self, kernel: UOp, nodes: Sequence[UOp],
                 plans: dict[UOp, tuple[UOp, int]], rows: dict[UOp, int]) -> None:
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
        """A new range; in the order it stands where the one that it replaces stands."""
        made = loop.final = build.range_(loop.extent, self.next_id, loop.kind, loop.name)
        self.order.insert(self.order.index(like.arg.id) if like.arg.id in self.order
                          else len(self.order), made.arg.id)
        self.next_id += 1
        return made

    def in_lanes(self, stage: UOp, src: tuple[UOp, ...]) -> UOp:
        """A stage each of whose rows is a vector."""
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
        r, lanes = self.plans[stage]
        name = r.arg.name
        loop = self.cut[stage] = ScheduledLoop(name, extent(r))
        outer, inner = loop.split(lanes, f"{name}s", f"{name}v")
        inner.kind = "VEC"
        pair = self.fresh(outer, r), self.fresh(inner, r)
        loops = {x: x.replace(arg=op_args.Range(x.arg.id, "SEQ", x.arg.name))
                 for x in src[1:-1] if x.arg.kind == "UNROLL"}  # a block is code enough
        filled, = substitute(src[:1], {r: loop.value(), **loops})
        for inside in loop.guards():
            filled = _where_inside(filled, pair[1], inside)
        ranges = [d for old in src[1:] for d in (pair if old is r else (loops.get(old, old),))]
        return UOp(ops.STAGE, stage.dtype, (filled, *ranges), stage.arg)

    def place(self, index: UOp, src: tuple[UOp, ...]) -> UOp:
        """A place in such a stage: the index of the cut range becomes two."""
        stage = buffer(index)
        r, _ = self.plans[stage]
        return build.at(src[0], *[
            digit for d, i in zip(closed(stage), src[1:])
            for digit in (self.cut[stage].digits(i) if d is r else (i,))])


def _where_inside(filled: UOp, lane: UOp, inside: UOp) -> UOp:
    """The value with loads that move with the lane valid only inside."""

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.LOAD or lane not in node.ranges:
            return None
        valid = build.and_(src[1], inside) if len(src) > 1 else inside
        return build.load(src[0], valid)

    return rebuild([filled], visit)[0]
