"""Windows: parts of the iteration space of a kernel, which the interpreter computes one by one.

>>> from fnx.core.ir import build
>>> i, j = build.range_(5, 0), build.range_(4, 1)
>>> [[bounds for bounds in w.values()] for w in iter_windows({i: 3}, {i: 5, j: 4})]
[[(0, 3)], [(3, 5)]]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fnx.core.ir.uop import UOp

WindowBounds = dict[UOp, tuple[int, int]]  # bounds lo, hi of each range that is split


def iter_windows(sizes: Mapping[UOp, int], extent: Mapping[UOp, int]) -> Iterator[WindowBounds]:
    """Yield all windows of the ranges that are split, in loop order."""
    if not sizes:
        yield {}
        return
    (r, step), *rest = sizes.items()
    for lo in range(0, extent[r], step):
        for windows in iter_windows(dict(rest), extent):
            yield {r: (lo, min(lo + step, extent[r])), **windows}
