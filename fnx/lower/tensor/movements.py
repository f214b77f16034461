"""Rules of simplify for movements, constants and nodes without elements.

    shrink(pad(x))                  ->  shrink(x), or pad(shrink(x)), or x
    permute(permute(x)), ...        ->  one movement
    expand(x) * expand(y)           ->  expand(x * y), where x and y have one shape
    any movement of a constant      ->  the constant, expanded
    any node with no elements       ->  a constant, expanded to its shape

Thus empty arrays remain as parameters and results only: every later pass may assume that each
extent it loops over is at least 1.
"""

from __future__ import annotations

import math

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.pattern import CONSTANT_OPS, UPat, underlying_const, var
from fnx.core.rewriting.rewrite import RewriteRule
from fnx.lower.tensor.algebra import broadcast_like

# parts above which a kernel does not select among them (fusion/concat_in_place.py)
MAX_CONCAT_PARTS = 64
x = var("x")
_NAMED_AXIS_OPS = {ops.ALL_GATHER, ops.AXIS_INDEX}  # batching has removed these
_VALUES = frozenset(op for op in ops.OPS.values() if "t" in op.levels
                    and op.kind not in ("scope", "source", "host", "pair")) - _NAMED_AXIS_OPS | {
    ops.GETTUPLE, ops.IOTA}
_SAME_ELEMENTS = frozenset({ops.RESHAPE, ops.PERMUTE, ops.EXPAND, ops.SHRINK, ops.FLIP,
                            ops.CONCAT, ops.PAD, ops.UNFOLD})


# ---- constants --------------------------------------------------------------------------------


def _move_constant(node: UOp) -> UOp | None:
    """Rewrite a movement whose elements are all one constant as an EXPAND."""
    first = underlying_const(node.src[0])
    if first is None or any(underlying_const(s) is not first for s in node.src[1:]):
        return None
    return build.expand(first, node.shape)


def _gather_constant(node: UOp) -> UOp | None:
    value = underlying_const(node.src[0])
    return None if value is None else build.expand(value, node.shape)


def _fold_zeros(node: UOp) -> UOp | None:
    """Fold a FOLD of zeros, or of no windows, into zeros."""
    value = underlying_const(node.src[0])
    zeros = value is not None and value.arg == 0 or 0 in node.src[0].shape
    return broadcast_like(0, node) if zeros else None


def _reduce_constant(node: UOp) -> UOp | None:
    """Fold a MAX, MIN, AND or OR of equal elements, and any reduction over no elements."""
    monoid, value = node.arg.monoid, underlying_const(node.src[0])
    if math.prod(node.src[0].shape) == 0:
        return broadcast_like(monoid.identity(node.dtype), node)
    if value is not None and monoid in (ops.MAX, ops.MIN, ops.AND, ops.OR):
        return build.expand(value, node.shape)
    return None


CONSTANT_RULES = [
    RewriteRule(UPat(_VALUES, None, "node"), lambda node: broadcast_like(0, node),
                lambda node: 0 in node.shape and underlying_const(node) is None
                and not (node.op is ops.GETTUPLE and node.src[0].op is not ops.SORT
                         and build_calls.is_token(node)), "no elements"),
    RewriteRule(UPat(_SAME_ELEMENTS, None, "node"), _move_constant, name="movement of a constant",
                required_ops=CONSTANT_OPS),
    RewriteRule(UPat(ops.FOLD, None, "node"), _fold_zeros, name="fold of zeros",
                required_ops=CONSTANT_OPS),
    RewriteRule(UPat(ops.REDUCE, None, "node"), _reduce_constant, name="fold of a constant"),
    RewriteRule(UPat(ops.GATHER, None, "node"), _gather_constant, name="gather from a constant",
                required_ops=CONSTANT_OPS),
    RewriteRule(UPat(ops.SCATTER, None, "node"), lambda node: node.src[0],
                lambda node: 0 in node.src[-1].shape, "scatter of nothing"),
    RewriteRule(UPat(ops.PAD, None, "node"), lambda node: build.expand(node.src[1], node.shape),
                lambda node: 0 in node.src[0].shape, "pad of nothing"),
]


# ---- composed movements


def _pad_twice(x: UOp, fill: UOp, inner: UOp, outer: UOp) -> UOp:
    widths = [(a + c, b + d) for (a, b), (c, d) in zip(inner.arg, outer.arg)]
    return build.pad(x, widths, fill)


