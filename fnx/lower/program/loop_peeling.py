"""Peeling: in how many iterations of a loop do its conditions hold for all lanes?

A split that rounds up leaves a condition which is true in all iterations but the last:

    i = SEQ range ceil(n / 16), l = VEC range 16      for i in 0 .. n // 16:      no masks
    STORE(o[16*i + l], v, valid=16*i + l < n)         for i in n // 16 .. ceil:   masked

Iterations in which the condition holds for no lane, and without which nothing would be written
or folded, are left out: a run-time extent may be far below what the split allows.

Only loops without inner loops and with few instances are peeled, and only for conditions that
depend on lanes or unrolled instances: the code is there twice, and that is what it buys. One that
depends on loops alone is true up to some iteration and false from there on; where nothing is
written or folded once it is false, the loop ends there.
"""

from __future__ import annotations

import math

from fnx.core import build, dtypes, ops
from fnx.core.parts import closed, conjuncts, extent, validity, value
from fnx.core.range_kinds import GIVEN, LOOPS, REPLICATED
from fnx.core.record import Record
from fnx.core.rewriting.polynomial import Polynomial
from fnx.core.uop import UOp, toposort
from fnx.lower.factors import vanishes
from fnx.lower.program.conditions import (
    INEQUALITIES,
    Conditions,
    masked,
    positive_form,
)
from fnx.lower.program.loop_nest import Nest, Statement, is_statement
from fnx.lower.program.roles import SINGLE, extent_of
from fnx.lower.program.values import Values

_MOST = 8  # instances of a statement, above which a second copy costs more than masks do


class Span(Record):
    """A part that a loop is run in, and what holds in all of it."""

    start: UOp
    stop: UOp
    assumed: tuple[UOp, ...]


class Limit(Record):
    """Holds for all lanes while step*i < terms + constant, for some up to ``slack`` more."""

    terms: Polynomial
    constant: int
    step: int
    slack: int


def spans(values: Values, inner: Nest) -> list[Span]:
    """The parts that a loop is run in: one, or two where a condition ends it."""
    r, lines = inner.range, values.lines
    assert r is not None
    start, stop = build.index_const(0), values.value(extent(r))
    given = r.arg.kind in GIVEN  # those are outermost: its number among them is its depth
    if given:
        start, stop = (UOp(ops.PART, dtypes.index, (), 2 * (inner.depth - 1) + i) for i in (0, 1))
    carried = any(s.node.op is ops.ITER and r in closed(s.node) for s in inner.statements)
    limits = {} if carried else _limits(inner, r, values.conditions)
    if not limits:
        return [Span(start, stop, ())]
    ends = not any(map(_is_replicated, limits))
    for condition, limit in limits.items():
        if _governs(condition, inner):
            stop = lines.integer(ops.MIN, stop, _iterations(values, limit, limit.slack))
    if ends:
        return [Span(start, stop, tuple(limits))]
    full = stop
    for limit in limits.values():
        full = lines.integer(ops.MIN, full, _iterations(values, limit, 0))
    middle = lines.integer(ops.MAX, full, start) if given else full
    parts = [Span(start, full, tuple(limits)), Span(middle, stop, ())]
    return [p for p in parts if p.start.op is not ops.CONST or p.start is not p.stop]


def _iterations(values: Values, limit: Limit, slack: int) -> UOp:
    """In how many iterations, from the first on, step*i < terms + constant + slack."""
    lines = values.lines
    total = values.addresses.total(limit.terms, limit.constant + slack, SINGLE)
    room = lines.integer(ops.MAX, total, 0)
    return lines.divided(lines.plus(room, limit.step - 1), limit.step)


def _limits(inner: Nest, r: UOp, conditions: Conditions) -> dict[UOp, Limit]:
    """The conditions below a loop over r that hold up to some iteration, and that limit."""
    short = not any(isinstance(item, Nest) or _instances(item) > _MOST for item in inner.body)
    roots = [s for statement in inner.statements for s in statement.node.src]
    found: dict[UOp, Limit] = {}
    for node in toposort(roots, stop=is_statement):
        if node.op in INEQUALITIES and r in node.ranges \
                and node.src[0].dtype is dtypes.index and conditions.truth(node) is None \
                and (short if _is_replicated(node) else _ends(node, inner)):
            limit = _limit(node, r)
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


def _instances(statement: Statement) -> int:
    ranges = statement.node.ranges.union(statement.closed)
    return math.prod([extent_of(r) for r in ranges if r.arg.kind == "UNROLL"])


def _limit(condition: UOp, r: UOp) -> Limit | None:
    terms, constant = positive_form(condition)
    step = -terms.pop((r,), 0)
    if step <= 0:
        return None
    slack = 0
    for monomial, c in list(terms.items()):
        if any(r in a.ranges for a in monomial):
            return None
        if any(map(_is_replicated, monomial)):
            if len(monomial) > 1 or monomial[0].op is not ops.RANGE or c > 0:
                return None
            slack -= c * (extent_of(monomial[0]) - 1)
            del terms[monomial]
    return Limit(terms, constant - slack, step, slack)


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
