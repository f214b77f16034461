"""Batch a body over several elements; its captures are shared by all of them.

    f(x) = x * w    ->    FUNCTION(MUL(PARAM 1 f32[8], EXPAND(PARAM 0, (8,))))
"""

from __future__ import annotations

from fnx.core.ir import build
from fnx.core.ir.derivations import derived_forms
from fnx.core.ir.uop import UOp
from fnx.transforms.batching.batch import batch
from fnx.transforms.control_flow.bodies import Body


def batch_body(body: Body, batch_size: int) -> UOp:
    """Batch the FUNCTION over ``batch_size`` elements; results have a leading batch axis."""
    n_unbatched = len(body.captures) + body.effects

    def make() -> UOp:
        size = body.function.arg.n_params
        fn, varies = batch(body.function, batch_size, [i >= n_unbatched for i in range(size)])
        outs = [x if v or i < body.effects else build.expand(x, (batch_size, *x.shape))
                for i, (x, v) in enumerate(zip(fn.src, varies))]
        return build.function(outs, size, body.name)

    fn: UOp = derived_forms(body.function).get_or_make((batch_body, n_unbatched, batch_size), make)
    return fn
