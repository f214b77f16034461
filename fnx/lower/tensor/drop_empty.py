"""Empty: arrays without elements disappear from the graph, except as results.

    before  ADD(REDUCE(x[3, 0], axis 1), CONCAT(y[2], z[0]))
    after   ADD(EXPAND(0.0), y)

Every later pass may then assume that each extent it loops over is at least 1.

>>> from fnx.core import dtypes
>>> y, z = build.param(0, dtypes.float32, (2,)), build.param(1, dtypes.float32, (0,))
>>> fn = build.function([build.neg(build.concat([y, z], 0))], 2)
>>> drop_empty(fn).src == (build.neg(y),)
True
"""

from __future__ import annotations

import math

from fnx.core import build, ops
from fnx.core.uop import UOp, rebuild, toposort


def drop_empty(fn: UOp) -> UOp:
    """A FUNCTION in which no node but a result or a parameter has zero elements."""
    if all(math.prod(n.shape) for n in toposort(fn.src)):
        return fn
    return fn.over(tuple(rebuild(fn.src, _without_empty)))


def _without_empty(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """What ``node`` over ``src`` equals where an operand is empty."""
    if node.op is ops.PARAM or node.op is ops.CALL or not node.src:
        return node
    if not math.prod(node.shape) and node.op is not ops.GET:
        return build.const(0, node.dtype, node.shape)
    if math.prod(src[0].shape) == 0:
        if node.op is ops.REDUCE:
            identity = node.arg.monoid.identity(node.dtype)
            return build.const(identity, node.dtype, node.shape)
        if node.op is ops.PAD:
            return build.expand(src[1], node.shape)
        if node.op is ops.GATHER:
            return build.const(0, node.dtype, node.shape)
    if node.op is ops.CONCAT:
        return build.concat([s for s in src if math.prod(s.shape)], node.arg)
    if node.op is ops.SCATTER and math.prod(src[-1].shape) == 0:
        return src[0]
    return None
