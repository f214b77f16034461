"""Slices of an axis that is cut, whose lengths do not divide: the rows at the borders of blocks are
exchanged (a halo), rather than that the axis is gathered.

    u: f32[16] cut by 4 processes
    u[1:-1] * 2        rows 1 to 14 of f32[16], cut: a window
    u[2:] - u[:-2]     of windows that begin at 2 and 0: the second moves by 2 rows, by a PERMUTE
    pad(..., (1, 1))   rows 0 to 13 of f32[16] move by 1; a WHERE has the rows that are padded
    sum(...)           other rows count as the identity

So a stencil computes what it does on one process, with one message for each neighbor that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.collectives import collective
from fnx.core.ir.op import other_axes
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.lower.partition.reshard import REDUCIBLE, Block, Resharder


class Window(Record):
    """An array that is the rows ``start`` to ``start + length`` of a block along an axis that is
    cut. What other rows hold has no meaning."""

    block: Block
    axis: int
    start: int
    length: int


class Windows:
    """The windows of a FUNCTION by node, and the blocks of what is computed from them."""

    def __init__(self, reshard: Resharder) -> None:
        self._reshard = reshard
        self._of: dict[UOp, Window] = {}

    def record(self, node: UOp, of: Mapping[UOp, Block]) -> None:
        """Remember that a node is a window."""
        window = self._slice(node, of) if node.op is ops.SHRINK else \
            self._elementwise(node, of) if node.op.kind == "elementwise" else \
            self._rearranged(node)
        if window is not None:
            self._of[node] = window

    def block_of(self, node: UOp, of: Mapping[UOp, Block]) -> Block | None:
        """Return the block of a node that is made of windows and has equal parts again."""
        if node.op is ops.PAD:
            return self._pad(node, of)
        if node.op is ops.SHRINK:
            return self._slice_of_pad(node, of)
        return self._concat(node, of) if node.op is ops.CONCAT else None

    def operand_of_reduce(self, node: UOp, block: Block) -> Block:
        """Return the block that a REDUCE reads: that of a window, with the identity elsewhere."""
        window, monoid = self._of.get(node.src[0]), node.arg.monoid
        if window is None or window.axis not in node.arg.axes or monoid not in REDUCIBLE or \
                node.dtype.is_complex and monoid is not ops.ADD:
            return block
        x = window.block.node
        rest = build.const(monoid.identity(x.dtype), x.dtype, x.shape)
        return window.block.replace(node=build.where(self._within(
            window.block, window.axis, window.start, window.length), x, rest))

    # ---- what is a window

    def _slice(self, node: UOp, of: Mapping[UOp, Block]) -> Window | None:
        x = node.src[0]
        changed = [i for i, (bounds, n) in enumerate(zip(node.arg, x.shape)) if bounds != (0, n)]
        if (window := self._of.get(x)) is not None:
            block, axis, start = window.block, window.axis, window.start
        else:
            block, start = of[x], 0
            cut = [i for i in changed if block.parts[i]]
            if len(cut) != 1 or block.pending:
                return None
            axis, = cut
        if any(block.parts[i] for i in changed if i != axis):
            return None
        low, high = node.arg[axis]
        rest = [(0, block.node.shape[i]) if i == axis or i not in changed else bounds
                for i, bounds in enumerate(node.arg)]
        return Window(block.replace(node=build.shrink(block.node, rest)), axis, start + low,
                      high - low)

    def _elementwise(self, node: UOp, of: Mapping[UOp, Block]) -> Window | None:
        windows = [self._of.get(x) for x in node.src]
        some = [w for w in windows if w is not None]
        if not some:
            return None

        def from_middle(w: Window) -> int:  # what is in the middle is padded without a message
            n = self._reshard.global_shape(w.block)[w.axis]
            return abs(2 * w.start - (n - w.length))
        like = min(some, key=from_middle)
        nodes = [self._placed(x, like, of) for x in node.src]
        if any(x is None for x in nodes):
            return None
        new = node.replace(src=tuple([x for x in nodes if x is not None]))
        return like.replace(block=like.block.replace(node=new))

    def _placed(self, x: UOp, like: Window, of: Mapping[UOp, Block]) -> UOp | None:
        """Return the local rows of an operand at those of a window of its shape."""
        window, block = self._of.get(x), like.block
        if window is not None:
            if (window.axis, window.length) != (like.axis, like.length):
                return None
            moved = self._shifted(self._reshard(window.block, block.parts), window.axis,
                                  window.start - like.start)
            return None if moved is None else moved.node
        source = x
        while source.op in (ops.EXPAND, ops.RESHAPE):
            source = source.src[0]
        if source.op is ops.CONST:
            return build.const(build.const_of(source), x.dtype, block.node.shape)
        return self._padded(of[x], like.axis, like.start, block).node

    def _padded(self, block: Block, axis: int, start: int, like: Block) -> Block:
        """Return the block of an array whose axis is whole, from row ``start`` of one like
        another."""
        n = self._reshard.global_shape(like)[axis]
        block = self._reshard(block, tuple([() if i == axis else part
                                            for i, part in enumerate(block.parts)]))
        widths = [(start, n - start - length) if i == axis else (0, 0)
                  for i, length in enumerate(block.node.shape)]
        return self._reshard(block.replace(node=build.pad(block.node, widths)), like.parts)

    def _rearranged(self, node: UOp) -> Window | None:
        window = self._of.get(node.src[0]) if node.src else None
        if window is None:
            return None
        x, parts, axis = window.block.node, window.block.parts, window.axis
        if node.op is ops.PERMUTE:
            return window.replace(
                block=Block(build.permute(x, node.arg), tuple([parts[i] for i in node.arg])),
                axis=node.arg.index(axis))
        if node.op is ops.EXPAND and len(node.shape) == len(x.shape):
            shape = [n if part or i == axis else m
                     for i, (n, m, part) in enumerate(zip(x.shape, node.shape, parts))]
            return window.replace(block=Block(build.expand(x, tuple(shape)), parts))
        if node.op is ops.REDUCE and axis not in node.arg.axes and \
                not any(parts[i] for i in node.arg.axes) and x.op is not ops.ARG_PAIR:
            rest = other_axes(node.arg.axes, len(x.shape))
            return window.replace(axis=rest.index(axis), block=Block(
                node.with_operands((x,)), tuple([parts[i] for i in rest])))
        return None

    # ---- what is made of windows

    def _pad(self, node: UOp, of: Mapping[UOp, Block]) -> Block | None:
        x, fill = node.src
        if (window := self._of.get(x)) is None:
            return None
        block, axis = window.block, window.axis
        if self._reshard.global_shape(block)[axis] != node.shape[axis] or any(
                part and widths != (0, 0) for i, (part, widths) in
                enumerate(zip(block.parts, node.arg)) if i != axis):
            return None
        low = node.arg[axis][0]
        moved = self._shifted(block, axis, window.start - low)
        return None if moved is None else self._filled(
            moved, axis, low, window.length, node.arg, of[fill])

    def _slice_of_pad(self, node: UOp, of: Mapping[UOp, Block]) -> Block | None:
        """``pad(x, 1)[2:]``: all rows, moved."""
        if (padded := node.src[0]).op is not ops.PAD:
            return None
        x, fill = padded.src
        block = of[x]
        cut = [i for i, part in enumerate(block.parts) if part and
               (padded.arg[i] != (0, 0) or node.arg[i] != (0, padded.shape[i]))]
        if len(cut) != 1 or block.pending or x.shape[cut[0]] != node.shape[cut[0]]:
            return None
        axis, = cut
        step = node.arg[axis][0] - padded.arg[axis][0]
        if (moved := self._shifted(block, axis, step)) is None:
            return None
        out = self._filled(moved, axis, -step, x.shape[axis], padded.arg, of[fill])
        bounds = [(0, n) if part else pair
                  for pair, n, part in zip(node.arg, out.node.shape, out.parts)]
        return out.replace(node=build.shrink(out.node, bounds))

    def _filled(self, block: Block, axis: int, low: int, length: int,
                widths: Sequence[tuple[int, int]], fill: Block) -> Block:
        """Return a block with ``fill`` in rows other than ``low`` to ``low + length`` of an axis,
        and around others."""
        value = self._reshard.gathered(fill).node
        node = build.where(self._within(block, axis, low, length), block.node,
                           build.expand(value, block.node.shape))
        return block.replace(node=build.pad(node, [(0, 0) if i == axis else pair for i, pair in
                                                   enumerate(widths)], value))

    def _concat(self, node: UOp, of: Mapping[UOp, Block]) -> Block | None:
        axis: int = node.arg
        windows = [self._of.get(x) for x in node.src]
        like = next((w for w in windows if w is not None and w.axis == axis), None)
        if like is None or self._reshard.global_shape(like.block)[axis] != node.shape[axis]:
            return None
        out: Block | None = None
        offset = 0
        for x, window in zip(node.src, windows):
            length = x.shape[axis]
            if window is None:
                piece: Block | None = self._padded(of[x], axis, offset, like.block)
            elif window.axis != axis:
                return None
            else:
                piece = self._shifted(self._reshard(window.block, like.block.parts), axis,
                                      window.start - offset)
            if piece is None:
                return None
            out = piece if out is None else piece.replace(node=build.where(
                self._within(piece, axis, offset, length), piece.node, out.node))
            offset += length
        return out

    # ---- rows

    def _within(self, block: Block, axis: int, start: int, length: int) -> UOp:
        """Return which local elements are in rows ``start`` to ``start + length``."""
        shape = block.node.shape
        index, = collective("process_index", self._reshard.grid, block.parts[axis])
        n = shape[axis]
        first = build.mul(index, build.const(n, dtypes.int32))
        rows = build.add(build.iota(n, dtypes.int32), build.expand(first, (n,)))
        ends = [build.const(end, dtypes.int32, (n,)) for end in (start - 1, start + length)]
        inside = build.and_(build.lt(ends[0], rows), build.lt(rows, ends[1]))
        flat = [n if i == axis else 1 for i in range(len(shape))]
        return build.expand(build.reshape(inside, tuple(flat)), shape)

    def _shifted(self, block: Block, axis: int, step: int) -> Block | None:
        """Return the block whose row i is the row i + step of another. None: these are on processes
        that are no neighbors. Rows from beyond the ends have no meaning."""
        node, names = block.node, block.parts[axis]
        n, count = node.shape[axis], self._reshard.grid.count(names)
        if not step:
            return block
        if abs(step) > n:
            return None

        def rows(low: int, high: int) -> UOp:
            return build.shrink(node, [(low, high) if i == axis else (0, m)
                                       for i, m in enumerate(node.shape)])
        pairs = [(i + 1, i) if step > 0 else (i, i + 1) for i in range(count - 1)]
        sent = rows(0, step) if step > 0 else rows(n + step, n)
        halo, = self._reshard.exchange("permute", names, [sent], pairs=tuple(pairs))
        pieces = [rows(step, n), halo] if step > 0 else [halo, rows(0, n + step)]
        return block.replace(node=build.concat([x for x in pieces if x.shape[axis]], axis))
