"""Push reductions through reshapes: a sum over joined axes is one over the axes that were joined.

    before  REDUCE(RESHAPE(PERMUTE(x), (128, 4096)), axis 1)      x: float32[128, 64, 64]
    after   REDUCE(PERMUTE(x), axes (1, 2))

``(g.reshape(n, -1) ** 2).sum(-1)`` is how users write the norm of each gradient of a batch. If the
joined axes do not lie in memory as they are joined, a loop over them all takes a division and a
remainder for each element, and reads no vectors; a loop over each axis takes neither. Elementwise
work between the two moves along, unless it is expensive: others may read it, too.

>>> from fnx.core.ir import dtypes
>>> x = build.permute(build.param(0, dtypes.float32, (128, 64, 64)), (0, 2, 1))
>>> joined = build.reshape(x, (128, 4096))
>>> norms = build.reduce(build.mul(joined, joined), ops.ADD, [1])
>>> total, = push_reduce_through_reshape(build.function([norms], 1)).src
>>> total.op, total.arg.axes, total.src[0].shape
(REDUCE, (1, 2), (128, 64, 64))
"""

from __future__ import annotations

import math

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, rebuild_results, toposort
from fnx.core.rewriting.rewrite import underlying_const
from fnx.lower.fusion.placement import PROLOGUE_WEIGHT


def push_reduce_through_reshape(fn: UOp) -> UOp:
    """Return a FUNCTION whose REDUCEs over joined axes are over the axes that were joined."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _push(node, src[0]) if node.op is ops.REDUCE else None
    return rebuild_results(fn, visit)


def _push(node: UOp, x: UOp) -> UOp | None:
    """Return a REDUCE of x over the axes that reshapes join; None if there are no such ones."""
    if x.op is ops.ARG_PAIR or x.dtype.storage is not None:
        return None
    if not _is_cheap(x):
        return None
    nodes = toposort([x], stop=lambda n: n.op not in ops.ELEMENTWISE)
    joins = [n for n in nodes if n.op is ops.RESHAPE and underlying_const(n) is None]
    if not joins or any(n.op not in ops.ELEMENTWISE and n not in joins
                        and underlying_const(n) is None for n in nodes) or \
            len({n.src[0].shape for n in joins}) > 1 or \
            all(n.src[0].op.kind not in ("movement", "elementwise") for n in joins):
        return None
    shape = joins[0].src[0].shape
    runs = _joined_runs(shape, x.shape)
    if runs is None:
        return None
    summed = [a for axis in node.arg.axes for a in runs[axis]]
    if sum(shape[a] > 1 for a in summed) <= sum(x.shape[a] > 1 for a in node.arg.axes):
        return None

    def unjoined(n: UOp, src: tuple[UOp, ...]) -> UOp:
        if n in joins:
            return n.src[0]
        constant = underlying_const(n)
        return n.with_operands(src) if constant is None else \
            build.const(ops.const_value(constant), n.dtype, shape)

    moved: dict[UOp, UOp] = {}
    for n in nodes:
        moved[n] = unjoined(n, tuple([moved[s] for s in n.src]) if n.op in ops.ELEMENTWISE
                            else n.src)
    return build.reshape(build.reduce(moved[x], node.arg.monoid, summed), node.shape)


def _is_cheap(x: UOp) -> bool:
    """Whether a value is little elementwise work; the search ends where it is not."""
    stack, seen, work = [x], {x}, 0
    while stack:
        n = stack.pop()
        if n.op in ops.ELEMENTWISE:
            work += max(1, n.op.cost)
            stack += [s for s in n.src if s not in seen]
            seen.update(n.src)
        if work > PROLOGUE_WEIGHT:
            return False
    return True


def _joined_runs(shape: ops.Shape, joined: ops.Shape) -> list[list[int]] | None:
    """Return the axes that each joined axis is made of, in order; None if a reshape also splits.

    >>> _joined_runs((2, 3, 4), (6, 4)), _joined_runs((6, 4), (2, 12))
    ([[0, 1], [2]], None)
    """
    runs, axis = list[list[int]](), 0
    for n in joined:
        run: list[int] = []
        while axis < len(shape) and math.prod([shape[a] for a in run]) * shape[axis] <= n and (
                math.prod([shape[a] for a in run]) < n):
            run.append(axis)
            axis += 1
        if math.prod([shape[a] for a in run]) != n:
            return None
        runs.append(run)
    if any(shape[a] != 1 for a in range(axis, len(shape))):
        return None
    return runs
