"""Products by tile units: 2 x 2 accumulator registers, 16 register words of terms at a time.

    rows     m = io (PAR) . i (UNROLL 2) . t (UNROLL 16)
    columns  n = jr (SEQ) . j (UNROLL 2) . l (VEC 16)
    sums     k = o (SEQ) . w (16 words of an instruction) . e (terms of a word)

Both factors are staged as contiguous tiles: ``[k][i][t][w]`` and ``[jr][k][j][w][l]``.
"""

from __future__ import annotations

from fnx.core.ir import tiling
from fnx.core.ir.matrix_units import MatrixUnit
from fnx.core.ir.tiling import Transform
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of
from fnx.lower.analysis.workload import extent, trip_count, volume
from fnx.lower.schedule import contraction
from fnx.lower.schedule.blocked_summation import split_sum
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.matrix_units import find_unit

_REGISTERS_PER_SIDE = 2  # accumulator registers along each side: 4 in all, and 4 of factors


def find_tile_unit(matmul: Contraction, target: Target) -> MatrixUnit | None:
    """Return the tile unit for a contraction, or None: there must be no batch, and the sum must
    take several instructions."""
    unit = find_unit(matmul.reduce.src[0], target, "tiles")
    if unit is None or matmul.batch or \
            min(volume(matmul.rows), volume(matmul.columns)) < unit.m or \
            extent(contraction.word_range(matmul, unit)) <= unit.k:
        return None
    return unit


def schedule_tile_unit(matmul: Contraction, unit: MatrixUnit) -> list[Transform]:
    """Return the schedule of a contraction."""
    row, column = matmul.rows[-1], matmul.columns[-1]
    sum_range = contraction.word_range(matmul, unit)
    m, n, k = map(name_of, (row, column, sum_range))
    steps: list[Transform] = [
        tiling.split(m, _REGISTERS_PER_SIDE * unit.m, f"{m}_io", f"{m}_b"),
        tiling.split(f"{m}_b", unit.m, f"{m}_i", f"{m}_t"),
        tiling.split(n, _REGISTERS_PER_SIDE * unit.n, f"{n}_jr", f"{n}_b"),
        tiling.split(f"{n}_b", unit.n, f"{n}_j", f"{n}_l"),
        tiling.split(k, unit.k, f"{k}_o", f"{k}_r"),
        tiling.split(f"{k}_r", unit.terms_per_word, f"{k}_w", f"{k}_e"),
        tiling.tensorize(f"{k}_e", unit.name, f"{k}_w")]
    outer = [*map(name_of, matmul.rows[:-1]), f"{m}_io"]
    other_columns = [name_of(r) for r in matmul.columns if r is not column]
    splits, split_loops = split_sum([*[(name_of(r), trip_count(r))
                                       for r in matmul.summed if r is not sum_range],
                                     (f"{k}_o", trip_count(sum_range, unit.k))])
    sum_loops = [x for names in split_loops.values() for x in names]
    return [*steps, tiling.parallel(outer[0]), *splits,
            tiling.order(*outer, *other_columns, f"{n}_jr", *sum_loops, f"{m}_i", f"{n}_j",
                         f"{m}_t", f"{k}_w", f"{n}_l", f"{k}_e"),
            *[tiling.unroll(x) for x in (f"{m}_i", f"{n}_j", f"{m}_t")],
            tiling.vectorize(f"{n}_l"),
            *contraction.stage_factor(matmul, matmul.left, outer[-1], m, n),
            *contraction.stage_factor(matmul, matmul.right, None, m, n, "GLOBAL")]
