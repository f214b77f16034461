"""Push a slice through a sum of products, so that only the elements that are read are computed.

    before  SHRINK(REDUCE(x * y))
    after   REDUCE(SHRINK(x) * SHRINK(y))

The gradient of the input of a zero-padded convolution is such a slice: its elements at the zeros
are discarded. Movements may lie between the two. Below a RESHAPE of one long axis to rows only
whole rows are dropped; the rest is sliced after it.

>>> from fnx.core import dtypes
>>> x = build.param(0, dtypes.float32, (9, 4))
>>> w = build.expand(build.param(1, dtypes.float32, (4,)), (9, 4))
>>> rows = build.reshape(build.reduce(build.mul(x, w), ops.ADD, [1]), (3, 3))
>>> out, = parts_of_sums(build.function([build.shrink(rows, [(1, 3), (0, 2)])], 2)).src
>>> out.op.name, out.src[0].op.name, out.src[0].src[0].shape
('SHRINK', 'RESHAPE', (6,))
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from fnx.core import build, ops
from fnx.core.ops import Shape
from fnx.core.uop import UOp, consumers, rebuild, toposort

_MOVES = (ops.PERMUTE, ops.RESHAPE, ops.SHRINK)


def parts_of_sums(fn: UOp) -> UOp:
    """Return a FUNCTION in which sums of products are computed only where they are read."""
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op is ops.SHRINK for n in nodes):
        return fn
    readers = consumers(nodes)
    once = {n for n, by in readers.items() if len(by) == 1}.difference(fn.src)
    found = {n for n in nodes if n.op is ops.SHRINK and _is_of_sum(n.src[0], once)}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _part(src[0], node.arg) if node in found else None

    kernels = {n: n for n in nodes if n.op is ops.KERNEL}
    return fn.replace(src=tuple(rebuild(fn.src, visit, kernels))) if found else fn


def _is_of_sum(node: UOp, once: Collection[UOp]) -> bool:
    """Return whether only movements lie between a node and a sum of products, each with one
    consumer."""
    while node.op in _MOVES and node in once:
        node = node.src[0]
    return node in once and _is_sum(node)


def _is_sum(node: UOp) -> bool:
    return node.op is ops.REDUCE and node.arg.monoid is ops.ADD and node.src[0].op is ops.MUL


def _part(node: UOp, bounds: Sequence[tuple[int, int]]) -> UOp:
    """Slice a node, as far below the movements as possible."""
    if all(low == 0 and high == n for (low, high), n in zip(bounds, node.shape)):
        return node
    if node.op is ops.SHRINK:
        return _part(node.src[0], [(first + low, first + high) for (first, _), (low, high)
                                   in zip(node.arg, bounds)])
    if node.op is ops.PERMUTE:
        inner = [bounds[node.arg.index(a)] for a in range(len(bounds))]
        return build.permute(_part(node.src[0], inner), node.arg)
    if node.op is ops.RESHAPE:
        return _of_rows(node, bounds)
    if not _is_sum(node):
        return build.shrink(node, bounds)
    left = iter(bounds)
    inner = [(0, n) if a in node.arg.axes else next(left)
             for a, n in enumerate(node.src[0].shape)]
    factors = [build.shrink(s, inner) for s in node.src[0].src]
    return build.reduce(build.mul(*factors), ops.ADD, node.arg.axes)


def _of_rows(node: UOp, bounds: Sequence[tuple[int, int]]) -> UOp:
    """Slice a RESHAPE: whole rows before it, the rest after it."""
    x = node.src[0]
    inner, shape, rest = [], list(node.shape), list(bounds)
    for axis, n in enumerate(x.shape):
        at = _first(x.shape, axis, node.shape)
        if n == 1 or at is None:
            inner.append((0, n))
            continue
        row = n // node.shape[at]
        low, high = bounds[at]
        inner.append((low * row, high * row))
        shape[at], rest[at] = high - low, (0, high - low)
    return build.shrink(build.reshape(_part(x, inner), tuple(shape)), rest)


def _first(old: Shape, axis: int, new: Shape) -> int | None:
    """Return the outermost of the new axes that an old one, or its rows, become; None if there is
    none."""
    before, n = math.prod(old[:axis]), old[axis]
    for at, m in enumerate(new):
        if m > 1 and math.prod(new[:at]) == before:
            fits = any(math.prod(new[at:end]) == n for end in range(at + 1, len(new) + 1))
            return at if fits else None
    return None
