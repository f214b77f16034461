"""Fuse argmax and argmin: find an extreme and its index in one pass.

    before  m = REDUCE(x, MAX)                                  two reductions in sequence
            REDUCE(WHERE(x == m | x != x, IOTA, n), MIN)
    after   REDUCE(ARG_PAIR(x, IOTA), MAX)                      x is read, or computed, once

``argmax`` and ``argmin`` are written and differentiated in the form before; the computation of x
fuses into the single loop.

>>> from fnx.core.ir import dtypes
>>> x, places = build.param(0, dtypes.int32, (7,)), build.iota(7)
>>> m = build.expand(build.reshape(build.reduce(x, ops.MAX, [0]), (1,)), (7,))
>>> hit = build.where(build.eq(x, m), places, build.const(7, dtypes.int32, (7,)))
>>> first = build.function([build.reduce(hit, ops.MIN, [0])], 1)
>>> fuse_argreduce(first).src[0] is build.reduce(build.arg_pair(x, places), ops.MAX, [0])
True
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, rebuild_results
from fnx.core.rewriting.rewrite import underlying_const


def fuse_argreduce(fn: UOp) -> UOp:
    """Return a FUNCTION in which the first index of an extreme is a reduction of pairs."""
    return rebuild_results(fn, fuse_pair)


def fuse_pair(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Return the reduction of pairs that the first index of an extreme is, or None."""
    if node.op is not ops.REDUCE or node.arg.monoid is not ops.MIN or src[0].op is not ops.WHERE:
        return None
    condition, index, sentinel = src[0].src
    match = _match_extreme(condition, node.arg.axes)
    if match is None or not index.dtype.is_integer or not _is_position_below(index, sentinel):
        return None
    key, monoid = match
    return build.reduce(build.arg_pair(key, index), monoid, node.arg.axes)


def _match_extreme(condition: UOp, axes: tuple[int, ...]) -> tuple[UOp, ops.Op] | None:
    """Match a condition that holds at the extremes of a key along axes, and at NaNs; return (key,
    monoid)."""
    terms = condition.src if condition.op is ops.OR else (condition,)
    comparison = next((e for e in terms if e.op is ops.CMPEQ), None)
    if comparison is None:
        return None
    for key, extreme in (comparison.src, comparison.src[::-1]):
        nan = UOp(ops.CMPNE, condition.dtype, (key, key))
        if [e for e in terms if e is not comparison] != [nan] * key.dtype.is_float:
            continue
        keepdims_shape = tuple([1 if a in axes else n for a, n in enumerate(key.shape)])
        for monoid in (ops.MAX, ops.MIN):
            reduced = build.reduce(key, monoid, axes) if monoid.accepts_dtype(key.dtype) else key
            if extreme is build.expand(build.reshape(reduced, keepdims_shape), key.shape):
                return key, monoid
    return None


def _is_position_below(index: UOp, sentinel: UOp) -> bool:
    """Return whether all indices are positions along an axis, and at most a constant."""
    limit = underlying_const(sentinel)
    while index.op in (ops.EXPAND, ops.RESHAPE, ops.CAST):
        index = index.src[0]
    return limit is not None and index.op is ops.IOTA and index.arg <= build.const_of(limit)
