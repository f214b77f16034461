"""The order of long rows, by a radix sort of four bits of the keys after another.

    SCAN over the digits of the keys, the lowest first; of (key, index), in tiles of 128 elements:
      ranks   how many elements of the tile so far have this digit: SCAN over the elements of all
              tiles, whose counters of a byte each are four words
      starts  where the elements of a tile with each digit begin: running sums of the counts of
              all tiles, digit after digit
      SCATTER of key and index to starts + ranks, each to an element of its own

A step is stable, so elements of equal keys remain in order. All parts of it are parallel, but for
sums over few numbers.
Source: D. Merrill, A. Grimshaw, High performance and scalable radix sorting, 2011.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.formulas.cumulative import cumulative
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.tuning import RADIX_BITS, RADIX_TILE

_DIGITS = 1 << RADIX_BITS
_WORD, _COUNTER = dtypes.uint32, dtypes.uint8  # a word has counters of this type
_COUNTERS = _WORD.itemsize // _COUNTER.itemsize
_BITS, _MASK = _COUNTER.bits, _COUNTER.limits[1]


def order_by_digits(keys: Sequence[UOp], name: str) -> UOp:
    """Return the indices of each row in the order of unsigned keys, of which the first counts
    most.
    """
    rows, n = keys[0].shape
    m = -(-n // RADIX_TILE) * RADIX_TILE
    row = _spread(build.iota(rows), (rows, m), 0)
    order = column = _spread(build.iota(m), (rows, m), 1)

    def step(consts: Sequence[UOp], carries: Sequence[UOp], xs: Sequence[UOp]
             ) -> tuple[list[UOp], list[UOp]]:
        key = Expr(carries[0])
        digit = (key >> Expr(build.expand(xs[0], (rows, m)))) & (_DIGITS - 1)
        position = _positions(digit.cast(_WORD).node, row, column, name)
        return [build.scatter(x, [row, position], x, is_unique=True) for x in carries], []
    for key in reversed(keys):
        padded = build.pad(key, [(0, 0), (0, m - n)], key.dtype.limits[1])
        in_order = padded if order is column else build.gather(padded, row, order)
        digits = 8 * key.dtype.itemsize // RADIX_BITS
        shifts = build.cast((Expr(build.iota(digits)) * RADIX_BITS).node, key.dtype)
        (_, order), _ = build_calls.build_scan(step, digits, [], [in_order, order], [shifts],
                                               name=name)
    return build.shrink(order, [(0, rows), (0, n)])


def _spread(x: UOp, shape: tuple[int, ...], axis: int) -> UOp:
    """Repeat a vector along all axes but one."""
    lengths = [shape[a] if a == axis else 1 for a in range(len(shape))]
    return build.expand(build.reshape(x, tuple(lengths)), shape)


def _positions(digit: UOp, row: UOp, column: UOp, name: str) -> UOp:
    """Return where each element of a row goes, in the order of digits."""
    rows, m = digit.shape
    tiles = m // RADIX_TILE
    by_element = build.permute(build.reshape(digit, (rows * tiles, RADIX_TILE)), (1, 0))
    zero = build.expand(build.reshape(build.const(0, _WORD), (1,)), (rows * tiles,))

    def count(consts: Sequence[UOp], carries: Sequence[UOp], xs: Sequence[UOp]
              ) -> tuple[list[UOp], list[UOp]]:
        word, shift = Expr(xs[0]) // _COUNTERS, Expr(xs[0]) % _COUNTERS * _BITS
        counters = [Expr(c) for c in carries]
        mine = counters[-1]
        for i, counter in enumerate(counters[:-1]):
            mine = where(word.eq(i), counter, mine)
        one = word.like(1) << shift
        return [(c + where(word.eq(i), one, 0)).node for i, c in enumerate(counters)], \
            [((mine >> shift) & _MASK).node]
    words, (ranks,) = build_calls.build_scan(
        count, RADIX_TILE, [], [zero] * (_DIGITS // _COUNTERS), [by_element], name=name)
    counts = [((Expr(words[d // _COUNTERS]) >> d % _COUNTERS * _BITS) & _MASK)
              .cast(dtypes.int32).node for d in range(_DIGITS)]
    by_digit = build.permute(build.reshape(build.concat(counts, 0), (_DIGITS, rows, tiles)),
                             (1, 0, 2))
    counts_of_row = build.reshape(by_digit, (rows, _DIGITS * tiles))
    starts = Expr(_running_sums(counts_of_row)) - Expr(counts_of_row)
    at = Expr(build.cast(digit, dtypes.int32)) * tiles + Expr(column) // RADIX_TILE
    rank = build.reshape(build.permute(ranks, (1, 0)), (rows, m))
    return (Expr(build.gather(starts.node, row, at.node)) +
            Expr(build.cast(rank, dtypes.int32))).node


def _running_sums(x: UOp) -> UOp:
    """Return the running sums of rows, by those of parts of them."""
    rows, n = x.shape
    if n <= RADIX_TILE:
        return cumulative(x, 1, ops.ADD)
    parts = -(-n // RADIX_TILE)
    padded = build.pad(x, [(0, 0), (0, parts * RADIX_TILE - n)], 0)
    sums = build.reshape(cumulative(build.reshape(padded, (rows * parts, RADIX_TILE)), 1, ops.ADD),
                         (rows, parts, RADIX_TILE))
    last = build.shrink(sums, [(0, rows), (0, parts), (RADIX_TILE - 1, RADIX_TILE)])
    totals = build.reshape(last, (rows, parts))
    before = Expr(_running_sums(totals)) - Expr(totals)
    spread = build.expand(build.reshape(before.node, (rows, parts, 1)), (rows, parts, RADIX_TILE))
    out = build.reshape((Expr(sums) + Expr(spread)).node, (rows, parts * RADIX_TILE))
    return build.shrink(out, [(0, rows), (0, n)])
