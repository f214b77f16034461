"""Range analysis: fold comparisons of integers whose intervals do not overlap.

    before  GATHER(x, WHERE(IOTA(3) < 0, IOTA(3) + 6, IOTA(3)))          x: float32[6, 4]
    after   SHRINK(x, ((0, 3), (0, 4)))

Index arithmetic guards against cases that often cannot occur: a negative index, one past the end.
Each integer gets an interval, operands first. A comparison that the intervals decide is a constant,
a WHERE on it is the branch taken, and a GATHER at consecutive indices is a SHRINK, which reads no
index and fuses.

>>> from fnx.core.ir import dtypes
>>> x, i = build.param(0, dtypes.float32, (6, 4)), build.iota(3, dtypes.int32)
>>> at = build.where(build.lt(i, build.const_like(i, 0)), build.add(i, build.const_like(i, 6)), i)
>>> made, = fold_comparisons(build.function([build.gather(x, at)], 1)).src
>>> made is build.shrink(x, [(0, 3), (0, 4)])
True
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import sort_order_length
from fnx.core.ir.op import other_axes
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, rebuild_results, toposort

Interval = tuple[int, int]
IntervalRule = Callable[[UOp, list[Interval]], Interval]


def fold_comparisons(fn: UOp) -> UOp:
    """Return the FUNCTION with the comparisons, choices and gathers folded that intervals decide.

    User-written KERNELs stay: their ranges are part of their definition.
    """
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op in BOOLEAN_RULES and n.src[0].dtype.is_integer or n.op is ops.GATHER
               for n in nodes):
        return fn
    intervals = _intervals(nodes)
    kernels = {n: n for n in nodes if n.op is ops.KERNEL}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        low, high = intervals.get(node, (0, 1))
        if node.op in BOOLEAN_RULES and low == high:
            return build.const(low, node.dtype, node.shape)
        if node.op is ops.WHERE and node.src[0] in intervals:
            low, high = intervals[node.src[0]]
            return src[2 - low] if low == high else None
        if node.op is ops.GATHER:
            return _gather_to_shrink(node, src, intervals)
        return None

    return rebuild_results(fn, visit, kernels)


def _gather_to_shrink(node: UOp, src: tuple[UOp, ...],
                      intervals: dict[UOp, Interval]) -> UOp | None:
    """Rewrite a gather at start, start + 1, ... as a SHRINK."""
    x, *index = src
    start, axis = _first_index(index[0], intervals) if len(index) == 1 else None, node.arg.axes[0]
    if start is None or not 0 <= start <= x.shape[axis] - node.shape[0]:
        return None
    bounds = [(0, n) for n in x.shape]
    bounds[axis] = start, start + node.shape[0]
    return build.permute(build.shrink(x, bounds), (axis, *other_axes((axis,), len(x.shape))))


def _first_index(index: UOp, intervals: dict[UOp, Interval]) -> int | None:
    """Return the first of consecutive indices; None if they are not consecutive."""
    if index.op is ops.IOTA:
        return 0
    if index.op is ops.ADD and index.src[0] in intervals and index.src[1] in intervals:
        for a, b in (index.src, index.src[::-1]):
            low, high = intervals[b]
            if a.op is ops.IOTA and low == high:
                return low
    return None


# ---- intervals --------------------------------------------------------------------------------


def _intervals(nodes: list[UOp]) -> dict[UOp, Interval]:
    """Return the bounds over all elements of each integer and bool."""
    intervals: dict[UOp, Interval] = {}
    for node in nodes:
        if node.dtype.is_float or node.op.result == "void":
            continue
        intervals[node] = lowest, largest = node.dtype.limits
        rule = INTERVAL_RULES.get(node.op)
        if rule is not None and 0 not in node.shape:
            low, high = rule(node, [intervals.get(s, s.dtype.limits) for s in node.src])
            if lowest <= low and high <= largest:
                intervals[node] = low, high
    return intervals


def _const(node: UOp, src: list[Interval]) -> Interval:
    value = int(build.const_of(node))
    return value, value


def _same(node: UOp, src: list[Interval]) -> Interval:
    return src[0]


def _union(node: UOp, src: list[Interval]) -> Interval:
    return min(low for low, _ in src), max(high for _, high in src)


def _select(node: UOp, src: list[Interval]) -> Interval:
    low, high = src[0]
    return src[2 - low] if low == high else _union(node, src[1:])


def _cast(node: UOp, src: list[Interval]) -> Interval:
    if node.dtype.is_bool or node.src[0].dtype.is_float:
        return node.dtype.limits
    return src[0]


def _result(node: UOp, src: list[Interval]) -> Interval:
    n = sort_order_length(node)
    return node.dtype.limits if n is None else (0, n - 1)


def _reduce(node: UOp, src: list[Interval]) -> Interval:
    return src[0] if node.arg.monoid in (ops.MAX, ops.MIN) else node.dtype.limits


def _multiply(node: UOp, src: list[Interval]) -> Interval:
    corners = [a * b for a in src[0] for b in src[1]]
    return min(corners), max(corners)


def _monotone(f: Callable[[int, int], int]) -> IntervalRule:
    """Return the interval rule of two operands in which ``f`` is nondecreasing."""
    def rule(node: UOp, src: list[Interval]) -> Interval:
        (low0, high0), (low1, high1) = src
        return f(low0, low1), f(high0, high1)
    return rule


def _ordering(holds: Callable[[int, int], bool]) -> IntervalRule:
    """Return the interval rule of a comparison that favors a small left operand."""
    def rule(node: UOp, src: list[Interval]) -> Interval:
        (low0, high0), (low1, high1) = src
        return int(holds(high0, low1)), int(holds(low0, high1))
    return rule


def _equal(node: UOp, src: list[Interval]) -> Interval:
    (low0, high0), (low1, high1) = src
    return int(low0 == high0 == low1 == high1), int(low0 <= high1 and low1 <= high0)


def _not_equal(node: UOp, src: list[Interval]) -> Interval:
    must_equal, may_equal = _equal(node, src)
    return 1 - may_equal, 1 - must_equal


def _bools_only(rule: IntervalRule) -> IntervalRule:
    """Restrict a rule to bools; on integers the op is bitwise."""
    return lambda node, src: rule(node, src) if node.dtype.is_bool else node.dtype.limits


def _not(node: UOp, src: list[Interval]) -> Interval:
    low, high = src[0]
    return (1 - high, 1 - low) if node.dtype.is_bool else (-1 - high, -1 - low)


_MIN_RULE, _MAX_RULE = _monotone(min), _monotone(max)
BOOLEAN_RULES: dict[Op, IntervalRule] = {
    ops.CMPLT: _ordering(operator.lt), ops.CMPLE: _ordering(operator.le), ops.CMPEQ: _equal,
    ops.CMPNE: _not_equal, ops.AND: _bools_only(_MIN_RULE), ops.OR: _bools_only(_MAX_RULE),
    ops.NOT: _not,
}
INTERVAL_RULES: dict[Op, IntervalRule] = {
    **BOOLEAN_RULES, **dict.fromkeys((ops.RESHAPE, ops.EXPAND, ops.PERMUTE, ops.SHRINK, ops.FLIP,
                                      ops.BARRIER, ops.STOP_GRADIENT, ops.GATHER, ops.UNFOLD),
                                     _same),
    ops.FOLD: lambda n, src: (min(0, src[0][0]), max(0, src[0][1])),
    ops.GETTUPLE: _result, ops.CONST: _const, ops.PAD: _union, ops.CONCAT: _union,
    ops.CAST: _cast, ops.REDUCE: _reduce,
    ops.MUL: _multiply, ops.IOTA: lambda n, src: (0, n.arg - 1), ops.WHERE: _select,
    ops.ADD: _monotone(operator.add),
    ops.SUB: lambda n, src: (src[0][0] - src[1][1], src[0][1] - src[1][0]),
    ops.NEG: lambda n, src: (-src[0][1], -src[0][0]),
    ops.MAX: _MAX_RULE, ops.MIN: _MIN_RULE,
}
