"""The directions in which a kernel reads: along the rows of matrices in memory, or across them.

    max(x.T, axis 1), x: (1024, 512)    rows of the group are columns of x: reduced in a kernel of
                                        its own, whose lanes are columns
    sum(exp(x.T) * y, axis 1)           columns of x beside rows of y: one is transposed first

Analyses that placement.py asks; lanes that are a row of memory apart are loaded one by one.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.tuning import KERNEL_CYCLES, STRIDED_COST, UNCACHED_BYTES
from fnx.lower.fusion.cost import find_recompute_set, is_profitable, nbytes, transfer_cycles
from fnx.lower.fusion.group import MAX_SEARCH, MAX_SINGLE_ROW, Group, loops_of
from fnx.lower.fusion.index_tokens import Tokens, identity_index, source_index, squeeze


def is_worth_copy(strided_loads: float, node: UOp) -> bool:
    """Whether so many loads across rows take longer than another kernel, which writes a value that
    is read instead."""
    return strided_loads * STRIDED_COST[ops.LOAD] > KERNEL_CYCLES + 2 * transfer_cycles(node)


def reads_across(reduction: UOp, group: Group, contractions: Collection[UOp]) -> bool:
    """Whether a group reduces the rows of a matrix and the columns of the same or of another one,
    and lanes along the results would read one of both across its rows."""
    x = reduction.src[0]
    others = [n for n in group.inside if n.op is ops.REDUCE and n is not reduction]
    if any(n.src[0] is x and n.arg.axes != reduction.arg.axes for n in others) \
            and nbytes(x) >= UNCACHED_BYTES:
        recompute_set = find_recompute_set(x, contractions)
        return recompute_set is None or not is_profitable(x, recompute_set.weight, 2, 2)
    others = [n for n in others if _is_worth_kernel(reduction, n)]
    along_rows = _reduces_rows(reduction) if others else None
    return along_rows is not None and any(_reduces_rows(n) is (not along_rows) for n in others)


def _is_worth_kernel(one: UOp, other: UOp) -> bool:
    """Whether to read one of two matrices across its rows takes longer than another kernel."""
    elements = min([math.prod(n.src[0].shape) for n in (one, other)])
    return one.shape == other.shape and is_worth_copy(elements, one)


def makes_columns(reduction: UOp, group: Group, index: Tokens) -> bool:
    """Whether a large group would compute its results column by column, for a reduction of fewer
    elements than these, or of rows: then what it reads is transposed."""
    space = math.prod(group.space)
    return space > MAX_SINGLE_ROW and group.run_length(index) == 1 and (
        math.prod(reduction.src[0].shape) < space or _reduces_rows(reduction) is True or
        reduces_both_ways(reduction))


def makes_rows_of_columns(reduction: UOp, group: Group, index: Tokens) -> bool:
    """Whether a group would reduce row by row what lies in memory column by column, its lanes a
    row of memory apart, and that takes longer than a kernel of its own, whose lanes are columns."""
    return not group.is_own(index) and len(group.space) - 1 not in group.row_of(index) and \
        is_worth_copy(math.prod(reduction.src[0].shape), reduction) and \
        _reduces_rows(reduction) is False


def _reduces_rows(reduction: UOp) -> bool | None:
    """Whether a REDUCE is along the rows of all matrices that it is computed from; False: across
    the rows of all. None if there are none, or both kinds, or if that takes a long search."""
    kinds = _row_kinds(reduction, 0)
    return next(iter(kinds)) if len(kinds) == 1 else None


def reduces_both_ways(reduction: UOp) -> bool:
    """Whether a REDUCE is along the rows of one matrix of all its elements, and across those of
    another."""
    return len(_row_kinds(reduction, math.prod(reduction.src[0].shape))) > 1


def _row_kinds(reduction: UOp, size: int) -> set[bool]:
    """Whether a REDUCE is along the rows, or across those, of the matrices of at least so many
    elements that it is computed from element by element, however they are permuted: both if they
    differ; empty if there are none, or if that takes a long search."""
    x = reduction.src[0]
    index = identity_index(x.shape)
    reduced = loops_of(tuple([index[a] for a in reduction.arg.axes]))
    queue, visited = [(x, index)], {(x, index)}
    kinds = set[bool]()
    for n, at in queue:  # grows
        if n.op.kind in ("elementwise", "movement"):
            operands = {(s, source_index(n, i, at)): None for i, s in enumerate(n.src)}
            queue += [operand for operand in operands if operand not in visited]
            visited.update(operands)
        elif len(loops_of(at)) > 1 and math.prod(n.shape) >= size:  # not one row of a matrix
            kinds.add(not reduced.isdisjoint(loops_of(squeeze(at)[-1:])))
        if len(queue) > MAX_SEARCH:
            return set()
        if len(kinds) > 1:
            break
    return kinds
