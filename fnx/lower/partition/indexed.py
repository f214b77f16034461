"""Gathers and scatters along axes that are cut, without gathering these axes.

    x[(iota + 1) % n]                PERMUTE of the rows that come from another process
    zeros.at[permutation].set(y)     the same by the inverse
    zeros.at[index].add(y)           if index and y are cut: a partial sum
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.op import other_axes
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.lower.partition.reshard import Block, Resharder

_MAX_MESSAGES = 4  # beyond, an axis is gathered


def block_of(node: UOp, blocks: Sequence[Block], reshard: Resharder) -> Block | None:
    """Return the block of a GATHER or SCATTER; None: by the rule for axes that are whole."""
    if node.op is ops.GATHER:
        return _gather(node, blocks, reshard)
    if not is_zero(node.src[0]):
        return None
    permuted = _scatter_by_permutation(node, blocks[-1], reshard)
    return _partial_sum(node, blocks, reshard) if permuted is None else permuted


def _gather(node: UOp, blocks: Sequence[Block], reshard: Resharder) -> Block | None:
    table = _permutation(node.src[1:], node.src[0].shape, node.arg.axes)
    axis = node.arg.axes[0]
    moved = None if table is None else _permuted(blocks[0], axis, table, reshard)
    if moved is None:
        return None
    order = (axis, *other_axes((axis,), len(moved.parts)))
    return Block(build.permute(moved.node, order), tuple([moved.parts[i] for i in order]))


def _scatter_by_permutation(node: UOp, updates: Block, reshard: Resharder) -> Block | None:
    table = _permutation(node.src[1:-1], node.shape, node.arg.axes)
    if table is None or node.arg.monoid not in (None, ops.ADD):
        return None
    if (moved := _permuted(updates, 0, np.argsort(table), reshard)) is None:
        return None
    axis = node.arg.axes[0]
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(moved.parts))]
    return Block(build.permute(moved.node, order), tuple([moved.parts[i] for i in order]))


def _partial_sum(node: UOp, blocks: Sequence[Block], reshard: Resharder) -> Block | None:
    """Add the updates of this process to zeros."""
    *index, updates = blocks[1:]
    n, rest = len(node.src[1].shape), other_axes(node.arg.axes, len(node.shape))
    cuts = updates.parts[:n]
    if node.arg.monoid is not ops.ADD or not any(cuts):
        return None
    parts = tuple([updates.parts[n + rest.index(i)] if i in rest else ()
                   for i in range(len(node.shape))])
    zeros = build.const(0, node.dtype, reshard.local_shape(node.shape, parts))
    new = node.with_operands((zeros, *[reshard(x, cuts).node for x in index], updates.node))
    return Block(new, parts, tuple([name for part in cuts for name in part]))


def _permuted(block: Block, axis: int, table: NDArray, reshard: Resharder) -> Block | None:
    """Return x[table] along an axis that is cut, if few messages do it: in each, all processes
    send the same rows, each to another process."""
    names, node = block.parts[axis], block.node
    length = node.shape[axis]
    if not names:
        return None
    sources, rows = np.divmod(table.reshape(-1, length), length)
    messages: list[list[Any]] = []  # first row, last row, pairs
    for t in range(length):
        pairs = tuple([(int(p), q) for q, p in enumerate(sources[:, t])])
        row = int(rows[0, t])
        if (rows[:, t] != row).any() or len({p for p, _ in pairs}) < len(pairs):
            return None
        if messages and messages[-1][1:] == [row, pairs]:
            messages[-1][1] = row + 1
        else:
            messages.append([row, row + 1, pairs])
    if len(messages) > _MAX_MESSAGES:
        return None
    pieces = []
    for first, last, pairs in messages:
        piece = build.shrink(node, [(first, last) if i == axis else (0, n)
                                    for i, n in enumerate(node.shape)])
        if any(p != q for p, q in pairs):
            piece, = reshard.exchange("permute", names, [piece], pairs=pairs)
        pieces.append(piece)
    return Block(build.concat(pieces, axis), block.parts)


def _permutation(index: Sequence[UOp], shape: Sequence[int], axes: Sequence[int]
                 ) -> NDArray | None:
    """Return the index along one axis if it is a permutation that the program knows."""
    if len(index) != 1 or index[0].shape != (shape[axes[0]],):
        return None
    if any(n.op.kind not in ("source", "elementwise", "movement") or n.op in _UNKNOWN
           for n in toposort(index)):
        return None
    table, = interp.evaluate(index, {})
    return table if (np.sort(table) == np.arange(len(table))).all() else None


_UNKNOWN = frozenset({ops.PARAM, ops.LEAF, ops.BUFFER, ops.DIMENSION})


def is_zero(node: UOp) -> bool:
    """Return whether a node is an array of zeros."""
    while node.op in (ops.EXPAND, ops.RESHAPE):
        node = node.src[0]
    return node.op is ops.CONST and node.arg == 0
