"""Rules of simplify for GATHERs.

    gather(expand(x), i)            ->  expand(gather(x, i))
    gather(scatter(x, i, y), i)     ->  where(i is inside, y, gather(x, i))

The second is what a step reads that an earlier step wrote.
"""

from __future__ import annotations

import math
from functools import reduce

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.rewrite import RewriteRule, UPat


def _before_expand(node: UOp) -> UOp | None:
    """Repeat what is read, and drop the indices along axes of one element."""
    x, index, axes = node.src[0].src[0], node.src[1:], node.arg.axes
    repeated = [a for a in axes if x.shape[a] == 1]
    remaining = [a for a in range(len(x.shape)) if a not in repeated]
    squeezed = build.reshape(x, tuple([x.shape[a] for a in remaining]))
    left = [(remaining.index(a), i) for a, i in zip(axes, index) if a not in repeated]
    if left:
        read = build.gather(squeezed, *[i for _, i in left], axes=[a for a, _ in left])
    else:
        read = build.reshape(squeezed, (1,) * len(index[0].shape) + squeezed.shape)
    return build.expand(read, node.shape)


def _forward_update(node: UOp) -> UOp | None:
    """Return what was written to the places that are read; outside, nothing was."""
    scatter, index = node.src[0], node.src[1:]
    x, updates = scatter.src[0], scatter.src[-1]
    if scatter.src[1:-1] != index or scatter.arg.axes != node.arg.axes or scatter.arg.monoid or \
            not (scatter.arg.is_unique or math.prod(index[0].shape) == 1):
        return None
    conditions = [c for i, a in zip(index, node.arg.axes) for c in _is_inside(i, x.shape[a])]
    if not conditions:
        return updates
    inside = reduce(build.and_, conditions)
    rest = len(node.shape) - len(inside.shape)
    inside = build.expand(build.reshape(inside, inside.shape + (1,) * rest), node.shape)
    return build.where(inside, updates, build.gather(x, *index, axes=node.arg.axes))


def _is_inside(i: UOp, n: int) -> list[UOp]:
    low, last = i.dtype.limits
    conditions = [build.le(build.const(0, i.dtype, i.shape), i)] if low else []
    return [*conditions, build.lt(i, build.const(n, i.dtype, i.shape))] if n <= last else conditions


GATHER_RULES = [
    RewriteRule(UPat(ops.GATHER, None, "node"), _before_expand,
                lambda node: node.src[0].op is ops.EXPAND, "gather before expand",
                frozenset({ops.EXPAND})),
    RewriteRule(UPat(ops.GATHER, None, "node"), _forward_update,
                lambda node: node.src[0].op is ops.SCATTER, "gather of scatter",
                frozenset({ops.SCATTER})),
]
