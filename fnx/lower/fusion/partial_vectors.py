"""Partial vectors: where a buffer between pays, as the lanes of a kernel are not all filled.

    before  o[i, j] = gelu(x[i, j] * s[i])     rows of 10: gelu of 16 elements for each
    after   t[i, j] = x[i, j] * s[i]
            o[n] = gelu(t[n])                  all elements are one row, whose vectors are full

    before  y[i, j] = x[i, j] + sum(k: x[k, j]) / 2000         4 columns: lanes are 4 apart
    after   s[j] = sum(k: x[k, j])
            y[n] = x[n] + s[n % 4] / 2000

A map is one row if all that it reads varies along all of its axes, or along the last of them only
(kernel/repeat_row_operands.py), or along none. Any other operand keeps the rows apart, and the last
vector of each is not full.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from fnx.core.ir import ops
from fnx.core.ir.accessors import long_lengths
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.analysis.tuning import KERNEL_CYCLES, STRIDED_COST
from fnx.lower.emit.shuffles import MAX_STRIDE
from fnx.lower.fusion import cost
from fnx.lower.fusion.group import Group
from fnx.lower.fusion.index_tokens import Tokens

_READ_AND_ADD, _READ_AND_STORE = (ops.LOAD, ops.ADD), (ops.LOAD, ops.STORE)
Varying = Mapping[UOp, int]
Costs = Mapping[UOp, cost.RecomputeCost]


def lane_bytes_of(target: Target) -> int:
    """Return the bytes of the lanes that compute together; where threads do, none are idle."""
    return target.vector_bits // 8 if target.threads == 1 else 1


def _lanes(node: UOp, lane_bytes: int) -> int:
    return max(1, lane_bytes // max(node.dtype.itemsize, 4))


def _idle(length: int, lanes: int) -> float:
    """Return the vectors for each element that the last vectors of rows of a length waste."""
    return -(-length // lanes) / length - 1 / lanes


def _row_length(node: UOp, varies: Varying) -> int:
    """Return the length of the rows that an elementwise node computes; 0 if all is one row."""
    return min([n for s in node.src if (n := _run_length(node.shape, varies[s]))], default=0)


def _run_length(shape: ops.Shape, bits: int) -> int:
    """Return for an operand the elements of the last axes that it varies along, or does not; 0 if
    it does not keep the rows apart."""
    axes = [a for a in reversed(range(len(shape))) if shape[a] != 1]
    varying = [bool(bits >> a & 1) for a in axes]
    if varying == sorted(varying, reverse=True):  # the last axes, all, or none
        return 0
    return math.prod([shape[a] for a in axes[:varying.index(not varying[0])]])


def note_rows(group: Group, node: UOp, varies: Varying) -> None:
    """Note the rows of a node that a group computes; a group that moves elements has none."""
    if not varies[node] or node.op is ops.RESHAPE and \
            long_lengths(node) == long_lengths(node.src[0]):
        return
    if node.op.kind != "elementwise" and node.op is not ops.EXPAND:
        group.has_one_row, group.shortest_row = False, 0
    elif node.op is not ops.EXPAND and (length := _row_length(node, varies)):
        group.has_one_row = False
        group.shortest_row = min(group.shortest_row or length, length)


def is_map(group: Group) -> bool:
    """Whether a group only computes elements at its own index, so that it may be one row."""
    return not (group.is_fixed or group.reduces or group.stages or group.rows) and \
        group.contraction is None


def _is_along_rows(node: UOp) -> bool:
    """Whether it is a reduction along the last axis."""
    if node.op is not ops.REDUCE:
        return False
    shape = node.src[0].shape
    return max([a for a, n in enumerate(shape) if n != 1], default=-1) in node.arg.axes


def splits_rows(node: UOp, group: Group, costs: Costs, varies: Varying, lane_bytes: int) -> bool:
    """Whether a node at the index of a map is faster in a kernel of its own: because it, or its
    reductions, would split the one row of the map, or because the map has rows and the node alone
    has not."""
    if node.op.kind != "elementwise" or not is_map(group):
        return False
    if costs[node].reduces:  # with its reductions it may join the group
        return group.has_one_row and group.space != () and \
            any(map(_is_along_rows, costs[node].loads)) and \
            _gains(node, group.space[-1], group.work, lane_bytes)
    length = _row_length(node, varies)
    if group.has_one_row:
        return bool(length) and _gains(node, length, group.work, lane_bytes)
    length = group.shortest_row
    if not length or not _gains(node, length, costs[node].weight, lane_bytes):
        return False
    work = _work_of_one_row(node, costs, varies)
    return work > 0 and _gains(node, length, work, lane_bytes)


def _gains(node: UOp, length: int, work: int, lane_bytes: int) -> bool:
    """Whether work for each element, in full vectors instead of those of rows, saves more than
    writing and reading a node costs."""
    lanes = _lanes(node, lane_bytes)
    wasted = _idle(length, lanes) * work
    if length <= MAX_STRIDE:  # lanes may be that far apart instead
        wasted = min(wasted, STRIDED_COST[ops.LOAD])
    return math.prod(node.shape) * wasted > 2 * cost.transfer_cycles(node) + KERNEL_CYCLES


def _work_of_one_row(node: UOp, costs: Costs, varies: Varying) -> int:
    """Return the arithmetic of one element, with what several nodes read counted once; 0 if it is
    not one row, or if that takes a long search."""
    stack, seen, work = [node], {node}, 0
    while stack:
        n = stack.pop()
        if not costs[n].weight or not varies[n]:
            continue
        if n.op.kind != "elementwise" or _row_length(n, varies) or len(seen) > cost.MAX_NODES:
            return 0
        work += n.op.cost
        stack += [s for s in dict.fromkeys(n.src) if s not in seen]
        seen.update(n.src)
    return work


def cuts_map(node: UOp, group: Group, index: Tokens, lane_bytes: int) -> bool:
    """Whether a map that is one row would be cut into rows, to compute a smaller value once for
    each, and that takes longer than a kernel for that value."""
    if not is_map(group) or not group.has_one_row:
        return False
    row, space = group.row_of(index), group.space
    is_column = len(space) - 1 in row
    length = math.prod([n for _, n in itertools.takewhile(
        lambda axis: (axis[0] in row) is is_column, reversed(list(enumerate(space))))])
    lanes = _lanes(node, lane_bytes)
    wasted = math.prod(space) * _idle(length, lanes) * group.work
    return wasted > KERNEL_CYCLES + 2 * cost.transfer_cycles(node)


def separates_columns(reduction: UOp, group: Group, index: Tokens, costs: Costs,
                      lane_bytes: int) -> bool:
    """Whether a group would compute its results column by column for a reduction, the lanes of the
    last columns not all filled, or, of fewer columns than lanes, the lanes that are columns apart;
    and that takes longer than a kernel of its own for the sums. The rest is one row then."""
    row, rank = group.row_of(index), len(group.space)
    columns = math.prod([group.space[axis] for axis in row])
    lanes = _lanes(reduction, lane_bytes)
    if columns == 1 or not columns % lanes or group.rows or len(row) == rank or \
            row != frozenset(range(rank - len(row), rank)):
        return False  # the rest would not be one row
    elements = math.prod(group.space)
    instructions = group.work + len(_READ_AND_ADD) + len(_READ_AND_STORE) * len(group.roots)
    wasted = elements * _idle(columns, lanes) * instructions
    if columns < lanes:  # lanes may be that far apart instead
        wasted = min(wasted, elements * (
            STRIDED_COST[ops.LOAD] + STRIDED_COST[ops.STORE] * len(group.roots)))
    operand = reduction.src[0]
    kernels = 2 if costs[operand].weight else 1  # what is computed is read twice then
    return wasted > kernels * KERNEL_CYCLES + 2 * cost.transfer_cycles(operand)
