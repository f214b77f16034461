"""Memory planning: assign arena offsets to intermediate buffers by their live ranges.

    before  steps  a = f(x); b = g(a); c = h(b)         a, b, c: 4 KB each
    after   a at 0, b at 4096, c at 0                   arena: 8 KB

Two buffers share bytes only if the last use of one comes before the first use of the other.
Greedy by size, largest first: at most a few percent above the peak of live bytes on the graphs
seen so far, and deterministic: equal steps give equal plans. This takes time quadratic in the
number of buffers, so above a limit buffers are placed in order of first use, best fit.

>>> plan([("a",), ("a", "b"), ("b", "c")], {"a": 4096, "b": 4096, "c": 4096})
({'a': 0, 'b': 4096, 'c': 0}, 8192)
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence

from fnx.core import build_commands, op_args
from fnx.core.record import Record
from fnx.core.uop import UOp

MAX_BY_SIZE = 512  # most buffers that are placed by size
ALIGNMENT = 64  # bytes: a vector register and a cache line


def size_of(node: UOp) -> int:
    """Return the bytes of a buffer, rounded up to the alignment."""
    nbytes = math.prod(node.shape) * node.dtype.itemsize
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


class View(Record):
    """A byte range of a node's buffer: in iteration i of a loop it begins at start + i*step.

    ``odd``: the node whose buffer is used in odd iterations, if that is another one; ``grain``:
    the start is only assumed to be a multiple of this (0: of all that is known).
    """

    node: UOp
    nbytes: int
    start: int = 0
    step: int = 0
    odd: UOp | None = None
    grain: int = 0

    @property
    def nodes(self) -> tuple[UOp, ...]:
        return (self.node,) if self.odd is None else (self.node, self.odd)

    def slot(self, of: Callable[[UOp], UOp]) -> UOp:
        """Return it as a SLOT or SWAP; ``of`` maps a node to the SLOT of its buffer."""
        even, *odd = [self._part(of(n).arg) for n in self.nodes]
        return build_commands.swap(even, odd[0], 0) if odd else even

    def _part(self, whole: op_args.Slot) -> UOp:
        return build_commands.slot(whole.kind, whole.index, whole.offset + self.start, self.nbytes,
                          (self.step,))

    def alignment(self, of: Callable[[UOp], int]) -> int:
        """Return the alignment of its address in all iterations; ``of`` gives that of a buffer."""
        return math.gcd(*map(of, self.nodes), self.start, self.step, self.grain)


BufferOrView = UOp | View  # operand of a launch: a whole buffer, or a part of one


def nodes_of(operands: Iterable[BufferOrView]) -> list[UOp]:
    """Return the nodes whose buffers hold the operands."""
    return [n for o in operands for n in (o.nodes if isinstance(o, View) else (o,))]


def alignment_of(operand: BufferOrView, of: Callable[[UOp], int]) -> int:
    """Return the alignment of an operand's address; ``of`` gives that of a node's buffer."""
    return operand.alignment(of) if isinstance(operand, View) else of(operand)


def plan(uses: Sequence[Sequence[UOp]], sizes: Mapping[UOp, int]) -> tuple[dict[UOp, int], int]:
    """Return the offsets of the buffers in ``sizes``, and the bytes of the arena.

    Args:
        uses: for each step, the buffers it reads or writes.
        sizes: the bytes of each buffer to place.
    """
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for step, operands in enumerate(uses):
        for node in operands:
            if node in sizes:
                first.setdefault(node, step)
                last[node] = step
    if len(first) > MAX_BY_SIZE:
        return _in_order(first, last, sizes)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first step, last step
    offsets: dict[UOp, int] = {}
    for node in sorted(first, key=lambda n: -sizes[n]):
        since, until = first[node], last[node]
        start = _lowest_gap([p for p in placed if p[2] <= until and p[3] >= since], sizes[node])
        offsets[node] = start
        insort(placed, (start, start + sizes[node], since, until))
    return offsets, max((end for _, end, _, _ in placed), default=0)


def _lowest_gap(taken: list[tuple[int, int, int, int]], size: int) -> int:
    """Return the lowest offset with ``size`` free bytes; ``taken`` is sorted by offset."""
    start = 0
    for offset, end, _, _ in taken:
        if offset - start >= size:
            break
        if end > start:
            start = end
    return start


def _in_order(first: Mapping[UOp, int], last: Mapping[UOp, int], sizes: Mapping[UOp, int]
              ) -> tuple[dict[UOp, int], int]:
    """Place each buffer at its first use; ``first`` is in that order."""
    gaps = _Gaps()
    ends: dict[int, list[UOp]] = {}
    for node, step in last.items():
        ends.setdefault(step, []).append(node)
    offsets: dict[UOp, int] = {}
    done = 0
    for step, born in itertools.groupby(first, key=first.__getitem__):
        for over in range(done, step):
            for node in ends.pop(over, ()):
                gaps.give(offsets[node], sizes[node])
        done = step
        for node in sorted(born, key=lambda n: -sizes[n]):
            offsets[node] = gaps.take(sizes[node])
    return offsets, gaps.end


class _Gaps:
    """Free list: the free bytes below ``end``."""

    def __init__(self) -> None:
        self.end = 0
        self.by_size: list[tuple[int, int]] = []  # (size, start)
        self.size: dict[int, int] = {}  # by start
        self.start: dict[int, int] = {}  # by end

    def take(self, size: int) -> int:
        """Allocate ``size`` bytes: best fit, else at the end."""
        at = bisect_left(self.by_size, (size, 0))
        if at < len(self.by_size):
            found, start = self.by_size[at]
        else:
            start = self.start.get(self.end, self.end)
            found = self.end - start
            self.end = start + size
        if found:
            self._drop(start)
        if found > size:
            self._keep(start + size, found - size)
        return start

    def give(self, start: int, size: int) -> None:
        """Free bytes and coalesce them with neighboring gaps."""
        before = self.start.get(start)
        if before is not None:
            size += self.size[before]
            self._drop(before)
            start = before
        after = self.size.get(start + size)
        if after is not None:
            self._drop(start + size)
            size += after
        self._keep(start, size)

    def _keep(self, start: int, size: int) -> None:
        self.size[start], self.start[start + size] = size, start
        insort(self.by_size, (size, start))

    def _drop(self, start: int) -> None:
        size = self.size.pop(start)
        del self.start[start + size]
        del self.by_size[bisect_left(self.by_size, (size, start))]
