"""Simplifying constructors of conditions.

>>> x = build.var(0, dtypes.bool_)
>>> connective(ops.AND, const_bool(True), x) is x
True
>>> negate(negate(x)) is x
True
"""

from __future__ import annotations

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp


def const_bool(value: bool) -> UOp:
    """Return the condition that always holds, or never."""
    return build.const(value, dtypes.bool_)


def connective(op: ops.Op, a: UOp, b: UOp) -> UOp:
    """Build AND or OR; constant and equal operands are folded."""
    for x, y in ((a, b), (b, a)):
        if x.op is ops.CONST:
            return y if bool(x.arg) == (op is ops.AND) else x
    return a if a is b else build.elementwise(op, a, b)


def negate(inner: UOp) -> UOp:
    """Build NOT; constants and double negation are folded."""
    if inner.op is ops.CONST:
        return const_bool(not inner.arg)
    return inner.src[0] if inner.op is ops.NOT else build.logical_not(inner)
