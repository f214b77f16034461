"""batch: a FUNCTION of one element -> the FUNCTION of a batch of them, axis 0 in front.

    before  FUNCTION(ADD(p0 f32[3], MUL(p1 f32[3], p1)))        batched: (True, False), size 8
    after   FUNCTION(ADD(p0 f32[8, 3], EXPAND(RESHAPE(MUL(p1, p1)), (8, 3))))

One walk in topological order. A node that depends on no batched operand stays as it is, and is
computed once; any other node gets the rule of its kind, from rules.py or, for ops with bodies,
from higher_order.py.

>>> from fnx.core.ir import dtypes
>>> x, y = (build.param(i, dtypes.float32, (3,)) for i in (0, 1))
>>> body = build.function([build.add(x, y), build.neg(y)], 2)
>>> function, outs = batch(body, 8, (True, False))
>>> [o.shape for o in function.src], outs
([(8, 3), (3,)], (True, False))
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, op_args, ops
from fnx.core.ir.accessors import bodies
from fnx.core.ir.derivations import derive, register_derivation
from fnx.core.ir.recursive_rules import is_rule_local
from fnx.core.ir.uop import UOp, copy_locs, current_loc, toposort
from fnx.core.support.line_visits import recording
from fnx.transforms.batching.collectives import COLLECTIVES
from fnx.transforms.batching.higher_order import BODY_RULES
from fnx.transforms.batching.patterns import (
    BatchAxis,
    BatchedFunction,
    BatchedValue,
    BatchPattern,
    BatchSteps,
    named_axes,
)
from fnx.transforms.batching.rules import RULES, broadcast_batch


def batch(body: UOp, size: int, batched: Sequence[bool], axis: op_args.Axis | None = None
          ) -> BatchedFunction:
    """Batch a FUNCTION.

    Args:
        body: a closed FUNCTION.
        size: the batch size.
        batched: which operands have a batch axis in front.
        axis: the named axis that is batched; collectives over it are resolved.

    Returns:
        The FUNCTION, with PARAMs in the same slots; and which of its results have a batch axis
        in front. The others are the same for all batch elements.
    """
    result: BatchedFunction = derive(*BatchAxis(size, axis).of(body, tuple(batched)))
    return result


@register_derivation(BatchPattern)
def _batch(body: UOp, pattern: BatchPattern) -> BatchSteps[BatchedFunction]:
    """The steps of ``batch``; yields requests for batched forms of called bodies."""
    batch_axis, size, new = pattern.batch, pattern.batch.size, dict[UOp, BatchedValue]()
    results: dict[UOp, Sequence[BatchedValue]] = {}  # of nodes with bodies
    for slot, param in build.params(body).items():
        if pattern.batched[slot]:
            batched_param = build.param(slot, param.dtype, (size, *param.shape))
            new[param] = BatchedValue(copy_locs(batched_param, param), True)
    for node in toposort(body.src, stop=lambda n: n.op is ops.KERNEL):
        if node in new:
            continue
        op = node.op
        if op is ops.GETTUPLE:
            new[node] = results[node.src[0]][node.arg]
            continue
        if op.batching == "collective":
            new[node] = COLLECTIVES[op](node, [new[s] for s in node.src], batch_axis)
            continue
        if not node.src or op is ops.FUNCTION or op is ops.KERNEL:
            new[node] = BatchedValue(node, False)
            continue
        src, flags = zip(*[new[s] for s in node.src])
        current_loc.set_from(node)
        if op.batching == "body":
            if any(flags) or is_rule_local(node) or \
                    any(batch_axis.axis in named_axes(b) for b in bodies(node)):
                results[node] = yield from BODY_RULES[op](node, src, flags, batch_axis)
                new[node] = BatchedValue(node, True)
            else:
                rebuilt = node.with_operands(src)
                results[node] = [BatchedValue(x, False) for x in build.results(rebuilt)]
                new[node] = BatchedValue(rebuilt, False)
        elif flags[0] if op.batching == "first" else any(flags):
            new[node] = BatchedValue(copy_locs(RULES[op.batching](node, src, flags, size), node),
                                     True)
        else:
            new[node] = BatchedValue(node.with_operands(src), False)
    if recording.recorder is not None:
        for node, value in new.items():
            recording.recorder.copy_names(value.node, node)
    outs = [new[o] for o in body.src]
    if pattern.outs:
        forced = pattern.outs + (False,) * len(outs)
        outs = [BatchedValue(broadcast_batch(out.node, out.batched, size), True) if w else out
                for out, w in zip(outs, forced)]
    name = f"{body.arg.name}.batched"  # so that it is always a different FUNCTION
    function = build.function([o.node for o in outs], body.arg.n_params, name)
    return BatchedFunction(function, tuple([o.batched for o in outs]))

