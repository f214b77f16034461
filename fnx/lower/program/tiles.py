"""Tiles: MMA on tile registers of 16 rows and 16 columns, each a value of 256 lanes.

    REDUCE(MMA(a[t, w], b[w, l], w), k)         t UNROLL 16, l VEC 16, w the 16 words of a row
    v = PHI 0                                   one accumulator for all t, and each other instance
    v' = MMA LOAD(a, 256 lanes) LOAD(b, 256 lanes) v
    SHUFFLE v' 0 .. 15, SHUFFLE v' 16 .. 31     the rows, when the sum is complete

Both factors are stages with contiguous tiles: rows of a, and words of b, have stride 16.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, ops
from fnx.core.errors import KernelError
from fnx.core.parts import closed, extent, place
from fnx.core.rewriting import symbolic
from fnx.core.units import TILE, UNITS
from fnx.core.uop import UOp, substitute
from fnx.lower.program.roles import Instance
from fnx.lower.program.values import Values

_SIDE = 16


def is_of_tiles(node: UOp) -> bool:
    """Return whether a node is an MMA on tile registers."""
    return node.op is ops.MMA and UNITS[node.arg.unit].form == "tiles"


def zeros(values: Values, mma: UOp, instances: Sequence[Instance]) -> list[UOp]:
    """Return a zero accumulator for each tile of the instances."""
    zero = values.lines.widen(build.const(0, mma.dtype), TILE)
    return [zero] * (len(instances) // _SIDE)


def multiplied(values: Values, mma: UOp, instances: Sequence[Instance], held: Sequence[UOp]
               ) -> list[UOp]:
    """Accumulate the product of both factors in this iteration."""
    a, b, w = *mma.src[:2], *closed(mma)
    t, lane = _rows(mma), values.replication[b.ranges].lane
    if t is None or lane is None or extent(lane) is not build.index_const(_SIDE):
        raise KernelError(f"tensorize: expected 16 unrolled rows and 16 lanes for {mma.arg.unit}")
    out = []
    for at, total in zip(_firsts(t, instances), held):
        words = [_tile(values, factor, pair, at) for factor, pair in ((a, (t, w)), (b, (w, lane)))]
        out.append(values.lines.add(ops.MMA, total.dtype, (*words, total), mma.arg))
    return out


def rows(values: Values, mma: UOp, instances: Sequence[Instance], held: Sequence[UOp]
         ) -> list[UOp]:
    """Return the row of a tile for each instance."""
    t = _rows(mma)
    assert t is not None
    tile = {_key(t, at): total for at, total in zip(_firsts(t, instances), held)}
    return [values.lines.lanes(tile[_key(t, i)], i[t] * _SIDE, _SIDE) for i in instances]


def _rows(mma: UOp) -> UOp | None:
    """Return the UNROLL range of the rows of a tile."""
    a = mma.src[0]
    if a.op is not ops.LOAD:
        return None
    at = symbolic.element(place(a))
    return next((r for r in a.ranges if r.arg.kind == "UNROLL" and extent(r) is build.index_const(
        _SIDE) and symbolic.coefficient(at, r) == _SIDE), None)


def _firsts(t: UOp, instances: Sequence[Instance]) -> list[Instance]:
    return [i for i in instances if i[t] == 0]


def _key(t: UOp, instance: Instance) -> tuple[tuple[int, int], ...]:
    return tuple([(r.number, v) for r, v in instance.items() if r is not t])


def _tile(values: Values, factor: UOp, ranges: tuple[UOp, UOp], instance: Instance) -> UOp:
    """Emit the LOAD of a tile: stride 16 along the first range, 1 along the second."""
    steps = [symbolic.coefficient(symbolic.element(place(factor)), r) for r in ranges] \
        if factor.op is ops.LOAD and len(factor.src) == 1 else []
    if steps != [_SIDE, 1]:
        raise KernelError("tensorize: expected tiles that lie whole in memory",
                          hint="stage both factors, with rows and words of a tile innermost")
    first, = substitute([place(factor)], dict.fromkeys(ranges, build.index_const(0)))
    address = values.addresses.access(first, None, instance).address
    whole = values.lines.add(ops.ADDRESS, factor.dtype.vec(TILE), address.src, address.arg)
    return values.lines.add(ops.LOAD, factor.dtype.vec(TILE), (whole,),
                            at_least=values.depth(factor))
