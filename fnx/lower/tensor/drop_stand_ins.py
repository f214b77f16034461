"""Drop stand-ins: what a selection replaces is not replaced beforehand, too.

    before  WHERE(m, f(WHERE(m, x, s)), y)
    after   WHERE(m, f(x), y)

A stand-in s keeps derivatives finite where m does not hold: users write it (``where(m,
sqrt(where(m, x, 1)), 0)``), and batched loops and branches put the first active element there
(transforms/batching/predication.py). After differentiation it is only work, a reduction and reads
by index among it, and it ties the elements of a batch together.

An element of a selection depends on the same element of its operands, or on the same row of them
where an op keeps leading axes as they are, so what the condition says holds there, too. A mask of
shape (b,) that is broadcast along further axes speaks about rows. ``m & g`` says as much about g
as WHERE does. Masks are compared as nodes; a conjunction that holds makes its terms hold, and
``any(m)`` holds where m does.

>>> from fnx.core.ir import build, dtypes
>>> x, m = build.param(0, dtypes.float32, (3,)), build.param(1, dtypes.bool_, (3,))
>>> one = build.const_like(x, 1)
>>> safe = build.sqrt(build.where(m, x, one))
>>> drop_stand_ins(build.function([build.where(m, safe, one)], 2)).src[0].src[1] is build.sqrt(x)
True
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, toposort
from fnx.lower.analysis.masks import mask_of
from fnx.lower.fusion.cost import nbytes

_MAX_VISITS = 4  # times the nodes of a body, in all contexts
_Masks = frozenset[tuple[UOp, bool]]  # masks and their values
_Task = tuple[UOp, _Masks]
_NOTHING: _Masks = frozenset()


def drop_stand_ins(fn: UOp) -> UOp:
    """Return a FUNCTION whose selections do not replace operands under their own condition; the
    same one if that saves no work."""
    nodes = toposort(fn.src)
    conditions = [n.src[0] for n in nodes if n.op is ops.WHERE]
    conditions += [s for n in nodes if n.op is ops.AND and n.dtype.is_bool for s in n.src]
    uses = Counter([(_holds_anywhere(c) or mask_of(c))[0] for c in conditions])
    masks = frozenset([m for m, count in uses.items() if count > 1 and m.shape])
    if not masks:
        return fn
    src = _Contexts(masks, _MAX_VISITS * len(nodes)).rewrite(fn.src)
    if src is None or _work(toposort(src)) >= _work(nodes):
        return fn
    return fn.with_operands(src)


def _work(nodes: list[UOp]) -> int:
    return sum([n.op.cost * nbytes(n.src[0] if n.op is ops.REDUCE else n) for n in nodes])


class _Contexts:
    """Rewrites nodes, each once for each set of facts that holds where it is read.

    Args:
        masks: the masks whose values are tracked.
        limit: the most nodes to rewrite.
    """

    def __init__(self, masks: frozenset[UOp], limit: int) -> None:
        self.masks, self.limit = masks, limit
        self.rewritten: dict[_Task, UOp] = {}

    def rewrite(self, roots: tuple[UOp, ...]) -> tuple[UOp, ...] | None:
        """Return rewritten roots; None if that takes more than the limit."""
        rewritten = self.rewritten
        stack: list[_Task] = [(root, _NOTHING) for root in roots]
        while stack:
            task = stack[-1]
            if task in rewritten:
                stack.pop()
                continue
            if task[0].op in (ops.FUNCTION, ops.KERNEL):
                rewritten[task] = task[0]
                continue
            operands = self._operands(*task)
            waiting = [o for o in operands if o not in rewritten]
            stack += waiting
            if not waiting:
                node, src = task[0], tuple([rewritten[o] for o in operands])
                rewritten[task] = src[0] if len(src) < len(node.src) else \
                    node if src == node.src else node.with_operands(src)
            if len(rewritten) > self.limit:
                return None
        return tuple([rewritten[root, _NOTHING] for root in roots])

    def _operands(self, node: UOp, facts: _Masks) -> list[_Task]:
        """Return the operands and what holds where they are read; of a selection whose condition is
        known, the one that it selects."""
        leading = _leading_axes(node)
        inner = frozenset([f for f in facts if len(f[0].shape) <= leading])
        if node.op is ops.WHERE:
            condition, a, b = node.src
            mask, value = mask_of(condition)
            if (mask, value) in facts or _holds_anywhere(condition) in facts:
                return [(a, inner)]
            if (mask, not value) in facts:
                return [(b, inner)]
            return [(condition, inner), (a, self._with(inner, mask, value)),
                    (b, self._with(inner, mask, not value))]
        if node.op is ops.AND and node.dtype.is_bool:
            (first, value), (second, other) = map(mask_of, node.src)
            if first in self.masks:
                return [(node.src[0], inner), (node.src[1], self._with(inner, first, value))]
            if second in self.masks:
                return [(node.src[0], self._with(inner, second, other)), (node.src[1], inner)]
        return [(s, inner if len(s.shape) >= leading else _NOTHING) for s in node.src]

    def _with(self, facts: _Masks, mask: UOp, value: bool) -> _Masks:
        return facts.union([(m, v) for m, v in _implied(mask, value) if m in self.masks])


def _implied(mask: UOp, value: bool) -> Iterator[tuple[UOp, bool]]:
    """Yield a mask and the masks that have to have a value if it has one."""
    stack = [(mask, value)]
    while stack:
        mask, value = stack.pop()
        yield mask, value
        if mask.op is (ops.AND if value else ops.OR):
            for term in mask.src:
                inner, positive = mask_of(term)
                stack.append((inner, value == positive))


def _holds_anywhere(condition: UOp) -> tuple[UOp, bool] | None:
    """Return the mask, and its value, whose presence anywhere a condition says."""
    while condition.op in (ops.EXPAND, ops.RESHAPE):
        condition = condition.src[0]
    if condition.op is ops.REDUCE and condition.arg.monoid is ops.OR and not condition.shape:
        return mask_of(condition.src[0])
    return None


def _leading_axes(node: UOp) -> int:
    """Return the number of leading axes along which an element of a node depends on the same
    index of its operands only."""
    arg, shape = node.arg, node.shape
    if node.op.kind == "elementwise" or node.op is ops.STOP_GRADIENT:
        return len(shape)
    if node.op in (ops.RESHAPE, ops.EXPAND):
        changed = [a != b for a, b in zip(node.src[0].shape, shape)]
    elif node.op is ops.PERMUTE:
        changed = [a != i for i, a in enumerate(arg)]
    elif node.op is ops.SHRINK:
        changed = [bounds != (0, n) for bounds, n in zip(arg, node.src[0].shape)]
    elif node.op is ops.PAD:
        changed = [widths != (0, 0) for widths in arg]
    elif node.op is ops.FLIP:
        changed = [a in arg for a in range(len(shape))]
    elif node.op is ops.CONCAT:
        return int(arg)
    elif node.op is ops.REDUCE:
        return min(arg.axes, default=len(node.src[0].shape))
    elif node.op is ops.GATHER:
        changed = [a != i or node.src[0].shape[:i + 1] != shape[:i + 1] or not _counts(index, i)
                   for i, (a, index) in enumerate(zip(arg.axes, node.src[1:]))]
    else:
        return 0
    return [*changed, True].index(True)


def _counts(index: UOp, axis: int) -> bool:
    """Whether an index is the position along an axis of its own, as that of a batch is."""
    if axis >= len(index.shape):
        return False
    while index.op is ops.STOP_GRADIENT or \
            index.op is ops.EXPAND and index.src[0].shape[axis] == index.shape[axis] or \
            index.op is ops.RESHAPE and math.prod(index.shape) == index.shape[axis]:
        if index.op is ops.RESHAPE:  # all other axes are of length 1
            if index.shape[axis] not in index.src[0].shape:
                return False
            axis = index.src[0].shape.index(index.shape[axis])
        index = index.src[0]
    return index.op is ops.IOTA and not axis
