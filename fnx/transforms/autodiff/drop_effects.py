"""Drop the effects of a body that is recomputed: they already happened in the first run.

    before  token' , = CALLBACK(print, token, x);  y = x * 2  after   token' = token;  y = x * 2
"""

from __future__ import annotations

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.support.errors import GradError


def drop_effects(body: UOp, what: str = "a loop that reverse mode runs again",
                 hint: str = "save every step: scan without checkpoint=") -> UOp:
    """Return a FUNCTION without the effects in it and in its nested bodies.

    Args:
        body: the FUNCTION that is recomputed.
        what: what recomputes it, for messages.
        hint: how to avoid that, for messages.

    Raises:
        GradError: a callback with effects has a result that is read.
    """
    def without_effect(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.GETTUPLE or src[0].op is not ops.CALLBACK or not src[0].arg.effect:
            return None
        if node.arg:
            raise GradError(f"expected {what} not to use a result of {src[0].arg.name}",
                            hint=f"call it without an effect (pure_callback), or {hint}",
                            loc=node.loc)
        token: UOp = src[0].src[1]
        return token

    nodes = toposort([body], into_functions=True)
    if not any(n.op is ops.CALLBACK and n.arg.effect for n in nodes):
        return body
    rebuilt: dict[UOp, UOp] = {}
    for fn in nodes:
        if fn.op is ops.FUNCTION:
            rebuilt[fn] = fn.with_operands(
                tuple(rebuild(substitute(fn.src, rebuilt), without_effect)))
    return rebuilt[body]
