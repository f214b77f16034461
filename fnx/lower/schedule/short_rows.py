"""Small inner dimensions, reduced with lanes along the rows: transpose blocks of rows first.

    o[16*i + l] = max(k < 15: x[16*i + l, k])      l VEC 16: each lane is in another row
    stage(x, at="i")                               15 vectors of 16 rows, by shuffles (fills.py)

Otherwise each lane would be a gather. If the rows are shorter (interleaved.py handles up to 8
elements) or long, lanes go along them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fnx.core import ops, parts, tiling
from fnx.core.tiling import Transform
from fnx.core.uop import UOp, toposort
from fnx.lower.program.interleaved import MOST
from fnx.lower.program.transpose import can_transpose
from fnx.lower.schedule.workload import extent, is_known, stride

_LONGEST = 64  # most elements of a row: a block of longer rows is far larger than the registers


def turned_rows(folds: Iterable[UOp], at: Mapping[UOp, str], lanes: int) -> list[Transform]:
    """Return stages for the operands that reductions read across their lanes.

    Args:
        folds: REDUCEs and other nodes that close ranges.
        at: the loop over vectors of each vectorized range.
        lanes: lanes of a full vector.
    """
    found: dict[int, str] = {}
    for node in folds:
        row, lane = short_fold(node), next((r for r in node.ranges if r in at), None)
        if lane is not None:
            found |= {parts.buffer(load).arg.slot: at[lane] for load in toposort(node.src[:1])
                      if crosses(load, lane, row, lanes)}
    return [tiling.stage(slot, loop) for slot, loop in sorted(found.items())]


def short_fold(node: UOp) -> UOp | None:
    """Return the range of a REDUCE over short rows, or None."""
    own = parts.closed(node) if node.op is ops.REDUCE else ()
    short = len(own) == 1 and is_known(own[0]) and MOST < extent(own[0]) <= _LONGEST
    return own[0] if short else None


def crosses(load: UOp, lane: UOp, row: UOp | None, lanes: int) -> bool:
    """Return whether a LOAD reads across rows of memory, each along ``row``, if there is one."""
    return row is not None and load.op is ops.LOAD and can_transpose(lanes) \
        and load.dtype.itemsize >= 4 and parts.buffer(load).op is ops.REF \
        and extent(lane) >= lanes \
        and stride(load, lane) > MOST and stride(load, row) == 1
