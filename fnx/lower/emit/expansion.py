"""Expansion of ranges in a program: loops, UNROLL instances, VEC lanes
(core/support/range_kinds.py).

    x[4*i + u, l]    i SEQ, u UNROLL 4, l VEC 16      in loop i: 4 instances of 16 lanes
    w[l]                                              1 instance of 16 lanes
    i * 2                                             in loop i: 1 scalar
"""

from __future__ import annotations

import itertools

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import LoopOrder, extent
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError
from fnx.core.support.record import Record

_UNROLLED = frozenset({"UNROLL"})

Instance = dict[UOp, int]  # the values of UNROLL ranges
SINGLE_INSTANCE: Instance = {}  # the instance of a node without free UNROLL ranges


class Expansion(Record):
    """The expansion of a node: its UNROLL ranges, outermost first, and its VEC range."""

    unrolled: tuple[UOp, ...]
    lane: UOp | None
    lanes: int

    def instances(self, outer: Instance = SINGLE_INSTANCE) -> list[Instance]:
        """Extend ``outer`` by every combination of values of the UNROLL ranges."""
        if not self.unrolled:
            return [outer]
        spaces = [range(extent_of(r)) for r in self.unrolled]
        return [{**outer, **dict(zip(self.unrolled, values))}
                for values in itertools.product(*spaces)]


class ExpansionTable(dict[frozenset[UOp], Expansion]):
    """The Expansion of each set of free ranges of one kernel, created on demand."""

    def __init__(self, kernel: UOp) -> None:
        self.order = LoopOrder(kernel.arg.order)

    def __missing__(self, ranges: frozenset[UOp]) -> Expansion:
        vectors = [r for r in ranges if r.arg.kind == "VEC" and extent_of(r) > 1]
        if len(vectors) > 1:
            raise KernelError("expected at most one VEC range in one value, got "
                              f"{len(vectors)}", hint="make the others UNROLL or SEQ")
        lane = vectors[0] if vectors else None
        lanes = 1 if lane is None else extent_of(lane)
        result = self[ranges] = Expansion(self.order.select_kinds(ranges, _UNROLLED), lane, lanes)
        return result


def extent_of(r: UOp) -> int:
    """Return the extent of an UNROLL or VEC range, which must be constant."""
    if extent(r).op is not ops.CONST:
        raise KernelError(f"expected a constant extent of an {r.arg.kind} range",
                          hint="split the range by a constant first")
    return int(build.const_of(extent(r)))
