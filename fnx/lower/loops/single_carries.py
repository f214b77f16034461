"""single_carries: running folds of float32, whose carry is a float64, for machines without one.

    before  SCAN(c, u -> (c + u, float32(c + u)))                      c of float64, u of float32
    after   SCAN(s, e, u -> (s + u, e + error of s + u, (s + u) + (e + error)))      all of float32

The error of a sum is computed exactly (Knuth's TwoSum), so the results are as near as those of the
wider carry; a product's carry is one float32. Only such scans are changed, whose carry nobody
reads: a float64 that a user names is refused elsewhere.

>>> from fnx.core.dtypes import float32, float64
>>> c, u = build.param(0, float64, ()), build.param(1, float32, ())
>>> total = build.add(c, build.cast(u, float64))
>>> body = build.function([total, build.cast(total, float32)], 2, "cumsum")
>>> _, sums = build_calls.scan(body, 9, [], [build.const(0, float64)],
...                            [build.param(0, float32, (9,))])
>>> made, = single_carries(build.function([sums], 1)).src
>>> [dtype.name for _, dtype in made.src[0].arg.outs]
['float32', 'float32', 'float32']
"""

from __future__ import annotations

from fnx.core import build, build_calls, ops
from fnx.core.dtypes import float32, float64
from fnx.core.expr import Expr, where
from fnx.core.uop import UOp, inherit, rebuild, toposort


def single_carries(fn: UOp) -> UOp:
    """A FUNCTION whose running folds carry float32."""
    nodes = toposort(fn.src)
    read = {n.src[0] for n in nodes if n.op is ops.GET and n.arg == 0}
    folds = {n: body for n in nodes if n.op is ops.SCAN and n not in read
             and (body := _narrow(n)) is not None}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.GET or node.src[0] not in folds:
            return None
        scan, body = src[0], folds[node.src[0]]
        first = build.const(build.const_of(_number(scan.src[1])), float32, body.src[0].shape)
        carries = [first, build.like(first, 0)][:len(body.src) - 1]
        made = build_calls.scan(body, scan.arg.length, [], carries, scan.src[2:],
                                scan.arg.reverse, scan.arg.name, scan.arg.checkpoint)
        inherit(made[0].src[0], scan)
        return made[-1]

    return fn.over(tuple(rebuild(fn.src, visit))) if folds else fn


def _number(node: UOp) -> UOp:
    """What an array of one number is made of."""
    while node.op in (ops.EXPAND, ops.RESHAPE):
        node = node.src[0]
    return node


def _narrow(scan: UOp) -> UOp | None:
    """The body over float32; None where it is no running fold with a wider carry."""
    body, arg = scan.src[0], scan.arg
    if arg.n_consts or arg.n_carries != 1 or len(body.src) != 2 or len(scan.src) != 3 or \
            _number(scan.src[1]).op is not ops.CONST:
        return None
    folded, out = body.src
    if folded.op not in (ops.ADD, ops.MUL) or folded.dtype is not float64 or \
            out.op is not ops.CAST or out.dtype is not float32 or out.src[0] is not folded:
        return None
    carry = [s for s in folded.src if s.op is ops.PARAM and s.arg.slot == 0]
    element = [s.src[0] for s in folded.src if s.op is ops.CAST and s.src[0].op is ops.PARAM
               and s.src[0].arg.slot == 1 and s.src[0].dtype is float32]
    if len(carry) != 1 or len(element) != 1:
        return None
    shape, name = folded.shape, body.arg.name
    if folded.op is ops.MUL:
        product = build.mul(build.param(0, float32, shape), build.param(1, float32, shape))
        return inherit(build.function([product, product], 2, name), body)
    s, e, u = (Expr(build.param(i, float32, shape)) for i in range(3))
    total = s + u
    given = total - s
    error = e + ((s - (total - given)) + (u - given))
    # of infinities the error is none; the sum is what they make
    error = where(abs(total) < float("inf"), error, error.like(0))
    return inherit(build.function([total.node, error.node, (total + error).node], 3, name), body)
