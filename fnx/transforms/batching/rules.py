"""How a batch axis goes through an array op: one rule for each kind, named by ``Op.batching``.

    elementwise  in front of all operands           ADD(f32[B, 3], f32[3])  ->  the second expanded
    movement     in front, and stays there          PERMUTE (1, 0)          ->  PERMUTE (0, 2, 1)
    reduce       in front, axes count from 1        REDUCE axis 0           ->  axis 1
    gather       one more index, or an axis of x    x[i]                    ->  x[lane, i], x[:, i]
    scatter      the same                           x.at[i]                 ->  x.at[lane, i]
    fft          in front, the axis counts from 1   FFT axis 0              ->  axis 1

A rule gets the node, its operands in the new graph, which of them have a batch axis (in front),
and the batch size; it returns the node with a batch axis in front. At least one operand has one.

>>> from fnx.core.ir import dtypes
>>> x, row = build.param(0, dtypes.float32, (8, 3)), build.param(1, dtypes.float32, (3,))
>>> one = build.add(build.param(0, dtypes.float32, (3,)), row)
>>> RULES["elementwise"](one, (x, row), (True, False), 8).shape
(8, 3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.op import other_axes
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp

BatchingRule = Callable[[UOp, tuple[UOp, ...], Sequence[bool], int], UOp]


def broadcast_batch(x: UOp, batched: bool, size: int) -> UOp:
    """Return x with a batch axis in front, broadcasting it if it has none."""
    return x if batched else build.expand(x, (size, *x.shape))


def _broadcast_all(src: Sequence[UOp], batched: Sequence[bool], size: int) -> tuple[UOp, ...]:
    return tuple([broadcast_batch(x, b, size) for x, b in zip(src, batched)])


def _elementwise(node: UOp, src: tuple[UOp, ...], batched: Sequence[bool], size: int) -> UOp:
    return node.with_operands(_broadcast_all(src, batched, size))


def _first_operand(node: UOp, src: tuple[UOp, ...], batched: Sequence[bool], size: int) -> UOp:
    """Rebuild an op whose value depends on its first operand only."""
    return node.with_operands(src)


def _reduce(node: UOp, src: tuple[UOp, ...], batched: Sequence[bool], size: int) -> UOp:
    return build.reduce(src[0], node.arg.monoid, [a + 1 for a in node.arg.axes], node.arg.first)


# ---- movement ---------------------------------------------------------------------------------


def _movement(node: UOp, src: tuple[UOp, ...], batched: Sequence[bool], size: int) -> UOp:
    return MOVEMENTS[node.op](node, src, batched, size)


def _pad(node: UOp, src: tuple[UOp, ...], batched: Sequence[bool], size: int) -> UOp:
    """A batched fill value is selected where the PAD of a mask is false."""
    x, fill = src
    if not batched[1]:
        return build.pad(x, [(0, 0), *node.arg], fill)
    padded = build.pad(broadcast_batch(x, batched[0], size), [(0, 0), *node.arg])
    in_bounds = build.pad(build.const(True, dtypes.bool_, node.src[0].shape), node.arg)
    fills = build.reshape(fill, (size,) + (1,) * len(node.shape))
    return build.where(build.expand(in_bounds, padded.shape), padded,
                       build.expand(fills, padded.shape))


def _shift_window(w: op_args.Window) -> tuple[int, int, int, int, int]:
    """Shift the arguments of a window by a leading batch axis."""
    return w.axis + 1, w.offset + 1, w.stride, w.dilation, w.length


MOVEMENTS: dict[Op, BatchingRule] = {
    ops.RESHAPE: lambda node, src, batched, size: build.reshape(src[0], (size, *node.arg)),
    ops.PERMUTE: lambda node, src, batched, size: build.permute(
        src[0], (0, *[a + 1 for a in node.arg])),
    ops.EXPAND: lambda node, src, batched, size: build.expand(src[0], (size, *node.arg)),
    ops.PAD: _pad,
    ops.SHRINK: lambda node, src, batched, size: build.shrink(src[0], [(0, size), *node.arg]),
    ops.FLIP: lambda node, src, batched, size: build.flip(src[0], [a + 1 for a in node.arg]),
    ops.UNFOLD: lambda node, src, batched, size: build.unfold(src[0], *_shift_window(node.arg)),
    ops.FOLD: lambda node, src, batched, size: build.fold(src[0], *_shift_window(node.arg)),
    ops.CONCAT: lambda node, src, batched, size: build.concat(
        _broadcast_all(src, batched, size), node.arg + 1),
}


# ---- indexed reads and writes -----------------------------------------------------------------


def _element(size: int, like: UOp) -> UOp:
    """The number of the batch element, at each element of an index array with a batch axis.

    The STOP_GRADIENT distinguishes it from indices of the user.
    """
    element_index = build.reshape(build.iota(size), (size,) + (1,) * (len(like.shape) - 1))
    return build.stop_gradient(build.expand(element_index, like.shape))


def _gather(node: UOp, src: tuple[UOp, ...], batched: Sequence[bool], size: int) -> UOp:
    x, *index = src
    axes = node.arg.axes
    moved = [a + 1 for a in axes]
    if not any(batched[1:]):  # only x is batched: the batch axis is not indexed
        gathered, ndim = build.gather(x, *index, axes=moved), len(index[0].shape)
        return build.permute(gathered, (ndim, *other_axes((ndim,), len(gathered.shape))))
    if index == [build.iota(size)] and not batched[0] and axes == (0,) and x.shape[0] == size:
        return x  # each element reads its own row
    index = list(_broadcast_all(index, batched[1:], size))
    return build.gather(x, _element(size, index[0]), *index, axes=(0, *moved)) if batched[0] else \
        build.gather(x, *index, axes=axes)


def _scatter(node: UOp, src: tuple[UOp, ...], batched: Sequence[bool], size: int) -> UOp:
    """Duplicates of a batch element stay in order, because the rows of an index array are
    consecutive."""
    x, *index, updates = src
    monoid, moved = node.arg.monoid, [a + 1 for a in node.arg.axes]
    if not any(batched[1:-1]):
        ndim = len(index[0].shape)
        updates = broadcast_batch(updates, batched[-1], size)
        updates = build.permute(updates, (*range(1, ndim + 1), 0,
                                          *range(ndim + 1, len(updates.shape))))
        return build.scatter(broadcast_batch(x, batched[0], size), index, updates, monoid, moved)
    x, *index, updates = _broadcast_all(src, batched, size)
    return build.scatter(x, [_element(size, index[0]), *index], updates, monoid, (0, *moved))


def _fft(node: UOp, src: tuple[UOp, ...], batched: Sequence[bool], size: int) -> UOp:
    """All batch elements have one table: it is a constant."""
    x, table = src
    if batched[1]:
        table = build.reshape(build.shrink(table, [(0, 1), (0, table.shape[1])]), table.shape[1:])
    arg = node.arg
    return build_calls.fft(broadcast_batch(x, batched[0], size), table, arg.axis + 1, arg.inverse,
                           arg.scale, arg.real)


RULES: dict[str, BatchingRule] = {
    "elementwise": _elementwise, "first": _first_operand, "movement": _movement, "reduce": _reduce,
    "gather": _gather, "scatter": _scatter, "fft": _fft,
}
