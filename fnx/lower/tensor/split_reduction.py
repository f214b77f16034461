"""Split a long reduction with few results in two, so that workers can share it.

    before  REDUCE(x[16777216], ADD, axis 0)
    after   REDUCE(REDUCE(RESHAPE(x, (64, 262144)), ADD, axis 1), ADD, axis 0)

The same applies to a product of few rows with a factor that exceeds the cache and whose rows run
across the sum (``split_k``): each chunk is read in memory order.

How the sum associates follows from the shape and the target's entry (``Target.chunks``: workgroups
of threads take more of them than workers), never from the number of workers.

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.float32, (1 << 24,))
>>> whole = build.function([build.reduce(x, ops.ADD, [0])], 1)
>>> total, = split_reduction(whole, Target("cpu")).src
>>> total.src[0].op, total.src[0].src[0].shape
(REDUCE, (64, 262144))

**Split-K** computes a product of few rows and a large factor as a sum of products of chunks.

    before  REDUCE(x[m, k] * w[k, n], k)                            k of 4096
    after   REDUCE(REDUCE(x[m, c, k] * w[c, k, n], k), c)           c of 8, k of 512

A tile of results traverses the whole sum. If ``w`` exceeds the cache, its rows run across the sum
and only few rows of ``x`` reuse it, each step of that traversal is in another page, and the rest of
a cache line is evicted before the next tile needs it. A chunk is read in memory order, and workers
share chunks. Chunks are long enough that their partial sums, written and read once, are about an
eighth of both factors.

>>> def product(m: int, n: int, k: int) -> UOp:
...     x, w = build.param(0, dtypes.float32, (m, k)), build.param(1, dtypes.float32, (k, n))
...     sides = build.reshape(x, (m, 1, k)), build.reshape(build.permute(w, (1, 0)), (1, n, k))
...     return build.reduce(build.mul(*[build.expand(s, (m, n, k)) for s in sides]), ops.ADD, [2])
>>> def split(node: UOp) -> UOp | None:
...     return split_k(node, node.src[0], Target("cpu"))
>>> split(product(32, 4096, 4096)).src[0].src[0].shape
(8, 32, 4096, 512)
>>> split(product(1024, 1024, 1024)) is None, split(product(32, 64, 4096)) is None
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, rebuild
from fnx.core.support.target import Target
from fnx.lower.fusion.index_tokens import ZERO, Tokens, source_index, squeeze

MIN_WORK = 1 << 16   # reduced elements in all below which one worker is enough
MAX_RESULTS = 64     # with more results than this, workers share the results themselves
LONG_CHAIN = 1 << 13       # length of a reduction across rows from which several workers pay
BUSY_GROUPS = 128           # workgroups that keep a device busy,
# ... results per workgroup: of products, across rows
PRODUCT_RESULTS, COLUMN_RESULTS = 1 << 10, 1 << 5
MIN_CHAIN = 1 << 9       # ... and terms of each that pay for a workgroup
MIN_CHUNK = 1 << 12  # least elements reduced per chunk


def split_reduction(fn: UOp, target: Target) -> UOp:
    """Return a FUNCTION in which long REDUCEs with few results are reduced in chunks first."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REDUCE:
            return None
        if _is_long(node):
            return _split(node.with_operands(src), target.max_chunks)
        if target.threads == 1:
            return split_k(node, src[0], target)
        chunks = _workgroup_chunks(node, target)
        return _split(node.with_operands(src), chunks) if chunks > 1 else None
    return fn.with_operands(tuple(rebuild(fn.src, visit)))


