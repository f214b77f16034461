"""Work around an LLVM bug: vector quotients with operands that may be known to be zero.

    %a = masked load, mask <1, 0>;  %q = fdiv %a, %a;  select <1, 0>, %q, zeroinitializer
    LLVM 22 takes lane 1 of %q for zero, as both operands are, and drops the select: NaN

So quotients of two such vectors are emitted as a constrained intrinsic, which LLVM analyzes less.

>>> from fnx.core import build, dtypes
>>> zero, one = (build.const(x, dtypes.float32) for x in (0, 1))
>>> may_be_known(zero), may_be_known(build.mul(zero, one)), may_be_known(build.add(zero, one))
(True, True, False)
"""

from __future__ import annotations

from fnx.core import build, ops
from fnx.core.uop import UOp

_ALL = frozenset({ops.ADD, ops.SUB, ops.MAX, ops.MIN, ops.OR})
_MOST = 200  # nodes to visit


def may_be_known(node: UOp) -> bool:
    """Return whether LLVM may prove that some lane is zero."""
    left = [_MOST]

    def seen(node: UOp) -> bool:
        left[0] -= 1
        if node.op is ops.CONST:
            return bool(build.const_of(node) == 0)
        if node.op is ops.LANES:
            return True
        if node.op is ops.LOAD:
            return len(node.src) > 1
        if left[0] < 0 or node.op.kind != "elementwise" and node.op is not ops.SPLAT:
            return left[0] < 0
        src = node.src[1:] if node.op is ops.WHERE else node.src[:1] \
            if node.op is ops.DIV else node.src
        if node.op is ops.MULACC:
            return seen(src[2]) and (seen(src[0]) or seen(src[1]))
        return all(map(seen, src)) if node.op in _ALL else any(map(seen, src))

    return seen(node)


def quotient(node: UOp, t: str, suffix: str, a: str, b: str) -> str:
    """Return the instruction of a DIV for a type, its suffix and operand names."""
    if node.dtype.lanes == 1 or not all(map(may_be_known, node.src)):
        return f"fdiv {t} {a}, {b}"
    return (f"call {t} @llvm.experimental.constrained.fdiv.{suffix}({t} {a}, {t} {b}, metadata "
            '!"round.tonearest", metadata !"fpexcept.ignore")')
