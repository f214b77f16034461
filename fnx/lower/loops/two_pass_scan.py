"""Two-pass scan (reduce-then-scan): start the scans of all chunks of a long axis at chunk totals.

    before  SCAN(c, u -> (c + u, c + u); 131072 steps, c0, x)
    after   totals = REDUCE(RESHAPE(x, (256, 512)), ADD, 1)
            starts = c0, then running sums of totals but the last
            SCAN(c, u -> (c + u, c + u); 512 steps, starts, PERMUTE(RESHAPE(x, (256, 512))))

In one chain, each addition waits for the one before it; 256 chains are lanes, and are shared by
workers. Chunks depend on the length alone, so results have the same bits for any number of workers.
If only the carry is returned, reassociation of its rounding would be visible: then only maxima,
minima and integers are scanned in chunks, and values rounded from a carry in a wider dtype.

>>> from fnx.core.ir import dtypes
>>> from fnx.core.formulas.cumulative import cumulative
>>> x = build.param(0, dtypes.float32, (131072,))
>>> found, = two_pass_scan(build.function([cumulative(x, 0, ops.ADD)], 1), Target("cpu")).src
>>> found.op, found.shape, found.src[0].op, found.src[0].src[0].op
(RESHAPE, (131072,), PERMUTE, GETTUPLE)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.formulas.cumulative import cumulative
from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.op import Op
from fnx.core.ir.uop import UOp, rebuild_results, toposort
from fnx.core.support.record import Record
from fnx.core.support.target import Target

MIN_STEPS = 1 << 13         # least steps for which that pays
# ... if the length is not a multiple: the remainder is scanned at the end
MIN_UNEVEN_STEPS = 1 << 16
MAX_LANES = 1              # most lanes of such a loop: several chains hide each other's latency
MAX_CHUNKS, MIN_CHUNKS = 256, 128  # chunks; the remainder of a length is scanned at the end

_EXACT_MONOIDS = (ops.MAX, ops.MIN, ops.AND, ops.OR, ops.XOR)


class _CumulativeReduction(Record):
    """The monoid of a cumulative reduction, and the number of chunks."""

    monoid: Op
    chunks: int


def two_pass_scan(fn: UOp, target: Target) -> UOp:
    """Rewrite the long cumulative reductions of a FUNCTION to two-pass scans."""
    if target.threads > 1:
        return fn
    nodes = toposort(fn.src)
    used: dict[UOp, set[int]] = {}
    for node in nodes:
        if node.op is ops.GETTUPLE and node.src[0].op is ops.SCAN:
            used.setdefault(node.src[0], set()).add(int(node.arg))
    matches = {scan: fold for scan, slots in used.items()
               if (fold := _match_cumulative(scan, slots))}
    rewritten: dict[UOp, tuple[UOp, UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        fold = matches.get(node.src[0]) if node.op is ops.GETTUPLE else None
        if fold is None:
            return None
        if node.src[0] not in rewritten:
            rewritten[node.src[0]] = _scan_chunks(src[0], fold)
        return rewritten[node.src[0]][int(node.arg)]
    return rebuild_results(fn, visit) if matches else fn


def _match_cumulative(scan: UOp, slots: set[int]) -> _CumulativeReduction | None:
    """Match a cumulative-reduction SCAN. None if it does not match, is short, or if reassociating
    would change rounding."""
    arg, body = scan.arg, scan.src[0]
    if arg.length < MIN_STEPS or (arg.n_consts, arg.n_carries, len(arg.outs)) != (0, 1, 2) or \
            len(scan.src) != 3 or arg.checkpoint:
        return None
    new_carry, y = body.src
    params = [p for p in new_carry.src if p.op is ops.PARAM and p.arg.slot == 0]
    if new_carry.op.identity is None or len(new_carry.src) != 2 or len(params) != 1 or \
            new_carry.op not in ops.ELEMENTWISE:
        return None
    element, = [s for s in new_carry.src if s is not params[0]]
    element = element.src[0] if element.op is ops.CAST else element
    returned = y.src[0] if y.op is ops.CAST else y
    if element.op is not ops.PARAM or element.arg.slot != 1 or returned is not new_carry or \
            math.prod(new_carry.shape) > MAX_LANES:
        return None
    exact = new_carry.op in _EXACT_MONOIDS or not new_carry.dtype.is_float
    rounded = y.dtype.is_float and y.dtype.bits < new_carry.dtype.bits and 0 not in slots
    chunks = next((c for c in range(MAX_CHUNKS, MIN_CHUNKS - 1, -1) if arg.length % c == 0),
                  MIN_CHUNKS)
    if arg.length % chunks and arg.length < MIN_UNEVEN_STEPS:
        return None
    return _CumulativeReduction(new_carry.op, chunks) if exact or rounded else None


def _scan_chunks(scan: UOp, fold: _CumulativeReduction) -> tuple[UOp, UOp]:
    """Return the last carry, and the carries of all steps."""
    body, init, x = scan.src
    n, reverse = scan.arg.length, scan.arg.reverse
    order = x.arg if x.op is ops.PERMUTE else tuple(range(len(x.shape)))
    source, axis = x.src[0] if x.op is ops.PERMUTE else x, order[0]
    remainder = n % fold.chunks
    if not remainder:
        last, ys = _scan_equal_chunks(scan, fold, source, order)
        return last, build.permute(ys, order)
    bounds = [(0, m) for m in source.shape]
    parts = []
    for part in ((remainder, n), (0, remainder)) if reverse else \
            ((0, n - remainder), (n - remainder, n)):
        bounds[axis] = part
        parts.append(build.shrink(source, bounds))
    last, ys = _scan_equal_chunks(scan, fold, parts[0], order)
    last, tail_ys = build_calls.scan(body, remainder, [], [last], [build.permute(parts[1], order)],
                                     reverse, scan.arg.name)
    tail_ys = build.permute(tail_ys, [order.index(a) for a in range(len(order))])
    joined = build.concat([tail_ys, ys] if reverse else [ys, tail_ys], axis)
    return last, build.permute(joined, order)


def _scan_equal_chunks(scan: UOp, fold: _CumulativeReduction, x: UOp,
                       order: Sequence[int]) -> tuple[UOp, UOp]:
    """As ``_scan_chunks``, for x in its own layout and chunks of equal length; ``order`` starts
    with the scanned axis."""
    body, init, _ = scan.src
    (_, carry_dtype), (_, result_dtype) = scan.arg.outs
    chunks, reverse, axis = fold.chunks, scan.arg.reverse, order[0]
    steps = x.shape[axis] // chunks
    split = build.reshape(x, (*x.shape[:axis], chunks, steps, *x.shape[axis + 1:]))
    totals = build.permute(build.reduce(build.cast(split, carry_dtype), fold.monoid, [axis + 1]),
                           order)
    init = build.reshape(init, (1, *init.shape))
    bounds = [(0, m) for m in totals.shape]
    bounds[0] = (1, chunks) if reverse else (0, chunks - 1)
    inner_totals = build.shrink(totals, bounds)
    starts = cumulative(build.concat([inner_totals, init] if reverse else [init, inner_totals], 0),
                        0, fold.monoid, reverse)
    carry = build.param(0, carry_dtype, starts.shape)
    element = build.param(1, x.dtype, starts.shape)
    folded = build.elementwise(fold.monoid, carry, build.cast(element, carry_dtype))
    step = build.function([folded, build.cast(folded, result_dtype)], 2, body.arg.name)
    scan_order = [axis + 1, axis, *[a + (a > axis) for a in order[1:]]]
    carries, ys = build_calls.scan(step, steps, [], [starts], [build.permute(split, scan_order)],
                                   reverse, scan.arg.name)
    ys = build.permute(ys, [scan_order.index(a) for a in range(len(scan_order))])
    bounds[0] = (0, 1) if reverse else (chunks - 1, chunks)
    last = build.reshape(build.shrink(carries, bounds), init.shape[1:])
    return last, build.reshape(ys, x.shape)
