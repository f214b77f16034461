"""Work around an LLVM bug: vector quotients with operands that may be known to be zero.

    %a = masked load, mask <1, 0>;  %q = fdiv %a, %a;  select <1, 0>, %q, zeroinitializer
    LLVM 22 takes lane 1 of %q for zero, as both operands are, and drops the select: NaN

So quotients of two such vectors are emitted as a constrained intrinsic, which LLVM analyzes less.

>>> from fnx.core.ir import build, dtypes
>>> zero, one = (build.const(x, dtypes.float32) for x in (0, 1))
>>> may_be_zero(zero), may_be_zero(build.mul(zero, one)), may_be_zero(build.add(zero, one))
(True, True, False)
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp

_ZERO_IF_ALL = frozenset({ops.ADD, ops.SUB, ops.MAX, ops.MIN, ops.OR})
_MAX_NODES = 200  # nodes to visit


def may_be_zero(node: UOp) -> bool:
    """Return whether LLVM may prove that some lane is zero."""
    budget = [_MAX_NODES]

    def seen(node: UOp) -> bool:
        budget[0] -= 1
        if node.op is ops.CONST:
            return bool(build.const_of(node) == 0)
        if node.op is ops.LANES:
            return True
        if node.op is ops.LOAD:
            return len(node.src) > 1
        if budget[0] < 0 or node.op.kind != "elementwise" and node.op is not ops.SPLAT:
            return budget[0] < 0
        operands = node.src[1:] if node.op is ops.WHERE else node.src[:1] \
            if node.op is ops.DIV else node.src
        if node.op is ops.MULACC:
            return seen(operands[2]) and (seen(operands[0]) or seen(operands[1]))
        return all(map(seen, operands)) if node.op in _ZERO_IF_ALL else any(map(seen, operands))

    return seen(node)


def quotient(node: UOp, t: str, suffix: str, a: str, b: str) -> str:
    """Return the instruction of a DIV for a type, its suffix and operand names."""
    if node.dtype.lanes == 1 or not all(map(may_be_zero, node.src)):
        return f"fdiv {t} {a}, {b}"
    return (f"call {t} @llvm.experimental.constrained.fdiv.{suffix}({t} {a}, {t} {b}, metadata "
            '!"round.tonearest", metadata !"fpexcept.ignore")')
