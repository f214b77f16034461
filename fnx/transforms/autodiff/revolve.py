"""Binomial checkpointing (revolve): which states of a loop to save when memory is bounded.

    steps are grouped into blocks of BLOCK; a block is reversed at once, with all its states
    saved; of the blocks before it, some initial states are saved, as a stack

    9 blocks, saved at 0 and 5:   5 -> 7, save it -> 8    reverse 8, then 7
                                  5 -> 6, save it         reverse 6, then 5;   0 -> 2, ...

With ``c`` snapshots, the initial state one of them, and each block run at most r times before it is
reversed, binomial(c + r, c) blocks can be reversed (Griewank and Walther, 2000). So from a state,
``advance`` goes exactly so far that both the rest, with one snapshot less, and the skipped blocks,
with one run less, stay within that bound.

>>> reverse_cost(1_000_000)
ReverseCost(steps=4856864, saved=64, factor=4.857)
"""

from __future__ import annotations

from math import comb

from fnx.core.ir.expr import Expr, maximum, minimum, where
from fnx.core.support.record import Record

BLOCK = 32  # steps per block
MAX_SNAPSHOTS = 32  # snapshots: initial states of blocks
FORWARD_SNAPSHOTS = 24  # snapshots of the forward pass: even; the rest stay free
MAX_RUNS = 12  # runs of a block that are planned for: enough for 2**33 steps


def advance(blocks: Expr, free: Expr) -> Expr:
    """Return how many blocks to go ahead from a state, with ``blocks`` left to reverse from it.

    0 if there is only one; all the way if no snapshot is free. Counts are integral floats.
    """
    snapshots, ahead = free + 1, blocks - 1
    bounds = [blocks.like(0), blocks.like(1)]  # binomial(places + r, r) for r = -1, 0, 1, ...
    for r in range(1, MAX_RUNS + 1):
        bounds.append(bounds[-1] * (snapshots + r) / r)  # exact
    best = ahead
    for r in range(MAX_RUNS, 0, -1):
        skipped, bound_before, bound = bounds[r - 1:r + 2]
        least_move = maximum(skipped, blocks - (bound - bound_before))
        best = where(bound >= blocks, least_move, best)
    return where(free.eq(0), ahead, minimum(maximum(best, 1), ahead))


class ReverseCost(Record):
    """The cost of reverse mode of a loop, besides the backward pass of each step."""

    steps: int      # steps of the body that run
    saved: int      # peak number of saved states
    factor: float   # steps per step of the loop


def reverse_cost(n: int) -> ReverseCost:
    """Return the cost of reverse mode through a WHILE of n steps, by simulating its passes."""
    blocks = -(-n // BLOCK)
    saved_at: list[int] = []
    stride = 1
    while len(saved_at) * stride < blocks:
        if len(saved_at) == FORWARD_SNAPSHOTS:
            saved_at, stride = saved_at[::2], 2 * stride
        saved_at.append(len(saved_at) * stride)
    steps, peak = 2 * n, len(saved_at)  # forward, and once more before each block is reversed
    while blocks:
        free, ahead = MAX_SNAPSHOTS - len(saved_at), blocks - 1 - saved_at[-1]
        move = _advance(ahead + 1, free)
        steps += move * BLOCK
        if move and free:
            saved_at.append(saved_at[-1] + move)
            peak = max(peak, len(saved_at))
        if move == ahead:
            blocks -= 1
            if free or not move:
                saved_at.pop()
    return ReverseCost(steps, peak and peak + min(n, BLOCK), round(steps / n, 3) if n else 0.0)


def _advance(blocks: int, free: int) -> int:
    if not free:
        return blocks - 1
    snapshots, r = free + 1, 0
    while comb(snapshots + r, r) < blocks:
        r += 1
    bound_before = comb(snapshots + r - 2, r - 2) if r > 1 else 1
    return min(blocks - 1, max(bound_before, blocks - comb(snapshots + r - 1, r)))
