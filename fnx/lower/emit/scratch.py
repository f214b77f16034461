"""Layout and size of the stages of a kernel in a worker's scratch memory.

Stages are consecutive, aligned to 64 bytes; sizes may depend on run-time extents.

>>> from fnx.core.ir import dtypes
>>> r = build.range_(100, 0)
>>> s = build.stage(build.const(1, dtypes.float32), [r], id=0)
>>> o = build.index_into(build.ref(0, dtypes.float32, (100,)), q := build.range_(100, 1))
>>> copy = build.kernel([build.store(o, build.load(build.index_into(s, q)))], "copy")
>>> symbolic.bounds(layout(copy)[1])
(448, 448)
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import dims
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic

_CACHE_LINE = 64


def layout(kernel: UOp, space: str = "PRIV") -> tuple[dict[UOp, UOp], UOp]:
    """Return the byte offset of each STAGE in a space, and the total bytes per worker.

    Both are index expressions; the total is one over VARs.
    """
    offsets: dict[UOp, UOp] = {}
    end = build.index_const(0)
    for node in toposort(kernel.src):
        if node.op is ops.STAGE and node.arg.space == space:
            offsets[node] = end
            end = symbolic.simplify(build.add(end, _padded_bytes(node)))
    return offsets, end


def _padded_bytes(stage: UOp) -> UOp:
    """Return the stage's bytes, rounded up to whole cache lines."""
    size = Expr(build.index_const(stage.dtype.itemsize))
    for n in dims(stage):
        size = size * Expr(n)
    return ((size + (_CACHE_LINE - 1)) // _CACHE_LINE * _CACHE_LINE).node
