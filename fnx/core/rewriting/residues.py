"""Residues: what is known of an index where it is a multiple of a number.

    before  x[(800*i + j) // 801] if (800*i + j) % 801 < 1            i, j < 800
    after   x[i] if j - i < 1 and -1 < j - i                          801*i + (j - i)

A diagonal is a slice with such a step, and its derivative is padded by it. The residues of the
coefficients that are nearest to 0 often tell that only one multiple is possible.
"""

from __future__ import annotations

from functools import reduce

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import conjuncts
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.algebra import to_node


def near_multiple(x: UOp, n: int) -> tuple[UOp, UOp] | None:
    """Return (q, r) with x == n*q + r and -n < r < n, or None if bounds do not prove it.

    >>> i, j = build.range_(8, 0), build.range_(8, 1)
    >>> q, r = near_multiple(build.add(build.mul(i, build.index_const(8)), j), 9)
    >>> q is i, symbolic.bounds(r)
    (True, (-7, 7))
    """
    terms, constant = symbolic.linear_terms(x)
    p = {**terms, (): constant}
    nearest = {m: (c + n // 2) % n - n // 2 for m, c in p.items()}
    r = to_node({m: c for m, c in nearest.items() if c})
    low, high = symbolic.bounds(r)
    if not -n < low <= high < n:
        return None
    return to_node({m: (c - nearest[m]) // n for m, c in p.items() if c != nearest[m]}), r


def select_multiples(valid: UOp, value: UOp) -> tuple[UOp, UOp]:
    """Return a condition, and a value that is needed only where it holds, without remainders and
    quotients of what the condition makes a multiple. Quotients stay that would leave the bounds of
    the division where it does not hold: loads are proved by these."""
    conditions = conjuncts(valid)
    for at, condition in enumerate(conditions):
        is_below_1 = condition.op is ops.CMPLT and condition.src[1] is build.index_const(1)
        remainder = symbolic.simplify(condition.src[0]) if is_below_1 else condition
        if remainder.op is not ops.REM or remainder.src[1].op is not ops.CONST or \
                symbolic.bounds(remainder.src[0])[0] < 0:
            continue
        x, n = remainder.src
        parts = near_multiple(x, build.const_of(n))
        if parts is not None and _is_within(parts[0], build.idiv(x, n)):
            q, r = parts
            conditions[at] = ((Expr(r) < 1) & (-1 < Expr(r))).node
            value, = substitute([value], {
                node: q if node.op is ops.IDIV else build.index_const(0)
                for node in toposort([value]) if node.op in (ops.IDIV, ops.REM)
                and node.src[1] is n and symbolic.simplify(node.src[0]) is x})
    return reduce(build.and_, conditions), value


def _is_within(quotient: UOp, division: UOp) -> bool:
    low, high = symbolic.bounds(quotient)
    lowest, highest = symbolic.bounds(symbolic.simplify(division))
    return lowest <= low and high <= highest
