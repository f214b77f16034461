"""Rules of simplify for movements of movements: two become one; many parts are concatenated where
they are contiguous.

    shrink(pad(x))                  ->  shrink(x), or pad(shrink(x)), or x
    permute(permute(x)), ...        ->  one movement
"""

from __future__ import annotations

import math

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.rewrite import RewriteRule, UPat, var

# parts above which a kernel does not select among them (fusion/concat_in_place.py)
MAX_CONCAT_PARTS = 64


def _pad_twice(x: UOp, fill: UOp, inner: UOp, outer: UOp) -> UOp:
    widths = [(a + c, b + d) for (a, b), (c, d) in zip(inner.arg, outer.arg)]
    return build.pad(x, widths, fill)


def _shrink_twice(x: UOp, inner: UOp, outer: UOp) -> UOp:
    return build.shrink(x, [(a + lo, a + hi) for (a, _), (lo, hi) in zip(inner.arg, outer.arg)])


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


x, _fill = var("x"), var("fill")
_inner = UPat(ops.PAD, (x, _fill), "inner")


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
