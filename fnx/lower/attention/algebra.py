"""Normalize a sum over exponentials, in any spelling, to one exponential and factors.

    (exp(s - g) / l) * w      exponential of s - g; w inside of the sum, 1 / l outside of it
"""

from __future__ import annotations

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.record import Record
from fnx.lower.analysis.conditions import INEQUALITIES, as_positive
from fnx.lower.tensor.simplify import fold_constants

_INTEGER_OPS = frozenset({ops.CAST, ops.ADD, ops.SUB, ops.MUL, ops.NEG, ops.CONST, ops.RANGE})


class ExpLinearForm(Record):
    """``outer(inner(exp(score - shift)))``: steps are (op, the other operand or None).

    ``inner`` vary along the sum, ``outer`` do not, nor does ``shift``.
    """

    score: UOp
    shift: UOp
    inner: tuple[tuple[ops.Op, UOp | None, UOp], ...]
    outer: tuple[tuple[ops.Op, UOp | None, UOp], ...]


def match_exp_linear(value: UOp, reduce_range: UOp) -> ExpLinearForm | None:
    """Return a value as an exponential and factors; None if it is not linear in one."""
    steps: list[tuple[ops.Op, UOp | None, UOp]] = []
    while True:
        if value.op is ops.EXP and reduce_range in value.ranges:
            difference = _split_difference(value.src[0], reduce_range)
            if difference is None:
                return None
            steps.reverse()
            in_sum = [other is None or reduce_range in other.ranges for _, other, _ in steps]
            return ExpLinearForm(*difference, tuple([s for s, v in zip(steps, in_sum) if v]),
                                 tuple([s for s, v in zip(steps, in_sum) if not v]))
        if value.op is ops.NEG or value.op is ops.CAST and value.src[0].dtype.is_float:
            steps.append((value.op, None, value))
            value = value.src[0]
        elif value.op is ops.DIV:
            steps.append((ops.DIV, value.src[1], value))
            value = value.src[0]
        elif value.op is ops.MUL:
            a, b = value.src
            if not _has_exponential(a, reduce_range):
                a, b = b, a
            steps.append((ops.MUL, b, value))
            value = a
        else:
            return None


def _has_exponential(value: UOp, along: UOp) -> bool:
    while value.op in (ops.MUL, ops.DIV, ops.NEG, ops.CAST):
        if value.op is ops.MUL and _has_exponential(value.src[1], along):
            return True
        value = value.src[0]
    return value.op is ops.EXP and along in value.ranges


def _split_difference(power: UOp, along: UOp) -> tuple[UOp, UOp] | None:
    """Return (what varies along a range, what is subtracted from it)."""
    if power.op is ops.SUB and along not in power.src[1].ranges:
        return power.src[0], power.src[1]
    if power.op is ops.ADD:
        for a, b in (power.src, power.src[::-1]):
            if along not in b.ranges:
                return a, build.neg(b)
    return None


def apply_steps(steps: tuple[tuple[ops.Op, UOp | None, UOp], ...], value: UOp) -> UOp:
    """Apply the steps to a value."""
    for op, other, original in steps:
        value = UOp(op, original.dtype, (value,) if other is None else (value, other), original.arg)
    return value


# ---- quotients --------------------------------------------------------------------------------


def use_reciprocals(value: UOp) -> UOp:
    """Replace division by a value with fewer ranges by multiplication with its reciprocal.

        before  x[i, j] / l[i]
        after   x[i, j] * (1 / (l[i] * c[i])) * c[i]        c: a power of two, mostly 1

    c keeps the reciprocal finite where that of l overflows, so this overflows only where the
    quotient does. Scores and operands of comparisons keep the bits that they have in other kernels.
    """
    nodes = toposort([value])
    exact = frozenset(toposort([s for n in nodes for s in n.src
                                if n.op is ops.EXP or n.op in ops.COMPARISONS]))

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.DIV or node.dtype not in (dtypes.float32, dtypes.float64) \
                or node in exact or not src[1].ranges < src[0].ranges:
            return None
        reciprocal, scale = _reciprocal(src[1])
        return build.mul(build.mul(src[0], reciprocal), scale)
    return rebuild([value], visit)[0]


def _reciprocal(value: UOp) -> tuple[UOp, UOp]:
    """Return 1 / (value * scale) and scale."""
    max_exponent = value.dtype.bias + 1
    size = UOp(ops.ABS, value.dtype, (value,))
    scale = build.const_like(value, 1)
    for is_extreme, power in ((build.lt(size, build.const_like(value, 2.0 ** (28 - max_exponent))),
                               max_exponent // 2),
                              (build.lt(build.const_like(value, 2.0 ** (max_exponent - 28)), size),
                               -max_exponent // 2)):
        scale = build.where(is_extreme, build.const_like(value, 2.0 ** power), scale)
    return build.div(build.const_like(value, 1), build.mul(value, scale)), scale


# ---- masks ------------------------------------------------------------------------------------


def bounding_conditions(value: UOp, along: UOp) -> list[tuple[UOp, UOp, int]]:
    """Return conditions in a value that are monotonic along a range: they hold up to or from an
    index.

    Each comes with its integers as indices, and 1 if it holds from some index on, else -1.
    """
    bounds = []
    for node in toposort([value]):
        if node.op not in INEQUALITIES or along not in node.ranges \
                or not node.src[0].dtype.is_integer:
            continue
        subgraph = toposort([node])
        if any(n.op not in _INTEGER_OPS and n is not node for n in subgraph if n.dtype is not
               dtypes.index or n.op is not ops.RANGE):
            continue
        as_index, = rebuild([node], _as_index)
        terms, _ = as_positive(as_index)
        slope = terms.get((along,), 0)
        if slope and not any(along in a.ranges for m in terms if m != (along,) for a in m):
            bounds.append((node, as_index, 1 if slope > 0 else -1))
    return bounds


def _as_index(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op is ops.CAST:
        return src[0]
    if node.op is ops.CONST and node.dtype is not dtypes.index:
        return build.index_const(int(build.const_of(node)))
    if node.op in _INTEGER_OPS and src and node.op is not ops.RANGE:
        return build.elementwise(node.op, *src)
    if node.op in INEQUALITIES:
        return node.replace(src=src)
    return None


def assume(value: UOp, condition: UOp, holds: bool = False) -> UOp:
    """Simplify a value under the assumption that a condition is ``holds``."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node is condition:
            return build.const(holds, dtypes.bool_)
        if node.op is ops.WHERE and src[0].op is ops.CONST:
            return src[1] if src[0].arg else src[2]
        if node.op is ops.AND and any(s.op is ops.CONST and not s.arg for s in src):
            return build.const(False, dtypes.bool_)
        if src and node.op in ops.ELEMENTWISE and node.op.exact \
                and all(s.op is ops.CONST for s in src) and src != node.src:
            return fold_constants(node.with_operands(src))
        return None
    return rebuild([value], visit)[0]
