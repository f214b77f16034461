"""Collectives as calls of the communicator, which run between kernels as other callbacks do.

    before  COLLECTIVE all_reduce (x)
    after   CALLBACK all_reduce wait (0, CALLBACK all_reduce start (0, x))

Their args have the Collective; they need no handle. An all_reduce copies its operands; those of
others are operands of the wait, too, so that their memory lives until then.

>>> from fnx.core.ir import dtypes, ops
>>> from fnx.core.ir.collectives import ProcessGrid, collective
>>> x = build.param(0, dtypes.float32, (2,))
>>> outs = collective("all_reduce", ProcessGrid(("a",), (2,)), ("a",), [x], monoid=ops.ADD)
>>> call = collectives_to_callbacks(build.function(outs, 1)).src[0].src[0]
>>> call.op.name, call.arg.name, call.arg.collective.names
('CALLBACK', 'all_reduce wait', ('a',))
"""

from __future__ import annotations

from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, copy_locs

Types = tuple[tuple[ops.Shape, dtypes.DType], ...]


def collectives_to_callbacks(fn: UOp) -> UOp:
    """Return a FUNCTION without COLLECTIVEs."""
    def replace(node: UOp, src: tuple[UOp, ...]) -> list[UOp] | None:
        if node.op is not ops.COLLECTIVE:
            return None
        if node.arg.name == "process_index":
            return call(node, "", src, node.arg.ins, node.arg.outs)
        ticket, = call(node, "start", src, node.arg.ins, (((), dtypes.int32),))
        in_use = node.arg.name != "all_reduce"
        return call(node, "wait", (ticket, *src * in_use),
                    (((), dtypes.int32), *node.arg.ins * in_use), node.arg.outs)

    def call(node: UOp, phase: str, src: tuple[UOp, ...], ins: Types, outs: Types) -> list[UOp]:
        arg = op_args.Callback(f"{node.arg.name} {phase}".strip(), False, ins, outs,
                               collective=node.arg, phase=phase)
        new = UOp(ops.CALLBACK, dtypes.void, (build.const(0, dtypes.uint32), *src), arg)
        copy_locs(new, node, *build.results(node))
        return [*build.results(new)]
    return fn.with_operands(tuple(replace_results(fn.src, replace)))
