"""The derivative table: one rule per op of the tensor level, for both modes.

Values at singular points, where there is a choice:

    sqrt'(0) = inf       abs'(0) = 0        ties of max and min share equally
    pow'(0, y)           its limit: 0 for y > 1, 1 for y = 1, inf for 0 < y < 1; 0 for y = 0
    d/dy pow(0, y)       0 for y >= 0
    prod                 the product of the others, also where elements are zero
    GATHER               0 for an out-of-bounds index, which reads the nearest element

Derivatives of complex numbers follow JAX: the jvp of a holomorphic function is t times its complex
derivative; a cotangent ct of z stands for the linear function Re(ct * dz), without a conjugate, so
the rules of holomorphic functions are those of real ones, REAL transposes to ct + 0i, and IMAG to
0 - i ct. The gradient of a real function is the conjugate of its direction of steepest ascent.

sqrt(x)**2 has gradient NaN at 0: inf times a number that happens to be zero is undetermined. (A
branch that was not taken is different: see rules.py.) Public functions are composed such that
norm'(0) = 0 and relu'(0) = 0 follow from these.

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.float32, ())
>>> y = build.sqrt(x)
>>> DERIVATIVES[ops.SQRT].vjp(y, 0, build.const(1.0, dtypes.float32))
<DIV float32[] of 2>
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from fnx.core.formulas.formulas import FORMULAS
from fnx.core.ir import build, build_named_axes, dtypes, op_args, ops
from fnx.core.ir.derivations import analysis
from fnx.core.ir.expr import Expr, clamp, cos, digamma, exp, log, rint, sin, sqrt, where
from fnx.core.ir.ops import OPS, Op
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.process import lazy_import
from fnx.transforms.autodiff import reduce_gather_scatter as indexed
from fnx.transforms.autodiff.callback_rules import CallbackRule
from fnx.transforms.autodiff.custom_rules import CustomOpRule
from fnx.transforms.autodiff.fft_rules import FftRule
from fnx.transforms.autodiff.higher_order import CallRule, GetTupleRule
from fnx.transforms.autodiff.lazy_rule import LazyRule
from fnx.transforms.autodiff.rules import (
    Choice,
    DerivativeRule,
    Elementwise,
    JvpTerm,
    Linear,
    ReduceRule,
    ScatterRule,
    sum_or_any,
)

DERIVATIVES: dict[Op, DerivativeRule] = {}

_ERF_CUTOFF = 30.0  # exp(-x**2) underflows to 0 below this

trigamma = lazy_import("fnx.core.formulas.gamma", "trigamma")


# ---- registrars -------------------------------------------------------------------------------


def elementwise(op: Op, *along: JvpTerm | None,
                singular: Callable[[UOp], bool] | None = None) -> None:
    """Register partials that multiply by values: ``along(t, y, *operands)``, one for each
    operand."""
    DERIVATIVES[op] = Elementwise(along, True, singular)


def piecewise(op: Op, *along: JvpTerm | None, selected: Callable[..., Expr] | None = None) -> None:
    """Register partials that are constants (1, -1, a half, 0), or select by a condition."""
    DERIVATIVES[op] = Elementwise(along, False, selected=selected)


def linear(op: Op, transpose: Callable[[UOp, int, UOp], UOp],
           operands: tuple[int, ...] | None = (0,), drops: bool = False,
           where: Callable[[UOp], UOp | None] | None = None) -> None:
    """Register ``transpose(node, i, ct)``: the cotangent of operand i. None: linear in all
    operands."""
    DERIVATIVES[op] = Linear(transpose, operands, drops, where)


def nondiff(*names: str) -> None:
    """Register ops without derivative: integers, bools, and steps that are flat where
    continuous."""
    for name in names:
        DERIVATIVES[OPS[name]] = DerivativeRule()


def save_residual(*which: Op) -> None:
    """Mark ops whose results are saved for the backward pass; cheap elementwise and movement ops
    are recomputed."""
    for op in which:
        DERIVATIVES[op].save_residual = True


# ---- conditions -------------------------------------------------------------------------------


def constant_value(node: UOp) -> Any:
    """Return the value of a constant that may be expanded, else None."""
    while node.op is ops.EXPAND or node.op is ops.RESHAPE:
        node = node.src[0]
    return build.const_of(node) if node.op is ops.CONST else None


def _always(node: UOp) -> bool:
    return True


def _divides_by_variable(node: UOp) -> bool:
    return constant_value(node.src[1]) in (None, 0)


def _is_singular_power(node: UOp) -> bool:
    """Whether partials of some order may be non-finite: all exponents but 0, 1, 2. Other powers are
    NaN below 0, infinite at 0 (themselves or a partial of some order), or overflow."""
    return constant_value(node.src[1]) not in (0, 1, 2)


# ---- partials of more than a line -------------------------------------------------------------


def _abs_jvp(t: Expr, y: Expr, x: Expr) -> Expr:
    return where(x > 0, t, where(x < 0, -t, 0))


def _pow_base_jvp(t: Expr, y: Expr, a: Expr, b: Expr) -> Expr:
    """t * b * a**(b - 1), and 0 where that is 0 / 0."""
    n = constant_value(b.node)
    if n is not None:
        return t.like(0) if n == 0 else t * (n * a**(n - 1))
    return where(a.eq(0) & b.eq(0), 0, t * (b * a**(b - 1)))


def _pow_exponent_jvp(t: Expr, y: Expr, a: Expr, b: Expr) -> Expr:
    """t * a**b * log(a), and its limit 0 at a = 0 where it exists."""
    has_limit = a.eq(0) if a.dtype.is_complex else a.eq(0) & (0 <= b)
    return where(has_limit, 0, t * (y * log(a)))


def _winner_jvp(i: int, wins: Callable[[Expr, Expr], Expr]) -> JvpTerm:
    """Everything to the winner, half in a tie. ``wins(a, b)``: a is strictly better."""
    def along(t: Expr, y: Expr, *src: Expr) -> Expr:
        return where(wins(src[i], src[1 - i]), t, where(src[0].eq(src[1]), 0.5 * t, 0))
    return along


def _at_least(i: int, *src: Expr) -> Expr:
    return src[i] >= src[1 - i]


def _at_most(i: int, *src: Expr) -> Expr:
    return src[i] <= src[1 - i]


def _formula_jvp(formula: Callable[..., Expr], i: int) -> JvpTerm:
    """The jvp of a formula in operand i, by the rules of the ops that it consists of."""
    def along(t: Expr, y: Expr, *operands: Expr) -> Expr:
        leaves = [UOp(ops.LEAF, y.dtype, (), op_args.Leaf(-1 - k, y.shape))
                  for k in range(len(operands) + 1)]
        tangent_of: dict[UOp, UOp] = {leaves[i]: leaves[-1]}
        out = formula(*map(Expr, leaves[:-1])).node
        for node in toposort([out]):
            tangents = [tangent_of.get(s) for s in node.src]
            if node not in tangent_of and any(s in tangent_of for s in node.src):
                tangent = DERIVATIVES[node.op].jvp(node, tangents)
                if tangent is not None:
                    tangent_of[node] = tangent
        values = [x.node for x in (*operands, t)]
        return Expr(substitute([tangent_of[out]], dict(zip(leaves, values)))[0])
    return along


def _where_mask(i: int, c: Expr, a: Expr, b: Expr) -> Expr:
    return c if i == 1 else ~c


# ---- transposes -------------------------------------------------------------------------------


def _transpose_permute(node: UOp, i: int, ct: UOp) -> UOp:
    return build.permute(ct, sorted(range(len(node.arg)), key=node.arg.__getitem__))


def _transpose_expand(node: UOp, i: int, ct: UOp) -> UOp:
    shape = node.src[0].shape
    axes = [a for a, (n, m) in enumerate(zip(shape, node.shape)) if n != m]
    return build.reshape(sum_or_any(ct, axes), shape)


def _transpose_pad(node: UOp, i: int, ct: UOp) -> UOp:
    if i == 0:
        return build.shrink(ct, [(lo, lo + n) for (lo, _), n in
                                 zip(node.arg, node.src[0].shape)])
    inside = Expr(build.pad(build.const(True, dtypes.bool_, node.src[0].shape), node.arg))
    return sum_or_any(where(inside, 0, Expr(ct)).node, range(len(ct.shape)))


def _transpose_shrink(node: UOp, i: int, ct: UOp) -> UOp:
    return build.pad(ct, [(lo, n - hi) for (lo, hi), n in zip(node.arg, node.src[0].shape)])


def _transpose_flip(node: UOp, i: int, ct: UOp) -> UOp:
    return build.flip(ct, node.arg)


def _transpose_unfold(node: UOp, i: int, ct: UOp) -> UOp:
    w = node.arg
    return build.fold(ct, w.axis, w.offset, w.stride, w.dilation, node.src[0].shape[w.axis])


def _transpose_fold(node: UOp, i: int, ct: UOp) -> UOp:
    w = node.arg
    return build.unfold(ct, w.axis, w.offset, w.stride, w.dilation, node.src[0].shape[w.axis])


def _transpose_concat(node: UOp, i: int, ct: UOp) -> UOp:
    axis, start = node.arg, sum(s.shape[node.arg] for s in node.src[:i])
    bounds = [(0, n) for n in node.shape]
    bounds[axis] = (start, start + node.src[i].shape[axis])
    return build.shrink(ct, bounds)


def _transpose_all_gather(node: UOp, i: int, ct: UOp) -> UOp:
    """Sum what all batch elements contribute to this one."""
    axis = node.arg
    handed = build_named_axes.psum_like(ct, node, axis) if axis.sums_cotangents else \
        sum_or_any(build_named_axes.all_gather(ct, axis), (0,))
    return build.gather(handed, build_named_axes.axis_index(axis)) if axis.size else ct


def _transpose_pvary(node: UOp, i: int, ct: UOp) -> UOp:
    varied = build_named_axes.pvary_like(ct, node, node.arg)
    return build_named_axes.psum_like(varied, node.src[0], node.arg)


def _transpose_psum(node: UOp, i: int, ct: UOp) -> UOp:
    total = build_named_axes.psum_like(ct, node, node.arg)
    return build_named_axes.pvary_like(total, node.src[0], node.arg)


def _transpose_cast(node: UOp, i: int, ct: UOp) -> UOp:
    return ct if ct.dtype.is_bool else build.cast(ct, node.src[0].dtype)


def _zero_part(ct: UOp) -> UOp:
    return build.const(0, ct.dtype, ct.shape)


def _transpose_real(node: UOp, i: int, ct: UOp) -> UOp:
    return ct if ct.dtype.is_bool else build.complex_number(ct, _zero_part(ct))


def _transpose_imag(node: UOp, i: int, ct: UOp) -> UOp:
    return ct if ct.dtype.is_bool else build.complex_number(_zero_part(ct), build.neg(ct))


def _transpose_complex(node: UOp, i: int, ct: UOp) -> UOp:
    if ct.dtype.is_bool:
        return ct
    return build.neg(build.imag(ct)) if i else build.real(ct)


def _erf_derivative(x: Expr) -> Expr:
    """The derivative of erf, clamped where it is 0 so that higher orders are finite."""
    size = clamp(x, -_ERF_CUTOFF, _ERF_CUTOFF)
    return 2 / math.sqrt(math.pi) * exp(-(size * size))


# ---- the table --------------------------------------------------------------------------------
# t is the tangent of an operand, or the cotangent of the result y; a rule has, for each operand,
# t times the partial derivative of y with respect to it.
# fmt: off

nondiff("PARAM", "LEAF", "BUFFER", "CONST", "DIMENSION", "IOTA",
        "NOT", "FLOOR", "CEIL", "TRUNC", "ROUND", "BITCAST", "IDIV",
        "CMPLT", "CMPLE", "CMPEQ", "CMPNE", "AND", "OR", "XOR", "SHL", "SHR", "THREEFRY",
        "STOP_GRADIENT", "AXIS_INDEX", "ARG_PAIR")

piecewise(ops.NEG, lambda t, y, x: -t)
piecewise(ops.ABS, _abs_jvp, selected=lambda i, x: x.ne(0))  # flat where it is 0
piecewise(ops.ADD, lambda t, y, a, b: t, lambda t, y, a, b: t)
piecewise(ops.SUB, lambda t, y, a, b: t, lambda t, y, a, b: -t)
piecewise(ops.MAX, _winner_jvp(0, operator.gt), _winner_jvp(1, operator.gt), selected=_at_least)
piecewise(ops.MIN, _winner_jvp(0, operator.lt), _winner_jvp(1, operator.lt), selected=_at_most)
DERIVATIVES[ops.WHERE] = Choice((None, lambda t, y, c, a, b: where(c, t, 0),
                                 lambda t, y, c, a, b: where(c, 0, t)), False,
                                selected=_where_mask)

elementwise(ops.MUL, lambda t, y, a, b: t * b, lambda t, y, a, b: t * a)
elementwise(ops.MULACC, lambda t, y, a, b, c: t * b, lambda t, y, a, b, c: t * a,
            lambda t, y, a, b, c: t)
elementwise(ops.DIV, lambda t, y, a, b: t / b, lambda t, y, a, b: -(t / b * y),
            singular=_divides_by_variable)
elementwise(ops.REM, lambda t, y, a, b: t, lambda t, y, a, b: -(t * rint((a - y) / b)),
            singular=_divides_by_variable)  # y = a - n * b; (a - y) / b is n but for rounding
elementwise(ops.POW, _pow_base_jvp, _pow_exponent_jvp, singular=_is_singular_power)
elementwise(ops.SQRT, lambda t, y, x: t / (y + y), singular=_always)
elementwise(ops.EXP, lambda t, y, x: t * y, singular=_always)
elementwise(ops.EXPM1, lambda t, y, x: t * exp(x), singular=_always)
elementwise(ops.LOG, lambda t, y, x: t / x, singular=_always)
elementwise(ops.CBRT, lambda t, y, x: t / (3 * y * y), singular=_always)
elementwise(ops.LOG1P, lambda t, y, x: t / (1 + x), singular=_always)
elementwise(ops.SIN, lambda t, y, x: t * cos(x))
elementwise(ops.COS, lambda t, y, x: -(t * sin(x)))
elementwise(ops.TAN, lambda t, y, x: t * (1 + y * y))
elementwise(ops.ATAN, lambda t, y, x: t / (1 + x * x))
elementwise(ops.ASIN, lambda t, y, x: t / sqrt((1 - x) * (1 + x)), singular=_always)
elementwise(ops.ERF, lambda t, y, x: t * _erf_derivative(x))
elementwise(ops.ERFC, lambda t, y, x: -(t * _erf_derivative(x)))
elementwise(ops.LGAMMA, lambda t, y, x: t * digamma(x), singular=_always)
elementwise(ops.DIGAMMA, lambda t, y, x: t * trigamma(x), singular=_always)
elementwise(ops.TANH, lambda t, y, x: (t + t * y) * (1 - y))

linear(ops.CAST, _transpose_cast)
linear(ops.REAL, _transpose_real)
linear(ops.IMAG, _transpose_imag)
linear(ops.COMPLEX, _transpose_complex, operands=(0, 1))
linear(ops.RESHAPE, lambda node, i, ct: build.reshape(ct, node.src[0].shape))
linear(ops.PERMUTE, _transpose_permute)
linear(ops.EXPAND, _transpose_expand)
linear(ops.PAD, _transpose_pad, operands=(0, 1))
linear(ops.SHRINK, _transpose_shrink, drops=True)
linear(ops.FLIP, _transpose_flip)
linear(ops.UNFOLD, _transpose_unfold, drops=True)
linear(ops.FOLD, _transpose_fold)
linear(ops.CONCAT, _transpose_concat, operands=None)
linear(ops.BARRIER, lambda node, i, ct: ct)
linear(ops.ALL_GATHER, _transpose_all_gather)
linear(ops.PVARY_LIKE, _transpose_pvary)
linear(ops.PSUM_LIKE, _transpose_psum)
linear(ops.GATHER, indexed.transpose_gather, drops=True, where=indexed.gather_in_bounds)

for _op, _row in FORMULAS.items():
    if _op not in DERIVATIVES:
        elementwise(_op, *[_formula_jvp(_row.formula, i) for i in range(_op.arity or 0)],
                    singular=_always)

DERIVATIVES[ops.REDUCE] = ReduceRule(
    jvps={ops.ADD: lambda t, node: t, ops.MUL: indexed.times_other_elements,
           ops.MAX: indexed.split_ties, ops.MIN: indexed.split_ties, **indexed.REDUCE_FACTORS},
    selected={ops.MAX: indexed.winner_mask, ops.MIN: indexed.winner_mask})
DERIVATIVES[ops.FFT] = FftRule()
DERIVATIVES[ops.SCATTER] = ScatterRule(indexed.SCATTER_X, indexed.SCATTER_UPDATES,
                                       indexed.gather_at)

DERIVATIVES.update({ops.CALL: CallRule(), ops.GETTUPLE: GetTupleRule(),
                    ops.FUNCTION: DerivativeRule(), ops.FFT_STEP: DerivativeRule(),
                    ops.COLLECTIVE: DerivativeRule(),
                    ops.CALLBACK: CallbackRule(), ops.CUSTOM: CustomOpRule(),
                    ops.SCAN: LazyRule(lazy_import(
                        "fnx.transforms.autodiff.scan_rules", "ScanRule")),
                    ops.WHILE: LazyRule(lazy_import(
                        "fnx.transforms.autodiff.while_rules", "WhileRule")),
                    ops.SORT: LazyRule(lazy_import(
                        "fnx.transforms.autodiff.sort_rules", "SortRule")),
                    ops.LINALG: LazyRule(lazy_import(
                        "fnx.transforms.autodiff.linalg_rules", "LinalgRule")),
                    ops.COND: LazyRule(lazy_import(
                        "fnx.transforms.autodiff.cond_rules", "CondRule"))})
save_residual(ops.REDUCE, ops.GATHER, ops.SCATTER, ops.THREEFRY)
# fmt: on


# ---- singular ops ------------------------------------------------------------------------------


def is_singular(node: UOp) -> bool:
    """Whether the value or a partial of a node, or of an op in one of its bodies, can be non-finite
    for finite operands."""
    rule = DERIVATIVES[node.op]
    return rule.singular(node) or any(map(_may_be_singular, rule.bodies(node)))


@analysis
def _may_be_singular(body: UOp) -> bool:
    """Whether a body has an op with a singular partial."""
    nodes = toposort(body.src, stop=lambda n: n.op is ops.KERNEL)
    return any(DERIVATIVES[n.op].is_active(n) and is_singular(n)
               for n in nodes if n.op is not ops.KERNEL)
