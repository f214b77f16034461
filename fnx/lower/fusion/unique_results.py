"""Results: each result of a FUNCTION becomes one buffer, or is an argument passed through.

    before  FUNCTION(RESHAPE(a), a, p1)          with a = ADD(p0, p0)
    after   FUNCTION(a), results (out 0, out 0, in 1)

A RESHAPE is the same memory, and arrays are immutable, so results may share buffers.
"""

from __future__ import annotations

from fnx.core import build, ops
from fnx.core.uop import UOp
from fnx.lower.fusion.group import memory_of

Result = tuple[str, int]  # ("in", argument) or ("out", buffer)


def unique_results(fn: UOp) -> tuple[UOp, tuple[Result, ...]]:
    """The FUNCTION with each computed buffer once, and where each result is found."""
    outs: dict[UOp, int] = {}
    results: list[Result] = []
    for out in fn.src:
        base = memory_of(out)
        if base.op is ops.PARAM:
            results.append(("in", base.arg.slot))
        else:
            results.append(("out", outs.setdefault(base, len(outs))))
    return build.function(outs, fn.arg.n_params, fn.arg.name), tuple(results)
