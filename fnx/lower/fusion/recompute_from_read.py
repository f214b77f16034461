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
from fnx.lower.analysis.tuning import MAX_RECOMPUTED_NODES, MIN_NARROWING
from fnx.lower.fusion.cost import (
    MAX_NODES,
    MAX_SCALE_COST,
    MIN_EXPANSION,
    RecomputeCost,
    is_profitable,
    nbytes,
)
from fnx.lower.fusion.group import (
    MEMORY,
    Group,
    are_full,
    is_misaligned,
    overlaps,
    reads_any,
)
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
            if operand in seen or is_read(*operand) or _is_small_input(s, node):
                continue
            if s.op.kind != "elementwise" and s.op not in (ops.RESHAPE, ops.EXPAND) or \
                    len(seen) == MAX_RECOMPUTED_NODES:
                return None
            seen.add(operand)
            stack.append(operand)
    return weight


def is_step_from_read(node: UOp, uses: Mapping[Group, Sequence[Tokens]], is_read: IsRead) -> bool:
    """Whether a value is one cheap op on an expensive one, no larger, that a group reads in any
    case: then the other groups read that one, too, at whatever index, instead of this one.

    before  1 + tanh(z), tanh(z)    written; read by a convolution, and by its derivative
    after   tanh(z)                 both read it
    """
    if node.op.kind != "elementwise" or node.op.cost > MAX_SCALE_COST or any(
            len(indices) > 1 or MEMORY in indices or overlaps(indices[0])
            or is_misaligned(indices[0]) or group.is_fixed or group.contraction is not None
            or group.reduces or are_full((group,), node.op.cost)
            for group, indices in uses.items()):
        return False
    operands = [s for s in dict.fromkeys(node.src) if not _is_small_input(_expanded(s), node)]
    if len(operands) != 1:
        return False
    value, = operands
    return value.op.kind == "elementwise" and value.op.cost > MAX_SCALE_COST and \
        nbytes(value) <= nbytes(node) and any(
            is_read(group, value, index) for group, (index,) in uses.items())


def reads_many_elements(node: UOp, cost: RecomputeCost) -> bool:
    """Whether it is far smaller than any array that it is computed from, of which it needs several
    elements: the mean of four neighbors. Each reader would read them all."""
    if node.op.kind != "elementwise" or not cost.loads or \
            min(map(nbytes, cost.loads)) < MIN_NARROWING * nbytes(node):
        return False
    stack, seen = [node], {node}
    while stack and len(seen) < MAX_NODES:
        n = stack.pop()
        stack += [s for s in n.src if s not in seen and s.op.kind in ("elementwise", "movement")]
        seen.update(n.src)
    slices = [n for n in seen if n.op is ops.SHRINK and nbytes(n) < nbytes(n.src[0])]
    return len(slices) >= MIN_NARROWING


def _expanded(node: UOp) -> UOp:
    """Return what a value repeats."""
    while node.op in (ops.EXPAND, ops.RESHAPE):
        node = node.src[0]
    return node


def _is_small_input(node: UOp, than: UOp) -> bool:
    """Whether a value is a constant or in memory, and has far fewer elements than another."""
    size = math.prod(node.shape)
    return size * MIN_EXPANSION <= math.prod(than.shape) and (
        node.op in (ops.CONST, ops.IOTA, ops.PARAM) or size == 1)
