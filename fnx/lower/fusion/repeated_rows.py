"""Repeated rows: values that a map would compute again for all that is between its rows.

    before  group over (i, j, k): s[i, k] = exp(b[i, k]); y[i, j, k] = x[i, j, k] * s[i, k]
    after   group over (i, k):    s[i, k] = exp(b[i, k])
            group over (i, j, k): y[i, j, k] = x[i, j, k] * s[i, k]

A value is placed with its first reader, in the expectation that the reductions that it is made of
follow, whose rows are the outermost loops. If these got kernels of their own, the reader is a map:
its loops are in the order of memory, and rows inside of others are computed once for each of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fnx.core.ir.uop import UOp
from fnx.lower.analysis.tuning import KERNEL_CYCLES, VECTOR_BYTES
from fnx.lower.fusion.cost import RecomputeCost, distinct_work, transfer_cycles
from fnx.lower.fusion.group import Group
from fnx.lower.fusion.index_tokens import Tokens
from fnx.lower.fusion.partial_vectors import is_map


def repeated_rows(groups: Iterable[Group], costs: Mapping[UOp, RecomputeCost],
                  readers: Mapping[UOp, Sequence[UOp]]) -> frozenset[UOp]:
    """Return the values that take less time in kernels of their own than again and again."""
    return frozenset([
        node for group in groups if is_map(group)
        for node, (index, *others) in group.inside.items()
        if not others and node.op.kind == "elementwise" and costs[node].loads
        and not group.is_own(index) and group.can_be_row(index)
        and _is_repeated(node, group, index, costs) and _is_broadcast(node, group, readers)])


def _is_broadcast(node: UOp, group: Group, readers: Mapping[UOp, Sequence[UOp]]) -> bool:
    """Whether a map reads a value of its rows for each of its elements, as it is."""
    return any(group.is_own(group.inside[r][0]) or
               r.op.kind == "movement" and _is_broadcast(r, group, readers)
               for r in readers[node] if r in group.inside)


def _is_repeated(node: UOp, group: Group, index: Tokens, costs: Mapping[UOp, RecomputeCost]
                 ) -> bool:
    copies = group.recompute_count(index, {})
    is_vector = group.own_index[-1:] == index[-1:]
    lanes = VECTOR_BYTES // max(node.dtype.itemsize, 4) if is_vector else 1
    elements = math.prod(node.shape) * (copies - 1) / lanes
    limit = KERNEL_CYCLES + 2 * transfer_cycles(node)
    return elements > 0 and elements * distinct_work(node, costs, limit / elements) > limit
