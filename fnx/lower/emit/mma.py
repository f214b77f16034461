"""MMAs whose operands a loop's instances share: tile registers, and fragments of a warp.

A tile register has 16 rows and 16 columns, and is a value of 256 lanes:

    REDUCE(MMA(a[t, w], b[w, l], w), k)         t UNROLL 16, l VEC 16, w the 16 words of a row
    v = PHI 0                                   one accumulator for all t, and each other instance
    v' = MMA LOAD(a, 256 lanes) LOAD(b, 256 lanes) v
    SHUFFLE v' 0 .. 15, SHUFFLE v' 16 .. 31     the rows, when the sum is complete

Both factors are stages with contiguous tiles: rows of a, and words of b, have stride 16.

The MMA instances that the threads of a warp compute together are one line:

    MMA(a, b, w, a', b', 2*mi + nj, h)      mi, nj UNROLL 2: four accumulators of each thread
    v = MMA a'(mi 0, h 0) a'(1, 0) a'(0, 1) a'(1, 1) b'(h 0) b'(1) c0 c1 c2 c3
    c0 = EXTRACT v 0 ...                    in the instruction's register order
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


def zero_tiles(values: Values, mma: UOp, instances: Sequence[Instance]) -> list[UOp]:
    """Return a zero accumulator for each tile of the instances."""
    zero = values.lines.widen(build.const(0, mma.dtype), TILE_LANES)
    return [zero] * (len(instances) // _SIDE)


def multiply_tiles(values: Values, mma: UOp, instances: Sequence[Instance], totals: Sequence[UOp]
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


def tile_rows(values: Values, mma: UOp, instances: Sequence[Instance], totals: Sequence[UOp]
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


# ---- fragments of a warp ------------------------------------------------------------------------


def is_warp_mma(node: UOp) -> bool:
    """Return whether a node is an MMA with the fragments that each thread holds."""
    return node.op is ops.MMA and len(node.src) > 2 + node.arg.n_words


def multiply_fragments(values: Values, mma: UOp, instances: Sequence[Instance],
                       accumulators: Sequence[UOp]) -> list[UOp]:
    """Update the accumulators of all instances, four by one instruction."""
    left, right, result_index, half = mma.src[2 + mma.arg.n_words:]
    terms, _ = symbolic.linear_terms(result_index)
    groups: dict[tuple[tuple[int, int], ...], dict[int, int]] = {}
    for i, instance in enumerate(instances):
        result_number = sum(c * instance[m[0]] for m, c in terms.items())
        key = tuple([(r.number, v) for r, v in instance.items() if (r,) not in terms])
        groups.setdefault(key, {})[result_number] = i
    out = list(accumulators)
    for members in groups.values():
        rows = [values.value(left, {**instances[members[2 * mi]], half: k})
                for k in (0, 1) for mi in (0, 1)]
        columns = [values.value(right, {**instances[members[0]], half: k}) for k in (0, 1)]
        sums = [accumulators[members[n]] for n in range(4)]
        products = values.lines.add(ops.MMA, mma.dtype.vec(4), (*rows, *columns, *sums), mma.arg)
        for n in range(4):
            out[members[n]] = values.lines.add(ops.EXTRACT, mma.dtype, (products,), n)
    return out
