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
from collections.abc import Mapping, Sequence

from fnx.core.uop import UOp

ALIGNMENT = 64  # bytes: a vector register and a cache line


def size_of(node: UOp) -> int:
    """Bytes of a buffer, rounded up to the alignment."""
    nbytes = math.prod(node.shape) * node.dtype.itemsize
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


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
