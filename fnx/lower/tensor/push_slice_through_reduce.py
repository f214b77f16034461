"""Push a slice through a sum of products, so that only the elements that are read are computed.

    before  SHRINK(REDUCE(x * y))
    after   REDUCE(SHRINK(x) * SHRINK(y))

The gradient of the input of a zero-padded convolution is such a slice: its elements at the zeros
are discarded. Movements may lie between the two. Below a RESHAPE of one long axis to rows only
whole rows are dropped; the rest is sliced after it.

A sum that is read in several parts is computed in as many, if it is large and they are long: of
``q, k, v = split(x @ w, 3)`` each is freed after its last use, and none is read with a stride.

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.float32, (9, 4))
>>> w = build.expand(build.param(1, dtypes.float32, (4,)), (9, 4))
>>> rows = build.reshape(build.reduce(build.mul(x, w), ops.ADD, [1]), (3, 3))
>>> out, = push_slice_through_reduce(build.function([build.shrink(rows, [(1, 3), (0, 2)])], 2)).src
>>> out.op.name, out.src[0].op.name, out.src[0].src[0].shape
('SHRINK', 'RESHAPE', (6,))
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, rebuild_results, toposort
from fnx.lower.analysis.memory import nbytes_of
from fnx.lower.analysis.tuning import MIN_SLICE, UNCACHED_BYTES

_MOVEMENTS = (ops.PERMUTE, ops.RESHAPE, ops.SHRINK)


def push_slice_through_reduce(fn: UOp) -> UOp:
    """Return a FUNCTION in which sums of products are computed only where they are read."""
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op is ops.SHRINK for n in nodes):
        return fn
    users = consumers(nodes)
    single_use = {n for n, by in users.items() if len(by) == 1 or _is_cut(n, by)
                  }.difference(fn.src)
    slices = {n for n in nodes if n.op is ops.SHRINK and _is_view_of_sum(n.src[0], single_use)}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _slice(src[0], node.arg) if node in slices else None

    kernels = {n: n for n in nodes if n.op is ops.KERNEL}
    return rebuild_results(fn, visit, kernels) if slices else fn


def _is_cut(node: UOp, users: Collection[UOp]) -> bool:
    """Whether a large value is only read in parts, each long enough for a product of its own."""
    return nbytes_of(node) >= UNCACHED_BYTES and \
        all(n.op is ops.SHRINK and _shortest_slice(n) >= MIN_SLICE for n in users) and \
        sum(map(nbytes_of, users)) <= nbytes_of(node)


def _shortest_slice(node: UOp) -> int:
    """Return the fewest elements that a SHRINK reads of an axis that it shortens."""
    return min([n for n, whole in zip(node.shape, node.src[0].shape) if n < whole], default=0)


def _is_view_of_sum(node: UOp, single_use: Collection[UOp]) -> bool:
    """Return whether only movements lie between a node and a sum of products, each with one
    consumer, or cut in long parts."""
    while node.op in _MOVEMENTS and node in single_use:
        node = node.src[0]
    return node in single_use and _is_sum(node)


def _is_sum(node: UOp) -> bool:
    return node.op is ops.REDUCE and node.arg.monoid is ops.ADD and node.src[0].op is ops.MUL


def _slice(node: UOp, bounds: Sequence[tuple[int, int]]) -> UOp:
    """Slice a node, as far below the movements as possible."""
    if all(low == 0 and high == n for (low, high), n in zip(bounds, node.shape)):
        return node
    if node.op is ops.SHRINK:
        return _slice(node.src[0], [(first + low, first + high) for (first, _), (low, high)
                                    in zip(node.arg, bounds)])
    if node.op is ops.PERMUTE:
        inner_bounds = [bounds[node.arg.index(a)] for a in range(len(bounds))]
        return build.permute(_slice(node.src[0], inner_bounds), node.arg)
    if node.op is ops.RESHAPE:
        return _slice_reshape(node, bounds)
    if not _is_sum(node):
        return build.shrink(node, bounds)
    remaining = iter(bounds)
    inner_bounds = [(0, n) if a in node.arg.axes else next(remaining)
                    for a, n in enumerate(node.src[0].shape)]
    factors = [build.shrink(s, inner_bounds) for s in node.src[0].src]
    return build.reduce(build.mul(*factors), ops.ADD, node.arg.axes)


def _slice_reshape(node: UOp, bounds: Sequence[tuple[int, int]]) -> UOp:
    """Slice a RESHAPE: whole rows before it, the rest after it."""
    x = node.src[0]
    inner_bounds, shape, remaining_bounds = [], list(node.shape), list(bounds)
    for axis, n in enumerate(x.shape):
        new_axis = _outermost_new_axis(x.shape, axis, node.shape)
        if n == 1 or new_axis is None:
            inner_bounds.append((0, n))
            continue
        row_length = n // node.shape[new_axis]
        low, high = bounds[new_axis]
        inner_bounds.append((low * row_length, high * row_length))
        shape[new_axis], remaining_bounds[new_axis] = high - low, (0, high - low)
    return build.shrink(build.reshape(_slice(x, inner_bounds), tuple(shape)), remaining_bounds)


def _outermost_new_axis(old_shape: Shape, axis: int, new_shape: Shape) -> int | None:
    """Return the outermost of the new axes that an old one, or its rows, become; None if there is
    none."""
    outer_size, n = math.prod(old_shape[:axis]), old_shape[axis]
    for new_axis, m in enumerate(new_shape):
        if m > 1 and math.prod(new_shape[:new_axis]) == outer_size:
            is_split = any(math.prod(new_shape[new_axis:end]) == n
                           for end in range(new_axis + 1, len(new_shape) + 1))
            return new_axis if is_split else None
    return None
