"""What a schedule is chosen from: extents, strides along ranges, amounts of work, contractions.

>>> from fnx.core.ir import build, dtypes
>>> r, c = build.range_(8, 0), build.range_(5, 1)
>>> x = build.index_into(build.ref(0, dtypes.float32, (8, 5)), r, c)
>>> stride(x, c), stride(x, r)
(1, 5)

Two factors of a sum of products make a reduction a **contraction**:

    sum over k of                      factors
    x[m, k] * w[k, n]                  x[m, k]            w[k, n]
    (x[m, k] * w[k, n]) * s[m]         x[m, k]            w[k, n]
    (x[m, k] * s[m]) * w[k, n]         x[m, k] * s[m]     w[k, n]
    where(c[m, k], x * w, 0)           x[m, k]            w[k, n]
    x[m, k] * v[k]                     none: only one factor has result axes of its own

Each factor varies along result axes that the other does not, and both vary along the summed
axes. So each is re-read for every value of the other's axes, and a register tile of both pays
off. Fusion asks this of tensor nodes, the scheduler of kernel nodes. The products stay in their
original order.

Products of **attention** regions are found by a cheap test, before that compiler part is loaded:

>>> x = build.param(0, dtypes.float32, (1024, 1024, 8))
>>> may_have_products(build.function([build.reduce(x, ops.ADD, [2])], 1))
True
>>> may_have_products(build.function([build.reduce(x, ops.ADD, [1])], 1))
False

An index is **injective** in the ranges in which iterations access different elements:

    x[r0, s[r0] + r1]      r0 and r1: the first index determines r0, then the second r1
    x[s[r0], r1]           r1 only: two elements of s may be equal
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import (
    bound_ranges,
    buffer,
    conjuncts,
    index_dims,
    indices,
    validity,
    value,
)
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.rewrite import underlying_const
from fnx.lower.analysis.tuning import LONG_BODY

ASSUMED_EXTENT = 512  # extent assumed if it is known only at run time
ORDERED_TERMS = 8     # most terms of a float sum that are always added one by one, in order
SHORT_EXTENT = 4      # longest range of a reduction that is unrolled, with lanes along its results
UNKNOWN_STRIDE = 1 << 20  # stride assumed if it is data, or known only at run time


def extent(r: UOp) -> int:
    """Return the extent of a range, or the value assumed for it."""
    n = r.src[0]
    if n.op is ops.CONST:  # not negative: its bits are its value
        return int(n.arg)
    return min(ASSUMED_EXTENT, symbolic.bounds(n)[1])


def trip_count(r: UOp, step: int = 1) -> int | None:
    """Return the trip count of a range in steps of ``step``; None if its extent is not constant."""
    return -(-extent(r) // step) if is_static(r) else None


def is_short_range(r: UOp) -> bool:
    """Return whether a range is short."""
    return r.src[0].op is ops.CONST and extent(r) <= SHORT_EXTENT


def is_short(ranges: Sequence[UOp]) -> bool:
    """Return whether a reduction over ranges is unrolled, with lanes along its results: short
    ranges, or few terms."""
    return all(map(is_short_range, ranges)) or \
        all(map(is_static, ranges)) and volume(ranges) <= ORDERED_TERMS


def is_ordered_sum(monoid: Op, dtype: DType, terms: int) -> bool:
    """Return whether a reduction adds its terms one by one, in order, in whatever kernel it is.

    So a short sum has the same bits wherever it is computed: a backward pass that computes a step
    of a loop again comes to the same decisions (``error < tolerance``) as the forward pass.
    """
    return monoid in (ops.ADD, ops.MUL) and dtype.is_float and terms <= ORDERED_TERMS


def is_chain(reduce: UOp) -> bool:
    """Return whether a REDUCE is an ordered sum. The partial sums of threads are no terms of the
    user's: they are reduced in a tree, as by shuffles."""
    x = value(reduce)
    if x.op in (ops.ARG_PAIR, ops.MMA) or not is_ordered_sum(
            reduce.arg.monoid, reduce.dtype, volume(reduce.src[1:])):
        return False
    read = x.src[1] if x.op is ops.WHERE else x
    stage = buffer(read) if read.op is ops.LOAD else None
    return stage is None or stage.op is not ops.STAGE or stage.arg.space != "SHARED"


def is_static(r: UOp) -> bool:
    """Return whether the extent of a range is a constant."""
    return r.src[0].op is ops.CONST


def volume(ranges: Iterable[UOp]) -> int:
    return math.prod(map(extent, ranges))


def stride(access: UOp, r: UOp) -> int:
    """Return the elements between neighbors along r at a LOAD or a STORE; FAR if it is data."""
    if r not in access.ranges:
        return 0
    total, step = 0, 1
    for i, d in reversed(index_dims(access)):
        c = 1 if i is r else symbolic.coefficient(i, r) if r in i.ranges else 0
        if not isinstance(c, int):  # the digits of a split index may combine to one index
            combined = symbolic.coefficient(symbolic.element_offset(access), r)
            return combined if isinstance(combined, int) else UNKNOWN_STRIDE
        total += c * step
        step *= build.const_of(d) if d.op is ops.CONST else UNKNOWN_STRIDE
    return total


