"""The cost of recomputing a value, and which reductions are contractions.

Analyses of tensor nodes that kernelize decides by; one walk over the graph, operands first.

**Recompute** values that are far larger than their inputs wherever they are read.

    before  d = p[i] - p[j]: (n, n, 3), made of p: (n, 3)       written once, read twice: 3 n^2
            sum(f(d), 0) - sum(f(d), 1)
    after   the same without a buffer for f(d): each sum computes the terms that it adds

A sum of a few elements (a squared distance) counts as elementwise work here; so do indices of
windows at data-dependent offsets, start[i] + j. A contraction does not, as its own kernel is tiled.
The criterion is time: bytes that go to memory, or to a cache, and back, compared with vector
instructions that are executed again.

**Row reductions**: which reductions are computed inside a group, once for each row of it.

    group over (i, k, j)   x[i, k, j] - max(l: x[i, l, j])     its rows are (i, j), in any order of
                                                               axes; loops i, j, then l and k

A REDUCE is computed at the group's own index, or at a subset of it: a row. A small group as a
whole may be one row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.lower.analysis.tuning import (
    CACHE_BYTES_PER_CYCLE,
    DRAM_BYTES_PER_CYCLE,
    KERNEL_CYCLES,
    MIN_LANES_GAIN,
    STRIDED_COST,
    TRANSPOSED_COST,
    UNCACHED_BYTES,
    VECTOR_BYTES,
)
from fnx.lower.analysis.workload import two_factors
from fnx.lower.fusion.group import (
    MAX_SEARCH,
    MAX_SINGLE_ROW,
    MEMORY,
    Group,
    are_full,
    common_prefix,
    is_misaligned,
    overlaps,
)
from fnx.lower.fusion.index_tokens import Tokens, source_index
from fnx.lower.schedule.small_inner_dim import MAX_ROW_LENGTH

_MAX_WEIGHT = 1 << 20
MAX_SCALE_COST = 2     # arithmetic that only scales
MAX_TERMS = 32  # arrays that one kernel adds
MAX_PRODUCTS = 4  # contractions of which one kernel adds the partial results


class RecomputeCost(Record):
    """Cost of recomputing one element: arithmetic, the arrays read for it (capped), and whether
    it is computed from reductions without memory between."""

    weight: int
    loads: frozenset[UOp]
    reduces: bool = False


_NO_LOADS: frozenset[UOp] = frozenset()


def costs(nodes: list[UOp]) -> dict[UOp, RecomputeCost]:
    """Return the cost of each node, stopping at memory, reductions and calls."""
    out: dict[UOp, RecomputeCost] = {}
    for node in nodes:
        if node.op.kind in ("elementwise", "movement", "pair"):
            weight, loads, reduces = node.op.cost, _NO_LOADS, False
            for s in node.src[:1] if node.op is ops.BARRIER else node.src:
                operand_cost = out[s]
                weight += operand_cost.weight
                if operand_cost.loads and len(loads) < 4:
                    loads = loads | operand_cost.loads if loads else operand_cost.loads
                    reduces = reduces or operand_cost.reduces
            if node.dtype.is_integer and not loads and _is_address(node, weight):
                weight = 0
            out[node] = RecomputeCost(min(weight, _MAX_WEIGHT), loads, reduces)
        elif node.op is ops.CONST or node.op is ops.IOTA or math.prod(node.shape) == 1:
            out[node] = RecomputeCost(0, _NO_LOADS)
        else:
            out[node] = RecomputeCost(0, frozenset((node,)), node.op is ops.REDUCE)
    return out


def _is_address(node: UOp, weight: int) -> bool:
    """Whether an integer is a start, which is computed once outside of loops, or a start plus a
    counter, which addresses have in any case."""
    return node.op is ops.EXPAND and math.prod(node.src[0].shape) == 1 or \
        node.op is ops.ADD and weight == node.op.cost


def is_cheap(cost: RecomputeCost) -> bool:
    """Whether recomputing a value costs less than writing and reading it."""
    return cost.weight <= 6 and len(cost.loads) <= 1 or cost.weight <= 24 and not cost.loads


def is_widening_cast(node: UOp) -> bool:
    """Whether it is a CAST to more bytes: then its operand should cross memory instead."""
    return node.op is ops.CAST and node.dtype.itemsize > node.src[0].dtype.itemsize


def narrows_reductions(node: UOp, cost: RecomputeCost) -> bool:
    """Whether it is a CAST of reductions to fewer bytes: these would be written otherwise."""
    return node.op is ops.CAST and node.dtype.itemsize < node.src[0].dtype.itemsize \
        and cost.reduces


def is_broadcast_scale(node: UOp) -> bool:
    """Whether it does little more than broadcast and scale smaller values, which are in memory
    then: the terms x[k, i] * r[k] of a sum over k, with r computed from reductions."""
    queue, seen, work = [node], set[UOp](), 0
    while queue:
        n = queue.pop()
        if n in seen or n.op is ops.EXPAND:
            continue
        seen.add(n)
        work += n.op.cost
        if n.op is ops.REDUCE or work > MAX_SCALE_COST:
            return False
        if n.op.kind in ("elementwise", "movement"):
            queue += n.src
    return True


def reduction_depths(nodes: list[UOp]) -> dict[UOp, int]:
    """Return for each node the longest chain of reductions and barriers that leads to it."""
    out: dict[UOp, int] = {}
    for node in nodes:
        src = () if node.op.is_isolated else node.src
        deepest = max([out.get(s, 0) for s in src], default=0)
        out[node] = deepest + (node.op in (ops.REDUCE, ops.BARRIER))
    return out


def reduced_value(fold: UOp) -> tuple[UOp, tuple[int, ...]]:
    """Return the value that a REDUCE reduces (for an ARG_PAIR, its key) and the axes."""
    x = fold.src[0]
    return x.src[0] if x.op is ops.ARG_PAIR else x, fold.arg.axes


def contractions(nodes: list[UOp], varies: dict[UOp, int]) -> set[UOp]:
    """Return the sums of products of two factors with axes of their own (matmul, in any spelling).

    A matrix times a vector is a plain reduction: it is bound by memory.
    """

    def axes(n: UOp) -> frozenset[int]:
        return frozenset([a for a in range(len(n.shape)) if varies[n] >> a & 1])

    return {n for n in nodes if n.op is ops.REDUCE
            and two_factors(n, axes, frozenset(n.arg.axes)) is not None}


def materialized_sums(nodes: list[UOp], contractions: set[UOp], results: Iterable[UOp]) -> set[UOp]:
    """Return partial sums of long sums to be materialized, whoever reads them: so the kernels of a
    long sum are equal.

    Of contractions: a kernel has one, so of ``x @ a + (y @ b + z @ c)`` one side is read from
    memory in any case. In a sum of more than ``MAX_PRODUCTS`` that is the sum of the earlier ones.
    Of arrays: a kernel adds ``MAX_TERMS`` of them.
    """
    materialized: set[UOp] = set()
    in_memory = set(map(_skip_reshapes, results))  # in memory for other reasons
    for node in nodes:
        if node.op.kind != "elementwise" and node.op is not ops.RESHAPE and not node.op.is_isolated:
            in_memory.update(map(_skip_reshapes, node.src))
    for term_counts, limit, default_count in ((dict.fromkeys(contractions, 1), MAX_PRODUCTS, 0),
                                              ({}, MAX_TERMS, 1)):
        for node in nodes:  # number of terms it sums without a buffer between
            if node.op is ops.ADD and node not in in_memory:
                total = sum([term_counts.get(s, default_count) for s in node.src])
                if total > limit:
                    sums = [s for s in node.src if term_counts.get(s, default_count) > 1]
                    materialized.update(map(_skip_reshapes, sums))
                    total -= sum([term_counts[s] - default_count for s in sums])
                term_counts[node] = total
            elif node.op is ops.RESHAPE and node.src[0] in term_counts:
                term_counts[node] = term_counts[node.src[0]]
    return materialized - contractions


def _skip_reshapes(node: UOp) -> UOp:
    while node.op is ops.RESHAPE:
        node = node.src[0]
    return node


# ---- recompute ----------------------------------------------------------------------------------


# elements that a reduction may have to count as elementwise work
MAX_REDUCE_TERMS = 4
MIN_EXPANSION = 16                  # times as many bytes as the inputs of a value
MAX_NODES = 64                 # nodes that are examined

_VIEW_OPS = frozenset({ops.EXPAND, ops.PERMUTE, ops.SHRINK, ops.FLIP, ops.RESHAPE})


class RecomputeSet(Record):
    """How to recompute a value: the nodes to recompute, and instructions per element of it."""

    nodes: frozenset[UOp]
    weight: int


def is_small_reduce(node: UOp) -> bool:
    """Whether a REDUCE has no more terms than an elementwise formula would have operands."""
    return node.op is ops.REDUCE and node.src[0].op is not ops.ARG_PAIR and \
        math.prod([node.src[0].shape[a] for a in node.arg.axes]) <= MAX_REDUCE_TERMS


def find_recompute_set(node: UOp, contractions: Collection[UOp] = ()) -> RecomputeSet | None:
    """Return how to recompute a value, if its inputs are far smaller than it. Contractions are
    inputs."""
    size = nbytes(node)
    copies_of, stack, inputs = {node: 1}, [node], set[UOp]()
    while stack:
        n = stack.pop()
        if len(copies_of) > MAX_NODES:
            return None
        factor = copies_of[n]
        if is_small_reduce(n):
            factor *= math.prod([n.src[0].shape[a] for a in n.arg.axes])
        for s in n.src:
            if s.op is ops.CONST or s.op is ops.IOTA:
                continue
            # computed once, whoever reads it
            if nbytes(s) * MIN_EXPANSION * MAX_REDUCE_TERMS <= size:
                inputs.add(s)
            elif s not in contractions and (
                    s.op.kind == "elementwise" or s.op in _VIEW_OPS or is_small_reduce(s)):
                if copies_of.get(s, 0) < factor:
                    copies_of[s] = factor
                    stack.append(s)
            else:
                inputs.add(s)
    if not inputs or sum(map(nbytes, inputs)) * MIN_EXPANSION > size:
        return None
    weight = sum(n.op.cost * k * _needed_fraction(n, node) for n, k in copies_of.items())
    return RecomputeSet(frozenset(copies_of), math.ceil(weight))


def is_profitable(node: UOp, weight: int, copies: int, readers: int) -> bool:
    """Whether computing a value ``copies`` times, in ``weight`` instructions, is faster than
    writing a buffer that is read ``readers`` times."""
    memory_cycles = transfer_cycles(node) * (2 + readers)
    recompute_cycles = nbytes(node) * weight * (copies - 1) / VECTOR_BYTES
    return recompute_cycles < memory_cycles + KERNEL_CYCLES


def wastes_lanes_in_rows(node: UOp, row_length: int, costs: Mapping[UOp, RecomputeCost],
                         contractions: Collection[UOp]) -> bool:
    """Whether a value that a kernel would compute once a row, in one lane, is faster in a kernel of
    its own, in all lanes, with a buffer between. Lanes go along the rows if these are short."""
    if row_length <= MAX_REDUCE_TERMS:
        return False
    lanes = VECTOR_BYTES // max(node.dtype.itemsize, 4)
    saved = math.prod(node.shape) * (1 - 1 / lanes) / MIN_LANES_GAIN
    crossing = 2 * transfer_cycles(node) + KERNEL_CYCLES
    if saved * costs[node].weight <= crossing:
        return False
    crossing += _reduction_cycles(node, costs, contractions)
    return saved * distinct_work(node, costs, crossing / saved) > crossing


def wastes_lanes_at_row_ends(node: UOp, row_axes: Collection[int],
                             costs: Mapping[UOp, RecomputeCost]) -> bool:
    """Whether a value that a kernel would compute row by row, the last vector of each not full, is
    faster in a kernel of its own, which fills all vectors, with a buffer between. If the rows are
    not along the last axis, lanes go across them."""
    if all(math.prod(node.shape[a + 1:]) > 1 for a in row_axes):
        return False
    row_length = math.prod([node.shape[a] for a in row_axes])
    lanes = VECTOR_BYTES // max(node.dtype.itemsize, 4)
    vectors = -(-row_length // lanes)
    wasted = vectors / row_length - 1 / lanes  # vectors for one element
    if vectors == 1 or costs[node].reduces:
        return False
    if row_length <= MAX_ROW_LENGTH and \
            wasted * costs[node].weight > TRANSPOSED_COST + STRIDED_COST[ops.STORE]:
        return False  # lanes go across the rows
    saved, crossing = math.prod(node.shape) * wasted, 2 * transfer_cycles(node) + KERNEL_CYCLES
    return saved * costs[node].weight > crossing and \
        saved * distinct_work(node, costs, crossing / saved) > crossing


def distinct_work(node: UOp, costs: Mapping[UOp, RecomputeCost], limit: float) -> int:
    """Return the arithmetic that one element takes, with what several nodes read counted once; a
    little more than a limit if that is passed."""
    stack, seen, work = [node], {node}, 0
    while stack and work <= limit:
        n = stack.pop()
        work += n.op.cost
        if costs[n].weight:
            stack += [s for s in dict.fromkeys(n.src) if s not in seen]
            seen.update(n.src)
    return work


def _reduction_cycles(node: UOp, costs: Mapping[UOp, RecomputeCost],
                      contractions: Collection[UOp]) -> float:
    """Return the time to compute the reductions that a value is made of in another kernel, each
    with those of the same rows below: a variance with its mean."""
    cycles, seen = 0.0, {node}
    stack = [n for n in costs[node].loads if n.op is ops.REDUCE and n not in contractions]
    while stack:
        reduction = stack.pop()
        operand = reduction.src[0]
        cycles += nbytes(operand) * (costs[operand].weight + 2) / VECTOR_BYTES
        for n in costs[operand].loads - seen:
            seen.add(n)
            if n.op is not ops.REDUCE:
                cycles += transfer_cycles(n)
            elif n.shape == reduction.shape and n not in contractions:
                stack.append(n)
    return cycles


def transfer_cycles(node: UOp) -> float:
    """Return the time to read a value from memory, or from a cache if it fits there."""
    return nbytes(node) / (
        DRAM_BYTES_PER_CYCLE if nbytes(node) >= UNCACHED_BYTES else CACHE_BYTES_PER_CYCLE)


class RecomputedValues:
    """The values that are recomputed in one FUNCTION; contractions never are."""

    def __init__(self) -> None:
        self.nodes: set[UOp] = set()

    def recomputes(self, node: UOp, uses: Mapping[Group, Sequence[Tokens]], copies: int,
                   contractions: Collection[UOp]) -> bool:
        """Whether a node is recomputed wherever it is read, together with its recomputed
        operands."""
        if node not in self.nodes:
            if copies == 1 or node.op.kind != "elementwise":
                return False
            recompute_set = find_recompute_set(node, contractions)
            if recompute_set is None or \
                    not is_profitable(node, recompute_set.weight, copies, copies) or \
                    not _can_recompute(recompute_set.nodes, uses):
                return False
            self.nodes |= {n for n in recompute_set.nodes if n is node or not _is_stored_inside(
                n, node, copies, contractions)}
        return _can_recompute((node,), uses)


def _is_stored_inside(n: UOp, node: UOp, copies: int, contractions: Collection[UOp]) -> bool:
    """Whether a smaller value that a recomputed one is made of is written all the same: the
    weights cos(d) of terms cos(d[i, j]) * x[j, k]."""
    if n.op.kind != "elementwise" or nbytes(n) >= nbytes(node):
        return False
    recompute_set = find_recompute_set(n, contractions)
    return recompute_set is not None and \
        not is_profitable(n, recompute_set.weight, copies, copies)


def _can_recompute(nodes: Collection[UOp], uses: Mapping[Group, Sequence[Tokens]]) -> bool:
    """Whether all groups may compute the nodes at all their indices."""
    work = sum([n.op.cost for n in nodes])
    return not any(
        g.contraction is not None or g.is_fixed or are_full((g,), work * len(i)) or MEMORY in i
        or any(overlaps(index) or is_misaligned(index) for index in i) for g, i in uses.items())


def _needed_fraction(n: UOp, node: UOp) -> float:
    """Return how many elements of ``n`` one element of the value needs: small operands are
    shared."""
    return min(1.0, math.prod(n.shape) / math.prod(node.shape)) if not is_small_reduce(n) else 1.0


def nbytes(node: UOp) -> int:
    return math.prod(node.shape) * node.dtype.itemsize


# ---- row reductions -----------------------------------------------------------------------------


def can_reduce_in(group: Group, reduction: UOp, index: Tokens) -> bool:
    """Whether a REDUCE at an index may be computed in a group, without results that are larger
    than its operand written in runs shorter than a vector."""
    if group.is_own(index):
        return True
    size = math.prod(reduction.src[0].shape)
    if not group.can_be_row(index) or not group.row_of(index) and _reduces_each(group):
        return False
    if size < math.prod(group.space) and \
            1 < group.run_length(index) < VECTOR_BYTES // reduction.dtype.itemsize:
        return False
    return bool(group.row_of(index)) or size <= MAX_SINGLE_ROW


def _reduces_each(group: Group) -> bool:
    """Whether a group reduces much for each result: in lanes, if it has no reduction for all."""
    return group.space != () and sum([
        math.prod(n.src[0].shape) for n, indices in group.inside.items()
        if n.op is ops.REDUCE and any(map(group.is_own, indices))]) > KERNEL_CYCLES


def can_reduce_all_in(group: Group, node: UOp, index: Tokens, costs: Mapping[UOp, RecomputeCost]
                      ) -> bool:
    """Whether the reductions that a node at an index is computed from may be computed in a group.
    False if that takes a long search."""
    queue, visited = [(node, index)], {(node, index)}
    for n, at in queue:  # grows
        if n.op is ops.REDUCE:
            if not can_reduce_in(group, n, at):
                return False
            continue
        for i, s in enumerate(n.src):
            operand_at = s, source_index(n, i, at)
            if operand_at not in visited and costs[s].reduces:
                visited.add(operand_at)
                queue.append(operand_at)
        if len(queue) > MAX_SEARCH:
            return False
    return True


def needs_rows(node: UOp, group: Group, index: Tokens, costs: Mapping[UOp, RecomputeCost]) -> bool:
    """Whether computing a node in a group would fuse a reduction below that is no row reduction of
    the group."""
    if not costs[node].reduces:
        return False
    has_row = common_prefix(index, group.own_index) or \
        can_reduce_all_in(group, node, index, costs)
    return (group.contraction is not None or not has_row) and not is_broadcast_scale(node)


def is_cheap_in_rows(node: UOp, group: Group, indices: Iterable[Tokens],
                     costs: Mapping[UOp, RecomputeCost]) -> bool:
    """Whether a value is cheap given row reductions, which are available: x - max, read twice."""
    node_cost = costs[node]
    remaining_cost = node_cost.replace(
        loads=frozenset([n for n in node_cost.loads if n.op is not ops.REDUCE]))
    return group.contraction is None and is_cheap(remaining_cost) and \
        all(can_reduce_all_in(group, node, index, costs) for index in indices)
