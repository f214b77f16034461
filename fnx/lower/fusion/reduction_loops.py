"""The loops of reductions: each reduction reads its operand at loops of its own or shared ones.

    max(k: x[i, k])   sum(k: x[i, k] * y[k])        loop 1000, of length 16, for both
    sum(l: exp(x[i, l] - max))                      loop 1001: it depends on another reduction

The loops of a group's results are numbered from 0, these from 1000.
"""

from __future__ import annotations

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.fusion.group import loops_of
from fnx.lower.fusion.index_tokens import ZERO, Tokens, squeeze

_FIRST = 1000


class ReductionLoops:
    """The reduction loops of one FUNCTION.

    Attributes:
        extent: the length of each loop.
        depth: of each loop, the depth of its reductions.
        outer: the loops around each loop.
    """

    def __init__(self) -> None:
        self.extent: dict[int, int] = {}
        self.depth: dict[int, int] = {}
        self.outer: dict[int, set[int]] = {}
        self._loops: dict[tuple[Tokens, ops.Shape, int], tuple[int, ...]] = {}

    def operand_index(self, node: UOp, index: Tokens, depth: int) -> Tokens:
        """Return the index at which a REDUCE at ``index`` reads its operand.

        Reductions of one depth share their loops; one that depends on another has its own.
        """
        axes, shape = node.arg.axes, node.src[0].shape
        lengths = tuple(shape[a] for a in axes)
        key = (squeeze(index), lengths, depth)
        loops = self._loops.get(key)
        if loops is None:
            first = _FIRST + len(self.extent)
            loops = self._loops[key] = tuple(range(first, first + len(axes)))
            self.extent.update(zip(loops, lengths))
            self.depth.update(dict.fromkeys(loops, depth))
            self.outer.update(dict.fromkeys(loops, loops_of(index)))
        outer_tokens, reduce_tokens = iter(index), iter(loops)
        tokens = [next(reduce_tokens if a in axes else outer_tokens) for a in range(len(shape))]
        return tuple([ZERO if n == 1 else token for n, token in zip(shape, tokens)])

    def latest(self, index: Tokens, own_depth: int) -> int:
        """Return the depth of the last reduction loop of an index: these run before the group's own
        inner loops, whose depth is ``own_depth``."""
        return max([self.depth[t] for t in index if t in self.depth], default=own_depth)
