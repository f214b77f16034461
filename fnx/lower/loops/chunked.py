"""Two-pass scan (reduce-then-scan): start the scans of all chunks of a long axis at chunk totals.

    before  SCAN(c, u -> (c + u, c + u); 131072 steps, c0, x)
    after   totals = REDUCE(RESHAPE(x, (256, 512)), ADD, 1)
            starts = c0, then running sums of totals but the last
            SCAN(c, u -> (c + u, c + u); 512 steps, starts, PERMUTE(RESHAPE(x, (256, 512))))

In one chain, each addition waits for the one before it; 256 chains are lanes, and are shared by
workers. Chunks depend on the length alone, so results have the same bits for any number of workers.
If only the carry is returned, reassociation of its rounding would be visible: then only maxima,
minima and integers are scanned in chunks, and values rounded from a carry in a wider dtype.

>>> from fnx.core import dtypes
>>> from fnx.core.array.running import running
>>> x = build.param(0, dtypes.float32, (131072,))
>>> found, = chunked(build.function([running(x, 0, ops.ADD)], 1), Target("cpu")).src
>>> found.op, found.shape, found.src[0].op, found.src[0].src[0].op
(RESHAPE, (131072,), PERMUTE, GET)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core import build, build_calls, ops
from fnx.core.array.running import running
from fnx.core.op import Op
from fnx.core.record import Record
from fnx.core.target import Target
from fnx.core.uop import UOp, rebuild, toposort

LONG = 1 << 13         # least steps for which that pays
UNEVEN = 1 << 16       # ... if the length is not a multiple: the remainder is scanned at the end
ALONE = 1              # most lanes of such a loop: several chains hide each other's latency
MOST, LEAST = 256, 128  # chunks; the remainder of a length is scanned at the end

_EXACT = (ops.MAX, ops.MIN, ops.AND, ops.OR, ops.XOR)


class _RunningFold(Record):
    """The monoid of a cumulative reduction, and the number of chunks."""

    monoid: Op
    chunks: int


def chunked(fn: UOp, target: Target) -> UOp:
    """Rewrite the long cumulative reductions of a FUNCTION to two-pass scans."""
    if target.threads > 1:
        return fn
    nodes = toposort(fn.src)
    used: dict[UOp, set[int]] = {}
    for node in nodes:
        if node.op is ops.GET and node.src[0].op is ops.SCAN:
            used.setdefault(node.src[0], set()).add(int(node.arg))
    folds = {scan: fold for scan, slots in used.items() if (fold := _fold(scan, slots))}
    made: dict[UOp, tuple[UOp, UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        fold = folds.get(node.src[0]) if node.op is ops.GET else None
        if fold is None:
            return None
        if node.src[0] not in made:
            made[node.src[0]] = _in_chunks(src[0], fold)
        return made[node.src[0]][int(node.arg)]
    return fn.over(tuple(rebuild(fn.src, visit))) if folds else fn


def _fold(scan: UOp, slots: set[int]) -> _RunningFold | None:
    """Match a cumulative-reduction SCAN. None if it does not match, is short, or if reassociating
    would change rounding."""
    arg, body = scan.arg, scan.src[0]
    if arg.length < LONG or (arg.n_consts, arg.n_carries, len(arg.outs)) != (0, 1, 2) or \
            len(scan.src) != 3 or arg.checkpoint:
        return None
    folded, y = body.src
    params = [p for p in folded.src if p.op is ops.PARAM and p.arg.slot == 0]
    if folded.op.identity is None or len(folded.src) != 2 or len(params) != 1 or \
            folded.op not in ops.ELEMENTWISE:
        return None
    element, = [s for s in folded.src if s is not params[0]]
    element = element.src[0] if element.op is ops.CAST else element
    given = y.src[0] if y.op is ops.CAST else y
    if element.op is not ops.PARAM or element.arg.slot != 1 or given is not folded or \
            math.prod(folded.shape) > ALONE:
        return None
    exact = folded.op in _EXACT or not folded.dtype.is_float
    rounded = y.dtype.is_float and y.dtype.bits < folded.dtype.bits and 0 not in slots
    chunks = next((c for c in range(MOST, LEAST - 1, -1) if arg.length % c == 0), LEAST)
    if arg.length % chunks and arg.length < UNEVEN:
        return None
    return _RunningFold(folded.op, chunks) if exact or rounded else None


def _in_chunks(scan: UOp, fold: _RunningFold) -> tuple[UOp, UOp]:
    """Return the last carry, and the carries of all steps."""
    body, first, x = scan.src
    n, reverse = scan.arg.length, scan.arg.reverse
    order = x.arg if x.op is ops.PERMUTE else tuple(range(len(x.shape)))
    below, axis = x.src[0] if x.op is ops.PERMUTE else x, order[0]
    rest = n % fold.chunks
    if not rest:
        last, ys = _whole(scan, fold, below, order)
        return last, build.permute(ys, order)
    bounds = [(0, m) for m in below.shape]
    parts = []
    for part in ((rest, n), (0, rest)) if reverse else ((0, n - rest), (n - rest, n)):
        bounds[axis] = part
        parts.append(build.shrink(below, bounds))
    last, ys = _whole(scan, fold, parts[0], order)
    last, others = build_calls.scan(body, rest, [], [last], [build.permute(parts[1], order)],
                                    reverse, scan.arg.name)
    others = build.permute(others, [order.index(a) for a in range(len(order))])
    joined = build.concat([others, ys] if reverse else [ys, others], axis)
    return last, build.permute(joined, order)


def _whole(scan: UOp, fold: _RunningFold, x: UOp, order: Sequence[int]) -> tuple[UOp, UOp]:
    """As ``_in_chunks``, for x in its own layout and chunks of equal length; ``order`` starts with
    the scanned axis."""
    body, first, _ = scan.src
    (_, kind), (_, given) = scan.arg.outs
    chunks, reverse, axis = fold.chunks, scan.arg.reverse, order[0]
    steps = x.shape[axis] // chunks
    split = build.reshape(x, (*x.shape[:axis], chunks, steps, *x.shape[axis + 1:]))
    totals = build.permute(build.reduce(build.cast(split, kind), fold.monoid, [axis + 1]), order)
    first = build.reshape(first, (1, *first.shape))
    bounds = [(0, m) for m in totals.shape]
    bounds[0] = (1, chunks) if reverse else (0, chunks - 1)
    others = build.shrink(totals, bounds)
    starts = running(build.concat([others, first] if reverse else [first, others], 0), 0,
                     fold.monoid, reverse)
    carry, element = build.param(0, kind, starts.shape), build.param(1, x.dtype, starts.shape)
    folded = build.elementwise(fold.monoid, carry, build.cast(element, kind))
    step = build.function([folded, build.cast(folded, given)], 2, body.arg.name)
    walked = [axis + 1, axis, *[a + (a > axis) for a in order[1:]]]
    carries, ys = build_calls.scan(step, steps, [], [starts], [build.permute(split, walked)],
                                   reverse, scan.arg.name)
    ys = build.permute(ys, [walked.index(a) for a in range(len(walked))])
    bounds[0] = (0, 1) if reverse else (chunks - 1, chunks)
    last = build.reshape(build.shrink(carries, bounds), first.shape[1:])
    return last, build.reshape(ys, x.shape)
