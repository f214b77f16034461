"""Loop peeling and index set splitting: run a loop as spans in which more conditions are known.

A condition on the counter holds for all lanes up to some iteration, for some lanes in the next, and
for none from there on, or the other way round. The loop is split there, wherever in the expression
the condition is: a prologue, a steady state without tests, an epilogue.

    i = SEQ range ceil(n / 16), l = VEC range 16      for i in 0 .. 1:             masked
    x[16*i + l - 1] if 0 < 16*i + l                   for i in 1 .. n // 16:       no masks
    STORE(o[16*i + l], ..., valid=16*i + l < n)       for i in n // 16 .. ceil:    masked

If the cuts are constants, the counter of a span of one iteration is a constant, too, so its masks
are known at compile time. If they are known only at run time, there are three spans; in the middle
one all conditions are as they are in most iterations.

Iterations in which the condition holds for no lane, and which would then write and reduce nothing,
are skipped: a run-time extent may be far below what the split allows.

Only loops without inner loops and with few instances are split, since the body is duplicated for
each span, and only at conditions that depend on lanes or unrolled instances. A condition that
depends on loops alone also splits if the cuts are constants and it selects vectors; if nothing is
written or reduced once it is false, the loop ends there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import bound_ranges, conjuncts, extent, validity, value
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.algebra import Polynomial, add
from fnx.core.support.range_kinds import LOOP_KINDS, PARALLEL_KINDS, REPLICATED_KINDS
from fnx.core.support.record import Record
from fnx.lower.analysis.conditions import (
    INEQUALITIES,
    as_positive,
    match_masked_reduce,
)
from fnx.lower.analysis.workload import is_zero_unless
from fnx.lower.emit.expansion import SINGLE_INSTANCE, extent_of
from fnx.lower.emit.loop_nest import LoopNest, Statement, is_statement
from fnx.lower.emit.values import Values

_MAX_COPIES = 8  # instances of a statement, above which copies of the body do not pay off
_MAX_LINES = 1 << 10  # in all spans of a loop: a bound on compile time


class Span(Record):
    """A span of a loop's iterations and the conditions that are known throughout.

    ``only`` is the counter if the span has one iteration.
    """

    start: UOp
    stop: UOp
    known: tuple[tuple[UOp, bool], ...] = ()
    only: int | None = None


class Limit(Record):
    """The iterations in which a condition changes.

    It equals ``at_first`` for all lanes while step*i < terms + constant, for some lanes up to
    ``slack`` more, and for none from there on.
    """

    at_first: bool
    terms: Polynomial
    constant: int
    step: int
    slack: int


class Cut(Record):
    """A Limit in iterations: ``at_first`` before ``full``, the opposite from ``empty`` on."""

    condition: UOp
    at_first: bool
    full: UOp
    empty: UOp

    def truth(self, start: int, stop: int) -> bool | None:
        """Return the truth of the condition in iterations start..stop, None if it changes."""
        if stop <= build.const_of(self.full):
            return self.at_first
        return not self.at_first if start >= build.const_of(self.empty) else None


def spans(values: Values, inner: LoopNest) -> list[Span]:
    """Split a loop into spans, in order."""
    r, lines = inner.range, values.lines
    assert r is not None
    start, stop = build.index_const(0), values.value(extent(r))
    count = stop
    is_parallel = r.arg.kind in PARALLEL_KINDS  # parallel ranges are outermost: depth = number
    if is_parallel:
        start, stop = (UOp(ops.PARALLEL_RANGE, dtypes.index, (), 2 * (inner.depth - 1) + i)
                       for i in (0, 1))
    carried = any(s.node.op is ops.LOOP and r in bound_ranges(s.node) for s in inner.statements)
    limits = {} if carried or not values.has_inequalities else _find_limits(values, inner, r)
    if not limits:
        return [Span(start, stop)]
    known_true = {c: True for c, limit in limits.items()
                  if limit.at_first and not _is_replicated(c) and _may_end(c, inner)}
    for condition, limit in limits.items():
        if limit.at_first and _is_guard(condition, inner):
            end = _emit_iterations(values, limit, limit.slack)
            stop, count = (lines.integer(ops.MIN, x, end) for x in (stop, count))
    cuts = {c: Cut(c, limit.at_first, _emit_iterations(values, limit, 0),
                   _emit_iterations(values, limit, limit.slack)) for c, limit in limits.items()}
    are_constant = _is_vector(inner) and \
        all(n.op is ops.CONST for cut in cuts.values() for n in (count, cut.full, cut.empty))
    cut_at = [c for c in limits if are_constant or c in known_true or _is_replicated(c)]
    if len(cut_at) == len(known_true):
        return [Span(start, stop, tuple(known_true.items()))]
    if are_constant:
        return list(_constant_spans(values, list(cuts.values()), build.const_of(count), inner,
                                    (start, stop) if is_parallel else None))
    return _runtime_spans(values, [cuts[c] for c in cut_at], [limits[c] for c in cut_at], r,
                          (start, stop), is_parallel)


# ---- constant cuts ----------------------------------------------------------------------------


def _constant_spans(values: Values, cuts: Sequence[Cut], count: int, inner: LoopNest,
                    worker_bounds: tuple[UOp, UOp] | None) -> Iterator[Span]:
    """Yield spans of 0 .. count within the line budget, clipped to the range ``worker_bounds``."""
    lines = values.lines
    for i, j in pairwise(_span_edges(cuts, count, inner)):
        known = tuple(_truths(cuts, i, j).items())
        start, stop = build.index_const(i), build.index_const(j)
        if worker_bounds is not None:
            start = lines.integer(ops.MAX, worker_bounds[0], i) if i else worker_bounds[0]
            stop = lines.integer(ops.MIN, worker_bounds[1], j) if j < count else worker_bounds[1]
        yield Span(start, stop, known, i if j == i + 1 else None)


def _span_edges(cuts: Sequence[Cut], count: int, inner: LoopNest) -> list[int]:
    """Return where spans begin and end.

    Start with all cuts; while the bodies of all spans exceed the line budget, drop the cut whose
    removal adds the fewest tests.
    """
    ends: list[tuple[int, int]] = [
        (build.const_of(cut.full), build.const_of(cut.empty)) for cut in cuts]
    edges = sorted({0, count} | {n for pair in ends for n in pair if n < count})
    max_lines = _MAX_LINES // math.prod(
        [extent_of(r) for r in {r for s in inner.statements for r in s.node.ranges}
         if r.arg.kind == "UNROLL"])

    def tests(i: int, j: int) -> int:
        return (j - i) * sum([full < j and i < empty for full, empty in ends])

    def again(edge: int) -> int:  # tests added by removing an edge
        a, b, c = edges[edge - 1:edge + 2]
        return tests(a, c) - tests(a, b) - tests(b, c)

    if len(edges) <= 3:
        return edges
    lengths = [_count_lines(inner, _truths(cuts, *part), max_lines) for part in pairwise(edges)]
    added_tests = [again(i) for i in range(1, len(edges) - 1)]
    while len(edges) > 3 and sum(lengths) > max_lines:
        i = 1 + added_tests.index(min(added_tests))
        del edges[i], added_tests[i - 1]
        lengths[i - 1:i + 1] = [_count_lines(inner, _truths(cuts, *edges[i - 1:i + 1]), max_lines)]
        for neighbor in (i - 1, i):
            if 0 < neighbor < len(edges) - 1:
                added_tests[neighbor - 1] = again(neighbor)
    return edges


def _truths(cuts: Sequence[Cut], start: int, stop: int) -> dict[UOp, bool]:
    """Return the conditions that are known in a span."""
    return {cut.condition: truth for cut in cuts if (truth := cut.truth(start, stop)) is not None}


def _count_lines(inner: LoopNest, known: Mapping[UOp, bool], max_lines: int) -> int:
    """Estimate the lines of the body of a span, counting to ``max_lines`` + 1.

    A value that no WHERE selects in the span has no lines.
    """
    pending = [s for statement in inner.statements for s in statement.node.src]
    seen, length = set(pending), 0
    while pending and length <= max_lines:
        node = pending.pop()
        if inner.range not in node.ranges or node.dtype is dtypes.index or node in known:
            continue
        operands = _used_operands(node, known)
        length += operands is node.src
        pending.extend(s for s in operands if s not in seen and not is_statement(s))
        seen.update(operands)
    return length


def _used_operands(node: UOp, known: Mapping[UOp, bool]) -> Sequence[UOp]:
    """Return the operands that are used, given the known conditions."""
    if node.op is ops.WHERE and node.src[0] in known:
        return node.src[1:2] if known[node.src[0]] else node.src[2:]
    return node.src


# ---- run-time cuts ------------------------------------------------------------------------------


def _runtime_spans(values: Values, cuts: Sequence[Cut], limits: Sequence[Limit], r: UOp,
                   bounds: tuple[UOp, UOp], is_parallel: bool) -> list[Span]:
    """Return three spans, with all conditions known in the middle one.

    There a condition has its final value if it changes in the first quarter of the iterations,
    else its initial value.
    """
    lines, (start, stop) = values.lines, bounds
    mid_start, mid_stop, known = build.index_const(0), stop, []
    for cut, limit in zip(cuts, limits):
        ends = values.addresses.bounds(limit.terms, limit.constant, SINGLE_INSTANCE)
        is_late = _has_lanes(cut.condition) and \
            2 * sum([max(end, 0) for end in ends]) < limit.step * symbolic.bounds(extent(r))[1]
        known.append((cut.condition, cut.at_first != is_late))
        if is_late:
            mid_start = lines.integer(ops.MAX, mid_start, cut.empty)
        else:
            mid_stop = lines.integer(ops.MIN, mid_stop, cut.full)
    no_head = mid_start.op is ops.CONST and build.const_of(mid_start) == 0
    head = start if no_head else lines.integer(
        ops.MIN, lines.integer(ops.MAX, start, mid_start) if is_parallel else mid_start, stop)
    middle = mid_stop if no_head and not is_parallel else lines.integer(ops.MAX, mid_stop, head)
    counter = 0 if mid_start.op is ops.CONST and build.const_of(mid_start) == 1 else None
    parts = [Span(start, head, (), counter), Span(head, mid_stop, tuple(known)), Span(middle, stop)]
    return [p for p in parts if p.start is not p.stop]


def _emit_iterations(values: Values, limit: Limit, slack: int) -> UOp:
    """Emit the number of initial iterations with step*i < terms + constant + slack."""
    lines = values.lines
    total = values.addresses.total(limit.terms, limit.constant + slack, SINGLE_INSTANCE)
    positive = lines.integer(ops.MAX, total, 0)
    return lines.divide(lines.plus(positive, limit.step - 1), limit.step)


# ---- conditions -------------------------------------------------------------------------------


def _find_limits(values: Values, inner: LoopNest, r: UOp) -> dict[UOp, Limit]:
    """Return the conditions in a loop over r that change once, with their Limits."""
    is_vector = _is_vector(inner)
    short = not any(isinstance(item, LoopNest) or _instances(item) > _MAX_COPIES
                    for item in inner.body)
    roots = [s for statement in inner.statements for s in statement.node.src]
    limits: dict[UOp, Limit] = {}
    for node in toposort(roots, stop=is_statement):
        if node.op in INEQUALITIES and r in node.ranges \
                and node.src[0].dtype is dtypes.index and values.truth(node) is None \
                and (short if _is_replicated(node) else _may_end(node, inner) or short and
                     is_vector):
            limit = _limit(node, r, is_vector)
            if limit is not None:
                limits[node] = limit
    return limits


def _may_end(condition: UOp, inner: LoopNest) -> bool:
    """Return whether a loop may end when a condition fails that is uniform across lanes."""
    outer = inner.statements[0].path[:inner.depth]
    return all(r in outer for r in condition.ranges if r.arg.kind in LOOP_KINDS) and \
        _is_guard(condition, inner)


def _is_replicated(node: UOp) -> bool:
    return any(r.arg.kind in REPLICATED_KINDS for r in node.ranges)


def _is_vector(inner: LoopNest) -> bool:
    """Return whether the body computes with vectors, so that any mask would be a vector."""
    return any(map(_has_lanes, (s.node for s in inner.statements)))


def _has_lanes(condition: UOp) -> bool:
    return any(r.arg.kind == "VEC" for r in condition.ranges)


def _instances(statement: Statement) -> int:
    ranges = statement.node.ranges.union(statement.closed)
    return math.prod([extent_of(r) for r in ranges if r.arg.kind == "UNROLL"])


def _limit(condition: UOp, r: UOp, is_vector: bool) -> Limit | None:
    terms, constant = as_positive(condition)
    at_first = terms.get((r,), 0) < 0
    if not at_first:
        if not is_vector:
            return None
        terms, constant = add({}, terms, -1), 1 - constant  # the negated condition
    step = -terms.pop((r,), 0)
    if step <= 0:
        return None
    lowest = slack = 0
    for monomial, c in list(terms.items()):
        if any(r in a.ranges for a in monomial):
            return None
        if any(map(_is_replicated, monomial)):
            if len(monomial) > 1 or monomial[0].op is not ops.RANGE:
                return None
            span = c * (extent_of(monomial[0]) - 1)
            lowest, slack = lowest + min(span, 0), slack + abs(span)
            del terms[monomial]
    return Limit(at_first, terms, constant + lowest, step, slack)


def _is_guard(condition: UOp, inner: LoopNest) -> bool:
    """Return whether an iteration in which the condition holds for no lane has no effect."""
    return all(condition in _validity(s.node) or _adds_zero(s.node, condition)
               for s in inner.statements)


def _validity(statement: UOp) -> list[UOp]:
    """Return the conditions under which a statement writes or reduces anything."""
    if statement.op is ops.STORE:
        return conjuncts(validity(statement))
    match = match_masked_reduce(statement) if statement.op is ops.REDUCE else None
    return [] if match is None else conjuncts(match[0])


def _adds_zero(statement: UOp, condition: UOp) -> bool:
    """Return whether a sum adds 0 if a condition fails."""
    return statement.op is ops.REDUCE and statement.arg.monoid is ops.ADD and \
        statement.src[0].op is not ops.ARG_PAIR and is_zero_unless(value(statement), [condition])
