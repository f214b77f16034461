"""Collectives as calls of the communicator, which run between kernels as other callbacks do.

    before  COLLECTIVE all_reduce (x)
    after   CALLBACK all_reduce (0, x)       its arg has the Collective; it needs no handle

>>> from fnx.core.ir import dtypes, ops
>>> from fnx.core.ir.collectives import ProcessGrid, collective
>>> x = build.param(0, dtypes.float32, (2,))
>>> outs = collective("all_reduce", ProcessGrid(("a",), (2,)), ("a",), [x], monoid=ops.ADD)
>>> call = collectives_to_callbacks(build.function(outs, 1)).src[0].src[0]
>>> call.op.name, call.arg.name, call.arg.collective.names
('CALLBACK', 'all_reduce', ('a',))
"""

from __future__ import annotations

from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, copy_locs


def collectives_to_callbacks(fn: UOp) -> UOp:
    """Return a FUNCTION without COLLECTIVEs."""
    def replace(node: UOp, src: tuple[UOp, ...]) -> list[UOp] | None:
        if node.op is not ops.COLLECTIVE:
            return None
        arg = op_args.Callback(node.arg.name, False, node.arg.ins, node.arg.outs,
                               collective=node.arg)
        call = UOp(ops.CALLBACK, dtypes.void, (build.const(0, dtypes.uint32), *src), arg)
        copy_locs(call, node, *build.results(node))
        return [*build.results(call)]
    return fn.with_operands(tuple(replace_results(fn.src, replace)))
