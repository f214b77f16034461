"""Hazards of SCATTER: whether its operands read other elements of the array that it updates.

    x.at[:, i].set(x[:, j] * 2)      no: each row is read before it is written, by one iteration
    x.at[i].set(x[j])                yes, with arrays i and j: row j may already be overwritten

If so the operand is materialized, which costs as much as its size, and the array can be updated
in place.
"""

from __future__ import annotations

import math

from fnx.core.ir import ops
from fnx.core.ir.op import merge_by_axis
from fnx.core.ir.uop import UOp
from fnx.lower.fusion.group import gather_source, memory_of
from fnx.lower.fusion.index_tokens import Tokens, identity_index, source_index, squeeze

_DATA_TOKEN = ("data", None, 0)


def hazard_operands(scatter: UOp) -> frozenset[UOp]:
    """Return the indices and updates, if smaller than the array, that read other elements of it.

    >>> from fnx.core.ir import build, dtypes
    >>> x, i = build.param(0, dtypes.float32, (9, 5)), build.param(1, dtypes.int32, (3,))
    >>> rows = build.gather(x, i)
    >>> hazard_operands(build.scatter(x, [i], rows)) == {rows}
    True
    """
    _, *index, updates = scatter.src
    if math.prod(updates.shape) >= math.prod(scatter.shape):
        return frozenset()
    result_index = identity_index(updates.shape)
    indices = {i: result_index[:len(i.shape)] for i in index} | {updates: result_index}
    return frozenset([node for node, at in indices.items() if _has_hazard(scatter, node, at)])


def _has_hazard(scatter: UOp, operand: UOp, at: Tokens) -> bool:
    first, *index, updates = scatter.src
    base, count = memory_of(first), len(index[0].shape)
    result_index = identity_index(updates.shape)
    written = merge_by_axis(scatter.arg.axes, [_DATA_TOKEN] * len(index), result_index[count:])
    has_own_window = not squeeze(result_index[:count])  # each iteration updates a window of its own

    def is_there(node: UOp, at: Tokens) -> bool:
        return has_own_window and node.shape == scatter.shape and all(
            a == b for a, b in zip(written, at) if a is not _DATA_TOKEN)

    stack = [(operand, at)]
    visited = set(stack)
    while stack:
        node, at = stack.pop()
        if memory_of(node) is base:
            if not is_there(node, at):
                return True
            continue
        if node.op is ops.GATHER and memory_of(gather_source(node)) is base and \
                not is_there(*_gather_source(node, at)):
            return True
        reads = _operand_reads(node, at)
        stack += [read for read in reads if read not in visited]
        visited.update(reads)
    return False


def _operand_reads(node: UOp, at: Tokens) -> list[tuple[UOp, Tokens]]:
    """Return the operands that are computed together with a node, and their indices."""
    if node.op is ops.GATHER:
        return [(s, at[:len(s.shape)]) for s in node.src[1:]]
    if node.op is ops.BARRIER:
        return [(node.src[0], at)]
    if node.op.kind in ("elementwise", "pair", "movement"):
        return [(s, source_index(node, i, at)) for i, s in enumerate(node.src)]
    return []


def _gather_source(node: UOp, at: Tokens) -> tuple[UOp, Tokens]:
    """Return the array in memory that a GATHER reads, and the index into it."""
    x, *index = node.src
    at = merge_by_axis(node.arg.axes, [_DATA_TOKEN] * len(index), at[len(index[0].shape):])
    below = gather_source(node)
    while x is not below:
        x, at = x.src[0], source_index(x, 0, at)
    return x, at
