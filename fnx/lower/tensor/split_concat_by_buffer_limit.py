"""Split a CONCAT of more arrays than a kernel can bind into a CONCAT of CONCATs.

    before  CONCAT(a, b, c, d, e)                       for a target that binds 4 buffers
    after   CONCAT(CONCAT(a, b, c), CONCAT(d, e))       with its result, each kernel binds 4

A CONCAT whose parts are written one after another into its memory is left alone: they are not
operands of one kernel.

>>> from fnx.core.ir import dtypes
>>> xs = [build.param(i, dtypes.float32, (2, 1)) for i in range(5)]
>>> concat = build.function([build.concat(xs, 1)], 5)
>>> joined, = split_concat_by_buffer_limit(concat, Target("gpu", max_buffers=4)).src
>>> [len(part.src) for part in joined.src]
[3, 2]
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, copy_locs, rebuild_results
from fnx.core.support.target import Target
from fnx.lower.fusion import concat_in_place


def split_concat_by_buffer_limit(fn: UOp, target: Target) -> UOp:
    """Return a FUNCTION whose CONCATs have no more parts than the target can bind."""
    max_parts = target.max_buffers - 1

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.CONCAT or len(src) <= max_parts or \
                concat_in_place.has_many_parts(node):
            return None
        parts = [*src]
        while len(parts) > max_parts:
            parts = [copy_locs(build.concat(parts[i:i + max_parts], node.arg), node)
                     for i in range(0, len(parts), max_parts)]
        return copy_locs(build.concat(parts, node.arg), node)
    return rebuild_results(fn, visit) if target.max_buffers else fn
