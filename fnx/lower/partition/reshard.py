"""Blocks of arrays with other cuts.

    cut  -> whole           ALL_GATHER
    whole -> cut            the part of the process; of an IOTA or a constant it is computed
    cut along i -> along j  ALL_TO_ALL
    partial sums            ALL_REDUCE; REDUCE_SCATTER if the sum is cut

What is broadcast or permuted is moved before that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fnx.core.ir import build, ops
from fnx.core.ir.axis_partitions import Names, Partitions
from fnx.core.ir.collectives import collective
from fnx.core.ir.op_args import ProcessGrid
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp, copy_locs
from fnx.core.support.record import Record

_MAX_DEPTH = 32  # ops that a slice is moved through


class Block(Record):
    """The part of an array that a process has: a node of its program.

    ``pending``: the array is the sum of the blocks of the processes along these axes of the grid.
    """

    node: UOp
    parts: Partitions
    pending: Names = ()


def whole(node: UOp) -> Block:
    """Return the block of an array that each process has."""
    return Block(node, ((),) * len(node.shape))


class Resharder:
    """Changes the cuts of blocks over a grid."""

    def __init__(self, grid: ProcessGrid) -> None:
        self.grid = grid
        self.reader: UOp | None = None  # the node of the whole program for which blocks are moved
        self._done: dict[tuple[Block, Partitions], Block] = {}
        self._sliced_from: dict[Block, Block] = {}
        self._views: dict[Block, tuple[UOp, Block]] = {}

    def local_shape(self, shape: Shape, parts: Partitions) -> Shape:
        """Return the shape of a block of an array."""
        return tuple([n // self.grid.count(part) if part else n for n, part in zip(shape, parts)])

    def global_shape(self, block: Block) -> Shape:
        """Return the shape of the array of a block."""
        return tuple([n * self.grid.count(part)
                      for n, part in zip(block.node.shape, block.parts)])

    def __call__(self, block: Block, parts: Partitions, keeps_sums: bool = False) -> Block:
        """Return the block with other cuts; partial sums stay such if ``keeps_sums``."""
        if block.pending:
            block = self._sum(block, parts, keeps_sums)
        return self._cut(block, parts, 0)

    def viewed(self, block: Block, view: UOp, source: Block) -> Block:
        """Return a block after recording of which block it is a PERMUTE, an EXPAND, or a RESHAPE
        that inserts or removes axes of length 1. (Its node does not tell an axis of length 1 from
        one that is cut into such parts.)"""
        self._views.setdefault(block.replace(pending=()), (view, source.replace(pending=())))
        return block

    def gathered(self, block: Block) -> Block:
        """Return the whole array."""
        return self(block, ((),) * len(block.parts))

    # ---- partial sums

    def _sum(self, block: Block, parts: Partitions, keeps_sums: bool) -> Block:
        node, now, pending = block.node, list(block.parts), block.pending
        for i, (part, then) in enumerate(zip(now, parts)):
            names = then[len(part):]
            if names and then[:len(part)] == part and set(names) <= set(pending):
                node, = self.exchange("reduce_scatter", names, [node], axis=i, monoid=ops.ADD)
                now[i] = then
                pending = tuple([name for name in pending if name not in names])
        cut = {name for part in parts for name in part}
        summed = tuple([name for name in pending if not keeps_sums or name in cut])
        if summed:
            node, = self.exchange("all_reduce", summed, [node], monoid=ops.ADD)
        return Block(node, tuple(now), tuple([name for name in pending if name not in summed]))

    def exchange(self, routine: str, names: Names, nodes: Sequence[UOp], **options: Any
                 ) -> list[UOp]:
        """Return the results of a collective; complex numbers travel as their parts."""
        real = [part for x in nodes for part in
                ([build.real(x), build.imag(x)] if x.dtype.is_complex else [x])]
        if routine == "all_reduce":
            outs = iter(collective(routine, self.grid, names, real, **options))
        else:
            outs = iter([collective(routine, self.grid, names, [x], **options)[0] for x in real])
        results = [*outs]
        for out in results:  # the user's line is that of the operand, or of its reader
            lines = (*real, *([] if self.reader is None else [self.reader]))
            copy_locs(out, *lines)
            copy_locs(out.src[0], *lines)
        outs = iter(results)
        return [build.complex_number(next(outs), next(outs)) if x.dtype.is_complex else next(outs)
                for x in nodes]

    # ---- cuts

    def _cut(self, block: Block, parts: Partitions, depth: int) -> Block:
        if block.parts == parts:
            return block
        block = self._sliced_from.get(block, block)
        if block.parts == parts:
            return block
        if (out := self._done.get((block, parts))) is None:
            moved = self._operands_cut(block, parts, depth) if depth < _MAX_DEPTH else None
            out = self._done[block, parts] = moved or self._moved(block, parts)
        return out

    def _operands_cut(self, block: Block, parts: Partitions, depth: int) -> Block | None:
        """Return the block with other cuts by those of its operands; None: it is to be moved."""
        if (known := self._views.get(block.replace(pending=()))) is not None:
            view, source = known
            before, after = self.global_shape(source), self.global_shape(block)
            if view.op is ops.PERMUTE:
                cuts = [parts[view.arg.index(i)] for i in range(len(parts))]
            elif view.op is ops.EXPAND:
                cuts = [part if n == m else () for n, m, part in zip(before, after, parts)]
            else:
                long = iter([part for n, part in zip(after, parts) if n != 1])
                cuts = [next(long) if n != 1 else () for n in before]
            x = self._cut(source, tuple(cuts), depth + 1)
            shape = self.local_shape(after, parts)
            new = build.permute(x.node, view.arg) if view.op is ops.PERMUTE else \
                build.expand(x.node, shape) if view.op is ops.EXPAND else \
                build.reshape(x.node, shape)
            return self.viewed(Block(new, parts, block.pending), view, x)
        node = block.node
        is_slice = all(then[:len(now)] == now for now, then in zip(block.parts, parts))
        if node.op is ops.ARG_PAIR or is_slice and node.op.kind == "elementwise":
            operands = [self._cut(Block(x, block.parts), parts, depth + 1).node for x in node.src]
            return Block(node.with_operands(tuple(operands)), parts, block.pending)
        return None

    def _moved(self, block: Block, parts: Partitions) -> Block:
        node, now = block.node, list(block.parts)
        axes = range(len(now))

        def slice_free() -> UOp:
            out = node
            for i in axes:
                names = parts[i][len(now[i]):]
                if names and parts[i][:len(now[i])] == now[i] and \
                        not any(name in part for name in names for part in now):
                    out, now[i] = self._slice(out, i, names), parts[i]
            return out

        node = slice_free()
        for i in axes:
            same = next((k for k, pair in enumerate(zip(now[i], parts[i])) if len(set(pair)) > 1),
                        min(len(now[i]), len(parts[i])))
            names = now[i][same:]
            if not names:
                continue
            to = next((k for k in axes if k != i and parts[k] == now[k] + names and
                       node.shape[k] % self.grid.count(names) == 0), None)
            now[i] = now[i][:same]
            if to is None:
                node, = self.exchange("all_gather", names, [node], axis=i)
            else:
                node, = self.exchange("all_to_all", names, [node], axis=to, to_axis=i)
                now[to] = parts[to]
        out = Block(slice_free(), parts, block.pending)
        if all(part[:len(before)] == before for part, before in zip(parts, block.parts)):
            self._sliced_from[out] = block
        return out

    def _slice(self, node: UOp, axis: int, names: Names) -> UOp:
        """Return the part of an array of the process."""
        count = self.grid.count(names)
        length = node.shape[axis] // count
        index, = collective("process_index", self.grid, names)
        if node.op is ops.IOTA:
            start = build.mul(build.cast(index, node.dtype), build.const(length, node.dtype))
            return build.add(build.iota(length, node.dtype), build.expand(start, (length,)))
        split = build.reshape(node, (*node.shape[:axis], count, length, *node.shape[axis + 1:]))
        return build.gather(split, index, axes=[axis])


REDUCIBLE: frozenset[Op] = frozenset({ops.ADD, ops.MUL, ops.MAX, ops.MIN, ops.AND, ops.OR, ops.XOR})


def weight(block: Block) -> int:
    """Return the number of bytes to move the block: of what it is broadcast from."""
    node = block.node
    while node.op in (ops.EXPAND, ops.RESHAPE, ops.PERMUTE):
        node = node.src[0]
    return 0 if node.op in (ops.CONST, ops.IOTA) else math.prod(node.shape) * node.dtype.itemsize
