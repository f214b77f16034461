"""Products by warp units: tiles of workgroups for instructions of 32 threads.

    rows     m = g (GRID) . w (THREAD 2) . i (UNROLL) . h (UNROLL 2) . q (THREAD 8)
    columns  n = g (GRID) . w (THREAD 2) . i (UNROLL) . q (THREAD 4) . h (UNROLL 2)
    sums     k = o (SEQ) . s (UNROLL 2) . w (8 words of an instruction) . e (terms of a word)

Four warps share a block of the result; each has ``i`` times ``i`` tiles of 16 x 8. Blocks of both
factors, in register words, are SHARED.
"""

from __future__ import annotations

from fnx.core import tiling
from fnx.core.range_kinds import RANGE_KINDS
from fnx.core.target import Target
from fnx.core.tiling import Bind, Transform
from fnx.core.units import Unit
from fnx.core.uop import UOp
from fnx.lower.schedule import contraction
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.loops import name_of
from fnx.lower.schedule.plan import Decisions
from fnx.lower.schedule.units import unit_of
from fnx.lower.schedule.workload import extent

_SIDE = 2           # warps along each side of a block
_ROWS, _COLUMNS = 4, 4  # tiles of a warp, at most
_STEPS = 2          # instructions along the sum per block


def warp_unit(found: Contraction, target: Target) -> Unit | None:
    """Return the warp unit for a contraction, or None."""
    enough = target.threads >= _SIDE * _SIDE * 32
    return unit_of(found.reduce.src[0], target, "warp") if enough else None


def by_warps(found: Contraction, unit: Unit, row: UOp, column: UOp, k: UOp,
             decisions: Decisions) -> list[Transform]:
    """Return the schedule of a contraction with these ranges as rows, columns and terms."""
    m, n, s = map(name_of, (row, column, k))
    model = _tiles(row, unit.m, _ROWS), _tiles(column, unit.n, _COLUMNS)
    high, wide = decisions.of("tile", model, lambda: [
        (h, w) for h in (4, 2, 1) for w in (8, 4, 2, 1) if h * w <= _ROWS * _COLUMNS])
    steps: list[Transform] = [
        tiling.split(m, _SIDE * high * unit.m, f"{m}_g", f"{m}_b"),
        tiling.split(f"{m}_b", high * unit.m, f"{m}_w", f"{m}_t"),
        tiling.split(f"{m}_t", unit.m, f"{m}_i", f"{m}_r"),
        tiling.split(f"{m}_r", unit.m // 2, f"{m}_h", f"{m}_q"),
        tiling.split(n, _SIDE * wide * unit.n, f"{n}_g", f"{n}_b"),
        tiling.split(f"{n}_b", wide * unit.n, f"{n}_w", f"{n}_t"),
        tiling.split(f"{n}_t", unit.n, f"{n}_i", f"{n}_r"),
        tiling.split(f"{n}_r", 2, f"{n}_q", f"{n}_h"),
        tiling.split(s, _STEPS * unit.k, f"{s}_o", f"{s}_b"),
        tiling.split(f"{s}_b", unit.k, f"{s}_s", f"{s}_r"),
        tiling.split(f"{s}_r", unit.in_word, f"{s}_w", f"{s}_e"),
        tiling.tensorize(f"{s}_e", unit.name, f"{s}_w")]
    others = [name_of(r) for r in (*found.batch, *found.rows, *found.columns)
              if r not in (row, column)]
    groups = [f"{m}_g", f"{n}_g", *others][:RANGE_KINDS["GRID"].most]
    threads = [f"{m}_w", f"{n}_w", f"{m}_q", f"{n}_q"]
    steps += [Bind(name, "GRID") for name in groups]
    steps += [Bind(name, "THREAD") for name in threads]
    unrolled = [f"{m}_i", f"{n}_i", f"{m}_h", f"{n}_h"]
    steps += [tiling.unroll(name) for name in unrolled]
    summed = [name_of(r) for r in found.summed if r is not k]
    steps.append(tiling.order(*groups, *[x for x in others if x not in groups], *threads, *summed,
                              f"{s}_o", f"{s}_s", *unrolled, f"{s}_w", f"{s}_e"))
    both = {*contraction.slots_of(found.left)} & {*contraction.slots_of(found.right)}
    return steps + [
        tiling.stage(slot, f"{s}_o", "SHARED", along if slot in both else None,
                     double=decisions.of("double", True, lambda: [False]))
        for side, along in ((found.left, m), (found.right, n))
        for slot in contraction.slots_of(side)[:1]]


def _tiles(r: UOp, side: int, most: int) -> int:
    """Return the tiles of a warp along a range: a power of two with little padding."""
    count = most
    while count > 1 and (count // 2) * side * _SIDE >= extent(r):
        count //= 2
    return count
