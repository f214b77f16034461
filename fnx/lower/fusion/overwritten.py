"""Hazards of SCATTER: whether its operands read other elements of the array that it updates.

    x.at[:, i].set(x[:, j] * 2)      no: each row is read before it is written, by one iteration
    x.at[i].set(x[j])                yes, with arrays i and j: row j may already be overwritten

If so the operand is materialized, which costs as much as its size, and the array can be updated
in place.
"""

from __future__ import annotations

import math

from fnx.core import ops
from fnx.core.row_parts import interleaved
from fnx.core.uop import UOp
from fnx.lower.fusion.group import gathered_from, memory_of
from fnx.lower.fusion.index_tokens import Tokens, identity_index, source_index, squeeze

_DATA = ("data", None, 0)


def read_elsewhere(scatter: UOp) -> frozenset[UOp]:
    """Return the indices and updates, if smaller than the array, that read other elements of it.

    >>> from fnx.core import build, dtypes
    >>> x, i = build.param(0, dtypes.float32, (9, 5)), build.param(1, dtypes.int32, (3,))
    >>> rows = build.gather(x, i)
    >>> read_elsewhere(build.scatter(x, [i], rows)) == {rows}
    True
    """
    _, *index, updates = scatter.src
    if math.prod(updates.shape) >= math.prod(scatter.shape):
        return frozenset()
    own = identity_index(updates.shape)
    places = {i: own[:len(i.shape)] for i in index} | {updates: own}
    return frozenset([node for node, at in places.items() if _reads_elsewhere(scatter, node, at)])


def _reads_elsewhere(scatter: UOp, operand: UOp, at: Tokens) -> bool:
    first, *index, updates = scatter.src
    base, count = memory_of(first), len(index[0].shape)
    own = identity_index(updates.shape)
    written = interleaved(scatter.arg.axes, [_DATA] * len(index), own[count:])
    alone = not squeeze(own[:count])  # each iteration updates a window of its own

    def is_there(node: UOp, at: Tokens) -> bool:
        return alone and node.shape == scatter.shape and all(
            a == b for a, b in zip(written, at) if a is not _DATA)

    left = [(operand, at)]
    seen = set(left)
    while left:
        node, at = left.pop()
        if memory_of(node) is base:
            if not is_there(node, at):
                return True
            continue
        if node.op is ops.GATHER and memory_of(gathered_from(node)) is base and \
                not is_there(*_gathered_at(node, at)):
            return True
        reads = _reads(node, at)
        left += [read for read in reads if read not in seen]
        seen.update(reads)
    return False


def _reads(node: UOp, at: Tokens) -> list[tuple[UOp, Tokens]]:
    """Return the operands that are computed together with a node, and their indices."""
    if node.op is ops.GATHER:
        return [(s, at[:len(s.shape)]) for s in node.src[1:]]
    if node.op is ops.BARRIER:
        return [(node.src[0], at)]
    if node.op.kind in ("elementwise", "pair", "movement"):
        return [(s, source_index(node, i, at)) for i, s in enumerate(node.src)]
    return []


def _gathered_at(node: UOp, at: Tokens) -> tuple[UOp, Tokens]:
    """Return the array in memory that a GATHER reads, and the index into it."""
    x, *index = node.src
    at = interleaved(node.arg.axes, [_DATA] * len(index), at[len(index[0].shape):])
    below = gathered_from(node)
    while x is not below:
        x, at = x.src[0], source_index(x, 0, at)
    return x, at
