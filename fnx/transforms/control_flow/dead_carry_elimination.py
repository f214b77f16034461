"""Dead carry elimination: drop results and carries of loops that have no readers.

    before  GETTUPLE(SCAN(c, n -> c + 1, n * 2; y = c), 0)
    after   GETTUPLE(SCAN(c -> c + 1), 0)

A gradient reads the residuals of a loop, and often not its value. A carry is live if a live result
depends on it after any number of steps. One that every step returns as it came, such as a tangent
that a choice leaves alone, becomes a constant. Effects need no special case: their token has a
reader.

>>> from fnx.core.ir import build_calls, dtypes
>>> c, n = (build.param(i, dtypes.float32, ()) for i in (0, 1))
>>> body = build.function([build.add(c, c), build.mul(n, n), c], 2, "step")
>>> last, *_ = build_calls.scan(body, 8, [], [c, n], [])
>>> scan = eliminate_dead_carries([last])[0].src[0]
>>> len(scan.src) - 1, len(scan.arg.outs)
(1, 1)
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.op_bodies import OpBodies, replace_results
from fnx.core.ir.uop import UOp, copy_locs, substitute, toposort


def eliminate_dead_carries(outs: Sequence[UOp]) -> list[UOp]:
    """Rewrite the SCANs under ``outs`` to have only live results."""
    order = toposort(outs)
    read: dict[UOp, set[int]] = {}
    for n in order:
        if n.op is ops.GETTUPLE and n.src[0].op is ops.SCAN:
            read.setdefault(n.src[0], set()).add(n.arg)
    constant = {scan: _constant_carries(OpBodies(scan)) for scan in read}
    if all(len(numbers) == len(scan.arg.outs) and not constant[scan]
           for scan, numbers in read.items()):
        return list(outs)

    def prune(node: UOp, src: tuple[UOp, ...]) -> dict[int, UOp] | None:
        if node not in read or len(read[node]) == len(node.arg.outs) and not constant[node]:
            return None
        return _prune_scan(node.with_operands(src), read[node], constant[node])
    return replace_results(outs, prune)


def _constant_carries(op: OpBodies) -> frozenset[int]:
    """Return the numbers of the carries that each step returns as they came."""
    body, = op.steps
    _, carries, _ = op.split(range(len(op.operands)))
    return frozenset([k for k, i in enumerate(carries)
                      if body.src[k].op is ops.PARAM and body.src[k].arg.slot == i])


def _prune_scan(node: UOp, read: set[int], constant: frozenset[int]) -> dict[int, UOp]:
    """Rebuild a SCAN without its dead results and carries; return result number -> node."""
    op, (body,) = OpBodies(node), OpBodies(node).steps
    consts, carries, rest = op.split(range(len(op.operands)))
    initial = {k: op.operands[carries[k]] for k in constant}
    live = [r for r in op.live_results(read - constant) if r not in constant]
    if not live:
        return initial
    outs = [body.src[o] for o in live]
    params = build.params(build.function(outs, len(op.operands)))
    used = [[i for i in (*consts, *[carries[k] for k in sorted(constant)]) if i in params],
            [i for i in carries if i - op.n_consts in live],
            [i for i in rest if i in params]]
    slots = {params[i]: build.param(k, params[i].dtype, params[i].shape)
             for k, i in enumerate([i for group in used for i in group]) if i in params}
    pruned = build.function(substitute(outs, slots), sum(map(len, used)), body.arg.name)
    loop = op.rebuild([pruned], [[op.operands[i] for i in group] for group in used])
    return initial | dict(zip(live, build.results(copy_locs(loop, node))))