def is_contiguous_along(value: UOp, r: UOp) -> bool:
    """Return whether all loads that depend on r are contiguous along r, or all backwards."""
    return {stride(n, r) for n in toposort([value]) if n.op is ops.LOAD and r in n.ranges
            } in ({1}, {-1})


def is_long_fill(filled: UOp, across: UOp) -> bool:
    """Return whether the value of a STAGE takes so much work that a copy of it for each element of
    a range is long code."""
    nodes = toposort([filled], stop=lambda n: across not in n.ranges or n.op is ops.STAGE)
    work = sum(n.op.cost for n in nodes if n.op in ops.ELEMENTWISE and across in n.ranges
               and n.dtype is not dtypes.index)
    return work * extent(across) > 2 * LONG_BODY


def itemsize(nodes: Iterable[UOp]) -> int:
    """Return the bytes of the widest value that is computed with."""
    return max((n.dtype.itemsize for n in nodes if n.dtype.kind not in ("void", "bool", "index")),
               default=4)


def total_work(nodes: Iterable[UOp]) -> int:
    """Return the work of a kernel in additions or equivalents."""
    return sum(n.op.cost * volume(iteration_ranges(n)) for n in nodes
               if n.op.cost and n.dtype is not dtypes.index)


def epilogue_cost(stores: Iterable[UOp]) -> int:
    """Return the work per result after the REDUCEs, in additions or equivalents."""
    return sum(n.op.cost for n in toposort(stores, stop=lambda n: n.op is ops.REDUCE)
               if n.op in ops.ELEMENTWISE and n.dtype.is_float
               and any(s.op is not ops.CONST for s in n.src))


def iteration_ranges(node: UOp) -> frozenset[UOp]:
    """Return the ranges that a node is computed for; a REDUCE includes the ones it closes."""
    return node.ranges.union(bound_ranges(node)) if node.op is ops.REDUCE else node.ranges


def leaf_loads(value: UOp) -> list[UOp]:
    """Return the LOADs that a value is made of, without those inside other REDUCEs and STAGEs."""
    return [n for n in toposort([value], stop=lambda n: n.op in (ops.REDUCE, ops.LOAD))
            if n.op is ops.LOAD]


# ---- contractions and their factors -------------------------------------------------------------


AxisT = TypeVar("AxisT")  # an axis of tensors, a RANGE of kernels
_MAX_TREE = 32  # nodes of a multiplication tree that are examined


def two_factors(reduce: UOp, axes: Callable[[UOp], frozenset[AxisT]],
                summed: frozenset[AxisT]) -> tuple[UOp, UOp] | None:
    """Return the factors of a REDUCE that is a contraction, else None.

    Args:
        reduce: the REDUCE.
        axes: the axes that a node below it varies along.
        summed: the axes that the REDUCE sums over.

    >>> from fnx.core.ir import dtypes
    >>> m, n, k = (build.range_(8, id) for id in range(3))
    >>> x, w, mask = (build.load(build.index_into(build.ref(slot, dtypes.float32, (8, 8)), *at))
    ...               for slot, at in enumerate([(m, k), (k, n), (m, n)]))
    >>> total = build.reduce_ranges(build.mul(build.mul(x, mask), w), ops.ADD, [k])
    >>> found = two_factors(total, lambda node: node.ranges, frozenset({k}))
    >>> set(found) == {x, w}
    True
    """
    if reduce.arg.monoid is not ops.ADD or not _linear_operands(reduce.src[0]):
        return None
    subtrees = _multiply_tree(reduce.src[0])
    best, best_covered = None, 0
    varies = {n: axes(n) for n in subtrees}
    for a, b in itertools.combinations(subtrees, 2):
        if a not in subtrees[b] and b not in subtrees[a]:
            own_a, own_b = varies[a] - varies[b], varies[b] - varies[a]
            covered = len(subtrees[a] | subtrees[b])
            if covered > best_covered and own_a - summed and own_b - summed \
                    and not summed.isdisjoint(varies[a] & varies[b]):
                best, best_covered = (a, b), covered
    return best


def _multiply_tree(value: UOp) -> dict[UOp, set[UOp]]:
    """Map each node of a multiplication tree to the set of nodes in its subtree."""
    subtrees: dict[UOp, set[UOp]] = {}
    stack = [value]
    while stack:
        node = stack[-1]
        operands = _linear_operands(node) if len(subtrees) + len(stack) < _MAX_TREE else ()
        missing = [s for s in operands if s not in subtrees]
        if missing:
            stack += reversed(missing)
        else:
            subtrees[stack.pop()] = {node}.union(*[subtrees[s] for s in operands])
    return subtrees


