"""What a schedule is chosen from: extents, strides along ranges, and amounts of work.

>>> from fnx.core import build, dtypes
>>> r, c = build.range_(8, 0), build.range_(5, 1)
>>> x = build.at(build.ref(0, dtypes.float32, (8, 5)), r, c)
>>> stride(x, c), stride(x, r)
(1, 5)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fnx.core import build, dtypes, ops, parts
from fnx.core.parts import buffer, closed, dims, indices
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, toposort

ASSUMED = 512  # extent assumed if it is known only at run time
FAR = 1 << 20  # stride assumed if it is data, or known only at run time


def extent(r: UOp) -> int:
    """Return the extent of a range, or the value assumed for it."""
    n = parts.extent(r)
    return int(build.const_of(n)) if n.op is ops.CONST else min(ASSUMED, symbolic.bounds(n)[1])


def length(r: UOp, step: int = 1) -> int | None:
    """Return the trip count of a range in steps of ``step``; None if its extent is not constant."""
    return -(-extent(r) // step) if is_known(r) else None


def is_known(r: UOp) -> bool:
    """Return whether the extent of a range is a constant."""
    return parts.extent(r).op is ops.CONST


def product(ranges: Iterable[UOp]) -> int:
    return math.prod(map(extent, ranges))


def stride(access: UOp, r: UOp) -> int:
    """Return the elements between neighbors along r at a LOAD or a STORE; FAR if it is data."""
    sides = list(zip(indices(access), dims(buffer(access))))
    if all(r not in i.ranges for i, _ in sides):
        return 0
    total, step = 0, 1
    for i, d in reversed(sides):
        c = symbolic.coefficient(i, r) if r in i.ranges else 0
        if not isinstance(c, int):  # the digits of a split index may combine to one index
            whole = symbolic.coefficient(symbolic.element(access), r)
            return whole if isinstance(whole, int) else FAR
        total += c * step
        step *= build.const_of(d) if d.op is ops.CONST else FAR
    return total


def itemsize(nodes: Iterable[UOp]) -> int:
    """Return the bytes of the widest value that is computed with."""
    return max((n.dtype.itemsize for n in nodes if n.dtype.kind not in ("void", "bool", "index")),
               default=4)


def work(nodes: Iterable[UOp]) -> int:
    """Return the work of a kernel in additions or equivalents."""
    return sum(n.op.cost * product(run_over(n)) for n in nodes
               if n.op.cost and n.dtype is not dtypes.index)


def epilogue_cost(stores: Iterable[UOp]) -> int:
    """Return the work per result after the REDUCEs, in additions or equivalents."""
    return sum(n.op.cost for n in toposort(stores, stop=lambda n: n.op is ops.REDUCE)
               if n.op in ops.ELEMENTWISE and n.dtype.is_float
               and any(s.op is not ops.CONST for s in n.src))


def run_over(node: UOp) -> frozenset[UOp]:
    """Return the ranges that a node is computed for; a REDUCE includes the ones it closes."""
    return node.ranges.union(closed(node)) if node.op is ops.REDUCE else node.ranges


def loads_below(value: UOp) -> list[UOp]:
    """Return the LOADs that a value is made of, without those inside other REDUCEs and STAGEs."""
    return [n for n in toposort([value], stop=lambda n: n.op in (ops.REDUCE, ops.LOAD))
            if n.op is ops.LOAD]
