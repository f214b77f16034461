"""Dependences between launches: which earlier ones each must follow, if their order changes.

>>> from fnx.core.ir import build, dtypes
>>> x, y = [build.param(i, dtypes.float32, (2,)) for i in range(2)]
>>> dependences([({x, y}, {y}, False), ({x}, {x}, False), ({y}, set(), True), ((), (), True)])
[set(), {0}, {0}, {2}]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fnx.core.ir.uop import UOp

Access = tuple[Collection[UOp], Collection[UOp], bool]  # nodes used, those written; has effects


def dependences(steps: Sequence[Access]) -> list[set[int]]:
    """Return the earlier launches that each launch must follow."""
    writers: dict[UOp, list[int]] = {}
    readers: dict[UOp, list[int]] = {}
    before: list[set[int]] = []
    effect: int | None = None
    for i, (uses, writes, has_effects) in enumerate(steps):
        must = {k for n in uses for k in writers.get(n, ())}
        must.update([k for n in writes for k in readers.get(n, ())])
        if has_effects:
            must.update([] if effect is None else [effect])
            effect = i
        before.append(must)
        for n in writes:
            writers.setdefault(n, []).append(i)
        for n in uses:
            readers.setdefault(n, []).append(i)
    return before
