"""Products by tile units: 2 x 2 accumulator registers, 16 register words of terms at a time.

    rows     m = io (PAR) . i (UNROLL 2) . t (UNROLL 16)
    columns  n = jr (SEQ) . j (UNROLL 2) . l (VEC 16)
    sums     k = o (SEQ) . w (16 words of an instruction) . e (terms of a word)

Both factors are staged as contiguous tiles: ``[k][i][t][w]`` and ``[jr][k][j][w][l]``.
"""

from __future__ import annotations

from fnx.core import tiling
from fnx.core.target import Target
from fnx.core.tiling import Transform
from fnx.core.units import Unit
from fnx.lower.schedule import contraction
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.loops import name_of
from fnx.lower.schedule.subtotals import in_parts
from fnx.lower.schedule.units import unit_of
from fnx.lower.schedule.workload import extent, length, product

_SIDE = 2  # accumulator registers along each side: 4 in all, and 4 of factors


def tile_unit(found: Contraction, target: Target) -> Unit | None:
    """Return the tile unit for a contraction, or None: there must be no batch, and the sum must
    take several instructions."""
    unit = unit_of(found.reduce.src[0], target, "tiles")
    if unit is None or found.batch or \
            min(product(found.rows), product(found.columns)) < unit.m or \
            extent(contraction.terms_of(found, unit)) <= unit.k:
        return None
    return unit


def by_tiles(found: Contraction, unit: Unit) -> list[Transform]:
    """Return the schedule of a contraction."""
    row, column, along = found.rows[-1], found.columns[-1], contraction.terms_of(found, unit)
    m, n, k = map(name_of, (row, column, along))
    steps: list[Transform] = [
        tiling.split(m, _SIDE * unit.m, f"{m}_io", f"{m}_b"),
        tiling.split(f"{m}_b", unit.m, f"{m}_i", f"{m}_t"),
        tiling.split(n, _SIDE * unit.n, f"{n}_jr", f"{n}_b"),
        tiling.split(f"{n}_b", unit.n, f"{n}_j", f"{n}_l"),
        tiling.split(k, unit.k, f"{k}_o", f"{k}_r"),
        tiling.split(f"{k}_r", unit.in_word, f"{k}_w", f"{k}_e"),
        tiling.tensorize(f"{k}_e", unit.name, f"{k}_w")]
    outer = [*map(name_of, found.rows[:-1]), f"{m}_io"]
    across = [name_of(r) for r in found.columns if r is not column]
    cut, summed = in_parts([*[(name_of(r), length(r)) for r in found.summed if r is not along],
                            (f"{k}_o", length(along, unit.k))])
    loops = [x for names in summed.values() for x in names]
    return [*steps, tiling.parallel(outer[0]), *cut,
            tiling.order(*outer, *across, f"{n}_jr", *loops, f"{m}_i", f"{n}_j", f"{m}_t",
                         f"{k}_w", f"{n}_l", f"{k}_e"),
            *[tiling.unroll(x) for x in (f"{m}_i", f"{n}_j", f"{m}_t")],
            tiling.vectorize(f"{n}_l"),
            *contraction.stages(found, found.left, outer[-1], m, n),
            *contraction.stages(found, found.right, None, m, n, "GLOBAL")]