def _shrink_twice(x: UOp, inner: UOp, outer: UOp) -> UOp:
    return build.shrink(x, [(a + lo, a + hi)
                            for (a, _), (lo, hi) in zip(inner.arg, outer.arg)])


def _shrink_pad(x: UOp, fill: UOp, inner: UOp, outer: UOp) -> UOp:
    bounds, widths = [], []
    for n, (before, _), (lo, hi) in zip(x.shape, inner.arg, outer.arg):
        start, stop = (min(max(v - before, 0), n) for v in (lo, hi))
        bounds.append((start, stop))
        widths.append((min(before, hi) - min(before, lo),
                       hi - lo - (stop - start) - (min(before, hi) - min(before, lo))))
    return build.pad(build.shrink(x, bounds), widths, fill)


def _shrink_expand(x: UOp, outer: UOp) -> UOp:
    inner_bounds = [(0, 1) if n == 1 else bounds for n, bounds in zip(x.shape, outer.arg)]
    return build.expand(build.shrink(x, inner_bounds), outer.shape)


def _shrink_concat(inner: UOp, outer: UOp) -> UOp | None:
    """Keep only the parts that the bounds touch, if that is not all of them."""
    axis, start, parts = inner.arg, 0, []
    low, high = outer.arg[axis]
    for s in inner.src:
        n = s.shape[axis]
        lo, hi = max(low - start, 0), min(high - start, n)
        if lo < hi:
            parts.append(build.shrink(s, (*outer.arg[:axis], (lo, hi), *outer.arg[axis + 1:])))
        start += n
    return build.concat(parts, axis) if 0 < len(parts) < len(inner.src) else None


def _concat(node: UOp) -> UOp | None:
    """Drop empty parts, and flatten nested parts along the same axis."""
    parts: list[UOp] = []
    for s in node.src:
        if s.op is ops.CONCAT and s.arg == node.arg:
            parts += s.src
        elif s.shape[node.arg]:
            parts.append(s)
    return build.concat(parts, node.arg) if parts and tuple(parts) != node.src else None


def _concat_first_axis(node: UOp) -> UOp | None:
    """Concatenate many parts along the first axis, then transpose: there the parts are
    contiguous."""
    axis, rank = node.arg, len(node.shape)
    if len(node.src) <= MAX_CONCAT_PARTS or math.prod(node.shape[:axis]) == 1:
        return None
    order = (axis, *[a for a in range(rank) if a != axis])
    inverse = tuple([order.index(a) for a in range(rank)])
    return build.permute(build.concat([build.permute(s, order) for s in node.src], 0), inverse)


def _permute_to_reshape(node: UOp) -> UOp | None:
    """Rewrite a PERMUTE that moves only axes of length 1 as a RESHAPE."""
    moved_axes = [a for a in node.arg if node.src[0].shape[a] != 1]
    return build.reshape(node.src[0], node.shape) if moved_axes == sorted(moved_axes) else None


_inner, _fill = UPat(ops.PAD, (x, var("fill")), "inner"), var("fill")

def _unfold_to_shrink(node: UOp) -> UOp | None:
    """Rewrite consecutive windows of one element as a SHRINK."""
    x, w = node.src[0], node.arg
    if x.shape[w.offset] != 1 or w.stride != 1:
        return None
    return build.shrink(x, [(0, w.length if a == w.axis else n) for a, n in enumerate(x.shape)])


MOVEMENT_RULES = [
    RewriteRule(UPat(ops.UNFOLD, None, "node"), _unfold_to_shrink, name="windows of one element"),
    RewriteRule(UPat(ops.RESHAPE, (UPat(ops.RESHAPE, (x,)),), "node"),
                lambda x, node: build.reshape(x, node.arg), name="reshape of reshape"),
    RewriteRule(UPat(ops.PERMUTE, (UPat(ops.PERMUTE, (x,)),), "node"),
                lambda x, node: build.permute(node.src[0], node.arg), name="permute of permute"),
    RewriteRule(UPat(ops.PERMUTE, None, "node"), _permute_to_reshape, name="permute as reshape"),
    RewriteRule(UPat(ops.EXPAND, (UPat(ops.EXPAND, (x,)),), "node"),
                lambda x, node: build.expand(x, node.arg), name="expand of expand"),
    RewriteRule(UPat(ops.FLIP, (UPat(ops.FLIP, (x,), "inner"),), "node"),
                lambda x, inner, node: build.flip(x, set(inner.arg) ^ set(node.arg)),
                name="flip of flip"),
    RewriteRule(UPat(ops.PAD, (_inner, _fill), "outer"), _pad_twice, name="pad of pad"),
    RewriteRule(UPat(ops.SHRINK, (UPat(ops.SHRINK, (x,), "inner"),), "outer"), _shrink_twice,
                name="shrink of shrink"),
    RewriteRule(UPat(ops.SHRINK, (_inner,), "outer"), _shrink_pad, name="shrink of pad"),
    RewriteRule(UPat(ops.SHRINK, (UPat(ops.EXPAND, (x,)),), "outer"), _shrink_expand,
                name="shrink of expand"),
    RewriteRule(UPat(ops.SHRINK, (UPat(ops.CONCAT, None, "inner"),), "outer"), _shrink_concat,
                name="shrink of concat"),
    RewriteRule(UPat(ops.CONCAT, None, "node"), _concat, name="concat of concat"),
    RewriteRule(UPat(ops.CONCAT, None, "node"), _concat_first_axis, name="concat of many parts"),
    RewriteRule(UPat(ops.STOP_GRADIENT, (x,)), x, name="stop: only derivatives see it"),
]