def _workgroup_chunks(node: UOp, target: Target) -> int:
    """Return the number of chunks for a reduction across rows, or a sum of products, that has too
    few results to keep a device with workgroups busy."""
    x, axes = node.src[0], node.arg.axes
    results: int = math.prod(node.shape)
    if x.op is ops.ARG_PAIR or not results or \
            (x.op is not ops.MUL and len(x.shape) - 1 in axes):
        return 1
    results_per_group = PRODUCT_RESULTS if x.op is ops.MUL else COLUMN_RESULTS
    chain: int = math.prod(x.shape[a] for a in axes)
    return min(target.max_chunks, chain // MIN_CHAIN,
               BUSY_GROUPS // -(-results // results_per_group))


def _is_long(node: UOp) -> bool:
    """Return whether a reduction has few results, or is long and across rows; lanes already shorten
    one along rows.

    A sum of products may be a contraction, which is tiled without a split. Below MIN_WORK the
    partial sums of a schedule (schedule/blocked_summation.py) suffice, and so does one worker.
    """
    x, axes = node.src[0], node.arg.axes
    total = math.prod(x.shape)
    if total < MIN_WORK:
        return False
    if math.prod(node.shape) <= MAX_RESULTS:
        return True
    chain = math.prod(x.shape[a] for a in axes)
    return chain >= LONG_CHAIN and len(x.shape) - 1 not in axes and \
        x.op not in (ops.MUL, ops.ARG_PAIR)


def _split(node: UOp, max_chunks: int) -> UOp:
    """Reduce chunks of the longest run of reduced axes, then the remaining ones."""
    x, monoid = node.src[0], node.arg.monoid
    # joining a product's axes would materialize it: its loops are those of its factors
    runs = [[a] for a in node.arg.axes] if x.op is ops.MUL else _reduced_runs(node.arg.axes)
    run = max(runs, key=lambda run: math.prod([x.shape[a] for a in run]))
    chunks = _chunk_count(math.prod([x.shape[a] for a in run]), math.prod(x.shape), max_chunks)
    if chunks == 1:
        return node
    if x.shape[run[0]] % chunks == 0:  # chunks of whole rows: indices of rows take no division
        runs = [[a] for a in node.arg.axes]
    shape, axes = _join_runs(x.shape, runs)
    axis = run[0] - sum(len(r) - 1 for r in runs if r[0] < run[0])
    n = shape[axis]
    length = -(-n // chunks)

    def reshape_chunks(x: UOp, fill: Any) -> UOp:
        x = build.reshape(x, shape)
        if length * chunks != n:
            widths = [(0, length * chunks - n if i == axis else 0) for i in range(len(shape))]
            x = build.pad(x, widths, fill)
        return build.reshape(x, (*shape[:axis], chunks, length, *shape[axis + 1:]))

    inner_axes = [a if a < axis else a + 1 for a in axes]
    partial: UOp
    if x.op is ops.ARG_PAIR:  # both results of each chunk, from one pass over it
        key, index = x.src
        key = reshape_chunks(key, monoid.identity(key.dtype))
        index = reshape_chunks(index, index.dtype.limits[1])
        partial = build.arg_pair(build.reduce(key, monoid, inner_axes),
                                 build.reduce(build.arg_pair(key, index), monoid, inner_axes))
    else:
        partial = build.reduce(reshape_chunks(x, monoid.identity(x.dtype)), monoid, inner_axes)
    return build.reduce(partial, monoid, [axis - sum(a < axis for a in axes)])


def _reduced_runs(axes: Sequence[int]) -> list[list[int]]:
    """Return the runs of adjacent reduced axes."""
    runs: list[list[int]] = []
    for a in axes:
        if runs and runs[-1][-1] == a - 1:
            runs[-1].append(a)
        else:
            runs.append([a])
    return runs


def _join_runs(shape: ops.Shape, runs: list[list[int]]) -> tuple[ops.Shape, list[int]]:
    """Join the axes of each run; return the shape, and the axes that the runs have become."""
    first = {a: run[0] for run in runs for a in run}
    lengths: dict[int, int] = {}
    for a, n in enumerate(shape):
        start = first.get(a, a)
        lengths[start] = lengths.get(start, 1) * n
    return tuple(lengths.values()), [[*lengths].index(run[0]) for run in runs]


def _chunk_count(n: int, total: int, max_chunks: int) -> int:
    """Return the number of chunks: a divisor of n if a good one exists, else as many as pay."""
    max_chunks = min(max_chunks, total // MIN_CHUNK, n)
    divisors = [c for c in range(1, max_chunks + 1) if n % c == 0]
    best = divisors[-1] if divisors else 1
    return best if best * 2 >= max_chunks else max(max_chunks, 1)


# ---- split-K ------------------------------------------------------------------------------------


_MAX_ROWS = 112    # rows from which a product packs its factors
_TRAFFIC_RATIO = 8     # size of both factors relative to that of the partial sums
_MAX_ITEMSIZE = 8  # of an element of a factor
_MIN_CHUNK_TERMS = 16  # least terms of a chunk
_MOVEMENTS = frozenset({ops.RESHAPE, ops.EXPAND, ops.PERMUTE, ops.CAST})


def split_k(node: UOp, x: UOp, target: Target) -> UOp | None:
    """Return a REDUCE as a sum over chunks of its sum; None if that does not pay.

    Args:
        node: the REDUCE.
        x: its rewritten operand.
        target: the machine; workgroups of threads have tiles of their own.
    """
    chunk_length = _chunk_length(node, target) if target.threads == 1 else None
    if chunk_length is None:
        return None
    axis, = node.arg.axes
    chunked_length = x.shape[axis] // chunk_length * chunk_length

    def factors(move: Callable[[UOp], UOp]) -> UOp:
        return build.mul(*map(move, x.src))

    def slice_axis(side: UOp, start: int, end: int) -> UOp:
        ends = [(start, end) if i == axis else (0, n) for i, n in enumerate(x.shape)]
        return build.shrink(side, ends)

    def chunks(side: UOp) -> UOp:
        cut = build.reshape(slice_axis(side, 0, chunked_length), (
            *x.shape[:axis], chunked_length // chunk_length, chunk_length, *x.shape[axis + 1:]))
        return build.permute(cut, (axis, *[i for i in range(len(cut.shape)) if i != axis]))

    total = build.reduce(build.reduce(factors(chunks), ops.ADD, [axis + 1]), ops.ADD, [0])
    if chunked_length == x.shape[axis]:
        return total
    remainder = factors(lambda side: slice_axis(side, chunked_length, x.shape[axis]))
    return build.add(total, build.reduce(remainder, ops.ADD, [axis]))


def _chunk_length(node: UOp, target: Target) -> int | None:
    """Return the chunk length for the sum of a product, or None if it is not to be split."""
    x, axes = node.src[0], node.arg.axes
    if node.arg.monoid is not ops.ADD or x.op is not ops.MUL or len(axes) != 1 \
            or not x.dtype.is_float or math.prod(x.shape) * _MAX_ITEMSIZE <= target.l2:
        return None
    axis, = axes
    index = tuple([ZERO if n == 1 else i for i, n in enumerate(x.shape)])
    sides = [_strip_movements(side, index) for side in x.src]
    factor_axes = [frozenset(tokens) - {ZERO} for _, tokens in sides]
    if not all(axis in tokens and all(type(t) is int for t in tokens) for tokens in factor_axes) \
            or factor_axes[0] & factor_axes[1] != {axis}:
        return None
    sizes = [math.prod([x.shape[t] for t in tokens if t != axis]) for tokens in factor_axes]
    rows, columns = sorted(sizes)
    terms = x.shape[axis]
    chunk = max(_MIN_CHUNK_TERMS, 2 * _TRAFFIC_RATIO * rows * columns // (rows + columns))
    # its rows are strided along the sum
    exceeds_cache = any(n == columns and squeeze(tokens)[-1] != axis
                        and terms * n * factor.dtype.itemsize > target.l2
                        for n, (factor, tokens) in zip(sizes, sides))
    if columns == 1 or rows >= _MAX_ROWS or terms < 2 * chunk or not exceeds_cache:
        return None
    return next((n for n in range(chunk, 2 * chunk) if terms % n == 0), chunk)


def _strip_movements(node: UOp, index: Tokens) -> tuple[UOp, Tokens]:
    """Return the node below the movements of a factor, and the index at which it is read."""
    while node.op in _MOVEMENTS:
        index = index if node.op is ops.CAST else source_index(node, 0, index)
        node = node.src[0]
    return node, index
