"""Drop the effects of a loop, for consumers of its values.

    before  token, y = SCAN(f, token, x)        f: (token, c, x) -> (CALLBACK(token, c), c + x)
    after   y = SCAN(g, x)                      g: (c, x) -> c + x

So the values can be computed by another loop, or by one kernel, with or without effects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fnx.core.ir import accessors, build, build_calls, ops
from fnx.core.ir.uop import UOp, substitute, toposort


def drop_effects(loop: UOp) -> tuple[UOp, dict[int, int]] | None:
    """Return a SCAN or WHILE without tokens, and a map of the results that are values to its
    results.

    None if its values depend on an effect, or if a body contains another loop or a call.
    """
    operands, arg = accessors.operands(loop), loop.arg
    token_operands = {i for i, x in enumerate(operands) if build_calls.is_token(x)}
    value_operands = [i for i in range(len(operands)) if i not in token_operands]
    bodies = [b for body in accessors.bodies(loop)
              if (b := _drop_from_body(body, token_operands, value_operands)) is not None]
    if len(bodies) < len(accessors.bodies(loop)) or not bodies[-1].src:
        return None
    arguments = [operands[i] for i in value_operands]
    n = sum(i < arg.n_consts for i in value_operands)
    if loop.op is ops.WHILE:
        results = build_calls.while_(bodies[0], bodies[1], arguments[:n], arguments[n:], arg.name)
    else:
        last = sum(i < arg.n_consts + arg.n_carries for i in value_operands)
        results = build_calls.scan(bodies[0], arg.length, arguments[:n], arguments[n:last],
                                   arguments[last:], arg.reverse, arg.name, arg.checkpoint)
    outs = [i for i, out in enumerate(accessors.bodies(loop)[-1].src)
            if not build_calls.is_token(out)]
    return results[0].src[0], {i: n for n, i in enumerate(outs)}


def _drop_from_body(body: UOp, token_operands: Collection[int],
                    value_operands: Sequence[int]) -> UOp | None:
    outs = [out for out in body.src if not build_calls.is_token(out)]
    nodes = toposort(outs)
    if any(n.op in ops.MULTI_RESULT or n.op is ops.PARAM and n.arg.slot in token_operands
           for n in nodes):
        return None
    params = build.params(body)
    renumbered = {params[old]: build.param(new, params[old].dtype, params[old].shape)
                  for new, old in enumerate(value_operands) if old in params}
    return build.function(substitute(outs, renumbered), len(value_operands), body.arg.name)