# ---- moving past other nodes


def _before_expand(node: UOp) -> UOp | None:
    """Move elementwise work before the EXPAND that all operands share, to fewer elements."""
    constants = [underlying_const(s) for s in node.src]
    operands = [s for s, k in zip(node.src, constants) if k is None]
    if any(s.op is not ops.EXPAND for s in operands):
        return None
    shapes = {s.src[0].shape for s in operands} or {()}
    shape = shapes.pop()
    if shapes or math.prod(shape) >= math.prod(node.shape):
        return None
    src = [s.src[0] if k is None else build.expand(k, shape)
           for s, k in zip(node.src, constants)]
    return build.expand(UOp(node.op, node.dtype, tuple(src), node.arg), node.shape)


def _drop_unit_axes(node: UOp) -> UOp | None:
    """Drop reduced axes of length 1. A float sum starts from +0, so -0.0 is lost."""
    operand, monoid = node.src[0], node.arg.monoid
    starts_from_zero = node.dtype.is_float and (monoid is ops.ADD or not monoid.exact)
    unit_axes = [a for a in node.arg.axes if operand.shape[a] == 1]
    if not unit_axes or operand.op is ops.ARG_PAIR or (starts_from_zero and
                                                       len(unit_axes) < len(node.arg.axes)):
        return None
    remaining = [a for a in range(len(operand.shape)) if a not in unit_axes]
    squeezed = build.reshape(operand, tuple(operand.shape[a] for a in remaining))
    reduced_axes = [remaining.index(a) for a in node.arg.axes if a not in unit_axes]
    if reduced_axes:
        return build.reduce(squeezed, monoid, reduced_axes)
    identity = broadcast_like(monoid.identity(node.dtype), squeezed)
    return build.elementwise(monoid, squeezed, identity) if starts_from_zero else squeezed


def _merge_reduces(x: UOp, inner: UOp, node: UOp) -> UOp | None:
    """Merge two REDUCEs, if reassociation changes no bit."""
    monoid = node.arg.monoid
    if inner.arg.monoid is not monoid or x.op is ops.ARG_PAIR or (
            node.dtype.is_float and monoid not in (ops.MAX, ops.MIN)):
        return None
    remaining = [a for a in range(len(x.shape)) if a not in inner.arg.axes]
    return build.reduce(x, monoid, [*inner.arg.axes, *[remaining[a] for a in node.arg.axes]])


def _negate_sum(x: UOp, node: UOp) -> UOp:
    """Negate the sum instead, by subtracting from zero: a sum of zeros is +0 either way."""
    total = build.reduce(x, ops.ADD, node.arg.axes)
    return build.sub(broadcast_like(0, total), total)


COMMUTING_RULES = [
    RewriteRule(UPat(ops.REDUCE, (UPat(ops.NEG, (x,)),), "node"), _negate_sum,
                lambda x, node: node.arg.monoid is ops.ADD, "sum of -x"),
    RewriteRule(UPat(ops.ELEMENTWISE, None, "node"), _before_expand,
                name="elementwise before expand", required_ops=CONSTANT_OPS),
    RewriteRule(UPat(ops.REDUCE, None, "node"), _drop_unit_axes, name="fold of axes of length 1"),
    RewriteRule(UPat(ops.REDUCE, (UPat(ops.REDUCE, (x,), "inner"),), "node"), _merge_reduces,
                name="fold of fold"),
]

RULES = (*CONSTANT_RULES, *MOVEMENT_RULES, *COMMUTING_RULES)
