"""Evaluate index expressions whose inputs are known.

>>> from fnx.core.ir import dtypes
>>> n = build.var(0, dtypes.index, name="n")
>>> evaluate(build.mul(n, build.index_const(3)), {0: 5})
15
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, toposort


def trunc(a: int, b: int) -> int:
    if b == 0:
        return -1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def evaluate(node: UOp, env: Mapping[UOp | int, int]) -> int:
    """Evaluate an index expression; ``env`` has RANGEs by node and VARs by slot (or node)."""
    values: dict[UOp, int] = {}
    for n in toposort([node], stop=lambda n: n.op is ops.RANGE):
        if n.op is ops.CONST:
            values[n] = build.const_of(n)
        elif n in env:
            values[n] = env[n]
        elif n.op is ops.VAR:
            values[n] = env[n.arg.slot]
        else:
            values[n] = int(_EVAL_RULES[n.op](*[values[s] for s in n.src]))
    return values[node]


_EVAL_RULES: dict[ops.Op, Callable[..., int]] = {
    ops.ADD: lambda a, b: a + b, ops.SUB: lambda a, b: a - b, ops.MUL: lambda a, b: a * b,
    ops.NEG: lambda a: -a, ops.IDIV: trunc, ops.REM: lambda a, b: a - b * trunc(a, b),
    ops.MIN: min, ops.MAX: max, ops.WHERE: lambda c, a, b: a if c else b,
    ops.CMPLT: lambda a, b: a < b, ops.CMPLE: lambda a, b: a <= b,
    ops.CMPEQ: lambda a, b: a == b, ops.CMPNE: lambda a, b: a != b,
    ops.AND: lambda a, b: a & b, ops.OR: lambda a, b: a | b, ops.NOT: lambda a: not a,
    ops.CAST: lambda a: a,
}
