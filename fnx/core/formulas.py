"""Ops that are formulas over other ops: what machines compute for them, and their derivatives.

A row is all that the levels below need of such an op: machine code is that of the formula, the
partials are those of the formula. Of a monoid it also says what the derivative of a fold is:
``share(t, y, x)`` is t times the derivative of the fold y in one of its elements, x.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core import build, dtypes, ops
from fnx.core.dtypes import NDArray
from fnx.core.expr import Expr, exp, isnan, log1p, where
from fnx.core.ops import OPS, Op
from fnx.core.process import deferred
from fnx.core.record import Record
from fnx.core.uop import UOp, toposort

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Formula(Record):
    """A row: ``of(*operands)`` is the op, and ``share`` is of its fold. ``single`` is the op where
    there is no float64: less exact."""

    of: Callable[..., Expr]
    share: Callable[[Expr, Expr, Expr], Expr] | None = None
    single: Callable[..., Expr] | None = None


def logaddexp(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)); two equal infinities stay what they are, with derivative 0."""
    first = a > b
    high, gap = where(first, a, b), where(first, b - a, a - b)
    forever = where(a > 0, a.like(math.inf), -math.inf)
    return where(isnan(gap) & a.eq(b), forever, high + log1p(exp(gap)))


def _softmax(t: Expr, y: Expr, x: Expr) -> Expr:
    gap = x - y
    return where(isnan(gap) & x.eq(y), 0, t * exp(gap))


_GAMMA = "fnx.core.array.gamma"

FORMULAS: dict[Op, Formula] = {
    ops.LOGADDEXP: Formula(logaddexp, _softmax),
    ops.ERF: Formula(deferred("fnx.core.array.special", "erf_formula")),
    ops.LGAMMA: Formula(deferred(_GAMMA, "lgamma_formula"),
                        single=deferred(_GAMMA, "lgamma_single")),
    ops.DIGAMMA: Formula(deferred(_GAMMA, "digamma_formula"),
                         single=deferred(_GAMMA, "digamma_single"))}


@functools.cache
def _written_out(name: str) -> tuple[tuple[UOp, ...], list[UOp]]:
    """The operands of an op, as VARs, and the nodes of its formula in float64."""
    op = OPS[name]
    operands = tuple([build.var(i, dtypes.float64) for i in range(op.arity or 0)])
    return operands, toposort([FORMULAS[op].of(*map(Expr, operands)).node])


def evaluated(name: str, *xs: NDArray) -> NDArray:
    """What an op is on arrays of float64.

    >>> float(evaluated("LGAMMA", np.array(1.0)))
    0.0
    """
    operands, nodes = _written_out(name)
    values: dict[UOp, Any] = dict(zip(operands, xs))
    with np.errstate(all="ignore"):
        for node in nodes:
            if node not in values:
                assert node.op.meaning is not None
                values[node] = node.op.meaning(node, *[values[s] for s in node.src])
    found: NDArray = np.asarray(values[nodes[-1]])
    return found
