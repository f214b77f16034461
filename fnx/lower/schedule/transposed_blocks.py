"""Transposed blocks: maps that read or write memory across their lanes.

    before  o[i, j] = x[j, i] + y[i, j]               lanes along j are rows of x apart
    after   blocks of 16 x 16 of x are transposed in registers, or read by an innermost loop, while
            the cache holds their lines
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fnx.core.ir import accessors, ops, tiling
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of
from fnx.lower.analysis.workload import extent, stride
from fnx.lower.emit.shuffles import MAX_STRIDE
from fnx.lower.schedule.statement_cost import BLOCK_SIDE, StatementCost

_STRIP_BLOCKS = 4, 32  # adjacent blocks: 256 bytes to 2 KB of each row are read in turn
_STRIPS_PER_PROCESSOR = 4  # strips for each processor; at least two processors are assumed
_MIN_STRIP_EXTENT = 512  # smallest extent that is cut into strips


class LoopPlan(Protocol):
    """What blocks need of a kernel's loops: attributes of heuristics.LoopPlan."""

    ordered: set[UOp]
    target: Target
    stores: tuple[UOp, ...]
    statements: list[StatementCost]
    transposed_operands: list[int]
    steps: list[Transform]
    trip_counts: dict[str, int | None]
    parts: dict[UOp, tuple[list[str], list[str]]]
    knob: Callable[..., Any]

    def lane_count(self, r: UOp | None) -> int: ...
    def split_loop(self, r: UOp, factor: int, outer: str, inner: str) -> None: ...


def strided_ranges(plan: LoopPlan, vectors: Sequence[UOp]) -> list[UOp]:
    """Return the contiguous ranges of accesses whose lanes are strided."""
    ranges: list[UOp] = []
    for s in plan.statements:
        lane = next((v for v in vectors if v in s.own_ranges), None)
        for n in s.nodes:
            if lane is None or n.op not in (ops.LOAD, ops.STORE) \
                    or abs(stride(n, lane)) <= 1:
                continue
            ranges += [r for r in s.own_ranges if r is not lane and abs(stride(n, r)) == 1
                       and extent(r) > MAX_STRIDE and r not in plan.ordered and r not in ranges]
    return ranges if ranges and _block_side(plan) else []


def _block_side(plan: LoopPlan) -> int:
    """Return the side of a transposed block; 0 for none."""
    side: int = plan.knob("block_side", BLOCK_SIDE, lambda: (2 * BLOCK_SIDE, BLOCK_SIDE // 2, 0))
    return side


def transposed_operands(plan: LoopPlan, vectors: Sequence[UOp]) -> list[int]:
    """Return the operands that a map reads across its lanes: their blocks are transposed
    first."""
    return sorted({accessors.buffer(n).arg.slot for s in plan.statements for n in s.nodes
                   for r in vectors if s.stages_blocks(n, r, plan.lane_count(r))})


def block(plan: LoopPlan, r: UOp, vectors: Sequence[UOp]) -> None:
    """Block r: as an innermost loop, or unrolled if registers hold the block."""
    statement, lane, store = plan.statements[0], vectors[0], plan.stores[0]
    lanes = plan.lane_count(lane)
    if plan.transposed_operands:
        name, strip_blocks = name_of(r), _strip_blocks(plan, extent(r))
        plan.split_loop(r, BLOCK_SIDE * strip_blocks, "o", "s" if strip_blocks > 1 else "b")
        if strip_blocks > 1:
            plan.steps.append(tiling.split(f"{name}_s", BLOCK_SIDE, f"{name}_n", f"{name}_b"))
            plan.trip_counts |= {f"{name}_n": strip_blocks, f"{name}_b": BLOCK_SIDE}
            plan.parts[r] = ([f"{name}_o", f"{name}_n", f"{name}_b"], [])
        return
    if abs(stride(store, lane)) <= 1 \
            or not statement.transposes_store(store, lane, lanes):
        plan.split_loop(r, _block_side(plan), "o", "b")
        return
    plan.split_loop(r, min(_block_side(plan), lanes), "o", "b")
    outer, inner = plan.parts[r][0]
    plan.steps.append(tiling.unroll(inner))
    plan.parts[r] = ([outer], [inner])


def _strip_blocks(plan: LoopPlan, columns: int) -> int:
    """Return the number of adjacent blocks per strip. Hardware prefetch favors long runs of
    each row, so strips are as long as they divide the columns evenly and leave some for all
    processors."""
    if columns < _MIN_STRIP_EXTENT:
        return 1
    min_blocks, max_blocks = _STRIP_BLOCKS
    fitting = columns // (BLOCK_SIDE * _STRIPS_PER_PROCESSOR * max(2, plan.target.cores))
    strips = [n for n in (min_blocks << i for i in range(max_blocks.bit_length()))
              if n <= min(fitting, max_blocks) and columns % (BLOCK_SIDE * n) == 0]
    return max(strips, default=min_blocks)
