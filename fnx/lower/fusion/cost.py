"""The cost of recomputing a value, and which reductions are contractions.

Analyses of tensor nodes that kernelize decides by; one walk over the graph, operands first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fnx.core import ops
from fnx.core.ops import Op
from fnx.core.record import Record
from fnx.core.row_parts import others
from fnx.core.uop import UOp
from fnx.lower.factors import two_factors

_MOST = 1 << 20
SCALING = 2     # arithmetic that only scales
MAX_TERMS = 32  # arrays that one kernel adds
MAX_PRODUCTS = 4  # contractions of which one kernel adds the partial results


class RecomputeCost(Record):
    """Cost of recomputing one element: arithmetic, and the arrays read for it (capped)."""

    weight: int
    loads: frozenset[UOp]


_NOTHING: frozenset[UOp] = frozenset()


def costs(nodes: list[UOp]) -> dict[UOp, RecomputeCost]:
    """Return the cost of each node, stopping at memory, reductions and calls."""
    out: dict[UOp, RecomputeCost] = {}
    for node in nodes:
        if node.op.kind in ("elementwise", "movement", "pair"):
            weight, loads = node.op.cost, _NOTHING
            for s in node.src[:1] if node.op is ops.BARRIER else node.src:
                below = out[s]
                weight += below.weight
                if below.loads and len(loads) < 4:
                    loads = loads | below.loads if loads else below.loads
            out[node] = RecomputeCost(min(weight, _MOST), loads)
        elif node.op is ops.CONST or node.op is ops.IOTA or math.prod(node.shape) == 1:
            out[node] = RecomputeCost(0, _NOTHING)
        else:
            out[node] = RecomputeCost(0, frozenset((node,)))
    return out


def is_cheap(cost: RecomputeCost) -> bool:
    """Whether recomputing a value costs less than writing and reading it."""
    return cost.weight <= 6 and len(cost.loads) <= 1 or cost.weight <= 24 and not cost.loads


def is_worth_storing(cost: RecomputeCost) -> bool:
    """Whether a value would be written for another kernel: it is not in memory, nor recomputed."""
    return cost.weight > 0 and not is_cheap(cost)


def widens(node: UOp) -> bool:
    """Whether it is a CAST to more bytes: then its operand should cross memory instead."""
    return node.op is ops.CAST and node.dtype.itemsize > node.src[0].dtype.itemsize


def rounds_folds(node: UOp, cost: RecomputeCost) -> bool:
    """Whether it is a CAST of reductions to fewer bytes: these would be written otherwise."""
    return node.op is ops.CAST and node.dtype.itemsize < node.src[0].dtype.itemsize \
        and has_folds(cost)


def has_folds(cost: RecomputeCost) -> bool:
    """Whether a value is computed from reductions without memory between."""
    return any(n.op is ops.REDUCE for n in cost.loads)


def scales(node: UOp) -> bool:
    """Whether it does little more than broadcast and scale smaller values, which are in memory
    then: the terms x[k, i] * r[k] of a sum over k, with r computed from reductions."""
    queue, seen, work = [node], set[UOp](), 0
    while queue:
        n = queue.pop()
        if n in seen or n.op is ops.EXPAND:
            continue
        seen.add(n)
        work += n.op.cost
        if n.op is ops.REDUCE or work > SCALING:
            return False
        if n.op.kind in ("elementwise", "movement"):
            queue += n.src
    return True


def reduction_depths(nodes: list[UOp]) -> dict[UOp, int]:
    """Return for each node the longest chain of reductions and barriers that leads to it."""
    out: dict[UOp, int] = {}
    for node in nodes:
        src = () if node.op.closed else node.src
        deepest = max([out.get(s, 0) for s in src], default=0)
        out[node] = deepest + (node.op in (ops.REDUCE, ops.BARRIER))
    return out


def folded(fold: UOp) -> tuple[UOp, tuple[int, ...]]:
    """Return the value that a REDUCE reduces (for a PAIR, its key) and the axes."""
    x = fold.src[0]
    return x.src[0] if x.op is ops.PAIR else x, fold.arg.axes


# ---- which axes a value varies along -------------------------------------------------------------


def varying(nodes: list[UOp]) -> dict[UOp, int]:
    """Return for each node the axes along which its value may change, as a bit set.

    EXPAND is where a value stops varying: that is what makes a product a contraction.
    """
    out: dict[UOp, int] = {}
    for node in nodes:
        if node.op in _VARY:
            out[node] = _VARY[node.op](node, out)
        elif node.op.kind in ("elementwise", "pair"):
            bits = 0
            for s in node.src:
                bits |= out[s]
            out[node] = bits
        else:
            out[node] = long_axes(node.shape)
    return out


def long_axes(shape: ops.Shape) -> int:
    """Return the axes of a length other than 1, as a bit set."""
    return sum(1 << i for i, n in enumerate(shape) if n != 1)


def _expand(node: UOp, out: dict[UOp, int]) -> int:
    return out[node.src[0]] & long_axes(node.src[0].shape)


def _permute(node: UOp, out: dict[UOp, int]) -> int:
    return _moved(out[node.src[0]], node.arg)


def _reduce(node: UOp, out: dict[UOp, int]) -> int:
    shape = node.src[0].shape
    return _moved(out[node.src[0]], [a for a in range(len(shape)) if a not in node.arg.axes])


def _moved(bits: int, axes: Iterable[int]) -> int:
    """Return the bits of some axes, renumbered 0, 1, ..."""
    return sum(1 << i for i, a in enumerate(axes) if bits >> a & 1)


def _reshape(node: UOp, out: dict[UOp, int]) -> int:
    """Aligned groups of axes vary together."""
    bits, result = out[node.src[0]], 0
    old, new = node.src[0].shape, node.shape
    i = j = 0
    while i < len(old) and j < len(new):
        first_i, first_j = i, j
        a, b = old[i], new[j]
        i, j = i + 1, j + 1
        while a != b and (i < len(old) or j < len(new)):
            if a < b or j >= len(new):
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        if any(bits >> k & 1 for k in range(first_i, i)):
            result |= sum(1 << k for k in range(first_j, j) if new[k] != 1)
    return result


def _windows(node: UOp, out: dict[UOp, int]) -> int:
    bits, w = out[node.src[0]], node.arg
    either = bits >> w.axis & 1 or bits >> w.offset & 1 or node.op is ops.FOLD
    both = (1 << w.axis | 1 << w.offset) if either else 0
    return (bits | both) & long_axes(node.shape)


def _part(node: UOp, out: dict[UOp, int]) -> int:
    return out[node.src[0]] & long_axes(node.shape)


def _gather(node: UOp, out: dict[UOp, int]) -> int:
    """It varies along the axes of its indices as they do, along the others as the array does."""
    x, *index = node.src
    bits = _moved(out[x], others(node.arg.axes, len(x.shape))) << len(index[0].shape)
    for i in index:
        bits |= out[i]
    return bits


def _pad(node: UOp, out: dict[UOp, int]) -> int:
    return out[node.src[0]] | sum(1 << i for i, widths in enumerate(node.arg) if widths != (0, 0))


_VARY: dict[Op, Callable[[UOp, dict[UOp, int]], int]] = {
    ops.EXPAND: _expand, ops.PERMUTE: _permute, ops.RESHAPE: _reshape,
    ops.SHRINK: _part, ops.FLIP: _part, ops.PAD: _pad,
    ops.UNFOLD: _windows, ops.FOLD: _windows, ops.REDUCE: _reduce, ops.CONST: lambda node, out: 0,
    ops.BARRIER: lambda node, out: out[node.src[0]], ops.GATHER: _gather,
}


def contractions(nodes: list[UOp], varies: dict[UOp, int]) -> set[UOp]:
    """Return the sums of products of two factors with axes of their own (matmul, in any spelling).

    A matrix times a vector is a plain reduction: it is bound by memory.
    """

    def axes(n: UOp) -> frozenset[int]:
        return frozenset([a for a in range(len(n.shape)) if varies[n] >> a & 1])

    return {n for n in nodes if n.op is ops.REDUCE
            and two_factors(n, axes, frozenset(n.arg.axes)) is not None}


def apart(nodes: list[UOp], contractions: set[UOp], results: Iterable[UOp]) -> set[UOp]:
    """Return partial sums of long sums to be materialized, whoever reads them: so the kernels of a
    long sum are equal.

    Of contractions: a kernel has one, so of ``x @ a + (y @ b + z @ c)`` one side is read from
    memory in any case. In a sum of more than ``MAX_PRODUCTS`` that is the sum of the earlier ones.
    Of arrays: a kernel adds ``MAX_TERMS`` of them.
    """
    found: set[UOp] = set()
    whole = set(map(_computed, results))  # in memory for other reasons
    for node in nodes:
        if node.op.kind != "elementwise" and node.op is not ops.RESHAPE and not node.op.closed:
            whole.update(map(_computed, node.src))
    for counted, most, each in ((dict.fromkeys(contractions, 1), MAX_PRODUCTS, 0),
                                ({}, MAX_TERMS, 1)):
        for node in nodes:  # number of terms it sums without a buffer between
            if node.op is ops.ADD and node not in whole:
                total = sum([counted.get(s, each) for s in node.src])
                if total > most:
                    sums = [s for s in node.src if counted.get(s, each) > 1]
                    found.update(map(_computed, sums))
                    total -= sum([counted[s] - each for s in sums])
                counted[node] = total
            elif node.op is ops.RESHAPE and node.src[0] in counted:
                counted[node] = counted[node.src[0]]
    return found - contractions


def _computed(node: UOp) -> UOp:
    while node.op is ops.RESHAPE:
        node = node.src[0]
    return node
