"""Rows of a result that are computed side by side, because they read the same rows.

    o[i, l] = sum(x[i + m, l + k] * w[m, k])        rows i = 4 * io + u, u UNROLL 4, m UNROLL 7

Row i + m is loaded once for the four results that need it, which are 10 loads for 28 products. A
sum like that is no contraction where its other factor differs from neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import ops
from fnx.core.parts import closed, value
from fnx.core.record import Record
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort
from fnx.lower.schedule.workload import extent, is_known, stride

_ROWS, _VECTORS = 4, 4
_TERMS = 8  # of a sum at most, that are written out


class Beside(Record):
    """The range of the result ``row``, of which some are computed at once; ``term``, a range of
    the sum along which the same is read; how many vectors of lanes beside one another."""

    row: UOp
    term: UOp
    rows: int
    vectors: int


def beside(stores: Sequence[UOp], closing: Sequence[UOp], lane: UOp | None, lanes: int,
           target: Target) -> Beside | None:
    """The rows that share what they read, where a kernel is one such sum; or None."""
    if len(stores) != 1 or len(closing) != 1 or lane is None or not is_known(lane):
        return None
    node, = closing
    if node.op is not ops.REDUCE or node.arg.monoid is not ops.ADD \
            or not node.dtype.is_float or lane not in node.ranges:
        return None
    loads = [n for n in toposort([value(node)]) if n.op is ops.LOAD]
    for term in closed(node):
        if not is_known(term) or not 2 <= extent(term) <= _TERMS:
            continue
        for row in node.ranges:
            if row is not lane and is_known(row) and extent(row) > 1 and row in stores[0].ranges \
                    and any(_shares(load, row, term) and stride(load, lane) == 1
                            for load in loads):
                return _block(row, term, -(-extent(lane) // lanes), target)
    return None


def _block(row: UOp, term: UOp, vectors: int, target: Target) -> Beside:
    """As many rows as divide all of them, and vectors for which there are registers."""
    room = target.vector_registers - extent(term) - 2
    most = min(_TERMS, room, extent(row))
    rows = max([n for n in range(2, most + 1) if extent(row) % n == 0], default=min(_ROWS, most))
    return Beside(row, term, rows, max(1, min(vectors, _VECTORS, room // rows)))


def _shares(load: UOp, row: UOp, term: UOp) -> bool:
    return len(load.src) == 1 and stride(load, row) == stride(load, term) != 0
