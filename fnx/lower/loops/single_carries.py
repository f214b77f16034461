"""Double-float carries: emulate the float64 carry of float32 cumulative reductions.

    before  SCAN(c, u -> (c + u, float32(c + u)))                      c of float64, u of float32
    after   SCAN(s, e, u -> (s + u, e + error of s + u, (s + u) + (e + error)))      all of float32

For machines without float64. The error of a sum is computed exactly (Knuth's TwoSum), so results
are as accurate as with the wider carry; a product's carry is one float32. Only scans whose carry
nobody reads are changed: an explicit float64 of the user is rejected elsewhere.

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
    """Replace the float64 carries of cumulative reductions by float32 ones."""
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
    """Return the scalar that an array is broadcast from."""
    while node.op in (ops.EXPAND, ops.RESHAPE):
        node = node.src[0]
    return node


def _narrow(scan: UOp) -> UOp | None:
    """Return the body over float32; None if it is no cumulative reduction with a wider carry."""
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
    # infinities have no rounding error; then the sum is returned as it is
    error = where(abs(total) < float("inf"), error, error.like(0))
    return inherit(build.function([total.node, error.node, (total + error).node], 3, name), body)
