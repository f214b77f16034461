"""Fences between shuffles.

LLVM looks through shuffles of shuffles for better ones. Of a network that is good as it is, as a
transposition is, that takes half of the time of its compilation. So of floats LLVM is shown a few
in a row: a fence hides what is behind it, and is no instruction.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.uop import UOp

_DEEP = 2  # shuffles over shuffles that LLVM may look through


class Fences:
    """Those of one function: how deep shuffles are nested, and what is hidden."""

    def __init__(self) -> None:
        self._depths: dict[UOp, int] = {}
        self._hidden: dict[str, str] = {}  # of names: a line that stands twice has two

    def operands(self, shuffle: UOp, operand: Callable[[UOp], str], hide: Callable[[str], str]
                 ) -> list[str]:
        """What stands for the operands of a SHUFFLE; ``hide`` writes a fence on a line."""
        depth = max([self._depths.get(s, 0) for s in shuffle.src])
        if depth < _DEEP or not shuffle.dtype.is_float:
            self._depths[shuffle] = depth + 1
            return [operand(s) for s in shuffle.src]
        self._depths[shuffle] = 1
        names = [operand(s) for s in shuffle.src]
        for name in names:
            if name not in self._hidden:
                self._hidden[name] = hide(name)
        return [self._hidden[name] for name in names]

    def leave_block(self) -> None:
        """Forget what is hidden: not all blocks that follow are behind the lines that hide it."""
        self._hidden.clear()
