"""Peeling: in how many iterations of a loop do its conditions hold for all lanes?

A split that rounds up leaves a condition which is true in all iterations but the last:

    i = SEQ range ceil(n / 16), l = VEC range 16      for i in 0 .. n // 16:      no masks
    STORE(o[16*i + l], v, valid=16*i + l < n)         for i in n // 16 .. ceil:   masked

Iterations in which the condition holds for no lane, and without which nothing would be written
or folded, are left out: a run-time extent may be far below what the split allows.

Only loops without inner loops and with few instances are peeled, and only for conditions that
depend on lanes or unrolled instances: the code is there twice, and that is what it buys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp, toposort
from fnx.lower.program.access import Terms, positive_form
from fnx.lower.program.loop_nest import REPLICATED, Nest, Statement, extent_of, is_statement

_MOST = 8  # instances of a statement, above which a second copy costs more than masks do



class Limit(NamedTuple):
    """Holds for all lanes while step*i < terms + constant, for some up to ``slack`` more."""

    terms: Terms
    constant: int
    step: int
    slack: int


def limits(inner: Nest, r: UOp, proved: Callable[[UOp], bool | None]) -> dict[UOp, Limit]:
    """The conditions below a loop over r that hold up to some iteration, and that limit."""
    if any(isinstance(item, Nest) or _instances(item) > _MOST for item in inner.body):
        return {}
    roots = [s for statement in inner.statements for s in statement.node.src]
    found: dict[UOp, Limit] = {}
    for node in toposort(roots, stop=is_statement):
        if node.op in (ops.CMPLT, ops.CMPLE) and r in node.ranges \
                and node.src[0].dtype is dtypes.index and proved(node) is None \
                and any(x.arg.kind in REPLICATED for x in node.ranges):
            limit = _limit(node, r)
            if limit is not None:
                found[node] = limit
    return found


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
        replicated = [a for a in monomial if any(x.arg.kind in REPLICATED for x in a.ranges)]
        if any(r in a.ranges for a in monomial):
            return None
        if replicated:
            if len(monomial) > 1 or monomial[0].op is not ops.RANGE or c > 0:
                return None
            slack -= c * (extent_of(monomial[0]) - 1)
            del terms[monomial]
    return Limit(terms, constant - slack, step, slack)


def governs(condition: UOp, inner: Nest) -> bool:
    """Whether an iteration in which the condition holds for no lane has no effect."""
    return all(condition in _parts(_validity(s.node)) for s in inner.statements)


def _validity(statement: UOp) -> UOp | None:
    """What must hold for a statement to write or fold anything."""
    if statement.op is ops.STORE and len(statement.src) == 3:
        return statement.src[2]
    value = statement.src[0]
    if statement.op is ops.REDUCE and value.op is ops.WHERE and value.src[2].op is ops.CONST:
        identity = statement.arg.monoid.identity(statement.dtype)
        if value.src[2] is build.const(identity, value.dtype):
            return value.src[0]
    return None


def _parts(condition: UOp | None) -> set[UOp]:
    """The conditions that are joined by AND."""
    out: set[UOp] = set()
    stack = [] if condition is None else [condition]
    while stack:
        node = stack.pop()
        out.add(node)
        if node.op is ops.AND:
            stack.extend(node.src)
    return out
