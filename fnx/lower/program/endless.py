"""Endless: the loops of a PROGRAM that the host can end, on machines that see a word of its memory.

    FOR i = 0 .. 1 << 50          one of them, as nobody waits for so many iterations
      BREAK c                     ... as is every loop that a condition ends
    ENDFOR

Each `EVERY` iterations their threads look at the word. Those in which threads wait for each other
are not among them: one that left would be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, ops
from fnx.core.uop import UOp

LONG, EVERY = 1 << 26, 1 << 10  # iterations that nobody waits for; after which one looks


def endless(lines: Sequence[UOp]) -> frozenset[UOp]:
    """The FORs."""
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
