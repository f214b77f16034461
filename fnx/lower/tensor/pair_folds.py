"""Fuse argmax and argmin: find an extreme and its index in one pass.

    before  m = REDUCE(x, MAX)                                  two reductions in sequence
            REDUCE(WHERE(x == m | x != x, IOTA, n), MIN)
    after   REDUCE(PAIR(x, IOTA), MAX)                          x is read, or computed, once

``argmax`` and ``argmin`` are written and differentiated in the form before; the computation of x
fuses into the single loop.

>>> from fnx.core import dtypes
>>> x, places = build.param(0, dtypes.int32, (7,)), build.iota(7)
>>> m = build.expand(build.reshape(build.reduce(x, ops.MAX, [0]), (1,)), (7,))
>>> hit = build.where(build.eq(x, m), places, build.const(7, dtypes.int32, (7,)))
>>> first = build.function([build.reduce(hit, ops.MIN, [0])], 1)
>>> pair_folds(first).src[0] is build.reduce(build.pair(x, places), ops.MAX, [0])
True
"""

from __future__ import annotations

from fnx.core import build, ops
from fnx.core.rewriting.pattern import constant_of
from fnx.core.uop import UOp, rebuild


def pair_folds(fn: UOp) -> UOp:
    """Return a FUNCTION in which the first index of an extreme is a reduction of pairs."""
    return fn.over(tuple(rebuild(fn.src, _paired)))


def _paired(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op is not ops.REDUCE or node.arg.monoid is not ops.MIN or src[0].op is not ops.WHERE:
        return None
    hit, place, beyond = src[0].src
    found = _extreme(hit, node.arg.axes)
    if found is None or not place.dtype.is_integer or not _is_below(place, beyond):
        return None
    key, monoid = found
    return build.reduce(build.pair(key, place), monoid, node.arg.axes)


def _extreme(hit: UOp, axes: tuple[int, ...]) -> tuple[UOp, ops.Op] | None:
    """Match a condition that holds at the extremes of a key along axes, and at NaNs; return (key,
    monoid)."""
    equals = hit.src if hit.op is ops.OR else (hit,)
    same = next((e for e in equals if e.op is ops.CMPEQ), None)
    if same is None:
        return None
    for key, extreme in (same.src, same.src[::-1]):
        nan = UOp(ops.CMPNE, hit.dtype, (key, key))
        if [e for e in equals if e is not same] != [nan] * key.dtype.is_float:
            continue
        kept = tuple([1 if a in axes else n for a, n in enumerate(key.shape)])
        for monoid in (ops.MAX, ops.MIN):
            fold = build.reduce(key, monoid, axes) if monoid.takes(key.dtype) else key
            if extreme is build.expand(build.reshape(fold, kept), key.shape):
                return key, monoid
    return None


def _is_below(place: UOp, beyond: UOp) -> bool:
    """Return whether all indices are positions along an axis, and at most a constant."""
    most = constant_of(beyond)
    while place.op in (ops.EXPAND, ops.RESHAPE, ops.CAST):
        place = place.src[0]
    return most is not None and place.op is ops.IOTA and place.arg <= build.const_of(most)
