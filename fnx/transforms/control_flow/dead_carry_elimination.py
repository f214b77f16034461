"""Dead carry elimination: drop results and carries of loops that have no readers.

    before  GETTUPLE(SCAN(c, n -> c + 1, n * 2; y = c), 0)
    after   GETTUPLE(SCAN(c -> c + 1), 0)

A gradient reads the residuals of a loop, and often not its value. A carry is live if a live result
depends on it after any number of steps. Effects need no special case: their token has a reader.

>>> from fnx.core.ir import dtypes
>>> c, n = (build.param(i, dtypes.float32, ()) for i in (0, 1))
>>> body = build.function([build.add(c, c), build.mul(n, n), c], 2, "step")
>>> last, *_ = build_calls.scan(body, 8, [], [c, n], [])
>>> scan = eliminate_dead_carries([last])[0].src[0]
>>> len(scan.src) - 1, len(scan.arg.outs)
(1, 1)
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort


def eliminate_dead_carries(outs: Sequence[UOp]) -> list[UOp]:
    """Rewrite the SCANs under ``outs`` to have only live results."""
    order = toposort(outs)
    read: dict[UOp, set[int]] = {}
    for n in order:
        if n.op is ops.GETTUPLE and n.src[0].op is ops.SCAN:
            read.setdefault(n.src[0], set()).add(n.arg)
    if all(len(numbers) == len(scan.arg.outs) for scan, numbers in read.items()):
        return list(outs)
    results: dict[UOp, dict[int, UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in read and len(read[node]) < len(node.arg.outs):
            results[node] = _prune_scan(node.with_operands(src), read[node])
            return node
        if node.op is ops.GETTUPLE and node.src[0] in results:
            return results[node.src[0]][node.arg]
        return None
    return rebuild(outs, visit)


def _prune_scan(node: UOp, read: set[int]) -> dict[int, UOp]:
    """Rebuild a SCAN without its dead results and carries; return result number -> node."""
    body, args, arg = node.src[0], node.src[1:], node.arg
    first, rows = arg.n_consts, arg.n_consts + arg.n_carries
    live = sorted(_live_results(body, range(first, rows), read))
    states = [o for o in live if o < arg.n_carries]
    dropped = {first + c for c in range(arg.n_carries)}.difference([first + c for c in states])
    outs = [body.src[o] for o in live]
    params = build.params(build.function(outs, len(args)))
    used = [i for i in range(len(args)) if i not in dropped and (
        first <= i < rows or i in params)]
    slots = {params[i]: build.param(k, params[i].dtype, params[i].shape)
             for k, i in enumerate(used) if i in params}
    results = build_calls.scan(build.function(substitute(outs, slots), len(used), body.arg.name),
                               arg.length, [args[i] for i in used if i < first],
                               [args[i] for i in used if first <= i < rows],
                               [args[i] for i in used if i >= rows], arg.reverse, arg.name,
                               arg.checkpoint)
    return dict(zip(live, results))


def _live_results(body: UOp, carries: range, read: set[int]) -> set[int]:
    """Return the results that are read and the carries that they depend on."""
    live: set[int] = set()
    waiting = list(read)
    while waiting:
        o = waiting.pop()
        if o not in live:
            live.add(o)
            waiting += [n.arg.slot - carries.start for n in toposort([body.src[o]])
                        if n.op is ops.PARAM and n.arg.slot in carries]
    return live
