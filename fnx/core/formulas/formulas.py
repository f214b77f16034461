"""Ops that are defined by formulas over other ops.

The formula is all that lowering and autodiff need of such an op: it gives both the machine code
and the partials. A monoid also has the derivative of its reduction: ``share(t, y, x)`` is t times
the derivative of the reduction y with respect to one of its elements, x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.expr import Expr, exp, isnan, log1p, where
from fnx.core.ir.ops import OPS, Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Formula(Record):
    """The definition of an op.

    ``of(*operands)`` is its formula, ``reduction_jvp`` the derivative of its reduction. ``single``
    is a less exact formula for targets without float64.
    """

    formula: Callable[..., Expr]
    reduction_jvp: Callable[[Expr, Expr, Expr], Expr] | None = None
    single: Callable[..., Expr] | None = None


def logaddexp(a: Expr, b: Expr) -> Expr:
    """Return log(exp(a) + exp(b)); two equal infinities give that infinity, with derivative 0."""
    a_greater = a > b
    high, gap = where(a_greater, a, b), where(a_greater, b - a, a - b)
    infinite = where(a > 0, a.like(math.inf), -math.inf)
    return where(isnan(gap) & a.eq(b), infinite, high + log1p(exp(gap)))


def _logaddexp_jvp(t: Expr, y: Expr, x: Expr) -> Expr:
    gap = x - y
    return where(isnan(gap) & x.eq(y), 0, t * exp(gap))


_GAMMA = "fnx.core.formulas.gamma"

FORMULAS: dict[Op, Formula] = {
    ops.LOGADDEXP: Formula(logaddexp, _logaddexp_jvp),
    ops.ERF: Formula(lazy_import("fnx.core.formulas.error_functions", "erf_formula")),
    ops.ERFC: Formula(lazy_import("fnx.core.formulas.error_functions", "erfc_formula")),
    ops.LGAMMA: Formula(lazy_import(_GAMMA, "lgamma_formula"),
                        single=lazy_import(_GAMMA, "lgamma_single")),
    ops.DIGAMMA: Formula(lazy_import(_GAMMA, "digamma_formula"),
                         single=lazy_import(_GAMMA, "digamma_single"))}


@memoized
def _formula_graph(op: Op) -> tuple[tuple[UOp, ...], list[UOp]]:
    """Return the operands of an op, as VARs, and the nodes of its formula in float64."""
    operands = tuple([build.var(i, dtypes.float64) for i in range(op.arity or 0)])
    return operands, toposort([FORMULAS[op].formula(*map(Expr, operands)).node])


def evaluate_formula(name: str, *xs: NDArray) -> NDArray:
    """Evaluate an op on float64 arrays.

    >>> float(evaluate_formula("LGAMMA", np.array(1.0)))
    0.0
    """
    operands, nodes = _formula_graph(OPS[name])
    values: dict[UOp, Any] = dict(zip(operands, xs))
    evaluate_nodes(nodes, values)
    result: NDArray = np.asarray(values[nodes[-1]])
    return result


def evaluate_nodes(nodes: Iterable[UOp], values: dict[UOp, Any]) -> None:
    """Add the values of elementwise nodes, operands first, to those of some of them."""
    with np.errstate(all="ignore"):
        for node in nodes:
            if node not in values:
                assert node.op.meaning is not None
                values[node] = node.op.meaning(node, *[values[s] for s in node.src])
