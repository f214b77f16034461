"""Row operands: repeat a short operand of each row until its rows fill whole vectors.

    before  STORE(o[i, j], x[i, j] + b[j])                    i < 1000, j < 10
    after   B = STAGE(b[j'], r', j')                          r' < 8, j' < 10: 5 vectors of 16
            STORE(o[n], x[n] + B[q]), n = 80*k + q            k < 125, q < 80

Lanes along rows leave the last vector of each partly empty, and its stores need a mask. Rows of a
map that follow each other in memory are one row, but for the values that are equal in each: those
are repeated in a small stage.

>>> from fnx.core.ir import dtypes
>>> i, j = build.range_(1000, 0), build.range_(10, 1)
>>> x, o = (build.index_into(build.ref(s, dtypes.float32, (1000, 10)), i, j) for s in (0, 2))
>>> b = build.index_into(build.ref(1, dtypes.float32, (10,)), j)
>>> shift = build.kernel([build.store(o, build.add(build.load(x), build.load(b)))], "shift", (0, 1))
>>> after = repeat_row_operands(shift, Target("cpu"))
>>> sorted([extent(n) for n in toposort(after.src) if n.op is ops.RANGE])
[10, 25, 40, 400]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import buffer, consumers, dims, index_node, validity
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, copy_locs, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import with_stores
from fnx.lower.analysis.tuning import MAX_PADDING, MIN_LONG_CODE_ELEMENTS, WAYS
from fnx.lower.analysis.workload import extent, is_static, itemsize
from fnx.lower.schedule.statement_cost import UNROLL

_VALUES = ops.ELEMENTWISE | {ops.LOAD}
_ZERO = build.index_const(0)
_UNSUPPORTED = frozenset({ops.REDUCE, ops.STAGE, ops.LOOP, ops.CARRY, ops.MMA})


def repeat_row_operands(kernel: UOp, target: Target) -> UOp:
    """Return the KERNEL of a map as one row, with stages of the values that are equal in each of
    its rows; itself if it is no such map, or if its rows fill their vectors."""
    ranges = kernel.src[0].ranges
    if len(ranges) != 2 or any(s.arg is not None or len(s.src) > 2 or index_node(s).ranges != ranges
                               for s in kernel.src) or not all(map(is_static, ranges)):
        return kernel
    position = kernel.arg.order.index
    i, j = sorted(ranges, key=lambda r: position(r.arg.id))
    nodes = toposort(kernel.src)
    lanes = target.vector_lanes(itemsize(nodes))
    rows = _repeats(extent(i), extent(j), lanes, target.l1 // WAYS // max(4, itemsize(nodes)))
    if not rows or extent(i) * extent(j) < MIN_LONG_CODE_ELEMENTS or \
            any(n.op in _UNSUPPORTED for n in nodes):
        return kernel
    repeated = _row_values(nodes, i, j)
    return _repeat(kernel, repeated, (i, j), rows) if repeated else kernel


def _repeats(count: int, length: int, lanes: int, max_elements: int) -> int:
    """Return how many rows make whole vectors together, if possible as many as are unrolled and
    divide the rows; 0 if each row does, if there are not many more rows, or if they are more than
    a stage should hold."""
    rows = lanes // math.gcd(length, lanes)
    most = min(max_elements // length, count // UNROLL)
    options = range(rows, most + 1, rows)[:2 * UNROLL] if rows > 1 else ()

    def vectors_unrolled(n: int) -> int:
        return -(-n * length // (UNROLL * lanes)) * UNROLL * lanes

    return min(options, default=0, key=lambda n: (
        (vectors_unrolled(n) > MAX_PADDING * n * length) + (count % n != 0), n))


def _row_values(nodes: Sequence[UOp], i: UOp, j: UOp) -> list[UOp]:
    """Return the largest values that vary along ``j`` only; none if a value varies along ``i``
    only, or if memory is not read row after row."""
    users = consumers(nodes)
    values: list[UOp] = []
    flat = {buffer(n) for n in nodes if n.op is ops.INDEX and i in n.ranges}
    for n in nodes:
        if n.op is ops.INDEX and i in n.ranges:
            offset = symbolic.element_offset(n)
            if symbolic.coefficient(offset, i) != extent(j) or \
                    symbolic.coefficient(offset, j) != 1 or \
                    any(d.op is not ops.CONST for d in dims(n.src[0])):
                return []
        elif n.op is ops.INDEX and buffer(n) in flat or \
                n.ranges == {i} and n.dtype is not dtypes.index:
            return []
        elif n.dtype is dtypes.index and n.ranges and any(
                u.op is not ops.INDEX and u.dtype is not dtypes.index and u.ranges != {j}
                for u in users[n]):
            return []  # a value that is made of positions
        elif n.op is ops.LOAD and i in n.ranges and validity(n) is not None:
            return []
        elif n.op in _VALUES and n.ranges == {j} and n.dtype is not dtypes.index and \
                any(u.ranges != n.ranges for u in users[n]):
            if n.dtype is dtypes.bool_:
                return []
            values.append(n)
    return values


def _repeat(kernel: UOp, values: Sequence[UOp], ranges: tuple[UOp, UOp], rows: int) -> UOp:
    (i, j), (count, length) = ranges, map(extent, ranges)
    block, first_free = rows * length, 1 + max(kernel.arg.order)
    k = build.range_(-(-count // rows), i.arg.id, "SEQ", i.arg.name)
    q, row, column = (build.range_(n, first_free + at)
                      for at, n in enumerate((block, rows, length)))
    position = symbolic.simplify((Expr(k) * block + Expr(q)).node)
    inside = None if count % rows == 0 else \
        symbolic.simplify((Expr(position) < count * length).node)
    digits = [symbolic.simplify(d.node) for d in (Expr(q) // length, Expr(q) % length)]
    stages = {}
    for number, v in enumerate(values):
        repeated, = substitute([v], {j: column})
        stage = build.stage(repeated, [row, column], number)
        stages[v] = copy_locs(build.load(build.index_into(stage, *digits)), v)

    def visit(n: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if n in stages:
            return stages[n]
        if n.op is ops.INDEX and i in n.ranges:
            first, = substitute([symbolic.element_offset(n)], dict.fromkeys(ranges, _ZERO))
            whole = build.index_const(math.prod(map(build.const_of, dims(n.src[0]))))
            return build.index_into(n.src[0].replace(src=(whole,)), symbolic.simplify(
                (Expr(first) + Expr(position)).node))
        if n.op is ops.LOAD and i in n.ranges:
            return copy_locs(build.load(src[0], inside), n)
        if n.op is ops.STORE:
            return copy_locs(build.store(src[0], src[1], inside), n)
        return None

    order = [r.arg.id for r in (k, q, row, column)]
    return with_stores(kernel, rebuild(kernel.src, visit), order)
