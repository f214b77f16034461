"""Unbounded loops of a PROGRAM that poll for cancellation, on devices that can read host memory.

    FOR i = 0 .. 1 << 50          an unbounded loop, as nobody waits for so many iterations
      BREAK c                     so is every loop that a condition ends
    ENDFOR

Every `POLL_INTERVAL` iterations their threads poll a word of host memory. Loops with barriers are
excluded: a thread that left would deadlock the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp

MIN_UNBOUNDED_TRIPS, POLL_INTERVAL = 1 << 26, 1 << 10  # unbounded from here on; poll interval


def unbounded_loops(lines: Sequence[UOp]) -> frozenset[UOp]:
    """Return the FORs that poll for cancellation."""
    unbounded: set[UOp] = set()
    open_loops: list[UOp] = []
    with_barrier: set[UOp] = set()
    for line in lines:
        if line.op is ops.FOR:
            open_loops.append(line)
            if line.src[0].op is not ops.ID and line.src[1].op is ops.CONST and \
                    build.const_of(line.src[1]) >= MIN_UNBOUNDED_TRIPS:
                unbounded.add(line)
        elif line.op is ops.ENDFOR:
            open_loops.pop()
        elif line.op is ops.BREAK:
            unbounded.add(line.src[0])
        elif line.op is ops.SYNC:
            with_barrier.update(open_loops)
    return frozenset(unbounded - with_barrier)
