"""Rewrite the input gradient of a convolution as one contraction over windows.

    before  sum over k of FOLD(sum over o of g[n, p, o] * w[o, k])      [n, p, k] is materialized
    after   sum over k, o of UNFOLD(PAD(g))[n, p, o, K - 1 - k] * w[o, k]

A window contributes zero to elements that it does not reach, and so does a product with a factor
that is zero there. So the FOLD moves inside the sum, then to the factor that varies along its axis;
zeros (PAD) of strided windows move likewise. With a single feature, or in a depthwise convolution,
there is no inner sum and the rest is the same. With stride 1 a FOLD is an UNFOLD of the zero-padded
array with the windows in reverse order. (An infinite weight times these zeros is NaN, as it is in a
convolution with padding.)

>>> from fnx.core import dtypes
>>> g = build.param(0, dtypes.float32, (9, 4))
>>> w = build.param(1, dtypes.float32, (4, 3))
>>> both = [build.expand(build.reshape(g, (9, 4, 1)), (9, 4, 3)), build.expand(w, (9, 4, 3))]
>>> seen = build.reduce(build.mul(*both), ops.ADD, [1])
>>> total = build.reduce(build.fold(seen, 0, 1, 1, 1, 11), ops.ADD, [1])
>>> out, = folded_windows(build.function([total], 2)).src
>>> out.arg.axes, sorted(s.op.name for s in out.src[0].src)
((1, 2), ['FLIP', 'PERMUTE'])
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core import build, op_args, ops
from fnx.core.rewriting.pattern import constant_of
from fnx.core.uop import UOp, consumers, rebuild, toposort

_MOVES = (ops.FOLD, ops.PAD, ops.PERMUTE, ops.RESHAPE)
Change = Callable[[UOp, int], UOp]


def folded_windows(fn: UOp) -> UOp:
    """Return a FUNCTION in which sums of folded products, or of sums of them, are single sums of
    products."""
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op is ops.FOLD for n in nodes):
        return fn
    readers = consumers(nodes)
    once = {n for n, by in readers.items() if len(by) == 1}.difference(fn.src)
    found = {n: chain for n in nodes if (chain := _chain(n, once))}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _merged(node.over(src), len(found[node])) if node in found else None

    kernels = {n: n for n in nodes if n.op is ops.KERNEL}
    return fn.replace(src=tuple(rebuild(fn.src, visit, kernels))) if found else fn


def _is_sum(node: UOp) -> bool:
    return node.op is ops.REDUCE and node.arg.monoid is ops.ADD


def _is_zero(fill: UOp) -> bool:
    value = constant_of(fill)
    return value is not None and value.arg == 0


def _chain(node: UOp, once: set[UOp]) -> list[UOp]:
    """Return the movements between a sum and a product, or a sum of products; empty for any other
    node."""
    chain: list[UOp] = []
    if not _is_sum(node):
        return chain
    below = node.src[0]
    while below.op in _MOVES and below in once and not (
            below.op is ops.PAD and not _is_zero(below.src[1])):
        chain.append(below)
        below = below.src[0]
    folds = [n for n in chain if n.op is ops.FOLD]
    product = below.src[0] if _is_sum(below) and below in once else below
    fits = product.op is ops.MUL and product in once and folds and \
        all(n.arg.stride == 1 for n in folds)
    return chain if fits else []


def _merged(node: UOp, length: int) -> UOp:
    """Merge both sums into one; return ``node`` unchanged if a FOLD cannot move to one of the
    factors."""
    chain = []
    below = node.src[0]
    for _ in range(length):
        chain.append(below)
        below = below.src[0]
    product, axes = (below.src[0], below.arg.axes) if _is_sum(below) else (below, ())
    summed = len(axes)
    order = [*[a for a in range(len(product.shape)) if a not in axes], *axes]
    factors = [build.permute(s, order) for s in product.src]  # summed axes go last
    for move, folds in _joined(chain[::-1]):
        moved = _spread(folds, factors) if folds else _moved(move, factors, summed)
        if moved is None:
            return node
        factors = moved
    total = build.mul(*factors)
    rank = len(total.shape)
    return build.reduce(total, ops.ADD, [*node.arg.axes, *range(rank - summed, rank)])


def _joined(moves: list[UOp]) -> list[tuple[UOp, list[op_args.Window]]]:
    """Return movements in order, with consecutive FOLDs of one axis grouped."""
    out: list[tuple[UOp, list[op_args.Window]]] = []
    for move in moves:
        if move.op is not ops.FOLD:
            out.append((move, []))
        elif out and out[-1][1] and out[-1][1][0].axis == move.arg.axis:
            out[-1][1].append(move.arg)
        else:
            out.append((move, [move.arg]))
    return out


def _moved(move: UOp, factors: list[UOp], summed: int) -> list[UOp] | None:
    """Apply a movement of all axes but the last ones to both factors; None if it cannot move."""
    tail = factors[0].shape[len(factors[0].shape) - summed:]
    if move.op is ops.PAD:
        for axis, widths in enumerate(move.arg):
            if widths != (0, 0):
                padded = _with_zeros(factors, axis, widths)
                if padded is None:
                    return None
                factors = padded
        return factors
    if move.op is ops.RESHAPE:
        return [build.reshape(f, (*move.shape, *tail)) for f in factors]
    if move.op is ops.PERMUTE:
        rank = len(move.arg)
        return [build.permute(f, (*move.arg, *range(rank, rank + summed))) for f in factors]
    return None


def _with_zeros(factors: list[UOp], axis: int, widths: tuple[int, int]) -> list[UOp] | None:
    """Pad an axis of the factor that varies along it, and expand the other to the same length."""
    length = factors[0].shape[axis] + sum(widths)

    def wide(base: UOp, at: int) -> UOp:
        return _padded(base, at, *widths)

    for i, still in enumerate(factors):
        same = _at_base(still, axis, length, None)
        zeros = None if same is None else _at_base(factors[1 - i], axis, length, wide)
        if same is not None and zeros is not None:
            return [same, zeros] if i == 0 else [zeros, same]
    return None


def _spread(folds: list[op_args.Window], factors: list[UOp]) -> list[UOp] | None:
    """Apply FOLDs of one axis to the factor that varies along it; expand the other to their
    length."""
    axis, length = folds[0].axis, folds[-1].length
    for i, still in enumerate(factors):
        same = _at_base(still, axis, length, None)
        if same is not None:
            folded = _folded(factors[1 - i], folds)
            return [same, folded] if i == 0 else [folded, same]
    return None


def _folded(x: UOp, folds: list[op_args.Window]) -> UOp:
    """Express FOLDs with stride 1 along one axis as UNFOLDs.

    An element outside of an inner FOLD's result is outside of x, so that padding x with zeros
    suffices.
    """
    axis, n, length = folds[0].axis, x.shape[folds[0].axis], folds[-1].length
    reach = sum([(x.shape[w.offset] - 1) * w.dilation for w in folds])
    row = _row(x, axis)
    before, after = -(-reach // row) * row, -(-max(0, length - n) // row) * row

    def wide(base: UOp, at: int) -> UOp:
        if base.op is ops.RESHAPE and row > 1:  # add whole rows
            outer = _leading(base, at)
            inner = _padded(base.src[0], outer, before // row, after // row)
            return build.reshape(inner, (*base.shape[:at], before + n + after,
                                         *base.shape[at + 1:]))
        return _padded(base, at, before, after)

    def turned(base: UOp, at: int) -> UOp:
        return build.flip(base, [at])

    padded = _at_base(x, axis, before + n + after, wide)
    assert padded is not None
    bounds = [(0, m) for m in padded.shape]
    bounds[axis] = (before - reach, before + length)
    out = build.shrink(padded, bounds)
    offsets = [w.offset for w in folds]
    for w in folds:
        back = _at_base(out, w.offset, out.shape[w.offset], turned)
        assert back is not None
        out = back
    for w in folds:
        out = build.unfold(out, axis, w.offset, 1, w.dilation)
    return build.flip(out, offsets)


def _padded(x: UOp, axis: int, before: int, after: int) -> UOp:
    widths = [(before, after) if a == axis else (0, 0) for a in range(len(x.shape))]
    return build.pad(x, widths)


def _row(x: UOp, axis: int) -> int:
    """Return how many neighbors along the axis form a row of the array before a RESHAPE; 1 if none
    do."""
    while x.op in (ops.EXPAND, ops.PERMUTE, ops.RESHAPE):
        source = axis if x.op is ops.EXPAND else \
            x.arg[axis] if x.op is ops.PERMUTE else _aligned(x, axis)
        if source < 0:
            outer = _leading(x, axis)
            return x.shape[axis] // x.src[0].shape[outer] if outer >= 0 else 1
        x, axis = x.src[0], source
    return 1


def _leading(x: UOp, axis: int) -> int:
    """Return the outermost of the axes that a RESHAPE merged into one, or -1."""
    old, n = x.src[0].shape, x.shape[axis]
    before = math.prod(x.shape[:axis])
    for a in range(len(old)):
        if math.prod(old[:a]) == before and old[a] > 1:
            ends = [math.prod(old[a:b]) for b in range(a + 1, len(old) + 1)]
            return a if n in ends else -1
    return -1


def _at_base(x: UOp, axis: int, length: int, change: Change | None) -> UOp | None:
    """Apply a change along one axis at the node where that axis originates; it then has this
    length.

    Where x is constant along the axis, only the length changes. If x varies along the axis and
    there is no change to apply, return None.
    """
    shape = (*x.shape[:axis], length, *x.shape[axis + 1:])
    source = axis
    if x.op is ops.EXPAND:
        if x.src[0].shape[axis] == 1:
            return build.expand(x.src[0], shape)
    elif x.op is ops.PERMUTE:
        source = x.arg[axis]
    elif x.op is ops.RESHAPE:
        source = _aligned(x, axis)
    elif x.op is ops.SHRINK and x.arg[axis] == (0, x.src[0].shape[axis]):
        inner = _at_base(x.src[0], axis, length, change)
        return None if inner is None else build.shrink(
            inner, [*x.arg[:axis], (0, length), *x.arg[axis + 1:]])
    else:
        source = -1
    if source < 0:
        return None if change is None else change(x, axis)
    inner = _at_base(x.src[0], source, length, change)
    if inner is None:
        return None
    if x.op is ops.EXPAND:
        return build.expand(inner, shape)
    return build.permute(inner, x.arg) if x.op is ops.PERMUTE else build.reshape(inner, shape)


def _aligned(x: UOp, axis: int) -> int:
    """Return the axis before a RESHAPE that becomes this one, or -1."""
    old, new = x.src[0].shape, x.shape
    before, n = math.prod(new[:axis]), new[axis]
    for a, m in enumerate(old):
        if m == n and math.prod(old[:a]) == before and (n > 1 or len(old) == 1):
            return a
    return -1
