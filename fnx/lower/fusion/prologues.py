"""Prologues: which factors a contraction computes where it reads them.

    y = (a * b - c) @ w      fused: packing a panel reads a, b and c across their rows
                             else: t = a * b - c, with lanes along the rows; packing reads t

Tiles have lanes along the columns of the result, and rows one by one: a factor whose last axis is
summed is read, or packed, an element at a time. So each array that it is computed from takes as
many loads as it has elements, where a kernel of its own has lanes for all of them. A concatenation
gets a buffer for a contraction, but a kernel of elements reads its parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.tuning import (
    KERNEL_CYCLES,
    LINE_BYTES,
    MAX_ROW_SCALE_COST,
    STRIDED_COST,
    STRIDED_LANE_CYCLES,
    VECTOR_BYTES,
)
from fnx.lower.fusion.cost import MIN_EXPANSION, RecomputeCost, nbytes, transfer_cycles
from fnx.lower.fusion.group import Group, loops_of, memory_of
from fnx.lower.fusion.index_tokens import Tokens, identity_index, source_index, squeeze


def is_profitable(node: UOp, group: Group, index: Tokens, varies: Mapping[UOp, int]) -> bool:
    """Whether computing a factor in the group of its contraction takes no longer than writing it
    in a kernel of its own and reading it."""
    tokens = squeeze(index)
    if not tokens or tokens[-1] in group.own_index or node.dtype.itemsize < 4:
        return True  # lanes along its last axis; words of a matrix unit are along the sum
    columns = math.prod([group.space[t] for t in {*group.own_index} - loops_of(index)])
    reads = _full_reads(node, varies)
    buffers = sum([n.op is ops.CONCAT for n in reads])
    if not buffers and columns < VECTOR_BYTES // node.dtype.itemsize and \
            group.contraction is not None and _is_along_sum(group.contraction):
        return True  # lanes along the sum
    lane_cycles = STRIDED_COST[ops.LOAD] + STRIDED_LANE_CYCLES * node.dtype.itemsize / LINE_BYTES
    strided = math.prod(node.shape) * (len(reads) - 1) * lane_cycles
    return strided <= (1 - buffers) * (2 * transfer_cycles(node) + KERNEL_CYCLES)


def broadcast_reductions(node: UOp, group: Group, index: Tokens, costs: Mapping[UOp, RecomputeCost]
                         ) -> list[UOp]:
    """Return the values computed from reductions, far smaller than a factor, that are broadcast to
    it: norms of its rows. With these in memory its contraction computes the factor where it packs a
    panel, in lanes along the columns of the result. Empty if the factor is anything else."""
    tokens = squeeze(index)
    if group.contraction is None or not group.own_index or \
            group.own_index[-1] not in loops_of(index) or tokens[-1:] == group.own_index[-1:]:
        return []
    stack, seen, work, small = [node], {node}, 0, list[UOp]()
    while stack:
        n = stack.pop()
        if n.op is ops.EXPAND and nbytes(n.src[0]) * MIN_EXPANSION <= nbytes(n):
            value = memory_of(n.src[0])
            small += [value] if costs[value].reduces else []
            continue
        work += n.op.cost
        if n.op is ops.REDUCE or work > MAX_ROW_SCALE_COST:
            return []
        if n.op.kind in ("elementwise", "movement"):
            stack += [s for s in n.src if s not in seen]
            seen.update(n.src)
    return small


def _full_reads(node: UOp, varies: Mapping[UOp, int]) -> list[UOp]:
    """Return the values that an elementwise one is computed from and that vary along all of its
    axes; the same array at another offset is another value."""
    stack, seen, reads = [node], {node}, []
    while stack:
        n = stack.pop()
        if varies[n] != varies[node]:
            continue
        if n.op.kind != "elementwise":
            reads.append(n)
            continue
        operands = [s for s in dict.fromkeys(n.src) if s not in seen]
        seen.update(operands)
        stack += operands
    return reads


def _is_along_sum(contraction: UOp) -> bool:
    """Whether memory that a factor of a contraction consists of is contiguous along the sum."""
    product = contraction.src[0]
    summed = {identity_index(product.shape)[a] for a in contraction.arg.axes}
    for n in product.src:
        index = identity_index(n.shape)
        while n.op.kind == "movement" and n.op is not ops.CONCAT:
            index, n = source_index(n, 0, index), n.src[0]
        tokens = squeeze(index)
        if n.op.kind != "elementwise" and tokens and tokens[-1] in summed:
            return True
    return False
