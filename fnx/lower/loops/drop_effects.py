"""Drop the effects of a loop, for consumers of its values.

    before  token, y = SCAN(f, token, x)        f: (token, c, x) -> (CALLBACK(token, c), c + x)
    after   y = SCAN(g, x)                      g: (c, x) -> c + x

So the values can be computed by another loop, or by one kernel, with or without effects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, substitute, toposort


def drop_effects(loop: UOp) -> tuple[UOp, dict[int, int]] | None:
    """Return a SCAN or WHILE without tokens, and a map of the results that are values to its
    results.

    None if its values depend on an effect, or if a body contains another loop or a call.
    """
    op = OpBodies(loop)
    tokens = {i for i, x in enumerate(op.operands) if build_calls.is_token(x)}
    values = [i for i in range(len(op.operands)) if i not in tokens]
    bodies = [b for body in op.bodies if (b := _drop_from_body(body, tokens, values)) is not None]
    if len(bodies) < len(op.bodies) or not bodies[-1].src:
        return None
    groups = op.split(range(len(op.operands)))
    node = op.rebuild(bodies, [[op.operands[i] for i in group if i not in tokens]
                               for group in groups])
    outs = [i for i, out in enumerate(op.steps[0].src) if not build_calls.is_token(out)]
    return node, {i: n for n, i in enumerate(outs)}


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
