"""Products by warp units: tiles of workgroups for instructions of 32 threads.

    rows     m = g (GRID) . w (THREAD 2) . i (UNROLL) . h (UNROLL 2) . q (THREAD 8)
    columns  n = g (GRID) . w (THREAD 2) . i (UNROLL) . q (THREAD 4) . h (UNROLL 2)
    sums     k = o (SEQ) . s (UNROLL 2) . w (8 words of an instruction) . e (terms of a word)

Four warps share a block of the result; each has ``i`` times ``i`` tiles of 16 x 8. Blocks of both
factors, in register words, are SHARED.
"""

from __future__ import annotations

from fnx.core.ir import tiling
from fnx.core.ir.matrix_units import MatrixUnit
from fnx.core.ir.tiling import Bind, Transform
from fnx.core.ir.uop import UOp
from fnx.core.support.range_kinds import RANGE_KINDS
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of
from fnx.lower.analysis.workload import extent
from fnx.lower.schedule import contraction
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.knobs import TuningKnobs
from fnx.lower.schedule.matrix_units import find_unit

_WARPS_PER_SIDE = 2           # warps along each side of a block
_MAX_TILE_ROWS, _MAX_TILE_COLUMNS = 4, 4  # tiles of a warp, at most
_STEPS_PER_BLOCK = 2          # instructions along the sum per block


def find_warp_unit(matmul: Contraction, target: Target) -> MatrixUnit | None:
    """Return the warp unit for a contraction, or None."""
    has_enough_threads = target.threads >= _WARPS_PER_SIDE * _WARPS_PER_SIDE * 32
    return find_unit(matmul.reduce.src[0], target, "warp") if has_enough_threads else None


def schedule_warp_unit(matmul: Contraction, unit: MatrixUnit, row: UOp, column: UOp, k: UOp,
                       knobs: TuningKnobs) -> list[Transform]:
    """Return the schedule of a contraction with these ranges as rows, columns and terms."""
    m, n, s = map(name_of, (row, column, k))
    default = (_tile_count(row, unit.m, _MAX_TILE_ROWS),
               _tile_count(column, unit.n, _MAX_TILE_COLUMNS))
    tile_rows, tile_columns = knobs.value("tile", default, lambda: [
        (h, w) for h in (4, 2, 1)
        for w in (8, 4, 2, 1) if h * w <= _MAX_TILE_ROWS * _MAX_TILE_COLUMNS])
    steps: list[Transform] = [
        tiling.split(m, _WARPS_PER_SIDE * tile_rows * unit.m, f"{m}_g", f"{m}_b"),
        tiling.split(f"{m}_b", tile_rows * unit.m, f"{m}_w", f"{m}_t"),
        tiling.split(f"{m}_t", unit.m, f"{m}_i", f"{m}_r"),
        tiling.split(f"{m}_r", unit.m // 2, f"{m}_h", f"{m}_q"),
        tiling.split(n, _WARPS_PER_SIDE * tile_columns * unit.n, f"{n}_g", f"{n}_b"),
        tiling.split(f"{n}_b", tile_columns * unit.n, f"{n}_w", f"{n}_t"),
        tiling.split(f"{n}_t", unit.n, f"{n}_i", f"{n}_r"),
        tiling.split(f"{n}_r", 2, f"{n}_q", f"{n}_h"),
        tiling.split(s, _STEPS_PER_BLOCK * unit.k, f"{s}_o", f"{s}_b"),
        tiling.split(f"{s}_b", unit.k, f"{s}_s", f"{s}_r"),
        tiling.split(f"{s}_r", unit.terms_per_word, f"{s}_w", f"{s}_e"),
        tiling.tensorize(f"{s}_e", unit.name, f"{s}_w")]
    other_loops = [name_of(r) for r in (*matmul.batch, *matmul.rows, *matmul.columns)
                   if r not in (row, column)]
    groups = [f"{m}_g", f"{n}_g", *other_loops][:RANGE_KINDS["GRID"].max_ranges]
    threads = [f"{m}_w", f"{n}_w", f"{m}_q", f"{n}_q"]
    steps += [Bind(name, "GRID") for name in groups]
    steps += [Bind(name, "THREAD") for name in threads]
    unrolled = [f"{m}_i", f"{n}_i", f"{m}_h", f"{n}_h"]
    steps += [tiling.unroll(name) for name in unrolled]
    sum_loops = [name_of(r) for r in matmul.summed if r is not k]
    steps.append(tiling.order(*groups, *[x for x in other_loops if x not in groups], *threads,
                              *sum_loops, f"{s}_o", f"{s}_s", *unrolled, f"{s}_w", f"{s}_e"))
    return [*steps, *shared_stages(matmul, f"{s}_o", m, n, knobs)]


def shared_stages(matmul: Contraction, loop_name: str, row: str, column: str, knobs: TuningKnobs
                  ) -> list[Transform]:
    """Return the stages of both factors in memory that threads share, filled in a loop."""
    return [stage.replace(double=knobs.value("double_buffer", True, lambda: [False]))
            for factor in (matmul.left, matmul.right)
            for stage in contraction.stage_factor(matmul, factor, loop_name, row, column, "SHARED")]


def _tile_count(r: UOp, tile_side: int, max_tiles: int) -> int:
    """Return the tiles of a warp along a range: a power of two with little padding."""
    count = max_tiles
    while count > 1 and (count // 2) * tile_side * _WARPS_PER_SIDE >= extent(r):
        count //= 2
    return count
