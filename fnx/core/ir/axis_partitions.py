"""Partitions of arrays: for each axis the names of the axes of a mesh or a grid that cut it.

``axis_maps`` is the table of which axes of the operands of an op are axes of its result. The
shardings of results follow from it (fnx/sharding), and so does what each process computes of an op
(fnx/lower/partition).

>>> reshaped((8, 3), (2, 4, 3), (("a", "b"), ()), {"a": 2, "b": 2})
((('a', 'b'), ()), (('a',), ('b',), ()))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from fnx.core.ir import ops
from fnx.core.ir.op import other_axes
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp

Names = tuple[Hashable, ...]
Partitions = tuple[Names, ...]
AxisMap = tuple[int | None, ...]  # for each axis of an operand: that of the result, or None


def axis_maps(node: UOp) -> list[AxisMap]:
    """Return the axis maps of the operands of an op. An axis that is none of the result must be
    whole, except if a REDUCE sums over it; what has no rule has no such axes."""
    if node.op.kind in ("elementwise", "pair"):
        return [tuple(range(len(node.shape)))] * len(node.src)
    if (rule := _MAPS.get(node.op)) is None:
        return [(None,) * len(x.shape) for x in node.src]
    return rule(node)


def fit(parts: Partitions, shape: Shape, sizes: Mapping[Hashable, int]) -> Partitions:
    """Return partitions of a shape: each name once, all parts even."""
    used: set[Hashable] = set()
    out = []
    for n, part in zip(shape, (*parts, *[()] * len(shape))):
        fitting = []
        for name in part:
            if name in used or not isinstance(n, int) or n % sizes[name]:
                break
            n //= sizes[name]
            used.add(name)
            fitting.append(name)
        out.append(tuple(fitting))
    return tuple(out)


def reshaped(old: Shape, new: Shape, parts: Partitions, sizes: Mapping[Hashable, int]
             ) -> tuple[Partitions, Partitions]:
    """Return the partitions that a RESHAPE leaves as they are, of its operand and of its result.

    In a group of axes of equal products the cuts of the outermost axes stay. Those of the next axis
    do, too, if the one before is cut into parts of length 1.
    """
    before: list[Names] = [()] * len(old)
    after: list[Names] = [()] * len(new)
    for olds, news in _groups(old, new):
        free = iter(news)
        j, rest = -1, 1
        for i in olds:
            length = old[i]
            for name in parts[i]:
                size = sizes[name]
                while rest == 1 and (j := next(free, -1)) >= 0:
                    rest = new[j]
                if j < 0 or rest % size:
                    break
                rest, length = rest // size, length // size
                before[i], after[j] = (*before[i], name), (*after[j], name)
            if length != 1:
                break
    return tuple(before), tuple(after)


def _groups(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the axes, except those of length 1, of groups of equal products."""
    if not all(isinstance(n, int) and n for n in (*old, *new)):
        return
    olds, news = [i for i, n in enumerate(old) if n != 1], [j for j, n in enumerate(new) if n != 1]
    while olds and news:
        a, b = [olds.pop(0)], [news.pop(0)]
        while (p := math.prod([old[i] for i in a])) != (q := math.prod([new[j] for j in b])):
            if p < q:
                a.append(olds.pop(0))
            else:
                b.append(news.pop(0))
        yield a, b


def _same_length(node: UOp) -> list[AxisMap]:
    """Axes that keep their length."""
    x = node.src[0]
    return [tuple([i if n == m else None for i, (n, m) in enumerate(zip(x.shape, node.shape))]),
            *[()] * (len(node.src) - 1)]


def _except(axes: Callable[[UOp], Sequence[int]]) -> Callable[[UOp], list[AxisMap]]:
    """Each axis of all operands but those."""
    return lambda node: [tuple([None if i in axes(node) else i for i in range(len(x.shape))])
                         for x in node.src]


def _reduce(node: UOp) -> list[AxisMap]:
    return [_positions(node.arg.axes, len(node.src[0].shape), 0)]


def _positions(axes: Sequence[int], rank: int, first: int) -> AxisMap:
    """The axes of an array that are not in ``axes``, in order from ``first``."""
    at = {a: first + i for i, a in enumerate(other_axes(axes, rank))}
    return tuple([at.get(a) for a in range(rank)])


def _gather(node: UOp) -> list[AxisMap]:
    x, *index = node.src
    n = len(index[0].shape) if index else 0
    return [_positions(node.arg.axes, len(x.shape), n), *[tuple(range(n))] * len(index)]


def _scatter(node: UOp) -> list[AxisMap]:
    x, *index, updates = node.src
    n, rest = len(index[0].shape), other_axes(node.arg.axes, len(x.shape))
    return [tuple([i if i in rest else None for i in range(len(x.shape))]),
            *[(None,) * n] * len(index), (*[None] * n, *rest)]


CORE_AXES = {ops.SORT: 1, ops.LINALG: 2}  # -> the last axes, which must be whole

# Ops that need an axis whole, whose results have it: that may be cut as the operand's is.
_WHOLE_BUT_SIMILAR = frozenset({ops.CONCAT, ops.FLIP, ops.SCATTER})


def similar_axes(node: UOp) -> list[AxisMap]:
    """Return ``axis_maps``, and also axes that must be whole in the operand but are axes of the
    result: users expect that ``x.at[0].set(0)`` is cut as x is, and memory does."""
    maps = axis_maps(node)
    if node.op not in _WHOLE_BUT_SIMILAR:
        return maps
    rank = len(node.shape)
    same = tuple(range(rank))
    return [same] * len(maps) if node.op is ops.CONCAT else [same, *maps[1:]]


_MAPS: dict[Op, Callable[[UOp], list[AxisMap]]] = {
    ops.STOP_GRADIENT: _except(lambda node: ()),
    ops.BARRIER: lambda node: [tuple(range(len(node.shape))),
                               *[(None,) * len(x.shape) for x in node.src[1:]]],
    ops.PERMUTE: lambda node: [tuple([node.arg.index(i) for i in range(len(node.arg))])],
    ops.EXPAND: _same_length, ops.PAD: _same_length, ops.SHRINK: _same_length,
    ops.CONCAT: _except(lambda node: (node.arg,)), ops.FLIP: _except(lambda node: node.arg),
    ops.UNFOLD: _except(lambda node: (node.arg.axis, node.arg.offset)),
    ops.FOLD: _except(lambda node: (node.arg.axis, node.arg.offset)),
    ops.FFT: lambda node: [tuple([None if i in (node.arg.axis, len(node.shape) - 1) else i
                                  for i in range(len(node.shape))]), (None,)],
    ops.GATHER: _gather, ops.SCATTER: _scatter, ops.REDUCE: _reduce,
}
