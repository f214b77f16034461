"""Unbounded loops of a PROGRAM that poll for cancellation, on devices that can read host memory.

    FOR i = 0 .. 1 << 50          an unbounded loop, as nobody waits for so many iterations
      BREAK c                     so is every loop that a condition ends
    ENDFOR

Every `EVERY` iterations their threads poll a word of host memory. Loops with barriers are
excluded: a thread that left would deadlock the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, ops
from fnx.core.uop import UOp

LONG, EVERY = 1 << 26, 1 << 10  # unbounded from here on; poll interval


def endless(lines: Sequence[UOp]) -> frozenset[UOp]:
    """Return the FORs that poll for cancellation."""
    found: set[UOp] = set()
    opened: list[UOp] = []
    waiting: set[UOp] = set()
    for line in lines:
        if line.op is ops.FOR:
            opened.append(line)
            if line.src[0].op is not ops.ID and line.src[1].op is ops.CONST and \
                    build.const_of(line.src[1]) >= LONG:
                found.add(line)
        elif line.op is ops.ENDFOR:
            opened.pop()
        elif line.op is ops.BREAK:
            found.add(line.src[0])
        elif line.op is ops.SYNC:
            waiting.update(opened)
    return frozenset(found - waiting)
