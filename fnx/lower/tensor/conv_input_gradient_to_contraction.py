"""Rewrite the input gradient of a convolution as one contraction over windows.

    before  sum over k of FOLD(sum over o of g[n, p, o] * w[o, k])      [n, p, k] is materialized
    after   sum over k, o of UNFOLD(PAD(g))[n, p, o, K - 1 - k] * w[o, k]

A window contributes zero to elements that it does not reach, and so does a product with a factor
that is zero there. So the FOLD moves inside the sum, then to the factor that varies along its axis;
zeros (PAD) of strided windows move likewise. With a single feature, or in a depthwise convolution,
there is no inner sum and the rest is the same. With stride 1 a FOLD is an UNFOLD of the zero-padded
array with the windows in reverse order. (An infinite weight times these zeros is NaN, as it is in a
convolution with padding.) A PERMUTE of the result moves to the factors, too.

>>> from fnx.core.ir import dtypes
>>> g = build.param(0, dtypes.float32, (9, 4))
>>> w = build.param(1, dtypes.float32, (4, 3))
>>> both = [build.expand(build.reshape(g, (9, 4, 1)), (9, 4, 3)), build.expand(w, (9, 4, 3))]
>>> seen = build.reduce(build.mul(*both), ops.ADD, [1])
>>> total = build.reduce(build.fold(seen, 0, 1, 1, 1, 11), ops.ADD, [1])
>>> out, = conv_input_gradient_to_contraction(build.function([total], 2)).src
>>> out.arg.axes, sorted(s.op.name for s in out.src[0].src)
((1, 2), ['FLIP', 'PERMUTE'])
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core.ir import build, op_args, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.uop import UOp, rebuild_results, toposort
from fnx.core.rewriting.rewrite import underlying_const

_MOVEMENTS = (ops.FOLD, ops.PAD, ops.PERMUTE, ops.RESHAPE)
AxisChange = Callable[[UOp, int], UOp]


def conv_input_gradient_to_contraction(fn: UOp) -> UOp:
    """Return a FUNCTION in which sums of folded products, or of sums of them, are single sums of
    products."""
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op is ops.FOLD for n in nodes):
        return fn
    users = consumers(nodes)
    single_use = {n for n, by in users.items() if len(by) == 1}.difference(fn.src)
    chains = {n: chain for n in nodes if (chain := _movement_chain(n, single_use))}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in chains:
            return _merge_sums(node.with_operands(src), len(chains[node]))
        if node.op is not ops.PERMUTE or not single_use.issuperset(node.src):
            return None
        below = node.src[0].src[0] if node.src[0].op is ops.SHRINK else node.src[0]
        return _permute_sum(src[0], node.arg) if below in chains and below in single_use else None

    kernels = {n: n for n in nodes if n.op is ops.KERNEL}
    return rebuild_results(fn, visit, kernels) if chains else fn


def _is_sum(node: UOp) -> bool:
    return node.op is ops.REDUCE and node.arg.monoid is ops.ADD


def _is_zero(fill: UOp) -> bool:
    value = underlying_const(fill)
    return value is not None and value.arg == 0


def _movement_chain(node: UOp, single_use: set[UOp]) -> list[UOp]:
    """Return the movements between a sum and a product, or a sum of products; empty for any other
    node."""
    chain: list[UOp] = []
    if not _is_sum(node):
        return chain
    node_below = node.src[0]
    while node_below.op in _MOVEMENTS and node_below in single_use and not (
            node_below.op is ops.PAD and not _is_zero(node_below.src[1])):
        chain.append(node_below)
        node_below = node_below.src[0]
    folds = [n for n in chain if n.op is ops.FOLD]
    product = node_below.src[0] if _is_sum(node_below) and node_below in single_use else node_below
    is_match = product.op is ops.MUL and product in single_use and folds and \
        all(n.arg.stride == 1 for n in folds)
    return chain if is_match else []


def _merge_sums(node: UOp, length: int) -> UOp:
    """Merge both sums into one; return ``node`` unchanged if a FOLD cannot move to one of the
    factors."""
    chain = []
    node_below = node.src[0]
    for _ in range(length):
        chain.append(node_below)
        node_below = node_below.src[0]
    product, axes = (node_below.src[0], node_below.arg.axes) if _is_sum(node_below) else \
        (node_below, ())
    n_summed = len(axes)
    order = [*[a for a in range(len(product.shape)) if a not in axes], *axes]
    factors = [build.permute(s, order) for s in product.src]  # summed axes go last
    for movement, folds in _group_folds(chain[::-1]):
        moved_factors = _fold_factor(folds, factors) if folds else \
            _move_factors(movement, factors, n_summed)
        if moved_factors is None:
            return node
        factors = moved_factors
    total = build.mul(*factors)
    rank = len(total.shape)
    return build.reduce(total, ops.ADD, [*node.arg.axes, *range(rank - n_summed, rank)])


def _permute_sum(x: UOp, order: tuple[int, ...]) -> UOp:
    """Permute a sum of products, or a part of it, by its factors: so it is written in the order in
    which it is read, that of the channels of the operands."""
    if x.op is ops.SHRINK:
        return build.shrink(_permute_sum(x.src[0], order), [x.arg[a] for a in order])
    product = x.src[0]
    if not _is_sum(x) or product.op is not ops.MUL:
        return build.permute(x, order)
    axes = x.arg.axes
    remaining = [a for a in range(len(product.shape)) if a not in axes]
    moved = [*[remaining[a] for a in order], *axes]
    factors = [build.permute(s, moved) for s in product.src]
    return build.reduce(build.mul(*factors), ops.ADD, range(len(order), len(moved)))


def _group_folds(moves: list[UOp]) -> list[tuple[UOp, list[op_args.Window]]]:
    """Return movements in order, with consecutive FOLDs of one axis grouped."""
    groups: list[tuple[UOp, list[op_args.Window]]] = []
    for movement in moves:
        if movement.op is not ops.FOLD:
            groups.append((movement, []))
        elif groups and groups[-1][1] and groups[-1][1][0].axis == movement.arg.axis:
            groups[-1][1].append(movement.arg)
        else:
            groups.append((movement, [movement.arg]))
    return groups


def _move_factors(movement: UOp, factors: list[UOp], n_summed: int) -> list[UOp] | None:
    """Apply a movement of all axes but the last ones to both factors; None if it cannot move."""
    summed_shape = factors[0].shape[len(factors[0].shape) - n_summed:]
    if movement.op is ops.PAD:
        for axis, widths in enumerate(movement.arg):
            if widths != (0, 0):
                padded = _pad_factor(factors, axis, widths)
                if padded is None:
                    return None
                factors = padded
        return factors
    if movement.op is ops.RESHAPE:
        return [build.reshape(f, (*movement.shape, *summed_shape)) for f in factors]
    if movement.op is ops.PERMUTE:
        rank = len(movement.arg)
        return [build.permute(f, (*movement.arg, *range(rank, rank + n_summed))) for f in factors]
    return None


def _pad_factor(factors: list[UOp], axis: int, widths: tuple[int, int]) -> list[UOp] | None:
    """Pad an axis of the factor that varies along it, and expand the other to the same length."""
    length = factors[0].shape[axis] + sum(widths)

    def pad_base(base: UOp, at: int) -> UOp:
        return _pad_axis(base, at, *widths)

    for i, constant_factor in enumerate(factors):
        expanded = _change_at_origin(constant_factor, axis, length, None)
        padded_factor = None if expanded is None else \
            _change_at_origin(factors[1 - i], axis, length, pad_base)
        if expanded is not None and padded_factor is not None:
            return [expanded, padded_factor] if i == 0 else [padded_factor, expanded]
    return None


def _fold_factor(folds: list[op_args.Window], factors: list[UOp]) -> list[UOp] | None:
    """Apply FOLDs of one axis to the factor that varies along it; expand the other to their
    length."""
    axis, length = folds[0].axis, folds[-1].length
    for i, constant_factor in enumerate(factors):
        expanded = _change_at_origin(constant_factor, axis, length, None)
        if expanded is not None:
            folded = _fold_as_unfold(factors[1 - i], folds)
            return [expanded, folded] if i == 0 else [folded, expanded]
    return None


def _fold_as_unfold(x: UOp, folds: list[op_args.Window]) -> UOp:
    """Express FOLDs with stride 1 along one axis as UNFOLDs.

    An element outside of an inner FOLD's result is outside of x, so that padding x with zeros
    suffices.
    """
    axis, n, length = folds[0].axis, x.shape[folds[0].axis], folds[-1].length
    reach = sum([(x.shape[w.offset] - 1) * w.dilation for w in folds])
    row_length = _row_length(x, axis)
    padding_before = -(-reach // row_length) * row_length
    padding_after = -(-max(0, length - n) // row_length) * row_length

    def pad_base(base: UOp, at: int) -> UOp:
        if base.op is ops.RESHAPE and row_length > 1:  # add whole rows
            outer = _outer_merged_axis(base, at)
            inner = _pad_axis(base.src[0], outer, padding_before // row_length,
                              padding_after // row_length)
            return build.reshape(inner, (*base.shape[:at], padding_before + n + padding_after,
                                         *base.shape[at + 1:]))
        return _pad_axis(base, at, padding_before, padding_after)

    def reverse(base: UOp, at: int) -> UOp:
        return build.flip(base, [at])

    padded = _change_at_origin(x, axis, padding_before + n + padding_after, pad_base)
    assert padded is not None
    bounds = [(0, m) for m in padded.shape]
    bounds[axis] = (padding_before - reach, padding_before + length)
    slice_ = build.shrink(padded, bounds)
    offsets = [w.offset for w in folds]
    for w in folds:
        reversed_windows = _change_at_origin(slice_, w.offset, slice_.shape[w.offset], reverse)
        assert reversed_windows is not None
        slice_ = reversed_windows
    for w in folds:
        slice_ = build.unfold(slice_, axis, w.offset, 1, w.dilation)
    return build.flip(slice_, offsets)


def _pad_axis(x: UOp, axis: int, before: int, after: int) -> UOp:
    widths = [(before, after) if a == axis else (0, 0) for a in range(len(x.shape))]
    return build.pad(x, widths)


def _row_length(x: UOp, axis: int) -> int:
    """Return how many neighbors along the axis form a row of the array before a RESHAPE; 1 if none
    do."""
    while x.op in (ops.EXPAND, ops.PERMUTE, ops.RESHAPE):
        source_axis = axis if x.op is ops.EXPAND else \
            x.arg[axis] if x.op is ops.PERMUTE else _source_axis(x, axis)
        if source_axis < 0:
            outer = _outer_merged_axis(x, axis)
            return x.shape[axis] // x.src[0].shape[outer] if outer >= 0 else 1
        x, axis = x.src[0], source_axis
    return 1


def _outer_merged_axis(x: UOp, axis: int) -> int:
    """Return the outermost of the axes that a RESHAPE merged into one, or -1."""
    old_shape, n = x.src[0].shape, x.shape[axis]
    outer_size = math.prod(x.shape[:axis])
    for a in range(len(old_shape)):
        if math.prod(old_shape[:a]) == outer_size and old_shape[a] > 1:
            merged_sizes = [math.prod(old_shape[a:b]) for b in range(a + 1, len(old_shape) + 1)]
            return a if n in merged_sizes else -1
    return -1


def _change_at_origin(x: UOp, axis: int, length: int, change: AxisChange | None) -> UOp | None:
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
        source = _source_axis(x, axis)
    elif x.op is ops.SHRINK and x.arg[axis] == (0, x.src[0].shape[axis]):
        inner = _change_at_origin(x.src[0], axis, length, change)
        return None if inner is None else build.shrink(
            inner, [*x.arg[:axis], (0, length), *x.arg[axis + 1:]])
    else:
        source = -1
    if source < 0:
        return None if change is None else change(x, axis)
    inner = _change_at_origin(x.src[0], source, length, change)
    if inner is None:
        return None
    if x.op is ops.EXPAND:
        return build.expand(inner, shape)
    return build.permute(inner, x.arg) if x.op is ops.PERMUTE else build.reshape(inner, shape)


def _source_axis(x: UOp, axis: int) -> int:
    """Return the axis before a RESHAPE that becomes this one, or -1."""
    old_shape, new_shape = x.src[0].shape, x.shape
    outer_size, n = math.prod(new_shape[:axis]), new_shape[axis]
    for a, m in enumerate(old_shape):
        if m == n and math.prod(old_shape[:a]) == outer_size and (n > 1 or len(old_shape) == 1):
            return a
    return -1
