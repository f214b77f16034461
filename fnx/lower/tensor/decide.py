"""Range analysis: fold comparisons of integers whose intervals do not overlap.

    before  GATHER(x, WHERE(IOTA(3) < 0, IOTA(3) + 6, IOTA(3)))          x: float32[6, 4]
    after   SHRINK(x, ((0, 3), (0, 4)))

Index arithmetic guards against cases that often cannot occur: a negative index, one past the end.
Each integer gets an interval, operands first. A comparison that the intervals decide is a constant,
a WHERE on it is the branch taken, and a GATHER at consecutive indices is a SHRINK, which reads no
index and fuses.

>>> from fnx.core import dtypes
>>> x, i = build.param(0, dtypes.float32, (6, 4)), build.iota(3, dtypes.int32)
>>> at = build.where(build.lt(i, build.like(i, 0)), build.add(i, build.like(i, 6)), i)
>>> decide(build.function([build.gather(x, at)], 1)).src[0] is build.shrink(x, [(0, 3), (0, 4)])
True
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from fnx.core import build, ops
from fnx.core.ops import Op
from fnx.core.row_parts import others
from fnx.core.uop import UOp, rebuild, toposort

Interval = tuple[int, int]
IntervalRow = Callable[[UOp, list[Interval]], Interval]


def decide(fn: UOp) -> UOp:
    """Return the FUNCTION with the comparisons, choices and gathers folded that intervals decide.

    User-written KERNELs stay: their ranges are part of their definition.
    """
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op in OUTCOMES and n.src[0].dtype.is_integer or n.op is ops.GATHER
               for n in nodes):
        return fn
    known = _intervals(nodes)
    kernels = {n: n for n in nodes if n.op is ops.KERNEL}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        low, high = known.get(node, (0, 1))
        if node.op in OUTCOMES and low == high:
            return build.const(low, node.dtype, node.shape)
        if node.op is ops.WHERE and node.src[0] in known:
            low, high = known[node.src[0]]
            return src[2 - low] if low == high else None
        if node.op is ops.GATHER:
            return _as_shrink(node, src, known)
        return None

    return fn.replace(src=tuple(rebuild(fn.src, visit, kernels)))


def _as_shrink(node: UOp, src: tuple[UOp, ...], known: dict[UOp, Interval]) -> UOp | None:
    """Rewrite a gather at start, start + 1, ... as a SHRINK."""
    x, *index = src
    start, axis = _start(index[0], known) if len(index) == 1 else None, node.arg.axes[0]
    if start is None or not 0 <= start <= x.shape[axis] - node.shape[0]:
        return None
    bounds = [(0, n) for n in x.shape]
    bounds[axis] = start, start + node.shape[0]
    return build.permute(build.shrink(x, bounds), (axis, *others((axis,), len(x.shape))))


def _start(index: UOp, known: dict[UOp, Interval]) -> int | None:
    """Return the first of consecutive indices; None if they are not consecutive."""
    if index.op is ops.IOTA:
        return 0
    if index.op is ops.ADD and index.src[0] in known and index.src[1] in known:
        for a, b in (index.src, index.src[::-1]):
            low, high = known[b]
            if a.op is ops.IOTA and low == high:
                return low
    return None


# ---- intervals --------------------------------------------------------------------------------


def _intervals(nodes: list[UOp]) -> dict[UOp, Interval]:
    """Return the bounds over all elements of each integer and bool."""
    out: dict[UOp, Interval] = {}
    for node in nodes:
        if node.dtype.is_float or node.op.result == "void":
            continue
        out[node] = least, largest = node.dtype.limits
        row = ROWS.get(node.op)
        if row is not None and 0 not in node.shape:
            low, high = row(node, [out.get(s, s.dtype.limits) for s in node.src])
            if least <= low and high <= largest:
                out[node] = low, high
    return out


def _const(node: UOp, src: list[Interval]) -> Interval:
    value = int(build.const_of(node))
    return value, value


def _first(node: UOp, src: list[Interval]) -> Interval:
    return src[0]


def _union(node: UOp, src: list[Interval]) -> Interval:
    return min(low for low, _ in src), max(high for _, high in src)


def _choice(node: UOp, src: list[Interval]) -> Interval:
    low, high = src[0]
    return src[2 - low] if low == high else _union(node, src[1:])


def _cast(node: UOp, src: list[Interval]) -> Interval:
    if node.dtype.is_bool or node.src[0].dtype.is_float:
        return node.dtype.limits
    return src[0]


def _fold(node: UOp, src: list[Interval]) -> Interval:
    return src[0] if node.arg.monoid in (ops.MAX, ops.MIN) else node.dtype.limits


def _times(node: UOp, src: list[Interval]) -> Interval:
    corners = [a * b for a in src[0] for b in src[1]]
    return min(corners), max(corners)


def _ends(f: Callable[[int, int], int]) -> IntervalRow:
    """Return the interval rule of two operands in which ``f`` is nondecreasing."""
    def row(node: UOp, src: list[Interval]) -> Interval:
        (a, b), (c, d) = src
        return f(a, c), f(b, d)
    return row


def _order(holds: Callable[[int, int], bool]) -> IntervalRow:
    """Return the interval rule of a comparison that favors a small left operand."""
    def row(node: UOp, src: list[Interval]) -> Interval:
        (a, b), (c, d) = src
        return int(holds(b, c)), int(holds(a, d))
    return row


def _equal(node: UOp, src: list[Interval]) -> Interval:
    (a, b), (c, d) = src
    return int(a == b == c == d), int(a <= d and c <= b)


def _differs(node: UOp, src: list[Interval]) -> Interval:
    same, may_be = _equal(node, src)
    return 1 - may_be, 1 - same


def _of_bools(row: IntervalRow) -> IntervalRow:
    """Restrict a rule to bools; on integers the op is bitwise."""
    return lambda node, src: row(node, src) if node.dtype.is_bool else node.dtype.limits


def _not(node: UOp, src: list[Interval]) -> Interval:
    low, high = src[0]
    return (1 - high, 1 - low) if node.dtype.is_bool else (-1 - high, -1 - low)


_SMALLER, _LARGER = _ends(min), _ends(max)
OUTCOMES: dict[Op, IntervalRow] = {
    ops.CMPLT: _order(operator.lt), ops.CMPLE: _order(operator.le), ops.CMPEQ: _equal,
    ops.CMPNE: _differs, ops.AND: _of_bools(_SMALLER), ops.OR: _of_bools(_LARGER), ops.NOT: _not,
}
ROWS: dict[Op, IntervalRow] = {
    **OUTCOMES, **dict.fromkeys((ops.RESHAPE, ops.EXPAND, ops.PERMUTE, ops.SHRINK, ops.FLIP,
                                 ops.BARRIER, ops.STOP, ops.GATHER, ops.UNFOLD), _first),
    ops.FOLD: lambda n, src: (min(0, src[0][0]), max(0, src[0][1])),
    ops.CONST: _const, ops.PAD: _union, ops.CONCAT: _union, ops.CAST: _cast, ops.REDUCE: _fold,
    ops.MUL: _times, ops.IOTA: lambda n, src: (0, n.arg - 1), ops.WHERE: _choice,
    ops.ADD: _ends(operator.add),
    ops.SUB: lambda n, src: (src[0][0] - src[1][1], src[0][1] - src[1][0]),
    ops.NEG: lambda n, src: (-src[0][1], -src[0][0]),
    ops.MAX: _LARGER, ops.MIN: _SMALLER,
}
