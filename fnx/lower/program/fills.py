"""fills: stages that are filled across their source are filled in blocks of vectors.

    before  A = STAGE(x[14*ir + i, k], ir, k, i)       i UNROLL 14: 14 numbers, 14 rows apart
    after   A = STAGE(x[14*ir + i, 16*ko + kl] where 16*ko + kl < K, ir, ko, kl, i)
                                                       kl VEC 16: 14 vectors, to be transposed
            reads  A[ir, k, i]  ->  A[ir, k // 16, k % 16, i]         (the same place: 14*k + i)

The lanes go along the range in which the source is contiguous; stores.py transposes the block.
The stage is rounded up to whole blocks, zero where its source ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, ops
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.uop import UOp, inherit, substitute, toposort
from fnx.lower.program.roles import extent_of
from fnx.lower.program.transpose import can_transpose

_LEAST = 4  # rows of a block from which on transposing pays


def block_fills(kernel: UOp, target: Target) -> UOp:
    """The KERNEL with such stages filled in blocks; itself where there are none."""
    nodes = toposort(kernel.src)
    plans = {n: plan for n in nodes if n.op is ops.STAGE
             and (plan := _along(n, target)) is not None}
    return _Rewriter(kernel, nodes, plans).kernel() if plans else kernel


def _along(stage: UOp, target: Target) -> tuple[UOp, int] | None:
    """The range to cut into lanes, and how many."""
    value, *dims = stage.src
    lanes = target.lanes(stage.dtype.itemsize)
    across = dims[-1]
    if across.arg.kind != "UNROLL" or any(r.arg.kind == "VEC" for r in value.ranges) or \
            not can_transpose(lanes) or stage.dtype.itemsize < 4 or \
            not _LEAST <= extent_of(across) <= lanes:
        return None
    for r in dims[:-1]:
        if r.arg.kind == "SEQ" and symbolic.bounds(r.src[0])[1] >= lanes and \
                _loads_along(value, r):
            return r, lanes
    return None


def _loads_along(value: UOp, r: UOp) -> bool:
    """Whether all that is loaded, and moves with r, lies side by side along r."""
    loads = [n for n in toposort([value]) if n.op is ops.LOAD and r in n.ranges]
    for load in loads:
        buffer, *indices = load.src[0].src
        dims = buffer.src if buffer.op is ops.REF else [d.src[0] for d in buffer.src[1:]]
        if symbolic.coefficient(symbolic.ravel(indices, dims), r) != 1:
            return False
    return bool(loads)


class _Rewriter:
    def __init__(self, kernel: UOp, nodes: Sequence[UOp],
                 plans: dict[UOp, tuple[UOp, int]]) -> None:
        self.root, self.nodes, self.plans = kernel, nodes, plans
        self.order = list(kernel.arg.order)
        self.next_id = 1 + max(n.arg.id for n in nodes if n.op is ops.RANGE)

    def kernel(self) -> UOp:
        new: dict[UOp, UOp] = {}
        for n in self.nodes:
            src = tuple([new[s] for s in n.src])
            if n in self.plans:
                made = self.blocked(n, src)
            elif n.op is ops.INDEX and n.src[0] in self.plans:
                made = self.place(n, src)
            else:
                made = n if src == n.src else n.replace(src=src)
            new[n] = inherit(made, n)
        root, stores = self.root, [new[s] for s in self.root.src]
        live = {n.arg.id for n in toposort(stores) if n.op is ops.RANGE}
        order = [i for i in self.order if i in live]
        return inherit(build.kernel(stores, root.arg.name, order), root)

    def fresh(self, extent: UOp, kind: str, like: UOp) -> UOp:
        """A new range; in the order it stands where the one that it replaces stands."""
        made = build.range_(extent, self.next_id, kind, f"{like.arg.name}{kind[0].lower()}")
        self.order.insert(self.order.index(like.arg.id) if like.arg.id in self.order
                          else len(self.order), made.arg.id)
        self.next_id += 1
        return made

    def blocked(self, stage: UOp, src: tuple[UOp, ...]) -> UOp:
        r, lanes = self.plans[stage]
        value, *dims = src
        width = build.index_const(lanes)
        extent = r.src[0]
        count = build.idiv(build.add(extent, build.index_const(lanes - 1)), width)
        outer = self.fresh(symbolic.simplify(count), "SEQ", r)
        inner = self.fresh(width, "VEC", r)
        at = build.add(build.mul(outer, width), inner)
        value, = substitute([value], {r: at})
        inside = symbolic.simplify(build.lt(at, extent))
        if inside.op is not ops.CONST:
            value = _where_inside(value, inner, inside)
        new = [d for old in dims for d in ((outer, inner) if old is r else (old,))]
        return UOp(ops.STAGE, stage.dtype, (value, *new), stage.arg)

    def place(self, index: UOp, src: tuple[UOp, ...]) -> UOp:
        """A place in such a stage: the index of the cut range becomes two."""
        r, lanes = self.plans[index.src[0]]
        width = build.index_const(lanes)
        indices: list[UOp] = []
        for d, i in zip(index.src[0].src[1:], src[1:]):
            indices += [i] if d is not r else [symbolic.simplify(build.idiv(i, width)),
                                               symbolic.simplify(build.rem(i, width))]
        return build.at(src[0], *indices)


def _where_inside(value: UOp, lane: UOp, inside: UOp) -> UOp:
    """The value with loads that move with the lane valid only inside."""
    new: dict[UOp, UOp] = {}
    for n in toposort([value]):
        src = tuple([new[s] for s in n.src])
        if n.op is ops.LOAD and lane in n.ranges:
            src = (src[0], build.and_(src[1], inside) if len(src) > 1 else inside)
        new[n] = n if src == n.src else n.replace(src=src)
    return new[value]
