"""Ops that are formulas over other ops: what machines compute for them, and their derivatives.

A row is all that the levels below need of such an op: machine code is that of the formula, the
partials are those of the formula. Of a monoid it also says what the derivative of a fold is:
``share(t, y, x)`` is t times the derivative of the fold y in one of its elements, x.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core import ops
from fnx.core.expr import Expr, exp, isnan, log1p, where
from fnx.core.ops import Op
from fnx.core.record import Record


class Formula(Record):
    """A row: ``of(*operands)`` is the op, and ``share`` is of its fold."""

    of: Callable[..., Expr]
    share: Callable[[Expr, Expr, Expr], Expr] | None = None


def logaddexp(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)); two equal infinities stay what they are, with derivative 0."""
    first = a > b
    high, gap = where(first, a, b), where(first, b - a, a - b)
    forever = where(a > 0, a.like(math.inf), -math.inf)
    return where(isnan(gap) & a.eq(b), forever, high + log1p(exp(gap)))


def _softmax(t: Expr, y: Expr, x: Expr) -> Expr:
    gap = x - y
    return where(isnan(gap) & x.eq(y), 0, t * exp(gap))


FORMULAS: dict[Op, Formula] = {ops.LOGADDEXP: Formula(logaddexp, _softmax)}
