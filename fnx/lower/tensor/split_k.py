"""Split-K: compute a product of few rows and a large factor as a sum of products of chunks.

    before  REDUCE(x[m, k] * w[k, n], k)                            k of 4096
    after   REDUCE(REDUCE(x[m, c, k] * w[c, k, n], k), c)           c of 8, k of 512

A tile of results traverses the whole sum. If ``w`` exceeds the cache, its rows run across the sum
and only few rows of ``x`` reuse it, each step of that traversal is in another page, and the rest of
a cache line is evicted before the next tile needs it. A chunk is read in memory order, and workers
share chunks. Chunks are long enough that their partial sums, written and read once, are about an
eighth of both factors.

>>> from fnx.core.ir import dtypes
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
from collections.abc import Callable

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.fusion.index_tokens import ZERO, Tokens, source_index, squeeze

_MAX_ROWS = 112    # rows from which a product packs its factors
_TRAFFIC_RATIO = 8     # size of both factors relative to that of the partial sums
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
            or not x.dtype.is_float:
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
