"""decompose: ops that the machine lacks, or leaves undefined somewhere -> basic operations.

    before   EXP(x)
    after    MUL(MUL(polynomial(r), 2**n), 1 or 2)  with  n = round(x / log 2), r = x - n log 2

    before   IDIV(a, b)                                       (int32; b may be 0)
    after    WHERE(b == 0, -1, CAST(TRUNC(CAST(a) / CAST(b))))          (in float64)

Each op that is left is one IEEE or integer operation, so scalar and vector code give the same
bits, and none is one that LLVM would make a call of the C library of. The code printer gives
shifts past the width and float -> integer overflow their defined values; IDIV and REM of
integers are left where the divisor is neither 0 nor -1.

How exact each formula is stands beside it, in ``elementary``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from fnx.core import build, ops
from fnx.core.dtypes import DType
from fnx.core.expr import Expr, on_nodes
from fnx.core.formulas import FORMULAS
from fnx.core.ops import Op
from fnx.core.target import Target
from fnx.core.uop import UOp, rebuild, substitute
from fnx.lower.program.elementary import (
    exponential,
    integer,
    logarithm,
    power,
    rounding,
    trigonometric,
)
from fnx.lower.program.elementary.remainder import fmod

Expand = Callable[[UOp], UOp]


def _of_operands(formula: Callable[..., Expr]) -> Expand:
    of_nodes = on_nodes(formula)
    return lambda node: of_nodes(*node.src)


def _remainder(a: Expr, b: Expr) -> Expr:
    return fmod(a, b) if a.dtype.is_float else integer.remainder(a, b)


def _unfused(a: Expr, b: Expr, c: Expr) -> Expr:
    return a * b + c


EXPANSIONS: dict[Op, Expand] = {
    op: _of_operands(formula) for op, formula in (
        *exponential.FORMULAS.items(), *logarithm.FORMULAS.items(), *power.FORMULAS.items(),
        *trigonometric.FORMULAS.items(), (ops.REM, _remainder), (ops.IDIV, integer.divide))}
EXPANSIONS[ops.THREEFRY] = integer.threefry


def _of_formula(node: UOp) -> UOp:
    to = {build.var(i, node.dtype): s for i, s in enumerate(node.src)}
    return substitute([expanded(node.op, node.dtype, True)], to)[0]


EXPANSIONS.update(dict.fromkeys(FORMULAS, _of_formula))

WITHOUT_FMA: dict[Op, Expand] = {ops.MULACC: _of_operands(_unfused)}
WITHOUT_ROUNDING: dict[Op, Expand] = {
    op: _of_operands(formula) for op, formula in rounding.FORMULAS.items()}


@functools.cache
def expanded(op: Op, dtype: DType, fma: bool, rounds: bool = True) -> UOp:
    """An op that is a formula, over VARs in the place of its operands, in basic operations."""
    assert op.arity is not None
    operands = [Expr(build.var(i, dtype)) for i in range(op.arity)]
    return _without(rewritten(FORMULAS[op].of(*operands).node, EXPANSIONS), fma, rounds)


def _without(root: UOp, fma: bool, rounds: bool) -> UOp:
    """What uses neither of the instructions that are not there."""
    root = root if fma else rewritten(root, WITHOUT_FMA)
    return root if rounds else rewritten(root, WITHOUT_ROUNDING)


def rewritten(root: UOp, rows: dict[Op, Expand]) -> UOp:
    """Replace each op that has a row, operands first; a graph without one comes back as it is."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op not in rows:
            return None
        return _computed(rows[node.op], node.over(src))

    return rebuild([root], visit)[0]


def _computed(row: Expand, node: UOp) -> UOp:
    """What stands for ``node``, in the type that its dtype is computed in."""
    wide = node.dtype.compute
    if wide is node.dtype:
        return row(node)
    src = [build.const(build.const_of(s), wide) if s.op is ops.CONST else build.cast(s, wide)
           for s in node.src]
    return build.cast(row(UOp(node.op, wide, tuple(src), node.arg)), node.dtype)


def decompose(root: UOp, target: Target) -> UOp:
    """The KERNEL (or an expression) with every op written in what the target computes.

    >>> from fnx.core import dtypes
    >>> from fnx.core.uop import toposort
    >>> x = build.var(0, dtypes.float32)
    >>> ops.EXP in {n.op for n in toposort([decompose(build.exp(x), Target("cpu"))])}
    False
    """
    return _without(rewritten(root, EXPANSIONS), target.fma, target.rounds)
