"""Recompute a value from what its readers read in any case: it needs no buffer then.

    before  z, z * z, tanh(z + z * z), z / 2     written by one kernel, read by another, all of them
    after   z, tanh(z + z * z)                   the other computes z * z and z / 2 from z

The readers are at their own index, so each element is computed once more for each of them.
Backward passes read what the forward pass computed on its way, an activation in parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.tuning import MAX_RECOMPUTED_NODES
from fnx.lower.fusion.cost import MIN_EXPANSION, is_profitable, nbytes
from fnx.lower.fusion.group import MEMORY, Group, are_full, reads_any
from fnx.lower.fusion.index_tokens import Tokens, source_index

IsRead = Callable[[Group, UOp, Tokens], bool]


def is_cheaper_from_read(node: UOp, uses: Mapping[Group, Sequence[Tokens]], is_read: IsRead
                         ) -> bool:
    """Whether a value is computed faster by each of its readers than it is written and read.

    Args:
        node: the value.
        uses: the indices at which groups read it.
        is_read: whether a group reads a value at an index in any case. The group that runs first
            need not: it computes the value for the others otherwise.
    """
    if node.op.kind != "elementwise" or any(
            len(indices) > 1 or MEMORY in indices or not group.is_own(indices[0])
            or group.is_fixed or are_full((group,), node.op.cost)
            for group, indices in uses.items()):
        return False
    weights: dict[Group, int] = {}
    for group, (index,) in uses.items():
        weight = weight_from_read(node, index, functools.partial(is_read, group))
        if weight is not None:
            weights[group] = weight
    first = [group for group in uses if group not in weights]
    return len(first) < min(len(uses), 2) and \
        all(reads_any([group], first) for group in weights if first) and \
        is_profitable(node, max(weights.values()), len(uses), len(uses))


def weight_from_read(node: UOp, index: Tokens, is_read: Callable[[UOp, Tokens], bool]
                     ) -> int | None:
    """Return the instructions that compute an element of a value from others that are read.

    Args:
        node: the value, read at ``index``.
        is_read: whether a group reads a value at an index in any case.

    Returns:
        None if it needs another value, which is not far smaller.
    """
    weight, stack, seen = 0, [(node, index)], {(node, index)}
    while stack:
        n, at = stack.pop()
        weight += n.op.cost
        for i, s in enumerate(n.src):
            operand = s, source_index(n, i, at)
            if operand in seen or is_read(*operand) or \
                    nbytes(s) * MIN_EXPANSION <= nbytes(node) and _is_small_input(s):
                continue
            if s.op.kind != "elementwise" and s.op not in (ops.RESHAPE, ops.EXPAND) or \
                    len(seen) == MAX_RECOMPUTED_NODES:
                return None
            seen.add(operand)
            stack.append(operand)
    return weight


def _is_small_input(node: UOp) -> bool:
    """Whether a value is a constant or in memory."""
    return node.op in (ops.CONST, ops.IOTA, ops.PARAM) or math.prod(node.shape) == 1
