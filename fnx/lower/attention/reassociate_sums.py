"""Reassociated sums: reuse a known sum by swapping the order of summation.

    o[i, c] = sum over j of p[i, j] * v[j, c]
    before  sum over j of p[i, j] * (sum over c of g[i, c] * v[j, c])
    after   sum over c of g[i, c] * o[i, c]

So the row sum in the gradient of softmax needs no product of its own.
"""

from __future__ import annotations

from collections.abc import Container

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import bound_ranges, value
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.lower.attention.region import RegionReduce
from fnx.lower.attention.region_kernel import ReduceKernel
from fnx.lower.attention.tile_frame import RegionTerm, TileFrame


class ReassociatedSum:
    """The kernel of a reduction that follows from another one."""

    def __init__(self, frame: TileFrame, fold: RegionReduce, total: UOp) -> None:
        self.frame, self.fold, self.total = frame, fold, total

    @property
    def reductions(self) -> list[RegionReduce]:
        """The reductions computed here."""
        return [self.fold]

    def add_reduction(self, fold: RegionReduce, waits: bool) -> bool:
        """Return False: nothing else is computed here."""
        return False

    def build(self, unused: Container[UOp] = ()) -> ReduceKernel:
        """Return the kernel; the compiler chooses its schedule."""
        results = [] if self.fold.result in unused else [(self.fold, self.total)]
        stores, operands = self.frame.stores(results)
        order = sorted(n.arg.id for n in toposort(stores) if n.op is ops.RANGE)
        kernel = build.kernel(stores, "exchanged_sum", order)
        return ReduceKernel(kernel, operands, tuple([fold for fold, _ in results]), (), True)


def reassociate_sum(frame: TileFrame, reduction: RegionReduce,
                    known_reduction: RegionReduce) -> ReassociatedSum | None:
    """Return the kernel of a reduction, if it follows from one that is known; else None."""
    if reduction.lanes or not known_reduction.lanes \
            or known_reduction.product is not reduction.product \
            or known_reduction.reduced_axes != reduction.reduced_axes or frame.extra_reduced:
        return None
    term, known_term = frame.term(reduction), frame.term(known_reduction)
    if term.monoid is not ops.ADD or known_term.other is None:
        return None
    factors_left, divisors_left = _factors(term.value)
    for factors, known_factors in zip((factors_left, divisors_left), _factors(known_term.value)):
        for factor in known_factors:
            if factor is known_term.other:
                continue
            if factor not in factors:
                return None
            factors.remove(factor)
    varying = [f for f in factors_left if frame.j in f.ranges]
    if len(varying) != 1 or any(frame.j in f.ranges for f in divisors_left):
        return None
    total = _reuse_known_sum(frame, varying[0], known_term)
    if total is None:
        return None
    for factor in factors_left:
        if factor is not varying[0]:
            total = build.mul(total, factor)
    for factor in divisors_left:
        total = build.div(total, factor)
    return ReassociatedSum(frame, reduction, total)


def _reuse_known_sum(frame: TileFrame, inner: UOp, known: RegionTerm) -> UOp | None:
    """Return the sum over c of g[i, c] * o[i, c]."""
    if inner.op is not ops.REDUCE or inner.arg.monoid is not ops.ADD \
            or len(bound_ranges(inner)) != 1 or value(inner).op is not ops.MUL \
            or known.other is None:
        return None
    k, = bound_ranges(inner)
    c = frame.loops[known.reduction.lanes[0][0]]
    if k.src[0] is not c.src[0]:
        return None
    other_at_k, = substitute([known.other], {c: k})
    for factor, g in (value(inner).src, value(inner).src[::-1]):
        if factor is other_at_k and frame.j not in g.ranges:
            result = known.reduction.result
            slot = frame.slots.setdefault(result, len(frame.slots))
            result_index, = [build.index_into(build.ref(slot, result.dtype, result.shape),
                                              *map(frame.values.index, known.reduction.index))]
            result_load, = substitute([build.load(result_index)], {c: k})
            return inner.with_operands((build.mul(g, result_load), k))
    return None


def _factors(node: UOp) -> tuple[list[UOp], list[UOp]]:
    """Return the factors and the divisors of a product."""
    factors, divisors, stack = [], [], [node]
    while stack:
        top = stack.pop()
        if top.op is ops.MUL:
            stack += top.src
        elif top.op is ops.DIV:
            stack.append(top.src[0])
            divisors.append(top.src[1])
        else:
            factors.append(top)
    return factors, divisors
