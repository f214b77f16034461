"""Work around what LLVM does badly: quotients that may be 0 / 0, and long nests of shuffles.

    %a = masked load, mask <1, 0>;  %q = fdiv %a, %a;  select <1, 0>, %q, zeroinitializer
    LLVM 22 takes lane 1 of %q for zero, as both operands are, and drops the select: NaN

So quotients of two such vectors are emitted as a constrained intrinsic, which LLVM analyzes less.

LLVM combines nested shuffles. For a network that is already good, such as a transposition, that
takes half of the compile time. So LLVM sees only a few nested shuffles of floats: an arithmetic
fence, which emits no instruction, hides the others.

>>> from fnx.core.ir import dtypes
>>> zero, one = (build.const(x, dtypes.float32) for x in (0, 1))
>>> may_be_zero(zero), may_be_zero(build.mul(zero, one)), may_be_zero(build.add(zero, one))
(True, True, False)
"""

from __future__ import annotations

from collections.abc import Callable

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


# ---- shuffles ---------------------------------------------------------------------------------

_MAX_DEPTH = 2  # nested shuffles that LLVM may combine


class Fences:
    """The fences of one function: the nesting depth of shuffles, and the fenced operands."""

    def __init__(self) -> None:
        self._depths: dict[UOp, int] = {}
        self._fenced: dict[str, str] = {}  # by name: a line that is emitted twice has two names

    def operands(self, shuffle: UOp, operand: Callable[[UOp], str], hide: Callable[[str], str]
                 ) -> list[str]:
        """Return the operand text of a SHUFFLE; ``hide`` emits a fence on a name."""
        depth = max([self._depths.get(s, 0) for s in shuffle.src])
        if depth < _MAX_DEPTH or not shuffle.dtype.is_float:
            self._depths[shuffle] = depth + 1
            return [operand(s) for s in shuffle.src]
        self._depths[shuffle] = 1
        names = [operand(s) for s in shuffle.src]
        for name in names:
            if name not in self._fenced:
                self._fenced[name] = hide(name)
        return [self._fenced[name] for name in names]

    def leave_block(self) -> None:
        """Forget all fences, as they may not dominate the blocks that follow."""
        self._fenced.clear()
