"""Tile sizes and schedules of attention kernels, for a target.

    h (PAR), i_o, b    jl_o, k, i_i (UNROLL), jl_u (UNROLL), jl_v (VEC)     products of a block
                       jm_o, i_i (UNROLL), jm_v (VEC)                       their maximum
                       jx_o, i_i (UNROLL), jx_v (VEC)                       elementwise work
                       jj, i_i (UNROLL), c_u (UNROLL), c_v (VEC)            sums
                       jq_o, ir, jq_u (UNROLL), c_u (UNROLL), c_v (VEC)     sums over the rows

A few rows share the loads of a block. Their sums, and the products of a tile while they are
accumulated, each fill three quarters of the registers; between these loops everything is in the L1
cache, so the elementwise work has the registers to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from fnx.core.ir import ops, tiling
from fnx.core.ir.accessors import buffer
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of
from fnx.lower.analysis.workload import stride

_MAX_ROWS = 8
_MAX_TILES = 2   # tiles per block, if there are enough blocks and each rescales the sums
_MIN_BLOCKS = 16
_MIN_PARALLEL = 4  # least trip count of a parallel loop


class TileSizes:
    """Sizes of a tile of rows and of a block of keys.

    Args:
        rows: number of rows.
        length: extent of the axis that the blocks traverse.
        lanes: lengths of the row sums that each block carries.
        itemsize: bytes of an element.
        target: the machine.
        rescales: whether each block rescales the sums.
    """

    def __init__(self, rows: int, length: int, lanes: Sequence[int], itemsize: int,
                 target: Target, rescales: bool) -> None:
        self.lanes = target.vector_lanes(itemsize)
        register_budget = max(1, target.vector_registers * 3 // 4)
        vectors = max([-(-n // self.lanes) for n in lanes], default=1)
        rows_that_fit = max(1, register_budget // vectors)
        self.rows = max(1, min(rows_that_fit, _MAX_ROWS, rows))
        register_budget = max(1, register_budget // self.rows)
        self.vectors = max(1, min(register_budget, -(-length // self.lanes)))
        tile = self.vectors * self.lanes
        self.block = tile * max(1,
                                min(_MAX_TILES if rescales else 1, length // (_MIN_BLOCKS * tile)))
        self.column_tile = _divisor_near(self.block, rows_that_fit)  # sums over the rows, at once

    def schedule(self, outer: Sequence[str], extra_loops: Sequence[str], inner: Sequence[str],
                 lengths: Mapping[str, int], stores: Sequence[UOp]) -> tuple[Transform, ...]:
        """Return the transforms, given loops outside and inside of the rows, and of products."""
        nodes = toposort(stores)
        names = {name_of(n) for n in nodes if n.op is ops.RANGE}
        steps: list[Transform] = []
        if "i" in names:
            steps.append(tiling.split("i", self.rows, "i_o", "i_i"))
        steps.append(tiling.split("jl", self.vectors * self.lanes, "jl_o", "jl_i"))
        elementwise_loops = [name for name in ("jm", "jx") if name in names]
        steps += [tiling.split(name, self.lanes, f"{name}_o", f"{name}_v")
                  for name in elementwise_loops]
        units, vectors = ["i_i"], [f"{name}_v" for name in elementwise_loops]
        for name, lanes in (("jl_i", "jl"), ("c", "c")):
            if lanes in names:
                steps.append(tiling.split(name, self.lanes, f"{lanes}_u", f"{lanes}_v"))
                units.append(f"{lanes}_u")
                vectors.append(f"{lanes}_v")
        if "jq" in names:
            steps.append(tiling.split("jq", self.column_tile, "jq_o", "jq_u"))
            units.insert(0, "jq_u")
        loops = [*outer, "i_o"]
        parallel = parallel_loop(lengths) or "i_o"
        loops.remove(parallel)
        loops.insert(0, parallel)
        inside = [*[x for x in inner if x in names],
                  *sorted([x for x in names if x.startswith("jj")]),
                  *[x for x in ("j", "jq_o", "ir") if x[:2] in names]]
        steps.append(tiling.order(*loops, *extra_loops, "b", "jl_o",
                                  *[f"{name}_o" for name in elementwise_loops],
                                  *inside, *units, *vectors))
        steps.append(tiling.parallel(parallel))
        steps += [*map(tiling.unroll, units), *map(tiling.vectorize, vectors)]
        packed: dict[int, None] = {}
        for n in nodes:
            if n.op is ops.LOAD and buffer(n).op is ops.REF:
                column_range = next((r for r in n.ranges if name_of(r) == "jl"), None)
                is_row_invariant = all(name_of(r) != "i" for r in n.ranges)  # common to all rows
                if column_range is not None and is_row_invariant and \
                        stride(n, column_range) not in (0, 1):
                    packed[buffer(n).arg.slot] = None
        return (*steps, *[tiling.stage(slot, None, "GLOBAL", "jl") for slot in packed])


Name = TypeVar("Name")


def parallel_loop(lengths: Mapping[Name, int]) -> Name | None:
    """Return the loop outside of the rows to run in parallel; None if it is the loop over the
    rows."""
    return next((name for name, n in lengths.items() if n >= _MIN_PARALLEL), None)


def _divisor_near(length: int, most: int) -> int:
    """Return the largest divisor up to ``most``, or ``most`` if divisors are too small."""
    divisor = next(n for n in range(most, 0, -1) if length % n == 0)
    return divisor if 2 * divisor > most else most
