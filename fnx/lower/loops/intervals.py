"""Value-range propagation over the lines of a PROGRAM, during emission.

    i = FOR 0 .. 400                                 0 <= i < 400
    WHERE(CMPLT(i, 0), ADD(i, 400), i)               i
    MIN(MAX(i, 0), 399)                              i
    CMPLT(i, 401)                                    true

Loop bodies compare their counter with array bounds, wrap it and clamp it, as if it were data. Here
the counter's bounds are known, so most of that folds.

>>> from fnx.core.ir import dtypes
>>> i = UOp(ops.FOR, dtypes.index, (build.index_const(0), build.index_const(400)), 1)
>>> known = Intervals()
>>> known.take(i)
>>> known.simplify(ops.MIN, dtypes.index, (i, build.index_const(399))) is i
True
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.lower.tensor.fold_comparisons import INTERVAL_RULES, Interval


class Intervals:
    """Bounds of the scalar integers of a program, by the rules of tensor/fold_comparisons.py."""

    def __init__(self) -> None:
        self._of: dict[UOp, Interval] = {}

    def of(self, node: UOp) -> Interval:
        """Return the bounds of a line or CONST."""
        if node.op is ops.CONST:
            value = int(build.const_of(node))
            return value, value
        return self._of.get(node, node.dtype.limits)

    def take(self, node: UOp) -> None:
        """Record the bounds of an emitted line."""
        if node.op is ops.FOR:
            (first, _), (_, end) = map(self.of, node.src)
            self._of[node] = first, max(first, end - 1)
        elif (bounds := self._infer(node)) is not None:
            self._of[node] = bounds

    def _infer(self, node: UOp) -> Interval | None:
        """Return the bounds of an integer operation, or None."""
        bounds_rule = INTERVAL_RULES.get(node.op)
        if bounds_rule is None or not node.src or \
                any(n.dtype.lanes > 1 or n.dtype.is_float for n in (node, *node.src)):
            return None
        low, high = bounds_rule(node, [self.of(s) for s in node.src])
        least, most = node.dtype.limits
        return (low, high) if least <= low and high <= most else None

    def simplify(self, op: Op, dtype: DType, src: Sequence[UOp], arg: object = None) -> UOp | None:
        """Fold a line to one of its operands or a CONST; None if it does not fold."""
        if dtype.lanes > 1 or op not in _SIMPLER:
            return None
        if op is ops.WHERE:
            return (src[1] if src[0].arg else src[2]) if src[0].op is ops.CONST else None
        interval = self._infer(UOp(op, dtype, tuple(src), arg))
        if interval is None:
            return None
        if interval[0] == interval[1]:
            return build.const(interval[0], dtype)
        if op in (ops.AND, ops.OR):  # of bools, one of which is constant
            return next((b for a, b in (src, src[::-1]) if a.op is ops.CONST and dtype.is_bool),
                        None)
        if op in (ops.MAX, ops.MIN):
            (a, b), (low, high) = map(self.of, src)
            first, second = src if op is ops.MAX else src[::-1]
            return first if a >= high else second if b <= low else None
        return None


_SIMPLER = frozenset({ops.WHERE, ops.CMPLT, ops.CMPLE, ops.CMPEQ, ops.CMPNE, ops.AND, ops.OR,
                      ops.NOT, ops.MAX, ops.MIN})
