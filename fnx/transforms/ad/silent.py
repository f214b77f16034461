"""Drop the effects of a body that is recomputed: they already happened in the first run.

    before  token' , = HOST(print, token, x);  y = x * 2      after   token' = token;  y = x * 2
"""

from __future__ import annotations

from fnx.core import ops
from fnx.core.errors import GradError
from fnx.core.uop import UOp, rebuild, substitute, toposort


def silent(body: UOp, what: str = "a loop that reverse mode runs again",
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
        if node.op is not ops.GET or src[0].op is not ops.HOST or not src[0].arg.effect:
            return None
        if node.arg:
            raise GradError(f"expected no result of {src[0].arg.name} in {what}",
                            hint=f"call it without an effect (pure_callback), or {hint}",
                            site=node.site)
        token: UOp = src[0].src[1]
        return token

    inside = toposort([body], into_functions=True)
    if not any(n.op is ops.HOST and n.arg.effect for n in inside):
        return body
    done: dict[UOp, UOp] = {}
    for fn in inside:
        if fn.op is ops.FUNCTION:
            done[fn] = fn.over(tuple(rebuild(substitute(fn.src, done), without_effect)))
    return done[body]
