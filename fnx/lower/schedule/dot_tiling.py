"""How to tile a contraction by dot products: lanes go along the sum, and are added at its end.

    loops    batch..., rows, columns, k..., along_o, i (UNROLL), j (UNROLL), along_l (VEC)

For few columns, or few rows whose right factor would have to be packed.
"""

from __future__ import annotations

import math

from fnx.core.formulas.dot_products import takes_dots
from fnx.core.ir import tiling
from fnx.core.ir.matrix_units import MatrixUnit
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of
from fnx.lower.analysis.workload import extent, itemsize, trip_count, volume
from fnx.lower.schedule.blocked_summation import flatten, split_sum
from fnx.lower.schedule.contraction import MIN_PARALLEL_WORK, Contraction, stage_factor
from fnx.lower.schedule.knobs import TuningKnobs
from fnx.lower.schedule.register_tiles import dot_tiles


def fits_dots(matmul: Contraction, column: UOp, sum_range: UOp, lanes: int, packs: bool) -> bool:
    """Return whether lanes go along a sum in which both factors are contiguous: there are few
    columns, or so few rows that packing the right factor, whose columns are strided, costs more
    than a horizontal reduction at the end."""
    terms, rows = extent(sum_range), volume(matmul.rows)
    few_rows = packs and takes_dots(rows, terms, lanes)
    return 2 * extent(column) <= lanes <= terms or few_rows


def dots_pay(matmul: Contraction, lanes: int, packing: float) -> bool:
    """Return whether dot products with few columns take fewer cycles than tiles with lanes along
    the columns, at two multiply-adds per cycle. The lanes of each are added in steps of a shuffle
    and an addition."""
    depth, columns = volume(matmul.summed), volume(matmul.columns)
    dots = columns * (depth / lanes + 2 * math.log2(lanes))
    tiles = depth * -(-columns // lanes)
    return 2 * columns <= lanes and packing < volume(matmul.rows) * (tiles - dots) / 2


def schedule_dots(matmul: Contraction, sum_range: UOp, target: Target, unit: MatrixUnit | None,
                 knobs: TuningKnobs, packed: UOp | None = None) -> list[Transform]:
    """Tile by dot products, with lanes along the sum: for few columns with contiguous terms.

        loops    batch..., rows, columns, k..., along_o, i (UNROLL), j (UNROLL), along_l (VEC)

    With a matrix unit the lanes are register words along the sum. A factor that is not contiguous
    is ``packed``.
    """
    row, column = (max(some, key=extent) for some in (matmul.rows, matmul.columns))
    best, *others = dot_tiles(extent(row), extent(column), target)
    tile_rows, tile_columns = knobs.value("dots", best, lambda: others)
    terms = unit.terms_per_word if unit is not None else 1
    lanes = target.vector_lanes(4 if unit is not None else
                                itemsize([matmul.reduce, matmul.left, matmul.right]))
    m, n, r = name_of(row), name_of(column), name_of(sum_range)
    other_loops = [name_of(x) for x in (*matmul.rows, *matmul.columns) if x not in (row, column)]
    outer = [*map(name_of, matmul.batch), f"{m}_o", f"{n}_o", *other_loops]
    lengths = {name_of(x): extent(x) for x in (*matmul.batch, *matmul.rows, *matmul.columns)}
    lengths |= {f"{m}_o": -(-extent(row) // tile_rows),
                f"{n}_o": -(-extent(column) // tile_columns)}
    steps: list[Transform] = [
        tiling.split(m, tile_rows, f"{m}_o", f"{m}_i"),
        tiling.split(n, tile_columns, f"{n}_o", f"{n}_j"),
        tiling.split(r, lanes * terms, f"{r}_o", f"{r}_l" if unit is None else f"{r}_t")]
    term_loops: list[str] = []
    if unit is not None:
        term_loops = [f"{r}_e"]
        steps += [tiling.split(f"{r}_t", terms, f"{r}_l", f"{r}_e"),
                  tiling.tensorize(f"{r}_e", unit.name)]
    if volume((*matmul.batch, *matmul.rows, *matmul.columns, *matmul.summed)) >= MIN_PARALLEL_WORK:
        parallel_loop = max(outer, key=lengths.__getitem__)
        outer.remove(parallel_loop)
        outer.insert(0, parallel_loop)
        steps.append(tiling.parallel(parallel_loop))
    splits, sum_loops = split_sum([*[(name_of(x), trip_count(x))
                                     for x in matmul.summed if x is not sum_range],
                                   (f"{r}_o", trip_count(sum_range, lanes * terms))])
    stages = stage_factor(matmul, packed, None, m, n, "GLOBAL") if packed is not None else []
    return [*steps, *splits, *stages,
            tiling.order(*outer, *flatten(sum_loops), f"{m}_i", f"{n}_j", f"{r}_l",
                         *term_loops),
            tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"), tiling.vectorize(f"{r}_l")]
