"""Contractions: recognize a matrix product and the role of each of its ranges.

A contraction is a REDUCE(ADD) over a product of two factors such that some ranges of the result are
in the left factor only (rows), some in the right only (columns), others in both (batch). How the
source spelled it does not matter: only which ranges each factor depends on. contraction_tiling.py
tiles it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import attrgetter

from fnx.core.ir import accessors, build, ops, tiling
from fnx.core.ir.accessors import bound_ranges, buffer, dims, indices, validity
from fnx.core.ir.matrix_units import MatrixUnit
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.record import Record
from fnx.lower.analysis.loops import name_of, ranges_of
from fnx.lower.analysis.workload import (
    epilogue_cost,
    extent,
    leaf_loads,
    stride,
    two_factors,
    volume,
)

# summed extent over rows from which strided stores across lanes cost less than packing
_LONG_SUM_RATIO = 16
# most padded terms of a sum, relative to its terms, in whole register words
_MAX_WORD_PADDING = 1.05

MIN_PARALLEL_WORK = 1 << 17  # multiply-adds above which workers share the rows


class Contraction(Record):
    """A REDUCE with its ranges by role, in loop order; ``left`` and ``right`` are its factors,
    ``results`` the STOREs, and the LOADs beside the sum, of which each result has elements of its
    own, ``epilogue`` is the cost of the work that follows the sum."""

    reduce: UOp
    batch: tuple[UOp, ...]
    rows: tuple[UOp, ...]
    columns: tuple[UOp, ...]
    summed: tuple[UOp, ...]
    left: UOp
    right: UOp
    results: tuple[UOp, ...]
    epilogue: int


def match_contraction(kernel: UOp) -> Contraction | None:
    """Match a kernel that is a contraction. None if it is not."""
    nodes = toposort(kernel.src)
    reduces = [n for n in nodes if n.op is ops.REDUCE]
    if len(reduces) != 1 or any(n.op is ops.STAGE for n in nodes) or any(
            s.arg is not None or s.ranges != reduces[0].ranges for s in kernel.src):
        return None
    summed = frozenset(bound_ranges(reduces[0]))
    factors = two_factors(reduces[0], attrgetter("ranges"), summed)
    if factors is None:
        return None
    left, right = factors
    rows, columns = left.ranges - right.ranges - summed, right.ranges - left.ranges - summed
    ranges = ranges_of(kernel)
    lane = next((r for r in ranges if r in reduces[0].ranges and extent(r) > 1
                 and stride(kernel.src[0], r) == 1), None)
    if lane in rows:
        left, right, rows, columns = right, left, columns, rows
    if count_contiguous(left, rows) > count_contiguous(right, columns) and (
            lane not in columns or volume(summed) >= _LONG_SUM_RATIO * volume(rows)):
        left, right, rows, columns = right, left, columns, rows

    def in_order(some: frozenset[UOp]) -> tuple[UOp, ...]:
        return tuple([r for r in ranges if r in some])

    results = [*kernel.src, *[load for s in kernel.src for load in leaf_loads(accessors.value(s))
                              if load.ranges >= rows | columns]]
    return Contraction(reduces[0], in_order(reduces[0].ranges - rows - columns), in_order(rows),
                       in_order(columns), in_order(summed), left, right,
                       tuple(dict.fromkeys(results)), epilogue_cost(kernel.src))


def count_contiguous(factor: UOp, ranges: Iterable[UOp]) -> int:
    return sum(stride(load, r) == 1 for load in leaf_loads(factor) for r in ranges)


def contiguous_sum_range(matmul: Contraction) -> UOp | None:
    """Return a summed range along which both factors are contiguous, or None."""
    loads = [*leaf_loads(matmul.left), *leaf_loads(matmul.right)]
    return next((r for r in matmul.summed if all(stride(x, r) in (0, 1) for x in loads)), None)


def is_plain(factor: UOp) -> bool:
    """Return whether a factor is an unconditional LOAD."""
    return factor.op is ops.LOAD and validity(factor) is None


def work_of_each(factor: UOp) -> int:
    """Return the arithmetic that each element of a factor takes."""
    return sum(n.op.cost for n in toposort([factor])
               if n.op in ops.ELEMENTWISE and n.dtype.kind != "index"
               and n.ranges == factor.ranges)


def has_overlap(factor: UOp) -> bool:
    """Return whether the ranges of a load outnumber its buffer's elements: overlapping windows,
    which packing would duplicate."""
    return any(volume(load.ranges) > math.prod(
        [build.const_of(d) if d.op is ops.CONST else 1 << 40 for d in dims(buffer(load))])
        for load in leaf_loads(factor))


def stage_factor(matmul: Contraction, factor: UOp, loop_name: str | None, row: str, column: str,
                 space: str = "PRIV") -> list[Transform]:
    """Return the stage of the operand whose load stands for a factor; in ``x @ x`` only that of
    this factor. Other operands of the factor may stand for it too: one that is read elsewhere is
    staged there, too."""
    result_range = row if factor is matmul.left else column
    shared_slots = {*operand_slots(matmul.left)} & {*operand_slots(matmul.right)}
    elsewhere = shared_slots.union([buffer(x).arg.slot for x in matmul.results
                                    if x.op is ops.LOAD and buffer(x).op is ops.REF])
    slots = operand_slots(factor) or [  # its operands have some of its ranges each
        buffer(x).arg.slot for x in leaf_loads(factor) if buffer(x).op is ops.REF]
    slot = min(slots, key=elsewhere.__contains__, default=None)
    over = () if is_plain(factor) else tuple(sorted(map(name_of, factor.ranges)))
    return [] if slot is None else [tiling.stage(
        slot, loop_name, space, result_range if slot in shared_slots else None, over=over)]


def word_range(matmul: Contraction, unit: MatrixUnit) -> UOp:
    """Choose the summed range whose adjacent terms form a register word: one whose extent fills
    whole words, if there is one, and along which more of the factors are contiguous."""
    loads = [*leaf_loads(matmul.left), *leaf_loads(matmul.right)]

    def fitness(r: UOp) -> tuple[bool, int, int]:
        padded = -(-extent(r) // unit.terms_per_word) * unit.terms_per_word
        return (padded <= _MAX_WORD_PADDING * extent(r),
                sum(stride(x, r) == 1 for x in loads), extent(r))

    return max(matmul.summed, key=fitness)


def is_word_aligned(load: UOp, sum_range: UOp, unit: MatrixUnit) -> bool:
    """Return whether adjacent elements along a summed range form a register word, at every word's
    start."""
    count = unit.terms_per_word
    return extent(sum_range) % count == 0 and stride(load, sum_range) == 1 and \
        load.dtype.itemsize * count == 4 and \
        not any(stride(load, r) % count for r in load.ranges if r is not sum_range) and \
        not symbolic.linear_terms(symbolic.element_offset(load))[1] % count


def is_packed_words(factor: UOp, sum_range: UOp, unit: MatrixUnit) -> bool:
    """Return whether a factor lies in memory as the register words that the unit takes."""
    load = factor.src[0] if factor.op is ops.CAST else factor
    return unit.left is unit.right and is_plain(load) and \
        is_word_aligned(load, sum_range, unit) and \
        indices(load)[-1] is sum_range and dims(buffer(load))[-1] is accessors.extent(sum_range)


def operand_slots(factor: UOp) -> list[int]:
    """Return the slots of the operands whose loads stand for a factor: those with all of its
    ranges."""
    return [buffer(load).arg.slot for load in leaf_loads(factor)
            if load.ranges == factor.ranges and buffer(load).op is ops.REF]
