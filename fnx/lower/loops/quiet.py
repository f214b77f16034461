"""Drop the effects of a loop, for consumers of its values.

    before  token, y = SCAN(f, token, x)        f: (token, c, x) -> (HOST(token, c), c + x)
    after   y = SCAN(g, x)                      g: (c, x) -> c + x

So the values can be computed by another loop, or by one kernel, with or without effects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fnx.core import build, build_calls, ops, parts
from fnx.core.uop import UOp, substitute, toposort


def without_effects(loop: UOp) -> tuple[UOp, dict[int, int]] | None:
    """Return a SCAN or WHILE without tokens, and a map of the results that are values to its
    results.

    None if its values depend on an effect, or if a body contains another loop or a call.
    """
    operands, arg = parts.operands(loop), loop.arg
    gone = {i for i, x in enumerate(operands) if build_calls.is_token(x)}
    kept = [i for i in range(len(operands)) if i not in gone]
    bodies = [b for body in parts.bodies(loop) if (b := _without(body, gone, kept)) is not None]
    if len(bodies) < len(parts.bodies(loop)) or not bodies[-1].src:
        return None
    given = [operands[i] for i in kept]
    n = sum(i < arg.n_consts for i in kept)
    if loop.op is ops.WHILE:
        found = build_calls.while_(bodies[0], bodies[1], given[:n], given[n:], arg.name)
    else:
        last = sum(i < arg.n_consts + arg.n_carries for i in kept)
        found = build_calls.scan(bodies[0], arg.length, given[:n], given[n:last], given[last:],
                                 arg.reverse, arg.name, arg.checkpoint)
    outs = [i for i, out in enumerate(parts.bodies(loop)[-1].src) if not build_calls.is_token(out)]
    return found[0].src[0], {i: n for n, i in enumerate(outs)}


def _without(body: UOp, gone: Collection[int], kept: Sequence[int]) -> UOp | None:
    outs = [out for out in body.src if not build_calls.is_token(out)]
    nodes = toposort(outs)
    if any(n.op in ops.SEVERAL or n.op is ops.PARAM and n.arg.slot in gone for n in nodes):
        return None
    params = build.params(body)
    moved = {params[old]: build.param(new, params[old].dtype, params[old].shape)
             for new, old in enumerate(kept) if old in params}
    return build.function(substitute(outs, moved), len(kept), body.arg.name)
