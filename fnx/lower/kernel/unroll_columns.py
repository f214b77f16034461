"""Columns: unroll a short loop whose body selects by its counter to one STORE per iteration.

    before  STORE(o[r0, r1], WHERE(r1 < 1, a[r0], WHERE(r1 < 2, b[r0], c[r0])))   r0 < n, r1 < 3
    after   STORE(o[r0, 0], a[r0])   STORE(o[r0, 1], b[r0])   STORE(o[r0, 2], c[r0])

This is the form of a CONCAT of thin parts, a stack along the last axis, also below other ops,
and of nested CONCATs: each element is computed by its own formula, without conditions. Code
generation writes such neighbors as whole vectors (emit/interleave_groups.py). Parts of several
columns get a loop each if that takes fewer instructions or much less code. Parts as wide as a
vector are left to analysis/split_index_sets.py. If wide parts and expensive columns are neighbors,
blocks of rows have a loop for each wide part, and then the columns, with vectors across rows.

>>> from fnx.core.ir import dtypes
>>> r, c = build.range_(500, 0), build.range_(9, 1)
>>> *xs, last = [build.load(build.index_into(build.ref(i, dtypes.float32, (500,)), r))
...              for i in range(9)]
>>> for i, x in reversed([*enumerate(xs)]):
...     last = build.where(build.lt(c, build.index_const(i + 1)), x, last)
>>> o = build.index_into(build.ref(9, dtypes.float32, (500, 9)), r, c)
>>> made = unroll_columns(build.kernel([build.store(o, last)], "stack", (0, 1)))
>>> [(value(s).op.name, build.const_of(indices(s)[1])) for s in made.src[:3]]
[('LOAD', 0), ('LOAD', 1), ('LOAD', 2)]
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import extent, index_node, indices, value
from fnx.core.ir.uop import UOp, copy_locs, toposort
from fnx.core.rewriting import symbolic
from fnx.lower.analysis.canonicalize import with_stores

VECTOR_ELEMENTS = 16         # elements of a part that fill a vector by themselves
MIN_COLUMNS = 8           # columns for which one loop over all of them is as good
MAX_COLUMNS = 256     # without those of parts that get a loop
MAX_WORK = 2400   # of all columns: compile time grows faster than the code
MIN_OUTER = 64        # least iterations of the other loops
TRANSPOSE_COST = 5        # instructions to transpose and write a vector of a column
MIN_GAIN = 1.3        # of loops and columns in one kernel, over one kind alone
MAX_BLOCK = 128       # rows of a block, which remains in the nearest cache

TruthTable = Mapping[UOp, Sequence[bool]]  # conditions on one short range -> truth at each value


def unroll_columns(kernel: UOp) -> UOp:
    """Unroll the short loops of a KERNEL by which its STOREs select, to one STORE per iteration."""
    nodes = toposort(kernel.src)
    if any(s.arg is not None or len(s.src) > 2 for s in kernel.src) or \
            any(n.op in (ops.REDUCE, ops.STAGE, ops.LOOP) for n in nodes):
        return kernel
    selecting = [s for s in kernel.src if _select_ranges(s, nodes)]
    short = _select_ranges(selecting[0], nodes) if selecting else []
    counts = [build.const_of(extent(r)) for r in short]
    count = math.prod(counts)
    if not MIN_COLUMNS < count <= MAX_COLUMNS * VECTOR_ELEMENTS or \
            any(_select_ranges(s, nodes) != short for s in selecting):
        return kernel
    truths = _evaluate_conditions(nodes, short)
    outer_lengths = [build.const_of(extent(r)) for r in selecting[0].ranges if r not in short]
    if math.prod(outer_lengths) < MIN_OUTER:
        return kernel
    if len(short) == 1:
        mixed = _mix_loops_and_columns(kernel, selecting, short[0], truths)
        if mixed is not None:
            return mixed
    if count > MAX_COLUMNS or count >= VECTOR_ELEMENTS * _count_parts(nodes, short, truths):
        return kernel
    if len(short) == 1 and len(kernel.src) == 1:
        split = _split_loops(kernel, short[0], truths)
        if split is not None:
            return split
    columns_at = [dict(zip(short, map(build.index_const, _digits(i, counts))))
                  for i in range(count)]
    stores = [store for s in kernel.src for store in (
        [_specialize(s, at, truths) for at in columns_at] if s in selecting else [s])]
    if sum(map(_store_cost, stores)) > MAX_WORK:
        return kernel
    return with_stores(kernel, stores, kernel.arg.order)


def _split_loops(kernel: UOp, r: UOp, truths: TruthTable) -> UOp | None:
    """Split the loop to one STORE and loop per run of iterations with the same selection; None if
    one STORE per iteration is better."""
    order, runs = list(kernel.arg.order), _equal_runs(truths, build.const_of(extent(r)))
    widths = [n for _, n in runs]
    fresh = [build.range_(n, max(order) + 1 + i) for i, n in enumerate(widths)]
    split_stores = [_specialize(kernel.src[0], {r: build.add(q, build.index_const(i))}, truths)
                    for q, (i, _) in zip(fresh, runs)]
    costs = [*map(_store_cost, split_stores)]
    rows = next((i for i in reversed(indices(kernel.src[0])) if i is not r), None)
    reads = [_reads_cost([s], rows) for s in split_stores]
    if sum(map(operator.mul, costs, widths)) <= MAX_WORK and \
            sum(map(_columns_cost, costs, reads, widths)) <= sum(map(_loop_cost, costs, widths)):
        return None
    position = order.index(r.arg.id)
    return with_stores(kernel, split_stores,
                       [*order[:position], *[q.arg.id for q in fresh], *order[position + 1:]])


def _mix_loops_and_columns(kernel: UOp, selecting: Sequence[UOp], r: UOp,
                           truths: TruthTable) -> UOp | None:
    """Make a loop for each run of iterations with the same selection that is faster by itself, and
    one STORE per iteration of the others; None if one kind alone is nearly as good.

    Loops go along a row, columns across rows, so both are inside a loop over blocks of rows.
    """
    rows = next(i for i in reversed(indices(selecting[0])) if i is not r)
    if not _can_block(kernel, rows, r, selecting):
        return None
    runs = _equal_runs(truths, build.const_of(extent(r)))
    firsts = [[_specialize(s, {r: build.index_const(i)}, truths) for s in selecting]
              for i, _ in runs]
    prices = [(_loop_cost(work, n), _columns_cost(work, _reads_cost(stores, rows), n))
              for stores, work, (_, n) in zip(firsts, map(_values_cost, firsts), runs)]
    size = _block_size(build.const_of(extent(rows)))
    unrolled = sum([n for (loop, column), (_, n) in zip(prices, runs) if column <= loop])
    if size is None or unrolled > MAX_COLUMNS or \
            MIN_GAIN * sum(map(min, prices)) > min(map(sum, zip(*prices))):
        return None
    ids = itertools.count(max(kernel.arg.order) + 1)
    blocks, along, across, *loops = [build.range_(n, next(ids)) for n in (
        build.const_of(extent(rows)) // size, size, size, *[n for _, n in runs])]
    first = build.mul(blocks, build.index_const(size))
    in_loop, in_column = build.add(first, along), build.add(first, across)
    stores = list[UOp]()
    for s in kernel.src:
        if s not in selecting:
            stores.append(_specialize(s, {rows: in_column}, {}))
            continue
        for (i, n), (loop, columns), q in zip(runs, prices, loops):
            at = [{r: build.add(q, build.index_const(i)), rows: in_loop}] if loop < columns else \
                [{r: build.index_const(i + k), rows: in_column} for k in range(n)]
            stores += [_specialize(s, values, truths) for values in at]
    fresh = [q.arg.id for q in (blocks, along, *loops, across)]
    order = [i for at in kernel.arg.order if at != r.arg.id
             for i in (fresh if at == rows.arg.id else [at])]
    return with_stores(kernel, stores, order)


def _can_block(kernel: UOp, rows: UOp, r: UOp, selecting: Sequence[UOp]) -> bool:
    """Whether all STOREs are in a loop over rows, only those that select in the short loop, and no
    condition is on rows, which loops over index sets would meet (analysis/split_index_sets.py)."""
    return rows.op is ops.RANGE and \
        all(rows in s.ranges and (s in selecting or r not in s.ranges) for s in kernel.src) and \
        not any(n.op in (ops.CMPLT, ops.CMPLE) and n.src[0].dtype is dtypes.index
                and rows in n.ranges for n in toposort(kernel.src))


def _block_size(rows: int) -> int | None:
    """Return the length of equal blocks of rows that fills vectors best; None if all waste lanes.

    >>> _block_size(2000), _block_size(300), _block_size(1009)
    (80, 75, None)
    """
    def waste(n: int) -> float:
        return math.ceil(n / VECTOR_ELEMENTS) * VECTOR_ELEMENTS / n
    sizes = [n for n in range(VECTOR_ELEMENTS, MAX_BLOCK + 1) if rows % n == 0]
    best = min(sizes, key=lambda n: (waste(n), -n), default=None)
    return best if best and waste(best) < MIN_GAIN else None


def _equal_runs(truths: TruthTable, count: int) -> list[tuple[int, int]]:
    """Return (first, count) of the runs of iterations with the same selection."""
    rows = list(zip(*truths.values())) or [()] * count
    starts = [i for i in range(count) if not i or rows[i] != rows[i - 1]]
    return [(i, end - i) for i, end in itertools.pairwise([*starts, count])]


def _store_cost(store: UOp) -> int:
    return _values_cost([store])


def _values_cost(stores: Sequence[UOp]) -> int:
    return sum([n.op.cost for n in toposort([*map(value, stores)])])


def _loop_cost(work: int, width: int) -> float:
    """Return the cycles for a row of a part that is vectorized by itself."""
    return (work + 2) * math.ceil(width / VECTOR_ELEMENTS)


def _columns_cost(work: int, reads: int, width: int) -> float:
    """Return the cycles for a row if vectors go across rows."""
    return width * (work + reads + TRANSPOSE_COST) / VECTOR_ELEMENTS


def _reads_cost(stores: Sequence[UOp], rows: UOp | None) -> int:
    """Return the instructions of a column in which vectors across rows read what lies strided: the
    wider the rows that a LOAD reads from, the less of a cache line is used at once."""
    strided = [n.src[0] for n in toposort([*map(value, stores)])
               if n.op is ops.LOAD and rows in n.ranges and rows not in n.src[0].src[-1].ranges]
    widths = [symbolic.bounds(i.src[0].src[-1])[1] for i in strided]
    return max(1, sum([2 * min(w, MIN_COLUMNS) for w in widths if w > 1]))


def _select_ranges(store: UOp, nodes: Sequence[UOp]) -> list[UOp]:
    """Return the innermost ranges of its index, up to the first that no condition depends on
    alone, or that would make more than MAX_COLUMNS."""
    chosen = {r for n in nodes if n.op is ops.WHERE and len(n.src[0].ranges) == 1
              for r in n.src[0].ranges}
    inner: list[UOp] = []
    count = 1
    for i in reversed(indices(store)):
        if i not in chosen or extent(i).op is not ops.CONST:
            break
        count *= build.const_of(extent(i))
        if inner and count > MAX_COLUMNS:
            break
        inner.insert(0, i)
    return inner


def _count_parts(nodes: Sequence[UOp], short: Sequence[UOp], truths: TruthTable) -> int:
    """Return the number of parts with formulas of their own: at most one for each run of iterations
    that select alike."""
    alternatives = _count_alternatives(nodes, short)
    if len(short) > 1:
        return alternatives
    return min(alternatives, len(_equal_runs(truths, build.const_of(extent(short[0])))))


def _count_alternatives(nodes: Sequence[UOp], short: Sequence[UOp]) -> int:
    """Return the number of alternatives with loads that the ranges select from; 0 if there is one.
    The condition of a PAD costs less than the loads that it saves."""
    loading = set[UOp]()
    count = 0
    for n in nodes:
        if n.op is ops.LOAD or not loading.isdisjoint(n.src):
            loading.add(n)
        count += n.op is ops.WHERE and n.src[0].ranges <= {*short} and loading.issuperset(n.src[1:])
    return count + 1 if count else 0


def _evaluate_conditions(nodes: Sequence[UOp], short: Sequence[UOp]) -> TruthTable:
    """Evaluate the comparisons of one of the ranges with constants, and their conjunctions."""
    truth_values: dict[UOp, Sequence[bool]] = {}
    for n in nodes:
        if n.dtype is not dtypes.bool_ or len(n.ranges) != 1 or n.ranges.isdisjoint(short):
            continue
        r, = n.ranges
        if n.op is ops.AND and all(s in truth_values for s in n.src):
            truth_values[n] = [a and b for a, b in zip(*[truth_values[s] for s in n.src])]
        elif n.op in (ops.CMPLT, ops.CMPLE) and n.src[0].dtype is dtypes.index:
            (left, c), (right, d) = map(symbolic.linear_terms, n.src)
            if {*left, *right} <= {(r,)}:
                step, last = right.get((r,), 0) - left.get((r,), 0), n.op is ops.CMPLE
                truth_values[n] = [c < step * i + d + last
                                   for i in range(build.const_of(extent(r)))]
    return truth_values


def _digits(i: int, counts: Sequence[int]) -> list[int]:
    out: list[int] = []
    for n in reversed(counts):
        i, digit = divmod(i, n)
        out.insert(0, digit)
    return out


def _specialize(store: UOp, range_values: Mapping[UOp, UOp], truths: TruthTable) -> UOp:
    """Return the STORE of some iterations: of each select, only the side that is taken is
    rebuilt."""
    first_values = {r: symbolic.bounds(i)[0] for r, i in range_values.items()}
    known = {c: values[first_values[next(iter(c.ranges))]] for c, values in truths.items()}
    rebuilt = dict(range_values)
    rebuilt.update((c, build.const(holds, dtypes.bool_)) for c, holds in known.items())

    def resolve(node: UOp) -> UOp:
        while node.op is ops.WHERE and node.src[0] in known:
            node = node.src[1 if known[node.src[0]] else 2]
        return node

    stack = [resolve(value(store)), index_node(store)]
    roots = stack[:]
    while stack:
        node = stack[-1]
        src = [resolve(s) for s in node.src]
        missing = [s for s in src if s not in rebuilt]
        if node not in rebuilt and not missing:
            rebuilt[node] = _rebuild_node(node, tuple([rebuilt[s] for s in src]))
        if node in rebuilt:
            stack.pop()
        stack += missing
    return copy_locs(build.store(rebuilt[roots[1]], rebuilt[roots[0]]), store)


def _rebuild_node(node: UOp, src: tuple[UOp, ...]) -> UOp:
    if node.op is ops.LOAD and len(src) > 1 and src[1].op is ops.CONST:
        return build.load(src[0]) if src[1].arg else build.const(0, node.dtype)
    if node.dtype is not dtypes.index or node.op is ops.INDEX:
        src = tuple([symbolic.simplify(s) if s.dtype is dtypes.index else s for s in src])
    return copy_locs(node.with_operands(src), node)
