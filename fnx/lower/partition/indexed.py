"""Rows that move along axes that are cut, without gathering these axes.

    x[(iota + 1) % n]                PERMUTE of the rows that come from another process
    roll(x, k)                       the same: a CONCAT of two slices
    zeros.at[permutation].set(y)     the same by the inverse
    flip(x)                          the blocks in reverse, each reversed
    zeros.at[index].add(y)           if index and y are cut: a partial sum
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.op import other_axes
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.lower.partition.reshard import Block, Resharder

_MAX_MESSAGES = 4  # beyond, an axis is gathered


def block_of(node: UOp, of: Mapping[UOp, Block], reshard: Resharder) -> Block | None:
    """Return the block of a node that moves rows; None: by the rule for axes that are whole."""
    blocks = [of[x] for x in node.src]
    if node.op is ops.CONCAT:
        return _roll(node, of, reshard)
    if node.op is ops.FLIP:
        return _flip(node, blocks[0], reshard)
    if node.op is ops.GATHER:
        return _gather(node, blocks, reshard)
    if node.op is not ops.SCATTER or not is_zero(node.src[0]):
        return None
    permuted = _scatter_by_permutation(node, blocks[-1], reshard)
    return _partial_sum(node, blocks, reshard) if permuted is None else permuted


def _roll(node: UOp, of: Mapping[UOp, Block], reshard: Resharder) -> Block | None:
    axis: int = node.arg
    x = node.src[0].src[0] if node.src[0].op is ops.SHRINK else node
    for piece in node.src:
        if piece.op is not ops.SHRINK or piece.src[0] is not x or any(
                i != axis and bounds != (0, n)
                for i, (bounds, n) in enumerate(zip(piece.arg, x.shape))):
            return None
    if not of[x].parts[axis]:
        return None
    rows = np.concatenate([np.arange(*piece.arg[axis]) for piece in node.src])
    is_permutation = np.array_equal(np.sort(rows), np.arange(x.shape[axis]))
    return _permuted(of[x], axis, rows, reshard) if is_permutation else None


def _flip(node: UOp, block: Block, reshard: Resharder) -> Block | None:
    out = build.flip(block.node, node.arg)
    for axis in node.arg:
        if names := block.parts[axis]:
            last = reshard.grid.count(names) - 1
            pairs = tuple([(i, last - i) for i in range(last + 1)])
            out, = reshard.exchange("permute", names, [out], pairs=pairs)
    return block.replace(node=out)


def _gather(node: UOp, blocks: Sequence[Block], reshard: Resharder) -> Block | None:
    axis = node.arg.axes[0]
    if not blocks[0].parts[axis]:
        return None
    table = _permutation(node.src[1:], node.src[0].shape, node.arg.axes)
    moved = None if table is None else _permuted(blocks[0], axis, table, reshard)
    if moved is None:
        return None
    order = (axis, *other_axes((axis,), len(moved.parts)))
    return Block(build.permute(moved.node, order), tuple([moved.parts[i] for i in order]))


def _scatter_by_permutation(node: UOp, updates: Block, reshard: Resharder) -> Block | None:
    if node.arg.monoid not in (None, ops.ADD) or not any(updates.parts[:1]):
        return None
    if (table := _permutation(node.src[1:-1], node.shape, node.arg.axes)) is None:
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
    if (rows != rows[0]).any():
        return None
    breaks = (np.diff(rows[0]) != 1) | (np.diff(sources, axis=1) != 0).any(0)
    starts = [0, *map(int, np.flatnonzero(breaks) + 1)]
    if len(starts) > _MAX_MESSAGES or any(
            len(np.unique(sources[:, t])) < len(sources) for t in starts):
        return None
    pieces = []
    for t, end in zip(starts, [*starts[1:], length]):
        first = int(rows[0, t])
        pairs = tuple([(int(p), q) for q, p in enumerate(sources[:, t])])
        piece = build.shrink(node, [(first, first + end - t) if i == axis else (0, n)
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
