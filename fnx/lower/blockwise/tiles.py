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

from fnx.core import ops, tiling
from fnx.core.parts import buffer
from fnx.core.target import Target
from fnx.core.tiling import Transform
from fnx.core.uop import UOp, toposort
from fnx.lower.schedule.loops import name_of
from fnx.lower.schedule.workload import stride

_MOST_ROWS = 8
_TILES = 2   # tiles per block, if there are enough blocks and each rescales the sums
_BLOCKS = 16
_SHARES = 4  # least trip count of a parallel loop


class Tiles:
    """Sizes of a tile of rows and of a block of keys.

    Args:
        rows: number of rows.
        length: extent of the axis that the blocks traverse.
        lanes: lengths of the row sums that each block carries.
        itemsize: bytes of an element.
        target: the machine.
        scaled: whether each block rescales the sums.
    """

    def __init__(self, rows: int, length: int, lanes: Sequence[int], itemsize: int,
                 target: Target, scaled: bool) -> None:
        self.lanes = target.lanes(itemsize)
        most = max(1, target.vector_registers * 3 // 4)
        vectors = max([-(-n // self.lanes) for n in lanes], default=1)
        places = max(1, most // vectors)
        self.rows = max(1, min(places, _MOST_ROWS, rows))
        most = max(1, most // self.rows)
        self.vectors = max(1, min(most, -(-length // self.lanes)))
        tile = self.vectors * self.lanes
        self.block = tile * max(1, min(_TILES if scaled else 1, length // (_BLOCKS * tile)))
        self.places = _whole(self.block, places)  # sums over the rows, at once

    def schedule(self, outer: Sequence[str], more: Sequence[str], inner: Sequence[str],
                 lengths: Mapping[str, int], stores: Sequence[UOp]) -> tuple[Transform, ...]:
        """Return the transforms, given loops outside and inside of the rows, and of products."""
        nodes = toposort(stores)
        names = {name_of(n) for n in nodes if n.op is ops.RANGE}
        steps: list[Transform] = []
        if "i" in names:
            steps.append(tiling.split("i", self.rows, "i_o", "i_i"))
        steps.append(tiling.split("jl", self.vectors * self.lanes, "jl_o", "jl_i"))
        walked = [name for name in ("jm", "jx") if name in names]
        steps += [tiling.split(name, self.lanes, f"{name}_o", f"{name}_v") for name in walked]
        units, vectors = ["i_i"], [f"{name}_v" for name in walked]
        for name, lanes in (("jl_i", "jl"), ("c", "c")):
            if lanes in names:
                steps.append(tiling.split(name, self.lanes, f"{lanes}_u", f"{lanes}_v"))
                units.append(f"{lanes}_u")
                vectors.append(f"{lanes}_v")
        if "jq" in names:
            steps.append(tiling.split("jq", self.places, "jq_o", "jq_u"))
            units.insert(0, "jq_u")
        loops = [*outer, "i_o"]
        shared = shared_loop(lengths) or "i_o"
        loops.remove(shared)
        loops.insert(0, shared)
        inside = [*[x for x in inner if x in names],
                  *sorted([x for x in names if x.startswith("jj")]),
                  *[x for x in ("j", "jq_o", "ir") if x[:2] in names]]
        steps.append(tiling.order(*loops, *more, "b", "jl_o", *[f"{name}_o" for name in walked],
                                  *inside, *units, *vectors))
        steps.append(tiling.parallel(shared))
        steps += [*map(tiling.unroll, units), *map(tiling.vectorize, vectors)]
        packed: dict[int, None] = {}
        for n in nodes:
            if n.op is ops.LOAD and buffer(n).op is ops.REF:
                along = next((r for r in n.ranges if name_of(r) == "jl"), None)
                alike = all(name_of(r) != "i" for r in n.ranges)  # common to all rows
                if along is not None and alike and stride(n, along) not in (0, 1):
                    packed[buffer(n).arg.slot] = None
        return (*steps, *[tiling.stage(slot, None, "GLOBAL", "jl") for slot in packed])


Name = TypeVar("Name")


def shared_loop(lengths: Mapping[Name, int]) -> Name | None:
    """Return the loop outside of the rows to run in parallel; None if it is the loop over the
    rows."""
    return next((name for name, n in lengths.items() if n >= _SHARES), None)


def _whole(length: int, most: int) -> int:
    """Return the largest divisor up to ``most``, or ``most`` if divisors are too small."""
    found = next(n for n in range(most, 0, -1) if length % n == 0)
    return found if 2 * found > most else most
