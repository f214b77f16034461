"""A selection from sorted rows as steps of reductions, for devices that share no memory with the
host.

    before  the last k of SORT (p0: (rows, n)), which are read
    after   SCAN of k steps: the largest (key, index) after the one before
            GATHER (p0, indices), padded to n, which nobody reads

A step reads the keys of all rows. Of a long row only the blocks with the k largest maxima can have
one of the k largest elements, so it is reduced to these first:

    peaks = max(keys[rows, n / m, m])                  one pass
    blocks = the k largest of peaks, in order          of n / m elements
    the k largest of keys[rows, blocks, m]             of k * m elements

An element whose block is not among these has k elements before it: the maxima of blocks that are
larger, or equal and earlier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.uop import UOp
from fnx.lower.analysis import tuning
from fnx.lower.tensor.sort_by_network import sort_key


def select_by_steps(node: UOp, operands: Sequence[UOp], low: int, high: int) -> list[UOp]:
    """Return the results of a SORT, of which only the elements from ``low`` to ``high`` are
    right."""
    arg = node.arg
    shape = arg.ins[0][0]
    rows, n, k = math.prod(shape[:-1]), shape[-1], high - low
    flat = [build.reshape(x, (rows, n)) for x in operands]
    keys, from_end = _signed_key(flat[0]), low > 0
    if from_end:
        mirrored = largest_in_order(build.flip(keys, [1]), k)
        order = build.flip(build.sub(build.const_like(mirrored, n - 1), mirrored), [1])
    else:
        order = largest_in_order((Expr(keys) ^ -1).node, k)
    row = _row_numbers(rows, k)
    results = [order if i < 0 else build.gather(flat[i], row, order) for i in arg.outputs]
    widths = [(0, 0), (low, n - high)]
    return [build.reshape(build.pad(x, widths), shape) for x in results]


def block_size(n: int, k: int) -> int | None:
    """Return the size of blocks with the fewest elements to select from; None if that does not
    pay.

    >>> block_size(10_000, 5), block_size(1000, 5)
    (40, None)
    """
    if n <= tuning.SHORT_ROW or not 0 < k <= n // tuning.ROW_REDUCTION:
        return None
    middle = math.isqrt(n // k)  # of n / m + k * m, where both are equal
    work = {m: -(-n // m) + k * m + (n // tuning.ROW_COPIED if n % m else 0)
            for m in range(max(2, middle // 2), 2 * middle + 1)}
    size = min(work, key=lambda m: work[m], default=None)
    return size if size is not None and work[size] * tuning.ROW_REDUCTION <= n else None


def largest_in_order(keys: UOp, k: int) -> UOp:
    """Return the indices of the k largest keys of each row, the largest first, of equal ones the
    earlier first."""
    rows, n = keys.shape
    size = block_size(n, k)
    if size is None:
        return _in_steps(keys, k)
    count, missing = -(-n // size), -n % size
    padded = build.pad(keys, [(0, 0), (0, missing)], keys.dtype.limits[0]) if missing else keys
    grid = build.reshape(padded, (rows, count, size))
    blocks = largest_in_order(build.reduce(grid, ops.MAX, (2,)), k)
    chosen, = build_calls.sort([blocks], 1)  # equal keys are in the order of their blocks
    row = _row_numbers(rows, k)
    candidates = build.reshape(build.gather(grid, row, chosen, axes=(0, 1)), (rows, k * size))
    at = Expr(largest_in_order(candidates, k))
    which = at // size
    return (Expr(build.gather(chosen, row, which.node, axes=(0, 1))) * size
            + at - which * size).node


def _in_steps(keys: UOp, k: int) -> UOp:
    rows, n = keys.shape
    low, high = keys.dtype.limits
    index = Expr(build.expand(build.reshape(build.iota(n), (1, n)), (rows, n)))

    def step(consts: Sequence[UOp], carries: Sequence[UOp], _: Sequence[UOp]
             ) -> tuple[list[UOp], list[UOp]]:
        key = Expr(consts[0])
        last_key, last_index = [Expr(_column(x, n)) for x in carries]
        is_left = (key < last_key) | key.eq(last_key) & (index > last_index)
        best = build.reduce(where(is_left, key, low).node, ops.MAX, [1])
        is_best = is_left & key.eq(Expr(_column(best, n)))
        chosen = build.reduce(where(is_best, index, n).node, ops.MIN, [1])
        return [best, chosen], [chosen]
    start = [build.const(high, keys.dtype, (rows,)), build.const(-1, dtypes.int32, (rows,))]
    _, (chosen,) = build_calls.build_scan(step, k, [keys], start, [], name="select")
    return build.permute(chosen, (1, 0))


def _column(x: UOp, n: int) -> UOp:
    rows, = x.shape
    return build.expand(build.reshape(x, (rows, 1)), (rows, n))


def _row_numbers(rows: int, k: int) -> UOp:
    return build.expand(build.reshape(build.iota(rows), (rows, 1)), (rows, k))


def _signed_key(x: UOp) -> UOp:
    """Return integers of the order of an operand; vectors compare signed ones in one
    instruction."""
    key = sort_key(x)
    signed = dtypes.int64 if key.dtype.itemsize == 8 else dtypes.int32
    return build.bitcast((Expr(key) ^ 1 << 8 * key.dtype.itemsize - 1).node, signed)
