"""Optimization fences between shuffles.

LLVM combines nested shuffles. For a network that is already good, such as a transposition, that
takes half of the compile time. So LLVM sees only a few nested shuffles of floats: an arithmetic
fence, which emits no instruction, hides the others.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir.uop import UOp

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
