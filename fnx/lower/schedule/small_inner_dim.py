"""Small inner dimensions, reduced with lanes along the rows: transpose blocks of rows first.

    o[16*i + l] = max(k < 15: x[16*i + l, k])      l VEC 16: each lane is in another row
    stage(x, at="i")                               15 vectors of 16 rows, by shuffles
                                                   (emit/vectorize_stage_fills.py)

Otherwise each lane would be a gather. If the rows are shorter (emit/shuffles.py handles up to
8 elements) or long, lanes go along them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fnx.core.ir import accessors, ops, tiling
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp, toposort
from fnx.lower.analysis.workload import extent, is_static, stride
from fnx.lower.emit.shuffles import MAX_STRIDE, can_transpose

# most elements of a row: a block of longer rows is far larger than the registers
MAX_ROW_LENGTH = 64


def transpose_in_registers(reductions: Iterable[UOp], vector_loops: Mapping[UOp, str],
                           lanes: int) -> list[Transform]:
    """Return stages for the operands that reductions read across their lanes.

    Args:
        reductions: REDUCEs and other nodes that close ranges.
        vector_loops: the loop over vectors of each vectorized range.
        lanes: lanes of a full vector.
    """
    stage_loops: dict[int, str] = {}
    for node in reductions:
        row, lane = small_reduction_range(node), next((r for r in node.ranges if r in vector_loops),
                                                      None)
        if lane is not None:
            stage_loops |= {accessors.buffer(load).arg.slot: vector_loops[lane]
                            for load in toposort(node.src[:1])
                            if crosses_rows(load, lane, row, lanes)}
    return [tiling.stage(slot, loop) for slot, loop in sorted(stage_loops.items())]


def small_reduction_range(node: UOp) -> UOp | None:
    """Return the range of a REDUCE over short rows, or None."""
    closed_ranges = accessors.bound_ranges(node) if node.op is ops.REDUCE else ()
    is_small = len(closed_ranges) == 1 and is_static(closed_ranges[0]) and \
        MAX_STRIDE < extent(closed_ranges[0]) <= MAX_ROW_LENGTH
    return closed_ranges[0] if is_small else None


def crosses_rows(load: UOp, lane: UOp, row: UOp | None, lanes: int) -> bool:
    """Return whether a LOAD reads across rows of memory, each along ``row``, if there is one."""
    return row is not None and load.op is ops.LOAD and can_transpose(lanes) \
        and load.dtype.itemsize >= 4 and accessors.buffer(load).op is ops.REF \
        and extent(lane) >= lanes \
        and stride(load, lane) > MAX_STRIDE and stride(load, row) == 1
