"""Several rows at once: how many rows of results a kernel of reductions computes together.

    short rows      each is reduced in a few vectors, whose horizontal reduction is a chain of
                    dependent steps; other rows proceed meanwhile
    few chains      lanes run along the results, in fewer vectors than the adders take at once:

                        o[i, l] = sum(x[k, i, l], k)          l VEC 4: one chain
                        i = 4 * io + u, u UNROLL 4            four chains

    shared reads    rows of distances read and deinterleave the same points:

                        o[i, l] = sum((a[i, k] - b[l, k])**2, k)      k UNROLL 4, l VEC 16
                        i = 4 * io + u, u UNROLL 4                    b is read once for four rows
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from fnx.core.ir import ops
from fnx.core.ir.accessors import bound_ranges
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.analysis.tuning import LONG_BODY, WORTHWHILE_RATIO
from fnx.lower.analysis.workload import extent, is_static, volume
from fnx.lower.schedule.statement_cost import UNROLL, StatementCost, instructions


class LoopPlan(Protocol):
    """What is known of a kernel's loops: the attributes of heuristics.LoopPlan that rows need."""

    nodes: list[UOp]
    ordered: set[UOp]
    common_ranges: list[UOp]
    target: Target
    lanes: int
    closers: list[UOp]
    stores: tuple[UOp, ...]
    statements: list[StatementCost]
    unrolled: list[UOp]
    unroll_and_jam: Any

    def lane_count(self, r: UOp | None) -> int: ...
    def are_rows_short(self) -> bool: ...
    def unroll_factor(self, r: UOp, lanes: int, is_parallel: bool) -> int: ...


class MultiRow:
    """The rows of a kernel that may be computed together.

    Attributes:
        row: the range of rows; None if there is none.
    """

    def __init__(self, plan: LoopPlan, vectors: Sequence[UOp]) -> None:
        self.plan, self.vectors = plan, vectors
        short_row = self._short_row()
        self._is_short = short_row is not None
        row = short_row if self._is_short else self._outer_row()
        self.row = row if row is not None and is_static(row) else None

    def count(self) -> int:
        """Return how many rows are computed together."""
        if self._is_short:
            return UNROLL
        return max(self._count_for_chains(), self._count_for_shared_reads())

    def _short_row(self) -> UOp | None:
        """Return the range of rows, if each row is reduced in a few vectors."""
        plan = self.plan
        if len(plan.stores) != 1 or not plan.closers or plan.ordered or sum(
                n.op in ops.ELEMENTWISE for n in plan.nodes) > UNROLL * len(plan.closers):
            return None
        rows = [r for r in plan.common_ranges if r not in self.vectors]
        if not rows or not is_static(rows[-1]) or extent(rows[-1]) < 4 * UNROLL or not all(
                map(self._takes_few_vectors, plan.closers)):
            return None
        return rows[-1]

    def _takes_few_vectors(self, node: UOp) -> bool:
        """Return whether a reduction is over a few vectors."""
        bound = bound_ranges(node)
        return node.op is ops.REDUCE and node.src[0].op is not ops.ARG_PAIR and len(bound) == 1 \
            and bound[0] in self.vectors and is_static(bound[0]) \
            and self.plan.lane_count(bound[0]) < extent(bound[0]) <= UNROLL * self.plan.lanes

    def _outer_row(self) -> UOp | None:
        """Return the innermost loop around all reductions."""
        plan = self.plan
        loops = [r for r in plan.common_ranges if r not in self.vectors and r not in plan.unrolled]
        if not loops or not plan.closers or plan.unroll_and_jam is not None or plan.ordered or \
                any(n.op is not ops.REDUCE or n.src[0].op is ops.ARG_PAIR for n in plan.closers):
            return None
        return loops[-1]

    def _count_for_chains(self) -> int:
        """Return how many rows make as many chains as the adders take at once."""
        plan = self.plan
        if plan.are_rows_short() or not all(self.row in n.ranges for n in plan.closers) or any(
                r in self.vectors or not is_static(r)
                for n in plan.closers for r in bound_ranges(n)):
            return 1
        assert self.row is not None
        return max(1, min(UNROLL // self._accumulators(), extent(self.row) // 2))

    def _accumulators(self) -> int:
        """Return how many vectors of results are reduced at once in a row."""
        return len(self.plan.closers) * math.prod(
            [self.plan.unroll_factor(r, self.plan.lane_count(r), False)
             for r in self.vectors if is_static(r)])

    def _count_for_shared_reads(self) -> int:
        """Return for how many rows the saved instructions are worth the longer code: as many as
        leave registers for other values."""
        plan = self.plan
        if len(self.vectors) != 1 or self.vectors[0] not in plan.common_ranges or \
                not is_static(self.vectors[0]):
            return 1
        assert self.row is not None
        lane = self.vectors[0]
        costs = [s.cost_by_row(self.row, lane, plan.lane_count(lane)) for s in plan.statements]
        varying, shared = map(sum, zip(*costs))
        length = sum(instructions(n) * volume([r for r in plan.unrolled if r in n.ranges])
                     for n in plan.nodes if n.op in ops.ELEMENTWISE)
        registers = plan.target.vector_registers // (2 * self._accumulators())
        return next((n for n in (UNROLL, 2)
                     if n <= min(registers, extent(self.row) // 2)
                     and n * length <= LONG_BODY * UNROLL
                     and varying + shared / n <= WORTHWHILE_RATIO * (varying + shared)), 1)
