"""Which states of a loop to save when only so many fit: binomial checkpointing.

    steps are grouped into blocks of LEAF; a block is gone through backwards at once, its states
    saved side by side; of the blocks before it, states at some beginnings are kept, as a stack

    9 blocks, kept at 0 and 5:    5 -> 7, keep it -> 8    backwards through 8, then 7
                                  5 -> 6, keep it         through 6, then 5;   0 -> 2, ...

With ``c`` places, the beginning itself one of them, and each block run at most r times before
its own turn, binomial(c + r, c) blocks can be gone through (Griewank and Walther, 2000). So from
a state, ``advance`` goes as far as leaves the rest, with a place less, and what is skipped, with
a run less, both within that bound.

>>> cost(1_000_000)
ReverseCost(steps=4856864, saved=64, factor=4.857)
"""

from __future__ import annotations

from math import comb

from fnx.core.expr import Expr, maximum, minimum, where
from fnx.core.record import Record

LEAF = 32           # states of one block
PLACES = 32         # states at beginnings of blocks
FIRST = 24          # of these that the forward pass fills at most: even, and the rest stays free
MAX_RUNS = 12       # of a block that are planned for: enough for 2**33 steps


def advance(blocks: Expr, free: Expr) -> Expr:
    """How far to go from a state, of which ``blocks`` are to be gone through backwards.

    0 if there is but one; all the way if no place is free. Counts are whole floats.
    """
    places, ahead = free + 1, blocks - 1
    bounds = [blocks.like(0), blocks.like(1)]  # binomial(places + r, r) for r = -1, 0, 1, ...
    for r in range(1, MAX_RUNS + 1):
        bounds.append(bounds[-1] * (places + r) / r)  # exact
    found = ahead
    for r in range(MAX_RUNS, 0, -1):
        skipped, before, bound = bounds[r - 1:r + 2]
        fits = maximum(skipped, blocks - (bound - before))
        found = where(bound >= blocks, fits, found)
    return where(free.eq(0), ahead, minimum(maximum(found, 1), ahead))


class ReverseCost(Record):
    """What reverse mode of a loop costs beside the backward pass of each step."""

    steps: int      # of the body that are run
    saved: int      # states that are kept at once, at most
    factor: float   # steps per step of the loop


def cost(n: int) -> ReverseCost:
    """The cost of reverse mode through a WHILE of n steps: what its passes do, in numbers."""
    blocks = -(-n // LEAF)
    kept: list[int] = []
    stride = 1
    while len(kept) * stride < blocks:
        if len(kept) == FIRST:
            kept, stride = kept[::2], 2 * stride
        kept.append(len(kept) * stride)
    steps, most = 2 * n, len(kept)  # forward, and each block before it is gone through
    while blocks:
        free, ahead = PLACES - len(kept), blocks - 1 - kept[-1]
        move = _advance(ahead + 1, free)
        steps += move * LEAF
        if move and free:
            kept.append(kept[-1] + move)
            most = max(most, len(kept))
        if move == ahead:
            blocks -= 1
            if free or not move:
                kept.pop()
    return ReverseCost(steps, most and most + min(n, LEAF), round(steps / n, 3) if n else 0.0)


def _advance(blocks: int, free: int) -> int:
    if not free:
        return blocks - 1
    places, r = free + 1, 0
    while comb(places + r, r) < blocks:
        r += 1
    before = comb(places + r - 2, r - 2) if r > 1 else 1
    return min(blocks - 1, max(before, blocks - comb(places + r - 1, r)))
