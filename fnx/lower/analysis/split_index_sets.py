"""Index set splitting: split a loop whose body selects by its counter to one loop per choice.

    before  STORE(out[r0], WHERE(r0 < 20, a[r0] if r0 < 20, b[r0 - 20] if 0 <= r0 - 20))   r0 < 50
    after   STORE(out[r0], a[r0])                                                          r0 < 20
            STORE(out[r1 + 20], b[r1])                                                     r1 < 30

This is the form of a CONCAT: with n parts each element would test n conditions. If only one part
reads memory (a PAD), a condition costs less than a loop. Ranges outside and inside of the
loop stay common to all stores, so that workers can share them; a long loop without outer ranges
gets one, which splits every part into equal chunks. Many parts of one row each (a stack) get loops
of their own along their rows: otherwise as many rows are read and written concurrently.

>>> from fnx.core.ir import dtypes
>>> r = build.range_(50, 0)
>>> a, b, o = (build.ref(i, dtypes.float32, (n,)) for i, n in enumerate((20, 30, 50)))
>>> late = build.sub(r, build.index_const(20))
>>> value = build.where(build.lt(r, build.index_const(20)),
...     build.load(build.index_into(a, r), build.lt(r, build.index_const(20))),
...     build.load(build.index_into(b, late), build.le(build.index_const(0), late)))
>>> store = build.store(build.index_into(o, r), value)
>>> parts = split_index_sets(build.kernel([store], "concat", (0,)))
>>> [(build.const_of(i.src[0]), len(s.src[1].src)) for s in parts.src for i in s.ranges]
[(20, 1), (30, 1)]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import extent
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, copy_locs, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.record import Record
from fnx.lower.analysis.canonicalize import with_stores

MAX_PARTS = 64
MIN_ELEMENTS = 16  # contiguous elements of a part, below which a loop of its own does not pay
MAX_SMALL_TOTAL = 64  # of all such parts: else each of their vectors tests all conditions
PARALLEL_ELEMENTS = 1 << 16    # elements of a kernel that workers should share
MAX_CHUNKS = 64
MIN_OUTER = 4         # outer iterations above which workers need no other loop
MAX_JOINT_PARTS = 4       # parts that may share one loop
MIN_ROW_ELEMENTS = 64       # elements of a row that gets a loop of its own


class IndexSubset(Record):
    """An index subset, low <= range < high, and the ``value`` that is stored there."""

    low: int
    high: int
    value: UOp


def split_index_sets(kernel: UOp) -> UOp:
    """Split the single STORE of a KERNEL to one per value that it selects by a range."""
    store = kernel.src[0]
    if len(kernel.src) > 1 or store.arg is not None or len(store.src) > 2:
        return kernel
    r, parts = _split_choices(store)
    if r is None or len(parts) > MAX_PARTS or sum(_has_loads(p.value) for p in parts) < 2 or \
            any(n.op in (ops.REDUCE, ops.STAGE) for n in toposort([kernel])):
        return kernel
    order = list(kernel.arg.order)
    position = order.index(r.arg.id)
    length = {x.arg.id: build.const_of(extent(x)) for x in store.ranges}
    lengths = [p.high - p.low for p in parts]
    outer_size, inner_size = (math.prod([length[i] for i in ids])
                              for ids in (order[:position], order[position + 1:]))
    if min(lengths) * inner_size < MIN_ELEMENTS and sum(lengths) * inner_size <= MAX_SMALL_TOTAL:
        return kernel
    large = math.prod(length.values()) >= PARALLEL_ELEMENTS
    chunks = _chunks(lengths) if large and outer_size < MIN_OUTER else 1
    fresh = max(order) + 1
    outer = build.range_(chunks, fresh)
    ranges = [build.range_((p.high - p.low) // chunks, fresh + 1 + i) for i, p in enumerate(parts)]
    stores = [_part_store(store, r, part, q, outer) for part, q in zip(parts, ranges)]
    if max(lengths) == 1 and len(parts) > MAX_JOINT_PARTS and outer_size >= MIN_OUTER and \
            inner_size >= MIN_ROW_ELEMENTS:
        stores, rows = _separate_ranges(stores, order[position + 1:], fresh + 1 + len(parts))
        order += rows
    order[position:position + 1] = [q.arg.id for q in ranges]
    return with_stores(kernel, stores, (outer.arg.id, *order))


def _separate_ranges(stores: Sequence[UOp], inner_ids: Sequence[int], fresh: int
                     ) -> tuple[list[UOp], list[int]]:
    """Give each store its own copy of the common inner ranges; return the stores and the new
    ids."""
    separated: list[UOp] = []
    ids: list[int] = []
    for store in stores:
        fresh_ranges = {r: build.range_(extent(r), fresh + len(ids) + inner_ids.index(r.arg.id))
                        for r in store.ranges if r.arg.id in inner_ids}
        separated += substitute([store], fresh_ranges)
        ids += range(fresh + len(ids), fresh + len(ids) + len(inner_ids))
    return separated, ids


def _split_choices(store: UOp) -> tuple[UOp | None, list[IndexSubset]]:
    """Return the range that the stored value is selected by, and the alternatives."""
    index, value = store.src
    r: UOp | None = None
    parts: list[IndexSubset] = []
    low = 0
    while value.op is ops.WHERE and value.src[0].op is ops.CMPLT:
        counter, end = value.src[0].src
        if counter.op is not ops.RANGE or counter not in index.src or r not in (None, counter) \
                or end.op is not ops.CONST or \
                not low < build.const_of(end) < symbolic.bounds(counter)[1] + 1:
            break
        r = counter
        parts.append(IndexSubset(low, build.const_of(end), value.src[1]))
        low, value = build.const_of(end), value.src[2]
    if r is not None:
        parts.append(IndexSubset(low, symbolic.bounds(r)[1] + 1, value))
    return r, parts


def _has_loads(value: UOp) -> bool:
    return any(n.op is ops.LOAD for n in toposort([value]))


def _chunks(lengths: list[int]) -> int:
    """Return the number of equal chunks that divides all lengths; 1 if that is too small."""
    common = math.gcd(*lengths)
    return max([n for n in range(4, MAX_CHUNKS + 1) if common % n == 0], default=1)


def _part_store(store: UOp, r: UOp, part: IndexSubset, q: UOp, outer: UOp) -> UOp:
    """Return the STORE of one part: r is replaced by the chunk and the offset within it."""
    counter = Expr(outer) * Expr(extent(q)) + Expr(q) + part.low
    position = symbolic.simplify(counter.node)

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node is r:
            return position
        if node.op is ops.INDEX:
            return node.replace(src=(src[0], *map(symbolic.simplify, src[1:])))
        if node.op is ops.LOAD and len(src) > 1:
            valid = symbolic.simplify(src[1])
            return build.load(src[0], None if valid is _TRUE else valid)
        return None

    index, value = rebuild((store.src[0], part.value), visit)
    return copy_locs(build.store(index, value), store)


_TRUE = build.const(True, dtypes.bool_)


def are_disjoint(index: Sequence[UOp], other: Sequence[UOp]) -> bool:
    """Whether two indices differ for all values of their ranges: disjoint bounds along some
    axis."""
    for i, j in zip(index, other):
        (low, high), (least, most) = symbolic.bounds(i), symbolic.bounds(j)
        if high < least or most < low:
            return True
    return False
