"""Peeling: a loop is run in parts, in each of which more conditions are known.

A condition on the counter holds for all lanes up to some iteration, for some in the next one, and
for none from there on, or the other way round. So the loop is cut there, wherever in the
expression the condition stands: a prologue, a steady state without any test, an epilogue.

    i = SEQ range ceil(n / 16), l = VEC range 16      for i in 0 .. 1:             masked
    x[16*i + l - 1] if 0 < 16*i + l                   for i in 1 .. n // 16:       no masks
    STORE(o[16*i + l], ..., valid=16*i + l < n)       for i in n // 16 .. ceil:    masked

Where the cuts are numbers, a part of one iteration has a number for its counter: what is masked
there is known when the program is written. Where they are known at run time only, there are three
parts, in the middle of which all conditions are as they are in most iterations.

Iterations in which the condition holds for no lane, and without which nothing would be written
or folded, are left out: a run-time extent may be far below what the split allows.

Only loops without inner loops and with few instances are cut, and only at conditions that
depend on lanes or unrolled instances: the code is there once a part, and that is what it buys. So
it does at one that depends on loops alone, where the cuts are numbers and what it chooses are
vectors; where nothing is written or folded once that is false, the loop ends there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from fnx.core import build, dtypes, ops
from fnx.core.parts import closed, conjuncts, extent, validity, value
from fnx.core.range_kinds import GIVEN, LOOPS, REPLICATED
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.polynomial import Polynomial, add
from fnx.core.uop import UOp, toposort
from fnx.lower.factors import vanishes
from fnx.lower.program.conditions import (
    INEQUALITIES,
    masked,
    positive_form,
)
from fnx.lower.program.loop_nest import Nest, Statement, is_statement
from fnx.lower.program.roles import SINGLE, extent_of
from fnx.lower.program.values import Values

_MOST = 8  # instances of a statement, above which a second copy costs more than masks do
_LINES = 1 << 10  # of all parts of a loop: compilers take time that grows with them


class Span(Record):
    """A part that a loop is run in, what is known of conditions in all of it, and the number that
    its counter is, where it has one iteration."""

    start: UOp
    stop: UOp
    known: tuple[tuple[UOp, bool], ...] = ()
    only: int | None = None


class Limit(Record):
    """A condition is ``at_first`` for all lanes while step*i < terms + constant, for some up to
    ``slack`` more, for none from there on."""

    at_first: bool
    terms: Polynomial
    constant: int
    step: int
    slack: int


class Cut(Record):
    """The same in iterations: ``at_first`` before ``full``, the opposite from ``empty`` on."""

    condition: UOp
    at_first: bool
    full: UOp
    empty: UOp

    def truth(self, start: int, stop: int) -> bool | None:
        """What is known of the condition from one iteration up to another."""
        if stop <= build.const_of(self.full):
            return self.at_first
        return not self.at_first if start >= build.const_of(self.empty) else None


def spans(values: Values, inner: Nest) -> list[Span]:
    """The parts that a loop is run in, in order."""
    r, lines = inner.range, values.lines
    assert r is not None
    start, stop = build.index_const(0), values.value(extent(r))
    count = stop
    given = r.arg.kind in GIVEN  # those are outermost: its number among them is its depth
    if given:
        start, stop = (UOp(ops.PART, dtypes.index, (), 2 * (inner.depth - 1) + i) for i in (0, 1))
    carried = any(s.node.op is ops.ITER and r in closed(s.node) for s in inner.statements)
    limits = {} if carried else _limits(values, inner, r)
    if not limits:
        return [Span(start, stop)]
    ended = {c: True for c, limit in limits.items()
             if limit.at_first and not _is_replicated(c) and _ends(c, inner)}
    for condition, limit in limits.items():
        if limit.at_first and _governs(condition, inner):
            end = _iterations(values, limit, limit.slack)
            stop, count = (lines.integer(ops.MIN, x, end) for x in (stop, count))
    cuts = {c: Cut(c, limit.at_first, _iterations(values, limit, 0),
                   _iterations(values, limit, limit.slack)) for c, limit in limits.items()}
    numbers = _is_wide(inner) and \
        all(n.op is ops.CONST for cut in cuts.values() for n in (count, cut.full, cut.empty))
    kept = [c for c in limits if numbers or c in ended or _is_replicated(c)]
    if len(kept) == len(ended):
        return [Span(start, stop, tuple(ended.items()))]
    if numbers:
        return list(_at_numbers(values, list(cuts.values()), build.const_of(count), inner,
                                (start, stop) if given else None))
    return _around_most(values, [cuts[c] for c in kept], [limits[c] for c in kept], r,
                        (start, stop), given)


# ---- cuts that are numbers --------------------------------------------------------------------


def _at_numbers(values: Values, cuts: Sequence[Cut], count: int, inner: Nest,
                given: tuple[UOp, UOp] | None) -> Iterator[Span]:
    """Parts of 0 .. count that have few lines; where iterations are given out, what of each is."""
    lines = values.lines
    for i, j in pairwise(_edges(cuts, count, inner)):
        known = tuple(_known(cuts, i, j).items())
        start, stop = build.index_const(i), build.index_const(j)
        if given is not None:
            start = lines.integer(ops.MAX, given[0], i) if i else given[0]
            stop = lines.integer(ops.MIN, given[1], j) if j < count else given[1]
        yield Span(start, stop, known, i if j == i + 1 else None)


def _edges(cuts: Sequence[Cut], count: int, inner: Nest) -> list[int]:
    """Where parts begin and end: at all cuts, less those without which least is tested again, as
    long as the bodies of all parts have more lines than compilers take in a moment."""
    ends: list[tuple[int, int]] = [
        (build.const_of(cut.full), build.const_of(cut.empty)) for cut in cuts]
    edges = sorted({0, count} | {n for pair in ends for n in pair if n < count})
    most = _LINES // math.prod(
        [extent_of(r) for r in {r for s in inner.statements for r in s.node.ranges}
         if r.arg.kind == "UNROLL"])

    def tests(i: int, j: int) -> int:
        return (j - i) * sum([full < j and i < empty for full, empty in ends])

    def again(i: int) -> int:  # what is tested again without an edge
        a, b, c = edges[i - 1:i + 2]
        return tests(a, c) - tests(a, b) - tests(b, c)

    if len(edges) <= 3:
        return edges
    lengths = [_length(inner, _known(cuts, *part), most) for part in pairwise(edges)]
    dear = [again(i) for i in range(1, len(edges) - 1)]
    while len(edges) > 3 and sum(lengths) > most:
        i = 1 + dear.index(min(dear))
        del edges[i], dear[i - 1]
        lengths[i - 1:i + 1] = [_length(inner, _known(cuts, *edges[i - 1:i + 1]), most)]
        for beside in (i - 1, i):
            if 0 < beside < len(edges) - 1:
                dear[beside - 1] = again(beside)
    return edges


def _known(cuts: Sequence[Cut], start: int, stop: int) -> dict[UOp, bool]:
    """What is known of conditions in a part."""
    return {cut.condition: truth for cut in cuts if (truth := cut.truth(start, stop)) is not None}


def _length(inner: Nest, known: Mapping[UOp, bool], most: int) -> int:
    """How many lines the body of a part has, about, as far as ``most`` and one more. A value that
    is not chosen in it has none there."""
    ahead = [s for statement in inner.statements for s in statement.node.src]
    seen, length = set(ahead), 0
    while ahead and length <= most:
        node = ahead.pop()
        if inner.range not in node.ranges or node.dtype is dtypes.index or node in known:
            continue
        below = _chosen(node, known)
        length += below is node.src
        ahead.extend(s for s in below if s not in seen and not is_statement(s))
        seen.update(below)
    return length


def _chosen(node: UOp, known: Mapping[UOp, bool]) -> Sequence[UOp]:
    """The operands that a value is computed of where conditions are known."""
    if node.op is ops.WHERE and node.src[0] in known:
        return node.src[1:2] if known[node.src[0]] else node.src[2:]
    return node.src


# ---- cuts that are known at run time ------------------------------------------------------------


def _around_most(values: Values, cuts: Sequence[Cut], limits: Sequence[Limit], r: UOp,
                 bounds: tuple[UOp, UOp], given: bool) -> list[Span]:
    """Three parts: in the middle each condition is as it is in the last iterations, where it
    changes in the first quarter, else as it is in the first ones."""
    lines, (start, stop) = values.lines, bounds
    first, full, known = build.index_const(0), stop, []
    for cut, limit in zip(cuts, limits):
        ends = values.addresses.bounds(limit.terms, limit.constant, SINGLE)
        late = _has_lanes(cut.condition) and \
            2 * sum([max(end, 0) for end in ends]) < limit.step * symbolic.bounds(extent(r))[1]
        known.append((cut.condition, cut.at_first != late))
        if late:
            first = lines.integer(ops.MAX, first, cut.empty)
        else:
            full = lines.integer(ops.MIN, full, cut.full)
    none = first.op is ops.CONST and build.const_of(first) == 0
    head = start if none else lines.integer(
        ops.MIN, lines.integer(ops.MAX, start, first) if given else first, stop)
    middle = full if none and not given else lines.integer(ops.MAX, full, head)
    only = 0 if first.op is ops.CONST and build.const_of(first) == 1 else None
    parts = [Span(start, head, (), only), Span(head, full, tuple(known)), Span(middle, stop)]
    return [p for p in parts if p.start is not p.stop]


def _iterations(values: Values, limit: Limit, slack: int) -> UOp:
    """In how many iterations, from the first on, step*i < terms + constant + slack."""
    lines = values.lines
    total = values.addresses.total(limit.terms, limit.constant + slack, SINGLE)
    room = lines.integer(ops.MAX, total, 0)
    return lines.divided(lines.plus(room, limit.step - 1), limit.step)


# ---- conditions -------------------------------------------------------------------------------


def _limits(values: Values, inner: Nest, r: UOp) -> dict[UOp, Limit]:
    """The conditions below a loop over r that change once, and where."""
    wide = _is_wide(inner)
    short = not any(isinstance(item, Nest) or _instances(item) > _MOST for item in inner.body)
    roots = [s for statement in inner.statements for s in statement.node.src]
    found: dict[UOp, Limit] = {}
    for node in toposort(roots, stop=is_statement):
        if node.op in INEQUALITIES and r in node.ranges \
                and node.src[0].dtype is dtypes.index and values.truth(node) is None \
                and (short if _is_replicated(node) else _ends(node, inner) or short and wide):
            limit = _limit(node, r, wide)
            if limit is not None:
                found[node] = limit
    return found


def _ends(condition: UOp, inner: Nest) -> bool:
    """Whether a loop may end where a condition fails that is the same for all lanes."""
    outer = inner.statements[0].path[:inner.depth]
    return all(r in outer for r in condition.ranges if r.arg.kind in LOOPS) and \
        _governs(condition, inner)


def _is_replicated(node: UOp) -> bool:
    return any(r.arg.kind in REPLICATED for r in node.ranges)


def _is_wide(inner: Nest) -> bool:
    """Whether the body computes with vectors, of which a mask is, whatever it depends on."""
    return any(map(_has_lanes, (s.node for s in inner.statements)))


def _has_lanes(condition: UOp) -> bool:
    return any(r.arg.kind == "VEC" for r in condition.ranges)


def _instances(statement: Statement) -> int:
    ranges = statement.node.ranges.union(statement.closed)
    return math.prod([extent_of(r) for r in ranges if r.arg.kind == "UNROLL"])


def _limit(condition: UOp, r: UOp, wide: bool) -> Limit | None:
    terms, constant = positive_form(condition)
    at_first = terms.get((r,), 0) < 0
    if not at_first:
        if not wide:
            return None
        terms, constant = add({}, terms, -1), 1 - constant  # where it does not hold
    step = -terms.pop((r,), 0)
    if step <= 0:
        return None
    least = slack = 0
    for monomial, c in list(terms.items()):
        if any(r in a.ranges for a in monomial):
            return None
        if any(map(_is_replicated, monomial)):
            if len(monomial) > 1 or monomial[0].op is not ops.RANGE:
                return None
            span = c * (extent_of(monomial[0]) - 1)
            least, slack = least + min(span, 0), slack + abs(span)
            del terms[monomial]
    return Limit(at_first, terms, constant + least, step, slack)


def _governs(condition: UOp, inner: Nest) -> bool:
    """Whether an iteration in which the condition holds for no lane has no effect."""
    return all(condition in _validity(s.node) or _adds_nothing(s.node, condition)
               for s in inner.statements)


def _validity(statement: UOp) -> list[UOp]:
    """What must hold for a statement to write or fold anything."""
    if statement.op is ops.STORE:
        return conjuncts(validity(statement))
    found = masked(statement) if statement.op is ops.REDUCE else None
    return [] if found is None else conjuncts(found[0])


def _adds_nothing(statement: UOp, condition: UOp) -> bool:
    """Whether a sum takes in 0 where a condition fails."""
    return statement.op is ops.REDUCE and statement.arg.monoid is ops.ADD and \
        statement.src[0].op is not ops.PAIR and vanishes(value(statement), [condition])
