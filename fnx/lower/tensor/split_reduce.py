"""Split reduce: a long reduction with few results becomes two, so that workers can share it.

    before  REDUCE(x[16777216], ADD, axis 0)
    after   REDUCE(REDUCE(RESHAPE(x, (64, 262144)), ADD, axis 1), ADD, axis 0)

So does a product of few rows with a factor beyond the cache, whose rows lie across the sum
(split_products.py): each chunk is read as it lies.

How the sum associates follows from the shape and the target's row (``Target.chunks``: groups of
threads take more of them than workers), never from the number of workers.

>>> from fnx.core import dtypes
>>> x = build.param(0, dtypes.float32, (1 << 24,))
>>> whole = build.function([build.reduce(x, ops.ADD, [0])], 1)
>>> total, = split_reduce(whole, Target("cpu")).src
>>> total.src[0].op, total.src[0].src[0].shape
(REDUCE, (64, 262144))
"""

from __future__ import annotations

import math
from typing import Any

from fnx.core import build, ops
from fnx.core.target import Target
from fnx.core.uop import UOp, rebuild
from fnx.lower.tensor.split_products import in_chunks

MIN_WORK = 1 << 16   # elements folded in all below which one worker is enough
MAX_RESULTS = 64     # with more results than this, the results themselves are shared out
LONG = 1 << 13       # a chain of additions across rows that is worth several workers
BUSY = 128           # groups of threads that keep a device busy,
BLOCK, COLUMNS = 1 << 10, 1 << 5  # ... results that one computes, of products and across rows,
CHAIN = 1 << 9       # ... and terms of each that are worth a group
MIN_CHUNK = 1 << 12  # elements a chunk folds at least


def split_reduce(fn: UOp, target: Target) -> UOp:
    """A FUNCTION in which long REDUCEs with few results are folded in chunks first."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REDUCE:
            return None
        if _is_long(node):
            return _split(node.over(src), target.chunks)
        parts = _parts(node, target)
        if parts > 1:
            return _split(node.over(src), parts)
        return in_chunks(node, src[0], target)
    return fn.over(tuple(rebuild(fn.src, visit)))


def _parts(node: UOp, target: Target) -> int:
    """In how many parts groups of threads compute a fold across rows, or a sum of products, that
    has too few results to keep a device busy."""
    x, axes = node.src[0], node.arg.axes
    results: int = math.prod(node.shape)
    if target.threads == 1 or x.op is ops.PAIR or not results or \
            (x.op is not ops.MUL and len(x.shape) - 1 in axes):
        return 1
    each = BLOCK if x.op is ops.MUL else COLUMNS
    chain: int = math.prod(x.shape[a] for a in axes)
    return min(target.chunks, chain // CHAIN, BUSY // -(-results // each))


def _is_long(node: UOp) -> bool:
    """Few results, or a long chain across rows: lanes shorten those along rows.

    A sum of products may be a contraction, which is tiled as it is. Below MIN_WORK a schedule's
    partial sums (schedule/subtotals.py) keep the bits of a chain, and one worker is enough.
    """
    x, axes = node.src[0], node.arg.axes
    total = math.prod(x.shape)
    if total < MIN_WORK:
        return False
    if math.prod(node.shape) <= MAX_RESULTS:
        return True
    chain = math.prod(x.shape[a] for a in axes)
    return chain >= LONG and len(x.shape) - 1 not in axes and x.op not in (ops.MUL, ops.PAIR)


def _split(node: UOp, most: int) -> UOp:
    """Fold chunks of the longest run of reduced axes, then the rest."""
    x, monoid = node.src[0], node.arg.monoid
    # a product whose axes are joined would be written: its loops are those of its factors
    shape, axes = _join_reduced(x.shape, node.arg.axes) if x.op is not ops.MUL else \
        (x.shape, [*node.arg.axes])
    axis = max(axes, key=lambda a: shape[a])
    n = shape[axis]
    chunks = _chunks(n, math.prod(x.shape), most)
    if chunks == 1:
        return node
    length = -(-n // chunks)

    def cut(x: UOp, fill: Any) -> UOp:
        x = build.reshape(x, shape)
        if length * chunks != n:
            widths = [(0, length * chunks - n if i == axis else 0) for i in range(len(shape))]
            x = build.pad(x, widths, fill)
        return build.reshape(x, (*shape[:axis], chunks, length, *shape[axis + 1:]))

    inner = [a if a < axis else a + 1 for a in axes]
    whole: UOp
    if x.op is ops.PAIR:  # both of each chunk, from one pass over it
        key, place = x.src
        key, place = cut(key, monoid.identity(key.dtype)), cut(place, place.dtype.limits[1])
        whole = build.pair(build.reduce(key, monoid, inner),
                           build.reduce(build.pair(key, place), monoid, inner))
    else:
        whole = build.reduce(cut(x, monoid.identity(x.dtype)), monoid, inner)
    return build.reduce(whole, monoid, [axis - sum(a < axis for a in axes)])


def _join_reduced(shape: ops.Shape, axes: tuple[int, ...]) -> tuple[ops.Shape, list[int]]:
    """Neighbouring reduced axes become one axis; size and meaning stay."""
    joined: list[int] = []
    reduced: list[int] = []
    for i, n in enumerate(shape):
        if i in axes and i - 1 in axes:
            joined[-1] *= n
            continue
        if i in axes:
            reduced.append(len(joined))
        joined.append(n)
    return tuple(joined), reduced


def _chunks(n: int, total: int, most: int) -> int:
    """Number of chunks: a divisor of n if a good one exists, else as many as are worth it."""
    most = min(most, total // MIN_CHUNK, n)
    divisors = [c for c in range(1, most + 1) if n % c == 0]
    best = divisors[-1] if divisors else 1
    return best if best * 2 >= most else max(most, 1)
