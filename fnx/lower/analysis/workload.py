"""What a schedule is chosen from: extents, strides along ranges, and amounts of work.

>>> from fnx.core.ir import build, dtypes
>>> r, c = build.range_(8, 0), build.range_(5, 1)
>>> x = build.index_into(build.ref(0, dtypes.float32, (8, 5)), r, c)
>>> stride(x, c), stride(x, r)
(1, 5)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.accessors import bound_ranges, buffer, dims, indices
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic

ASSUMED_EXTENT = 512  # extent assumed if it is known only at run time
UNKNOWN_STRIDE = 1 << 20  # stride assumed if it is data, or known only at run time


def extent(r: UOp) -> int:
    """Return the extent of a range, or the value assumed for it."""
    n = accessors.extent(r)
    return int(build.const_of(n)) if n.op is ops.CONST else \
        min(ASSUMED_EXTENT, symbolic.bounds(n)[1])


def trip_count(r: UOp, step: int = 1) -> int | None:
    """Return the trip count of a range in steps of ``step``; None if its extent is not constant."""
    return -(-extent(r) // step) if is_static(r) else None


def is_static(r: UOp) -> bool:
    """Return whether the extent of a range is a constant."""
    return accessors.extent(r).op is ops.CONST


def volume(ranges: Iterable[UOp]) -> int:
    return math.prod(map(extent, ranges))


def stride(access: UOp, r: UOp) -> int:
    """Return the elements between neighbors along r at a LOAD or a STORE; FAR if it is data."""
    index_dims = list(zip(indices(access), dims(buffer(access))))
    if all(r not in i.ranges for i, _ in index_dims):
        return 0
    total, step = 0, 1
    for i, d in reversed(index_dims):
        c = symbolic.coefficient(i, r) if r in i.ranges else 0
        if not isinstance(c, int):  # the digits of a split index may combine to one index
            combined = symbolic.coefficient(symbolic.element_offset(access), r)
            return combined if isinstance(combined, int) else UNKNOWN_STRIDE
        total += c * step
        step *= build.const_of(d) if d.op is ops.CONST else UNKNOWN_STRIDE
    return total


def itemsize(nodes: Iterable[UOp]) -> int:
    """Return the bytes of the widest value that is computed with."""
    return max((n.dtype.itemsize for n in nodes if n.dtype.kind not in ("void", "bool", "index")),
               default=4)


def total_work(nodes: Iterable[UOp]) -> int:
    """Return the work of a kernel in additions or equivalents."""
    return sum(n.op.cost * volume(iteration_ranges(n)) for n in nodes
               if n.op.cost and n.dtype is not dtypes.index)


def epilogue_cost(stores: Iterable[UOp]) -> int:
    """Return the work per result after the REDUCEs, in additions or equivalents."""
    return sum(n.op.cost for n in toposort(stores, stop=lambda n: n.op is ops.REDUCE)
               if n.op in ops.ELEMENTWISE and n.dtype.is_float
               and any(s.op is not ops.CONST for s in n.src))


def iteration_ranges(node: UOp) -> frozenset[UOp]:
    """Return the ranges that a node is computed for; a REDUCE includes the ones it closes."""
    return node.ranges.union(bound_ranges(node)) if node.op is ops.REDUCE else node.ranges


def leaf_loads(value: UOp) -> list[UOp]:
    """Return the LOADs that a value is made of, without those inside other REDUCEs and STAGEs."""
    return [n for n in toposort([value], stop=lambda n: n.op in (ops.REDUCE, ops.LOAD))
            if n.op is ops.LOAD]
