"""Tiles: MMA on tile registers of 16 rows and 16 columns, each a value of 256 lanes.

    REDUCE(MMA(a[t, w], b[w, l], w), k)         t UNROLL 16, l VEC 16, w the 16 words of a row
    v = PHI 0                                   one accumulator for all t, and each other instance
    v' = MMA LOAD(a, 256 lanes) LOAD(b, 256 lanes) v
    SHUFFLE v' 0 .. 15, SHUFFLE v' 16 .. 31     the rows, when the sum is complete

Both factors are stages with contiguous tiles: rows of a, and words of b, have stride 16.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import bound_ranges, extent, index_node
from fnx.core.ir.matrix_units import TILE_LANES, UNITS
from fnx.core.ir.uop import UOp, substitute
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.lower.emit.expansion import Instance
from fnx.lower.emit.values import Values

_SIDE = 16


def is_tile_mma(node: UOp) -> bool:
    """Return whether a node is an MMA on tile registers."""
    return node.op is ops.MMA and UNITS[node.arg.unit].layout == "tiles"


def zeros(values: Values, mma: UOp, instances: Sequence[Instance]) -> list[UOp]:
    """Return a zero accumulator for each tile of the instances."""
    zero = values.lines.widen(build.const(0, mma.dtype), TILE_LANES)
    return [zero] * (len(instances) // _SIDE)


def multiplied(values: Values, mma: UOp, instances: Sequence[Instance], totals: Sequence[UOp]
               ) -> list[UOp]:
    """Accumulate the product of both factors in this iteration."""
    a, b, k = *mma.src[:2], *bound_ranges(mma)
    row, lane = _row_range(mma), values.expansions[b.ranges].lane
    if row is None or lane is None or extent(lane) is not build.index_const(_SIDE):
        raise KernelError(f"tensorize: expected 16 unrolled rows and 16 lanes for {mma.arg.unit}")
    out = []
    for at, total in zip(_first_rows(row, instances), totals):
        tiles = [_tile(values, factor, pair, at)
                 for factor, pair in ((a, (row, k)), (b, (k, lane)))]
        out.append(values.lines.add(ops.MMA, total.dtype, (*tiles, total), mma.arg))
    return out


def rows(values: Values, mma: UOp, instances: Sequence[Instance], totals: Sequence[UOp]
         ) -> list[UOp]:
    """Return the row of a tile for each instance."""
    row = _row_range(mma)
    assert row is not None
    tile = {_key(row, at): total for at, total in zip(_first_rows(row, instances), totals)}
    return [values.lines.lanes(tile[_key(row, i)], i[row] * _SIDE, _SIDE) for i in instances]


def _row_range(mma: UOp) -> UOp | None:
    """Return the UNROLL range of the rows of a tile."""
    a = mma.src[0]
    if a.op is not ops.LOAD:
        return None
    index = symbolic.element_offset(index_node(a))
    return next((r for r in a.ranges if r.arg.kind == "UNROLL" and extent(r) is build.index_const(
        _SIDE) and symbolic.coefficient(index, r) == _SIDE), None)


def _first_rows(t: UOp, instances: Sequence[Instance]) -> list[Instance]:
    return [i for i in instances if i[t] == 0]


def _key(t: UOp, instance: Instance) -> tuple[tuple[int, int], ...]:
    return tuple([(r.number, v) for r, v in instance.items() if r is not t])


def _tile(values: Values, factor: UOp, ranges: tuple[UOp, UOp], instance: Instance) -> UOp:
    """Emit the LOAD of a tile: stride 16 along the first range, 1 along the second."""
    strides = [symbolic.coefficient(symbolic.element_offset(index_node(factor)), r)
               for r in ranges] \
        if factor.op is ops.LOAD and len(factor.src) == 1 else []
    if strides != [_SIDE, 1]:
        raise KernelError("tensorize: expected tiles that lie whole in memory",
                          hint="stage both factors, with rows and words of a tile innermost")
    first_index, = substitute([index_node(factor)], dict.fromkeys(ranges, build.index_const(0)))
    address = values.addresses.access(first_index, None, instance).address
    tile_address = values.lines.add(ops.ADDRESS, factor.dtype.vec(TILE_LANES), address.src,
                                    address.arg)
    return values.lines.add(ops.LOAD, factor.dtype.vec(TILE_LANES), (tile_address,),
                            min_depth=values.depth(factor))
