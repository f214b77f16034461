"""Columns: unroll a short loop whose body selects by its counter to one STORE per iteration.

    before  STORE(o[r0, r1], WHERE(r1 < 1, a[r0], WHERE(r1 < 2, b[r0], c[r0])))   r0 < n, r1 < 3
    after   STORE(o[r0, 0], a[r0])   STORE(o[r0, 1], b[r0])   STORE(o[r0, 2], c[r0])

This is the form of a CONCAT of thin parts, a stack along the last axis, also below other ops,
and of nested CONCATs: each element is computed by its own formula, without conditions. Code
generation writes such neighbors as whole vectors (program/interleaved_groups.py). Parts of several
columns get a loop each if that takes fewer instructions or much less code. Parts as wide as a
vector are left to index_sets.py.

>>> from fnx.core import dtypes
>>> r, c = build.range_(500, 0), build.range_(9, 1)
>>> *xs, last = [build.load(build.at(build.ref(i, dtypes.float32, (500,)), r)) for i in range(9)]
>>> for i, x in reversed([*enumerate(xs)]):
...     last = build.where(build.lt(c, build.index_const(i + 1)), x, last)
>>> o = build.at(build.ref(9, dtypes.float32, (500, 9)), r, c)
>>> made = columns(build.kernel([build.store(o, last)], "stack", (0, 1)))
>>> [(value(s).op.name, build.const_of(indices(s)[1])) for s in made.src[:3]]
[('LOAD', 0), ('LOAD', 1), ('LOAD', 2)]
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence

from fnx.core import build, dtypes, ops
from fnx.core.parts import extent, indices, place, value
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, inherit, toposort
from fnx.lower.kernel.canonical import over_stores

WIDE = 16         # elements of a part that fill a vector by themselves
FEW = 8           # columns for which one loop over all of them is as good
MAX_COLUMNS = 256
MAX_WORK = 2400   # of all columns: compile time grows faster than the code
LEAST = 64        # least iterations of the other loops
TURNED = 5        # instructions to transpose and write a vector of a column

Truths = Mapping[UOp, Sequence[bool]]  # conditions on one short range -> truth at each value


def columns(kernel: UOp) -> UOp:
    """Unroll the short loops of a KERNEL by which its STOREs select, to one STORE per iteration."""
    nodes = toposort(kernel.src)
    if any(s.arg is not None or len(s.src) > 2 for s in kernel.src) or \
            any(n.op in (ops.REDUCE, ops.STAGE, ops.ITER) for n in nodes):
        return kernel
    choosing = [s for s in kernel.src if _short(s, nodes)]
    short = _short(choosing[0], nodes) if choosing else []
    counts = [build.const_of(extent(r)) for r in short]
    count = math.prod(counts)
    if not FEW < count <= MAX_COLUMNS or count >= WIDE * _parts(nodes, short) or \
            any(_short(s, nodes) != short for s in choosing):
        return kernel
    around = [build.const_of(extent(r)) for r in choosing[0].ranges if r not in short]
    if math.prod(around) < LEAST:
        return kernel
    truths = _truths(nodes, short)
    if len(short) == 1 and len(kernel.src) == 1:
        made = _by_loops(kernel, short[0], truths)
        if made is not None:
            return made
    places = [dict(zip(short, map(build.index_const, _digits(i, counts)))) for i in range(count)]
    stores = [made for s in kernel.src for made in (
        [_piece(s, at, truths) for at in places] if s in choosing else [s])]
    if sum(map(_work, stores)) > MAX_WORK:
        return kernel
    return over_stores(kernel, stores, kernel.arg.order)


def _by_loops(kernel: UOp, r: UOp, truths: Truths) -> UOp | None:
    """Split the loop to one STORE and loop per run of iterations with the same selection; None if
    one STORE per iteration is better."""
    order, runs = list(kernel.arg.order), _runs(truths, build.const_of(extent(r)))
    widths = [n for _, n in runs]
    fresh = [build.range_(n, max(order) + 1 + i) for i, n in enumerate(widths)]
    made = [_piece(kernel.src[0], {r: build.add(q, build.index_const(i))}, truths)
            for q, (i, _) in zip(fresh, runs)]
    work = [*map(_work, made)]
    if sum(map(operator.mul, work, widths)) <= MAX_WORK and \
            _in_columns(work, widths) <= _in_loops(work, widths):
        return None
    at = order.index(r.arg.id)
    return over_stores(kernel, made, [*order[:at], *[q.arg.id for q in fresh], *order[at + 1:]])


def _runs(truths: Truths, count: int) -> list[tuple[int, int]]:
    """Return (first, count) of the runs of iterations with the same selection."""
    rows = list(zip(*truths.values())) or [()] * count
    starts = [i for i in range(count) if not i or rows[i] != rows[i - 1]]
    return [(i, end - i) for i, end in itertools.pairwise([*starts, count])]


def _work(store: UOp) -> int:
    return sum([n.op.cost for n in toposort([value(store)])])


def _in_loops(work: Sequence[int], widths: Sequence[int]) -> float:
    """Return the cycles for a row if each part is vectorized by itself."""
    return sum([(w + 2) * math.ceil(n / WIDE) for w, n in zip(work, widths)])


def _in_columns(work: Sequence[int], widths: Sequence[int]) -> float:
    """Return the cycles for a row if vectors go across rows: then loads are strided, too."""
    reads = [1 if n == 1 else 2 * min(n, FEW) for n in widths]
    return sum([n * (w + r + TURNED) for w, n, r in zip(work, widths, reads)]) / WIDE


def _short(store: UOp, nodes: Sequence[UOp]) -> list[UOp]:
    """Return the innermost ranges of its index, up to the first that no condition depends on
    alone."""
    chosen = {r for n in nodes if n.op is ops.WHERE and len(n.src[0].ranges) == 1
              for r in n.src[0].ranges}
    inner = itertools.takewhile(lambda i: i in chosen and extent(i).op is ops.CONST,
                                reversed(indices(store)))
    return [*inner][::-1]


def _parts(nodes: Sequence[UOp], short: Sequence[UOp]) -> int:
    """Return the number of alternatives with loads that the ranges select from; 0 if there is one.
    The condition of a PAD costs less than the loads that it saves."""
    reads = set[UOp]()
    parts = 0
    for n in nodes:
        if n.op is ops.LOAD or not reads.isdisjoint(n.src):
            reads.add(n)
        parts += n.op is ops.WHERE and n.src[0].ranges <= {*short} and reads.issuperset(n.src[1:])
    return parts + 1 if parts else 0


def _truths(nodes: Sequence[UOp], short: Sequence[UOp]) -> Truths:
    """Evaluate the comparisons of one of the ranges with constants, and their conjunctions."""
    found: dict[UOp, Sequence[bool]] = {}
    for n in nodes:
        if n.dtype is not dtypes.bool_ or len(n.ranges) != 1 or n.ranges.isdisjoint(short):
            continue
        r, = n.ranges
        if n.op is ops.AND and all(s in found for s in n.src):
            found[n] = [a and b for a, b in zip(*[found[s] for s in n.src])]
        elif n.op in (ops.CMPLT, ops.CMPLE) and n.src[0].dtype is dtypes.index:
            (left, c), (right, d) = map(symbolic.linear, n.src)
            if {*left, *right} <= {(r,)}:
                step, last = right.get((r,), 0) - left.get((r,), 0), n.op is ops.CMPLE
                found[n] = [c < step * i + d + last for i in range(build.const_of(extent(r)))]
    return found


def _digits(i: int, counts: Sequence[int]) -> list[int]:
    out: list[int] = []
    for n in reversed(counts):
        i, digit = divmod(i, n)
        out.insert(0, digit)
    return out


def _piece(store: UOp, at: Mapping[UOp, UOp], truths: Truths) -> UOp:
    """Return the STORE of some iterations: of each select, only the side that is taken is
    rebuilt."""
    first = {r: symbolic.bounds(i)[0] for r, i in at.items()}
    true = {c: values[first[next(iter(c.ranges))]] for c, values in truths.items()}
    done = dict(at)
    done.update((c, build.const(holds, dtypes.bool_)) for c, holds in true.items())

    def taken(node: UOp) -> UOp:
        while node.op is ops.WHERE and node.src[0] in true:
            node = node.src[1 if true[node.src[0]] else 2]
        return node

    stack = [taken(value(store)), place(store)]
    roots = stack[:]
    while stack:
        node = stack[-1]
        src = [taken(s) for s in node.src]
        missing = [s for s in src if s not in done]
        if node not in done and not missing:
            done[node] = _made(node, tuple([done[s] for s in src]))
        if node in done:
            stack.pop()
        stack += missing
    return inherit(build.store(done[roots[1]], done[roots[0]]), store)


def _made(node: UOp, src: tuple[UOp, ...]) -> UOp:
    if node.op is ops.LOAD and len(src) > 1 and src[1].op is ops.CONST:
        return build.load(src[0]) if src[1].arg else build.const(0, node.dtype)
    if node.dtype is not dtypes.index or node.op is ops.INDEX:
        src = tuple([symbolic.simplify(s) if s.dtype is dtypes.index else s for s in src])
    return inherit(node.over(src), node)
