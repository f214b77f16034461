"""Index injectivity: which iterations of a kernel access different elements.

    x[r0, s[r0] + r1]      r0 and r1: the first index determines r0, then the second r1
    x[s[r0], r1]           r1 only: two elements of s may be equal
"""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core.ir.uop import UOp
from fnx.core.rewriting import symbolic


def determined_ranges(index: Iterable[UOp]) -> set[UOp]:
    """Return the ranges that an index determines uniquely: one of its components is linear in the
    range, with a nonzero coefficient, and otherwise has only ranges that others determine.

    >>> from fnx.core.ir import build
    >>> r, q = build.range_(4, 0), build.range_(5, 1)
    >>> determined_ranges([build.add(r, q), q]) == {r, q}, determined_ranges([build.add(r, q)])
    (True, set())
    """
    remaining = list(index)
    determined = {r for i in remaining for r in i.ranges if symbolic.bounds(r)[1] == 0}
    while True:
        newly_determined = {r: i for i in remaining if len(i.ranges - determined) == 1
                            for r in i.ranges - determined
                            if symbolic.coefficient(i, r) not in (0, None)}
        if not newly_determined:
            return determined
        determined.update(newly_determined)
        remaining = [i for i in remaining if i not in newly_determined.values()]