def _linear_operands(node: UOp) -> tuple[UOp, ...]:
    """Return the operands that a node is linear in, each alone; () for a leaf of the tree."""
    if node.op is ops.MUL:
        return node.src
    if node.op in (ops.NEG, ops.DIV) or node.op is ops.CAST and node.src[0].dtype.is_float:
        return node.src[:1]
    if node.op is ops.WHERE and is_zero(node.src[2]):
        return node.src[1:2]
    return ()


def is_zero(node: UOp) -> bool:
    """Whether all elements of a node are the constant 0."""
    constant = underlying_const(node)
    return constant is not None and build.const_of(constant) == 0


def is_zero_unless(value: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether a value is structurally 0 wherever one of the conditions fails."""
    is_zero_there: dict[UOp, bool] = {}
    for node in toposort([value], stop=lambda n: n.op in (ops.LOAD, ops.REDUCE)):
        src = [is_zero_there[s] for s in node.src if s in is_zero_there]
        if node.op is ops.LOAD:
            is_zero_there[node] = _implies(validity(node), conditions) or \
                _is_staged_zero(node, conditions)
        elif node.op is ops.WHERE:
            is_zero_there[node] = is_zero(node.src[2]) and _implies(node.src[0], conditions)
        else:
            is_zero_there[node] = is_zero(node) or (node.op in _ZERO_PRESERVING and all(src))
    return is_zero_there[value]


def _is_staged_zero(load: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether a load reads a STAGE that is filled with 0 where one of the conditions fails."""
    stage = buffer(load)
    if stage.op is not ops.STAGE:
        return False
    filled, = substitute(stage.src[:1], dict(zip(bound_ranges(stage), indices(load))))
    return is_zero_unless(filled, conditions)


_ZERO_PRESERVING = frozenset({ops.MUL, ops.ADD, ops.SUB, ops.NEG, ops.ABS, ops.CAST, ops.AND,
                              ops.OR, ops.MAX, ops.MIN, ops.MULACC, ops.SQRT})


def _implies(condition: UOp | None, required: Sequence[UOp]) -> bool:
    """Whether ``condition`` has all of ``required`` as conjuncts."""
    known = set(conjuncts(condition))
    return all(c in known for part in required for c in conjuncts(part))


# ---- products of attention regions --------------------------------------------------------------


MIN_MATRIX = 1 << 16   # smallest matrix, in elements, for which it pays: 256 rows and columns
MAX_SUMMED = 256  # terms of a product that is recomputed


def may_be_product(sum_: UOp, least: int) -> bool:
    """Whether a sum has at least ``least`` elements, of few terms each."""
    count = math.prod(sum_.shape)
    return count >= least and math.prod(sum_.src[0].shape) <= MAX_SUMMED * count


def may_have_products(fn: UOp, into_functions: bool = False) -> bool:
    """Whether a FUNCTION contains a sum that may be a candidate product."""
    return any(n.op is ops.REDUCE and n.arg.monoid is ops.ADD and may_be_product(n, MIN_MATRIX)
               for n in toposort(fn.src, into_functions=into_functions))


# ---- injective indices --------------------------------------------------------------------------


def determined_ranges(index: Iterable[UOp]) -> set[UOp]:
    """Return the ranges that an index determines uniquely: one of its components is linear in them,
    with coefficients as those of digits, and otherwise has only ranges that others determine.

    >>> from fnx.core.ir import build
    >>> r, q = build.range_(4, 0), build.range_(5, 1)
    >>> determined_ranges([build.add(r, q), q]) == {r, q}, determined_ranges([build.add(r, q)])
    (True, set())
    >>> five, four = build.index_const(5), build.index_const(4)
    >>> determined_ranges([build.add(build.mul(r, five), q)]) == {r, q}
    True
    >>> determined_ranges([build.add(build.mul(r, four), q)])
    set()
    """
    remaining = list(index)
    determined = {r for i in remaining for r in i.ranges if symbolic.bounds(r)[1] == 0}
    while True:
        newly_determined = {r: i for i in remaining if _are_digits(i, i.ranges - determined)
                            for r in i.ranges - determined}
        if not newly_determined:
            return determined
        determined.update(newly_determined)
        remaining = [i for i in remaining if i not in newly_determined.values()]


def _are_digits(index: UOp, ranges: Collection[UOp]) -> bool:
    """Whether different values of some ranges give different indices: each step of one is longer
    than all steps of those with shorter ones together."""
    coefficients = [symbolic.coefficient(index, r) for r in ranges]
    if len(coefficients) == 1:
        return coefficients[0] not in (0, None)
    reach = 0
    steps = [(abs(c) if isinstance(c, int) else 0, symbolic.bounds(r)[1])
             for c, r in zip(coefficients, ranges)]
    for step, most in sorted(steps):
        if step <= reach:
            return False
        reach += step * most
    return bool(ranges)
