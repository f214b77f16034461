"""Double-float carries: emulate the float64 carry of float32 cumulative reductions.

    before  SCAN(c, u -> (c + u, float32(c + u)))                      c of float64, u of float32
    after   SCAN(s, e, u -> (s + u, e + error of s + u, (s + u) + (e + error)))      all of float32

For machines without float64. The error of a sum is computed exactly (Knuth's TwoSum), so results
are as accurate as with the wider carry; a product's carry is one float32. Only scans whose carry
nobody reads are changed: an explicit float64 of the user is rejected elsewhere.

>>> from fnx.core.ir.dtypes import float32, float64
>>> c, u = build.param(0, float64, ()), build.param(1, float32, ())
>>> total = build.add(c, build.cast(u, float64))
>>> body = build.function([total, build.cast(total, float32)], 2, "cumsum")
>>> _, sums = build_calls.scan(body, 9, [], [build.const(0, float64)],
...                            [build.param(0, float32, (9,))])
>>> made, = double_float_carries(build.function([sums], 1)).src
>>> [dtype.name for _, dtype in made.src[0].arg.outs]
['float32', 'float32', 'float32']
"""

from __future__ import annotations

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.dtypes import float32, float64
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.uop import UOp, copy_locs, rebuild_results, toposort


def double_float_carries(fn: UOp) -> UOp:
    """Replace the float64 carries of cumulative reductions by float32 ones."""
    nodes = toposort(fn.src)
    carry_read = {n.src[0] for n in nodes if n.op is ops.GETTUPLE and n.arg == 0}
    bodies_of = {n: body for n in nodes if n.op is ops.SCAN and n not in carry_read
                 and (body := _to_float32(n)) is not None}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.GETTUPLE or node.src[0] not in bodies_of:
            return None
        scan, body = src[0], bodies_of[node.src[0]]
        init = build.const(build.const_of(_broadcast_scalar(scan.src[1])), float32,
                           body.src[0].shape)
        carries = [init, build.const_like(init, 0)][:len(body.src) - 1]
        results = build_calls.scan(body, scan.arg.length, [], carries, scan.src[2:],
                                   scan.arg.reverse, scan.arg.name, scan.arg.checkpoint)
        copy_locs(results[0].src[0], scan)
        return results[-1]

    return rebuild_results(fn, visit) if bodies_of else fn


def _broadcast_scalar(node: UOp) -> UOp:
    """Return the scalar that an array is broadcast from."""
    while node.op in (ops.EXPAND, ops.RESHAPE):
        node = node.src[0]
    return node


def _to_float32(scan: UOp) -> UOp | None:
    """Return the body over float32; None if it is no cumulative reduction with a wider carry."""
    body, arg = scan.src[0], scan.arg
    if arg.n_consts or arg.n_carries != 1 or len(body.src) != 2 or len(scan.src) != 3 or \
            _broadcast_scalar(scan.src[1]).op is not ops.CONST:
        return None
    new_carry, out = body.src
    if new_carry.op not in (ops.ADD, ops.MUL) or new_carry.dtype is not float64 or \
            out.op is not ops.CAST or out.dtype is not float32 or out.src[0] is not new_carry:
        return None
    carry = [s for s in new_carry.src if s.op is ops.PARAM and s.arg.slot == 0]
    element = [s.src[0] for s in new_carry.src if s.op is ops.CAST and s.src[0].op is ops.PARAM
               and s.src[0].arg.slot == 1 and s.src[0].dtype is float32]
    if len(carry) != 1 or len(element) != 1:
        return None
    shape, name = new_carry.shape, body.arg.name
    if new_carry.op is ops.MUL:
        product = build.mul(build.param(0, float32, shape), build.param(1, float32, shape))
        return copy_locs(build.function([product, product], 2, name), body)
    s, e, u = (Expr(build.param(i, float32, shape)) for i in range(3))
    total = s + u
    added = total - s
    error = e + ((s - (total - added)) + (u - added))
    # infinities have no rounding error; then the sum is returned as it is
    error = where(abs(total) < float("inf"), error, error.like(0))
    return copy_locs(build.function([total.node, error.node, (total + error).node], 3, name), body)
