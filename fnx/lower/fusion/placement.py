"""Placement: whether a node may be computed in the one group that reads it.

    y = relu(x @ w + b) * s    each op fits the group of its reader; the product is the contraction
    z = (x @ w) @ v            x @ w does not: the other product is the contraction of that group

kernelize.py asks in its walk, when all readers of the node are placed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Protocol

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.fusion import (
    concat_in_place,
    cost,
    epilogues,
    partial_vectors,
    prologues,
    read_directions,
)
from fnx.lower.fusion.group import (
    MAX_SINGLE_ROW,
    Group,
    are_full,
    are_nested,
    is_misaligned,
    loops_of,
    overlaps,
    window_count,
)
from fnx.lower.fusion.index_tokens import (
    Tokens,
    identity_index,
    shift,
    source_index,
    squeeze,
)
from fnx.lower.fusion.reduction_loops import ReductionLoops
from fnx.lower.fusion.varying_axes import long_axes

MAX_STAGE_BYTES = 128 << 10  # a row staged inside a kernel; half of a small L2
MAX_RECOMPUTES = 4  # times a cheap value is recomputed
CONDITIONAL_OPS = (ops.PAD, ops.FOLD, ops.CONCAT)
PROLOGUE_WEIGHT = 6  # cost of the elementwise ops fused into an operand of a contraction


class GraphCosts(Protocol):
    """What is known of the nodes of a FUNCTION: the attributes of kernelize.Fusion that placement
    needs."""

    cost: dict[UOp, cost.RecomputeCost]
    varies: dict[UOp, int]
    contractions: set[UOp]
    materialized: set[UOp]
    readers: dict[UOp, list[UOp]]
    epilogue_of: dict[UOp, UOp]
    reduction_loops: ReductionLoops
    lane_bytes: int


def fits(node: UOp, group: Group, index: Tokens, costs: GraphCosts) -> bool:
    """Whether a node that is read once may be computed where it is read."""
    if are_full((group,), node.op.cost) and not (
            node.op.kind == "elementwise" and cost.is_cheap(costs.cost[node])):
        group.overflow.append(node)
        return False
    if group.scatter is not None and node.op is ops.REDUCE:
        return False
    if node.op is ops.REDUCE:
        if node in costs.contractions:
            return group.covers(index) and group.contraction is None \
                and not group.reduces and not group.stages \
                and not epilogues.wastes_lanes(node, group.work)
        return group.contraction is None and cost.can_reduce_in(group, node, index) and \
            not read_directions.reads_across(node, group, costs.contractions) and \
            not read_directions.makes_columns(node, group, index) and \
            not read_directions.makes_rows_of_columns(node, group, index) and \
            not partial_vectors.separates_columns(
                node, group, index, costs.cost, costs.lane_bytes) and \
            not _keeps_contraction_out(node, group, costs)
    if group.is_own(index):
        return not partial_vectors.splits_rows(
            node, group, costs.cost, costs.varies, costs.lane_bytes) and not (
            group.contraction is not None and
            epilogues.wastes_lanes_on(node, group.contraction, costs.cost))
    if group.is_row(index) or group.can_be_row(index) and costs.cost[node].reduces:
        return group.contraction is not None or not cost.wastes_lanes_in_rows(
            node, group.row_length(index), costs.cost, costs.contractions)
    if group.contraction is not None and loops_of(index).issuperset(group.own_index):
        return True  # the contraction itself, not one of its factors
    scales = prologues.broadcast_reductions(node, group, index, costs.cost)
    if scales and not is_misaligned(index) and not overlaps(index) and \
            prologues.is_profitable(node, group, index, costs.varies):
        costs.materialized.update(scales)
        return True
    if is_misaligned(index) or cost.needs_rows(node, group, index, costs.cost):
        return False
    if group.contraction is not None and node.op is ops.GATHER:
        return False
    if group.contraction is not None or overlaps(index):
        return costs.cost[node].weight <= PROLOGUE_WEIGHT and (
            group.contraction is None or
            prologues.is_profitable(node, group, index, costs.varies))
    return may_repeat(node, group, index, costs)


def _keeps_contraction_out(node: UOp, group: Group, costs: GraphCosts) -> bool:
    """Whether a reduction in a group saves less memory traffic than the contraction that the
    group could compute instead."""
    contraction = epilogues.awaited_contraction(group, costs.epilogue_of)
    if contraction is None or epilogues.wastes_lanes(contraction, group.work):
        return False
    shared = epilogues.shared_operands(node, costs.readers)
    return sum(map(cost.nbytes, [node, node, *shared])) <= 2 * cost.nbytes(contraction)


def may_recompute(node: UOp, copies: int, costs: GraphCosts) -> bool:
    """Whether so many readers may each compute a value, if all of them can: it takes no LOAD, as
    that of a buffer does, if it is made of indices."""
    value = costs.cost[node]
    return copies <= MAX_RECOMPUTES or not value.loads and \
        cost.is_profitable(node, value.weight - 1, copies, copies)


def may_repeat(node: UOp, group: Group, index: Tokens, costs: GraphCosts) -> bool:
    """Whether the loops around an index compute a value at most a few times, or faster than
    they would read it."""
    copies = group.recompute_count(index, costs.reduction_loops.outer)
    value = costs.cost[node]
    weight = value.weight - (not value.loads)  # it takes no LOAD, as that of a buffer does
    return copies <= MAX_RECOMPUTES or cost.is_profitable(node, weight, copies, 1)


def may_stage(node: UOp, group: Group, indices: Collection[Tokens], fill_index: Tokens,
              costs: GraphCosts) -> bool:
    """Whether a group may stage a row of a value that it reads at several indices, filled at one of
    them."""
    row_of = frozenset.intersection(*map(group.row_of, indices))
    if group.contraction is not None or not are_nested({*group.rows, row_of}) or \
            not row_of and math.prod(group.space) > MAX_SINGLE_ROW:
        return False
    differing = [i for i, ts in enumerate(zip(*indices)) if len(set(ts)) > 1]
    row_length = math.prod(node.shape[i] for i in differing)
    return row_length * node.dtype.itemsize <= MAX_STAGE_BYTES \
        and not cost.wastes_lanes_at_row_ends(node, differing, costs.cost) \
        and all(type(t) is int for index in indices for t in index) \
        and all(fill_index[i] in costs.reduction_loops.depth for i in differing)


def needs_buffer(node: UOp, uses: Mapping[Group, Collection[Tokens]], costs: GraphCosts) -> bool:
    """Whether a movement op should be materialized because a contraction or reduction reads padded
    windows or concatenated rows: from memory these need no conditions and divisions; or because it
    reads strided windows, or a diagonal again and again, whose neighbors become contiguous, or
    columns of one matrix beside rows of another."""
    if costs.varies[node] != long_axes(node.shape):
        return False
    readers = [(g, i) for g, indices in uses.items() for i in indices]
    if any(_gathers_again(node, g, i, costs) or _crosses_other_rows(node, g, i)
           for g, i in readers):
        costs.materialized.add(node)  # in a kernel of its own, not of the group that reads it
        return True
    return node.op in CONDITIONAL_OPS and any(
        g.contraction is not None and (overlaps(i) or is_misaligned(i)) or
        node.op is ops.CONCAT and concat_in_place.should_materialize(node, g, i) or
        g.reduces and (window_count(i) > 1 or is_misaligned(i))
        for g, i in readers) or node.op is ops.PERMUTE and any(
        g.contraction is not None and overlaps(i) and is_misaligned(i) for g, i in readers)


def _crosses_other_rows(node: UOp, group: Group, index: Tokens) -> bool:
    """Whether a group would reduce the columns of a transposed matrix together with the rows of
    another, so that lanes would read one of both across its rows, and a transposed copy costs
    less."""
    at = squeeze(index)
    if node.op is not ops.PERMUTE or node.arg[-1] == len(node.arg) - 1 or len(at) < 2 or \
            at[-1] in group.own_index or group.contraction is not None:
        return False
    return read_directions.is_worth_copy(math.prod(node.shape), node) and any(
        n.op is ops.REDUCE and read_directions.reduces_both_ways(n) for n in group.inside)


def _gathers_again(node: UOp, group: Group, index: Tokens, costs: GraphCosts) -> bool:
    """Whether a group would read a vector whose elements are apart in memory, such as a diagonal,
    again and again, and a copy of it costs less."""
    axis = squeeze(identity_index(node.shape))
    read = math.prod([group.space[t] for t in loops_of(index) if t < len(group.space)])
    if len(axis) != 1 or group.contraction is not None or read != math.prod(node.shape):
        return False
    copies = group.recompute_count(index, costs.reduction_loops.outer)
    if copies <= MAX_RECOMPUTES or not read_directions.is_worth_copy(read * copies, node):
        return False
    at: Tokens = identity_index(node.shape)
    n = node
    while n.op.kind == "movement" and n.op is not ops.CONCAT:
        at, n = source_index(n, 0, at), n.src[0]
    last, = squeeze(at)[-1:] or axis
    is_contiguous = shift(last, 0)[:2] == shift(axis[0], 0)[:2]
    return n.op.kind != "elementwise" and not is_contiguous
