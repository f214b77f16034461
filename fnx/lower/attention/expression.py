"""Scalar expressions of tensor nodes, over the loops of a kernel.

    ADD(EXPAND(b), REDUCE(MUL(EXPAND(x), EXPAND(w)), ADD)) at (m, n)
    LOAD(b[n]) + REDUCE(LOAD(x[m, k]) * LOAD(w[k, n]), k, ADD)

Nodes that are not computed here are loaded from memory: ``is_memory`` says which. Indices are
tokens (lower/fusion/index_tokens.py), which are mapped to RANGEs on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp
from fnx.lower.fusion.index_tokens import ZERO, Token, Tokens, index_node, source_index

VIEW_OPS = frozenset({ops.RESHAPE, ops.PERMUTE, ops.EXPAND, ops.SHRINK, ops.FLIP})
_FIRST_REDUCE_TOKEN = 1000  # the first token of a reduction loop


class IndexWalk:
    """The indices at which the nodes below a value are read.

    Attributes:
        summed: the tokens of the loops of each REDUCE below, by axis.
        lengths: the extents of these loops.
    """

    def __init__(self, is_memory: Callable[[UOp], bool]) -> None:
        self.is_memory = is_memory
        self.summed: dict[UOp, dict[int, Token]] = {}
        self.lengths: dict[Token, int] = {}

    def reduce_index(self, node: UOp, index: Tokens) -> Tokens:
        """Return where a REDUCE at an index reads its operand: it has loops of its own."""
        shape = node.src[0].shape
        if node not in self.summed:
            first = _FIRST_REDUCE_TOKEN + len(self.lengths)
            self.summed[node] = {a: ZERO if shape[a] == 1 else first + i
                                 for i, a in enumerate(node.arg.axes)}
            self.lengths |= {t: shape[a] for a, t in self.summed[node].items() if t != ZERO}
        outer_tokens = iter(index)
        reduce_tokens = self.summed[node]
        return tuple([reduce_tokens[a] if a in reduce_tokens else next(outer_tokens)
                      for a in range(len(shape))])

    def operands(self, node: UOp, index: Tokens) -> list[tuple[UOp, Tokens]]:
        """Return the nodes that a node is computed from, and where each is read."""
        if self.is_loaded(node) or node.op is ops.CONST or node.op is ops.IOTA:
            return []
        if node.op is ops.REDUCE:
            return [(node.src[0], self.reduce_index(node, index))]
        if node.op in VIEW_OPS:
            return [(node.src[0], source_index(node, 0, index))]
        return [(s, index) for s in node.src]

    def is_loaded(self, node: UOp) -> bool:
        """Whether a node is loaded from memory: a RESHAPE shares its operand's memory."""
        return self.is_memory(node) or node.op is ops.RESHAPE and \
            self.is_memory(_skip_reshapes(node))

    def all(self, root: UOp, index: Tokens) -> Iterator[tuple[UOp, Tokens]]:
        """Yield each node below at each index, operands first."""
        visited: set[tuple[UOp, Tokens]] = set()
        stack = [(root, index)]
        while stack:
            missing = [p for p in self.operands(*stack[-1]) if p not in visited]
            if missing:
                stack += missing
            elif (entry := stack.pop()) not in visited:
                visited.add(entry)
                yield entry


def _skip_reshapes(node: UOp) -> UOp:
    while node.op is ops.RESHAPE:
        node = node.src[0]
    return node


class Expressions:
    """The values of nodes over loops.

    Args:
        walk: where nodes are read.
        loops: RANGEs, or index expressions, by token.
        slots: of the nodes that are loaded from memory; grows.
    """

    def __init__(self, walk: IndexWalk, loops: dict[Token, UOp], slots: dict[UOp, int]) -> None:
        self.walk, self.loops, self.slots = walk, loops, slots
        self.tokens: dict[Token, UOp] = {}
        self.done: dict[tuple[UOp, Tokens], UOp] = {}

    def value(self, root: UOp, index: Tokens) -> UOp:
        """Return the value of a node at an index."""
        for node, at in self.walk.all(root, index):
            self.done[node, at] = self._compute(node, at)
        return self.done[root, index]

    def element(self, node: UOp, index: Tokens) -> UOp:
        """Return the element of a node that is in memory."""
        slot = self.slots.setdefault(_skip_reshapes(node), len(self.slots))
        return build.index_into(build.ref(slot, node.dtype, node.shape), *map(self.index, index))

    def index(self, token: Token) -> UOp:
        return index_node(token, self.loops, self.tokens)

    def _compute(self, node: UOp, index: Tokens) -> UOp:
        if self.walk.is_loaded(node):
            return build.load(self.element(node, index))
        if node.op is ops.CONST:
            return node
        if node.op is ops.IOTA:
            return build.cast(self.index(index[0]), node.dtype)
        src = [self.done[part] for part in self.walk.operands(node, index)]
        if node.op in VIEW_OPS:
            return src[0]
        if node.op is ops.REDUCE:
            loops = [self.loops[t] for t in self.walk.summed[node].values() if t != ZERO]
            return build.reduce_ranges(src[0], node.arg.monoid, loops)
        return UOp(node.op, node.dtype, tuple(src), node.arg)
