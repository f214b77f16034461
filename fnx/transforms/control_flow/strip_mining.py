"""Strip mining of SCANs: a loop over strips of steps around a loop over the steps of a strip.

    before  SCAN of 1000   c' = f(c, x_t)
    after   SCAN of 10     SCAN of 100   c' = f(c, x_t)

What loop fission moves out of the inner loop is stored for the steps of one strip, so that its
memory is bounded and stays in a cache. A length without a divisor of at least MIN_STEPS stays
whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core.ir import build, build_calls
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, copy_locs

MIN_STEPS = 8  # of a strip: a product for all of them has this many times the rows of a step


def steps_per_strip(length: int, step_bytes: int, max_bytes: int) -> int | None:
    """Return how many steps a strip has, so that what is stored fits ``max_bytes``: the largest
    divisor of the length; None if all steps fit, or no divisor is left.

    >>> steps_per_strip(1000, 100, 30_000), steps_per_strip(1000, 100, 100_000)
    (250, None)
    >>> steps_per_strip(1009, 100, 30_000) is None
    True
    """
    if step_bytes * length <= max_bytes:
        return None
    divisors = [k for d in range(1, math.isqrt(length) + 1) if length % d == 0
                for k in (d, length // d) if MIN_STEPS <= k < length]
    fitting = [k for k in divisors if k * step_bytes <= max_bytes]
    return max(fitting) if fitting else min(divisors, default=None)


def fits_strip(length: int, step_bytes: int, max_bytes: int) -> bool:
    """Whether what is stored for the steps of a strip fits ``max_bytes``, for some strip. Else a
    step computes enough elements to be as fast by itself, or has too many neighbors.

    >>> fits_strip(1000, 100, 30_000), fits_strip(10, 6_000, 50_000), fits_strip(10, 5_000, 50_000)
    (True, False, True)
    """
    steps = steps_per_strip(length, step_bytes, max_bytes) or length
    return steps * step_bytes <= max_bytes


def strip_mine(node: UOp, steps: int, rewrite_strip: Callable[[UOp], Sequence[UOp]],
               rewrite_strips: Callable[[UOp], Sequence[UOp]]) -> list[UOp]:
    """Return the results of a SCAN by strips; two functions give those of the SCAN over the steps
    of a strip, and of the one over strips."""
    arg, op = node.arg, OpBodies(node)
    consts, carries, xs = op.split(op.operands)
    n_strips = arg.length // steps
    strips = [build.reshape(x, (n_strips, steps, *x.shape[1:])) for x in xs]
    params = op.params([consts, carries, strips])
    strip = build_calls.scan(op.steps[0], steps, *op.split(params), arg.reverse, arg.name)
    copy_locs(strip[0].src[0], node)
    body = build.function(rewrite_strip(strip[0].src[0]), len(params), arg.name)
    whole = build_calls.scan(body, n_strips, consts, carries, strips, arg.reverse, arg.name)
    copy_locs(whole[0].src[0], node)
    return [r if i < len(carries) else build.reshape(r, (arg.length, *r.shape[2:]))
            for i, r in enumerate(rewrite_strips(whole[0].src[0]))]
