"""Row reductions: which reductions are computed inside a group, once for each row of it.

    group over (i, k, j)   x[i, k, j] - max(l: x[i, l, j])     its rows are (i, j), in any order of
                                                               axes; loops i, j, then l and k

A REDUCE is computed at the group's own index, or at a subset of it: a row. A small group as a
whole may be one row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.fusion.cost import RecomputeCost, has_reductions
from fnx.lower.fusion.group import MAX_SEARCH, MAX_SINGLE_ROW, Group
from fnx.lower.fusion.index_tokens import Tokens, source_index


def can_reduce_in(group: Group, reduction: UOp, index: Tokens) -> bool:
    """Whether a REDUCE at an index may be computed in a group."""
    if group.is_own(index):
        return True
    return group.can_be_row(index) and (
        bool(group.row_of(index)) or math.prod(reduction.src[0].shape) <= MAX_SINGLE_ROW)


def can_reduce_all_in(group: Group, node: UOp, index: Tokens, costs: Mapping[UOp, RecomputeCost]
                      ) -> bool:
    """Whether the reductions that a node at an index is computed from may be computed in a group.
    False if that takes a long search."""
    queue, visited = [(node, index)], {(node, index)}
    for n, at in queue:  # grows
        if n.op is ops.REDUCE:
            if not can_reduce_in(group, n, at):
                return False
            continue
        for i, s in enumerate(n.src):
            operand_at = s, source_index(n, i, at)
            if operand_at not in visited and has_reductions(costs[s]):
                visited.add(operand_at)
                queue.append(operand_at)
        if len(queue) > MAX_SEARCH:
            return False
    return True
