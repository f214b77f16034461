"""Reductions along columns, and recurrences: how many vectors are computed together.

    o[j] = sum(x[k, j], k)      j = 64 * jo + 16 * u + l, u UNROLL 4, l VEC 16
                                each row is visited for 4 vectors, then the next row

The fewer visits, the less often a page is looked up and a prefetcher starts again, and the longer
is what is written at once. What follows the sums may be too long for a copy for each vector:

    o[j] = tanh(sum(x[k, j], k))     the sums are collected, and a loop over u follows
                                     (rolled_epilogue.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fnx.core.ir import dtypes, ops
from fnx.core.ir.accessors import bound_ranges
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.target import Target
from fnx.lower.analysis.tuning import CHAINS, FAR_BYTES, LONG_BODY, SHORT_BODY
from fnx.lower.analysis.workload import is_static, stride
from fnx.lower.schedule.statement_cost import UNROLL, instructions


class LoopPlan(Protocol):
    """What is known of a kernel's loops: the attributes of heuristics.LoopPlan that this needs."""

    nodes: list[UOp]
    closers: list[UOp]
    stores: tuple[UOp, ...]
    target: Target


def columns_at_once(plan: LoopPlan, columns: UOp, vectors: int, instructions: int) -> int:
    """Return how many of the vectors of columns a kernel with so many instructions computes
    together: all of a short row, which is one stream then; or, where rows are so far apart that
    their lines share places in a cache, twice as many as elsewhere."""
    if not plan.closers or not all(_reduces_columns(n, columns) for n in plan.closers):
        return UNROLL
    most = min(plan.target.vector_registers // (2 * len(plan.closers)),
               LONG_BODY // max(1, instructions))
    if UNROLL < vectors <= most:
        return vectors
    return max(UNROLL, min(2 * UNROLL, most)) if any(
        step and step % FAR_BYTES == 0 for step in _row_bytes(plan, columns)) else UNROLL


def length_of_sums(plan: LoopPlan, columns: UOp, length: int) -> int | None:
    """Return the instructions of the reductions of a kernel of so many, if what follows them
    becomes a loop over the vectors of columns; else None. Inside a loop over rows of the results
    it would be computed for each of them."""
    if length <= SHORT_BODY or not plan.closers or \
            not all(_reduces_columns(n, columns) for n in plan.closers) or \
            any(columns not in s.ranges or s.ranges != n.ranges
                for s in plan.stores for n in plan.closers):
        return None
    epilogue = toposort(plan.stores, stop=lambda n: n.op is ops.REDUCE)
    sums = length - sum([instructions(n) for n in epilogue
                         if n.op in ops.ELEMENTWISE and n.dtype is not dtypes.index])
    return sums if sums <= SHORT_BODY else None


def chains_at_once(closers: Sequence[UOp], lane: UOp, vectors: int, length: int) -> int:
    """Return how many of the vectors of a recurrence are computed together, as far as that is not
    long code: each step waits for the one before. 0: there is no recurrence."""
    if not any(n.op is ops.LOOP and lane in n.ranges for n in closers):
        return 0
    most = max(1, min(CHAINS, vectors, UNROLL * LONG_BODY // max(1, length)))
    return next((n for n in range(most, most // 2, -1) if vectors % n == 0),
                -(-vectors // -(-vectors // most)))


def _reduces_columns(node: UOp, columns: UOp) -> bool:
    return node.op is ops.REDUCE and columns in node.ranges and all(
        map(is_static, bound_ranges(node)))


def _row_bytes(plan: LoopPlan, columns: UOp) -> Sequence[int]:
    """Return the bytes between neighboring rows of each array that is read."""
    reduced = {r for n in plan.closers for r in bound_ranges(n)}
    return [abs(stride(n, r)) * n.dtype.itemsize for n in plan.nodes
            if n.op is ops.LOAD and columns in n.ranges for r in n.ranges & reduced]
