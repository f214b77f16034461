"""batch: a FUNCTION of one element -> the FUNCTION of a batch of them, axis 0 in front.

    before  FUNCTION(ADD(p0 f32[3], MUL(p1 f32[3], p1)))        batched: (True, False), size 8
    after   FUNCTION(ADD(p0 f32[8, 3], EXPAND(RESHAPE(MUL(p1, p1)), (8, 3))))

One walk in topological order. A node that depends on no batched operand stays as it is, and is
computed once; any other node gets the rule of its kind, from rules.py or, for ops with bodies,
from bodies.py.

>>> from fnx.core import dtypes
>>> x, y = (build.param(i, dtypes.float32, (3,)) for i in (0, 1))
>>> body = build.function([build.add(x, y), build.neg(y)], 2)
>>> function, outs = batch(body, 8, (True, False))
>>> [o.shape for o in function.src], outs
([(8, 3), (3,)], (True, False))
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, op_args, ops
from fnx.core.again import belongs
from fnx.core.derived import derives, form
from fnx.core.parts import bodies
from fnx.core.uop import UOp, current_site, inherit, toposort
from fnx.transforms.batching.bodies import BODIES
from fnx.transforms.batching.collectives import COLLECTIVES
from fnx.transforms.batching.rules import RULES, spread
from fnx.transforms.batching.values import Asking, Batched, BatchPattern, Lanes, Lifted, named_axes


def batch(body: UOp, size: int, batched: Sequence[bool], axis: op_args.Axis | None = None
          ) -> Batched:
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
    found: Batched = form(*Lanes(size, axis).of(body, tuple(batched)))
    return found


@derives(BatchPattern, "batched bodies")
def _batch(body: UOp, pattern: BatchPattern) -> Asking[Batched]:
    """The steps of ``batch``; yields requests for batched forms of called bodies."""
    lanes, size, done = pattern.lanes, pattern.lanes.size, dict[UOp, Lifted]()
    results: dict[UOp, Sequence[Lifted]] = {}  # of nodes with bodies
    for slot, param in build.params(body).items():
        if pattern.batched[slot]:
            wide = build.param(slot, param.dtype, (size, *param.shape))
            done[param] = Lifted(inherit(wide, param), True)
    for node in toposort(body.src, stop=lambda n: n.op is ops.KERNEL):
        if node in done:
            continue
        op = node.op
        if op is ops.GET:
            done[node] = results[node.src[0]][node.arg]
            continue
        if op.batching == "collective":
            done[node] = COLLECTIVES[op](node, [done[s] for s in node.src], lanes)
            continue
        if not node.src or op is ops.FUNCTION or op is ops.KERNEL:
            done[node] = Lifted(node, False)
            continue
        src, flags = zip(*[done[s] for s in node.src])
        current_site.derive(node)
        if op.batching == "body":
            if any(flags) or belongs(node) or \
                    any(lanes.axis in named_axes(b) for b in bodies(node)):
                results[node] = yield from BODIES[op](node, src, flags, lanes)
                done[node] = Lifted(node, True)
            else:
                kept = node.over(src)
                results[node] = [Lifted(x, False) for x in build.results(kept)]
                done[node] = Lifted(kept, False)
        elif flags[0] if op.batching == "first" else any(flags):
            done[node] = Lifted(inherit(RULES[op.batching](node, src, flags, size), node), True)
        else:
            done[node] = Lifted(node.over(src), False)
    outs = [done[o] for o in body.src]
    if pattern.outs:
        wanted = pattern.outs + (False,) * len(outs)
        outs = [Lifted(spread(out.node, out.batched, size), True) if w else out
                for out, w in zip(outs, wanted)]
    name = f"{body.arg.name}.batched"  # so that it is always a different FUNCTION
    function = build.function([o.node for o in outs], body.arg.n_params, name)
    return Batched(function, tuple([o.batched for o in outs]))

