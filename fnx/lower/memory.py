"""Memory: intermediate buffers get offsets in one arena, by their lifetimes.

    before  steps  a = f(x); b = g(a); c = h(b)         a, b, c: 4 KB each
    after   a at 0, b at 4096, c at 0                   arena: 8 KB

Two buffers share bytes only when the last step that uses one comes before the first step that
uses the other. Greedy by size, largest first: at most a few percent above the peak of live
bytes on the graphs seen so far, and stable: equal steps give equal plans.

>>> plan([("a",), ("a", "b"), ("b", "c")], {"a": 4096, "b": 4096, "c": 4096})
({'a': 0, 'b': 4096, 'c': 0}, 8192)
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fnx.core import build, ops
from fnx.core.uop import UOp

ALIGNMENT = 64  # bytes: a vector register and a cache line


def size_of(node: UOp) -> int:
    """Bytes of a buffer, rounded up to the alignment."""
    nbytes = math.prod(node.shape) * node.dtype.itemsize
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


class View(NamedTuple):
    """Bytes of the buffer of a node: in iteration i of a loop those from start + i*step on.

    ``odd``: the node whose buffer it is in odd iterations, where that is another one.
    """

    node: UOp
    nbytes: int
    start: int = 0
    step: int = 0
    odd: UOp | None = None

    @property
    def nodes(self) -> tuple[UOp, ...]:
        return (self.node,) if self.odd is None else (self.node, self.odd)

    def slot(self, of: Callable[[UOp], UOp]) -> UOp:
        """As a SLOT or SWAP; ``of`` gives the SLOT of a buffer."""
        even, *odd = [self._part(of(n).arg) for n in self.nodes]
        return build.swap(even, odd[0], 0) if odd else even

    def _part(self, whole: ops.Slot) -> UOp:
        return build.slot(whole.kind, whole.index, whole.offset + self.start, self.nbytes,
                          (self.step,))

    def alignment(self, of: Callable[[UOp], int]) -> int:
        """What divides its address in all iterations, if it divides those of the buffers."""
        return math.gcd(*map(of, self.nodes), self.start, self.step)


Operand = UOp | View  # of a launch: a whole buffer, or a part of one


def nodes_of(operands: Iterable[Operand]) -> list[UOp]:
    """The nodes whose buffers operands are in."""
    return [n for o in operands for n in (o.nodes if isinstance(o, View) else (o,))]


def alignment_of(operand: Operand, of: Callable[[UOp], int]) -> int:
    """What divides its address; ``of`` of the buffer of a node."""
    return operand.alignment(of) if isinstance(operand, View) else of(operand)


def plan(uses: Sequence[Sequence[UOp]], sizes: Mapping[UOp, int]) -> tuple[dict[UOp, int], int]:
    """Offsets of the buffers in ``sizes`` and the bytes of the arena.

    Args:
        uses: for each step, the buffers it reads or writes.
        sizes: the buffers to place.
    """
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for step, operands in enumerate(uses):
        for node in operands:
            if node in sizes:
                first.setdefault(node, step)
                last[node] = step
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first step, last step
    offsets: dict[UOp, int] = {}
    for node in sorted(first, key=lambda n: -sizes[n]):
        since, until = first[node], last[node]
        start = _lowest_gap([p for p in placed if p[2] <= until and p[3] >= since], sizes[node])
        offsets[node] = start
        insort(placed, (start, start + sizes[node], since, until))
    return offsets, max((end for _, end, _, _ in placed), default=0)


def _lowest_gap(taken: list[tuple[int, int, int, int]], size: int) -> int:
    """The lowest offset where ``size`` bytes are free between what is taken, in order."""
    start = 0
    for offset, end, _, _ in taken:
        if offset - start >= size:
            break
        if end > start:
            start = end
    return start
