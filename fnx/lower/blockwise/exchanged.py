"""Reassociated sums: reuse a known sum by swapping the order of summation.

    o[i, c] = sum over j of p[i, j] * v[j, c]
    before  sum over j of p[i, j] * (sum over c of g[i, c] * v[j, c])
    after   sum over c of g[i, c] * o[i, c]

So the row sum in the gradient of softmax needs no product of its own.
"""

from __future__ import annotations

from collections.abc import Container

from fnx.core import build, ops
from fnx.core.parts import closed, value
from fnx.core.uop import UOp, substitute, toposort
from fnx.lower.blockwise.blocks import ReduceKernel
from fnx.lower.blockwise.frame import Frame, Term
from fnx.lower.blockwise.region import RegionReduce


class Exchanged:
    """The kernel of a reduction that follows from another one."""

    def __init__(self, frame: Frame, fold: RegionReduce, total: UOp) -> None:
        self.frame, self.fold, self.total = frame, fold, total

    @property
    def folds(self) -> list[RegionReduce]:
        """The reductions computed here."""
        return [self.fold]

    def takes(self, fold: RegionReduce, waits: bool) -> bool:
        """Return False: nothing else is computed here."""
        return False

    def made(self, unread: Container[UOp] = ()) -> ReduceKernel:
        """Return the kernel; the compiler chooses its schedule."""
        results = [] if self.fold.result in unread else [(self.fold, self.total)]
        stores, operands = self.frame.stores(results)
        order = sorted(n.arg.id for n in toposort(stores) if n.op is ops.RANGE)
        kernel = build.kernel(stores, "exchanged_sum", order)
        return ReduceKernel(kernel, operands, tuple([fold for fold, _ in results]), (), True)


def exchanged(frame: Frame, fold: RegionReduce, known: RegionReduce) -> Exchanged | None:
    """Return the kernel of a reduction, if it follows from one that is known; else None."""
    if fold.lanes or not known.lanes or known.product is not fold.product \
            or known.summed != fold.summed or frame.more:
        return None
    this, other = frame.term(fold), frame.term(known)
    if this.monoid is not ops.ADD or other.other is None:
        return None
    over, under = _factors(this.value)
    for factors, there in zip((over, under), _factors(other.value)):
        for factor in there:
            if factor is other.other:
                continue
            if factor not in factors:
                return None
            factors.remove(factor)
    inner = [f for f in over if frame.j in f.ranges]
    if len(inner) != 1 or any(frame.j in f.ranges for f in under):
        return None
    total = _through(frame, inner[0], other)
    if total is None:
        return None
    for factor in over:
        if factor is not inner[0]:
            total = build.mul(total, factor)
    for factor in under:
        total = build.div(total, factor)
    return Exchanged(frame, fold, total)


def _through(frame: Frame, inner: UOp, known: Term) -> UOp | None:
    """Return the sum over c of g[i, c] * o[i, c]."""
    if inner.op is not ops.REDUCE or inner.arg.monoid is not ops.ADD or len(closed(inner)) != 1 \
            or value(inner).op is not ops.MUL or known.other is None:
        return None
    k, = closed(inner)
    c = frame.loops[known.fold.lanes[0][0]]
    if k.src[0] is not c.src[0]:
        return None
    there, = substitute([known.other], {c: k})
    for factor, g in (value(inner).src, value(inner).src[::-1]):
        if factor is there and frame.j not in g.ranges:
            result = known.fold.result
            slot = frame.slots.setdefault(result, len(frame.slots))
            at, = [build.at(build.ref(slot, result.dtype, result.shape),
                            *map(frame.values.index, known.fold.index))]
            read, = substitute([build.load(at)], {c: k})
            return inner.over((build.mul(g, read), k))
    return None


def _factors(node: UOp) -> tuple[list[UOp], list[UOp]]:
    """Return the factors and the divisors of a product."""
    over, under, left = [], [], [node]
    while left:
        top = left.pop()
        if top.op is ops.MUL:
            left += top.src
        elif top.op is ops.DIV:
            left.append(top.src[0])
            under.append(top.src[1])
        else:
            over.append(top)
    return over, under
