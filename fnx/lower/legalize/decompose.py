"""Expand ops that the machine lacks, or leaves partly undefined, to basic operations.

    before   EXP(x)
    after    MUL(MUL(polynomial(r), 2**n), 1 or 2)  with  n = round(x / log 2), r = x - n log 2

    before   IDIV(a, b)                                       (int32; b may be 0)
    after    WHERE(b == 0, -1, CAST(TRUNC(CAST(a) / CAST(b))))          (in float64)

Each remaining op is one IEEE or integer operation, so scalar and vector code give the same bits,
and LLVM turns none into a call of the C library. The renderers give shifts past the width and
float -> integer overflow their defined values. IDIV and REM of integers remain where the divisor
cannot be 0 or -1.

The accuracy of each formula is noted next to it, in ``elementary``.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.formulas.formulas import FORMULAS
from fnx.core.ir import build, ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, as_node_function
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, rebuild, substitute
from fnx.core.support.target import Target
from fnx.lower.legalize.elementary import (
    exponential,
    integer,
    logarithm,
    power,
    rounding,
    trigonometric,
)
from fnx.lower.legalize.elementary.remainder import fmod

Expand = Callable[[UOp], UOp]


def _from_operands(formula: Callable[..., Expr]) -> Expand:
    of_nodes = as_node_function(formula)
    return lambda node: of_nodes(*node.src)


def _remainder(a: Expr, b: Expr) -> Expr:
    return fmod(a, b) if a.dtype.is_float else integer.remainder(a, b)


def _mul_add(a: Expr, b: Expr, c: Expr) -> Expr:
    return a * b + c


EXPANSIONS: dict[Op, Expand] = {
    op: _from_operands(formula) for op, formula in (
        *exponential.FORMULAS.items(), *logarithm.FORMULAS.items(), *power.FORMULAS.items(),
        *trigonometric.FORMULAS.items(), (ops.REM, _remainder), (ops.IDIV, integer.divide))}
EXPANSIONS[ops.THREEFRY] = integer.threefry


def _expand_formula(node: UOp) -> UOp:
    substitution = {build.var(i, node.dtype): s for i, s in enumerate(node.src)}
    return substitute([expand_formula_op(node.op, node.dtype, True)], substitution)[0]


EXPANSIONS.update(dict.fromkeys(FORMULAS, _expand_formula))

FMA_EXPANSION: dict[Op, Expand] = {ops.MULACC: _from_operands(_mul_add)}
ROUNDING_EXPANSIONS: dict[Op, Expand] = {
    op: _from_operands(formula) for op, formula in rounding.FORMULAS.items()}


@memoized
def expand_formula_op(op: Op, dtype: DType, fma: bool, rounds: bool = True) -> UOp:
    """Expand an op with a formula to basic operations, over VARs as operands."""
    assert op.arity is not None
    operands = [Expr(build.var(i, dtype)) for i in range(op.arity)]
    return _expand_missing(expand_ops(FORMULAS[op].formula(*operands).node, EXPANSIONS), fma,
                           rounds)


def _expand_missing(root: UOp, fma: bool, rounds: bool) -> UOp:
    """Expand MULACC and rounding ops that the target lacks."""
    root = root if fma else expand_ops(root, FMA_EXPANSION)
    return root if rounds else expand_ops(root, ROUNDING_EXPANSIONS)


def expand_ops(root: UOp, expansions: dict[Op, Expand]) -> UOp:
    """Replace each op that has a row, operands first; a graph without one is unchanged."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op not in expansions:
            return None
        return _in_compute_dtype(expansions[node.op], node.with_operands(src))

    return rebuild([root], visit)[0]


def _in_compute_dtype(expand: Expand, node: UOp) -> UOp:
    """Return the expansion of ``node``, computed in the compute dtype of its dtype."""
    compute = node.dtype.compute
    if compute is node.dtype:
        return expand(node)
    src = [build.const(build.const_of(s), compute) if s.op is ops.CONST else build.cast(s, compute)
           for s in node.src]
    return build.cast(expand(UOp(node.op, compute, tuple(src), node.arg)), node.dtype)


def decompose(root: UOp, target: Target) -> UOp:
    """Return the KERNEL (or an expression) in basic operations that the target supports.

    >>> from fnx.core.ir import dtypes
    >>> from fnx.core.ir.uop import toposort
    >>> x = build.var(0, dtypes.float32)
    >>> ops.EXP in {n.op for n in toposort([decompose(build.exp(x), Target("cpu"))])}
    False
    """
    return _expand_missing(expand_ops(root, EXPANSIONS), target.fma, target.has_round)
