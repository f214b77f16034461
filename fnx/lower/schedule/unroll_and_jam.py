"""Unroll-and-jam: compute several rows of the result at once, because they load the same rows.

    o[i, l] = sum(x[i + m, l + k] * w[m, k])        rows i = 4 * io + u, u UNROLL 4, m UNROLL 7

Row i + m is loaded once for the four results that need it: 10 loads for 28 products. Such a sum is
not a contraction if its other factor depends on neither range of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import ops
from fnx.core.ir.accessors import bound_ranges, value
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.workload import extent, is_static, stride

_MAX_ROWS, _MAX_VECTORS = 4, 4
_MAX_TERMS = 8  # longest reduction range that is fully unrolled


class UnrollAndJam(Record):
    """An unroll-and-jam: ``rows`` iterations of the result range ``row`` are computed at once.
    ``term`` is a reduction range that walks the same memory; ``vectors`` is the number of vectors
    per iteration."""

    row: UOp
    term: UOp
    rows: int
    vectors: int


def find_unroll_and_jam(stores: Sequence[UOp], closers: Sequence[UOp], lane: UOp | None, lanes: int,
                        target: Target) -> UnrollAndJam | None:
    """Match a kernel that is one sum whose rows share loads. None if it does not match."""
    if len(stores) != 1 or len(closers) != 1 or lane is None or not is_static(lane):
        return None
    node, = closers
    if node.op is not ops.REDUCE or node.arg.monoid is not ops.ADD \
            or not node.dtype.is_float or lane not in node.ranges:
        return None
    loads = [n for n in toposort([value(node)]) if n.op is ops.LOAD]
    for term in bound_ranges(node):
        if not is_static(term) or not 2 <= extent(term) <= _MAX_TERMS:
            continue
        for row in node.ranges:
            if row is not lane and is_static(row) and extent(row) > 1 and row in stores[0].ranges \
                    and any(_shares_rows(load, row, term) and stride(load, lane) == 1
                            for load in loads):
                return _size_block(row, term, -(-extent(lane) // lanes), target)
    return None


def _size_block(row: UOp, term: UOp, vectors: int, target: Target) -> UnrollAndJam:
    """Choose the number of rows, a divisor of all rows if there is one, and as many vectors as fit
    the registers."""
    registers = target.vector_registers - extent(term) - 2
    max_rows = min(_MAX_TERMS, registers, extent(row))
    rows = max([n for n in range(2, max_rows + 1) if extent(row) % n == 0],
               default=min(_MAX_ROWS, max_rows))
    return UnrollAndJam(row, term, rows, max(1, min(vectors, _MAX_VECTORS, registers // rows)))


def _shares_rows(load: UOp, row: UOp, term: UOp) -> bool:
    return len(load.src) == 1 and stride(load, row) == stride(load, term) != 0
