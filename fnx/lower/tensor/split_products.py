"""Split-K: compute a product of few rows and a large factor as a sum of products of chunks.

    before  REDUCE(x[m, k] * w[k, n], k)                            k of 4096
    after   REDUCE(REDUCE(x[m, c, k] * w[c, k, n], k), c)           c of 8, k of 512

A tile of results traverses the whole sum. If ``w`` exceeds the cache, its rows run across the sum
and only few rows of ``x`` reuse it, each step of that traversal is in another page, and the rest of
a cache line is evicted before the next tile needs it. A chunk is read in memory order, and workers
share chunks. Chunks are long enough that their partial sums, written and read once, are about an
eighth of both factors.

>>> from fnx.core import dtypes
>>> def product(m: int, n: int, k: int) -> UOp:
...     x, w = build.param(0, dtypes.float32, (m, k)), build.param(1, dtypes.float32, (k, n))
...     sides = build.reshape(x, (m, 1, k)), build.reshape(build.permute(w, (1, 0)), (1, n, k))
...     return build.reduce(build.mul(*[build.expand(s, (m, n, k)) for s in sides]), ops.ADD, [2])
>>> def split(node: UOp) -> UOp | None:
...     return in_chunks(node, node.src[0], Target("cpu"))
>>> split(product(32, 4096, 4096)).src[0].src[0].shape
(8, 32, 4096, 512)
>>> split(product(1024, 1024, 1024)) is None, split(product(32, 64, 4096)) is None
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core import build, ops
from fnx.core.target import Target
from fnx.core.uop import UOp
from fnx.lower.fusion.index_tokens import ZERO, Tokens, source_index, squeeze

_ROWS = 112    # rows from which a product packs its factors
_SHARE = 8     # size of both factors relative to that of the partial sums
_SHORTEST = 16  # least terms of a chunk
_MOVED = frozenset({ops.RESHAPE, ops.EXPAND, ops.PERMUTE, ops.CAST})


def in_chunks(node: UOp, x: UOp, target: Target) -> UOp | None:
    """Return a REDUCE as a sum over chunks of its sum; None if that does not pay.

    Args:
        node: the REDUCE.
        x: its rewritten operand.
        target: the machine; workgroups of threads have tiles of their own.
    """
    length = _chunk(node, target) if target.threads == 1 else None
    if length is None:
        return None
    axis, = node.arg.axes
    whole = x.shape[axis] // length * length

    def factors(move: Callable[[UOp], UOp]) -> UOp:
        return build.mul(*map(move, x.src))

    def part(side: UOp, start: int, end: int) -> UOp:
        ends = [(start, end) if i == axis else (0, n) for i, n in enumerate(x.shape)]
        return build.shrink(side, ends)

    def chunks(side: UOp) -> UOp:
        cut = build.reshape(part(side, 0, whole), (
            *x.shape[:axis], whole // length, length, *x.shape[axis + 1:]))
        return build.permute(cut, (axis, *[i for i in range(len(cut.shape)) if i != axis]))

    total = build.reduce(build.reduce(factors(chunks), ops.ADD, [axis + 1]), ops.ADD, [0])
    if whole == x.shape[axis]:
        return total
    rest = factors(lambda side: part(side, whole, x.shape[axis]))
    return build.add(total, build.reduce(rest, ops.ADD, [axis]))


def _chunk(node: UOp, target: Target) -> int | None:
    """Return the chunk length for the sum of a product, or None if it is not to be split."""
    x, axes = node.src[0], node.arg.axes
    if node.arg.monoid is not ops.ADD or x.op is not ops.MUL or len(axes) != 1 \
            or not x.dtype.is_float:
        return None
    axis, = axes
    index = tuple([ZERO if n == 1 else i for i, n in enumerate(x.shape)])
    sides = [_read(side, index) for side in x.src]
    along = [frozenset(tokens) - {ZERO} for _, tokens in sides]
    if not all(axis in tokens and all(type(t) is int for t in tokens) for tokens in along) \
            or along[0] & along[1] != {axis}:
        return None
    own = [math.prod([x.shape[t] for t in tokens if t != axis]) for tokens in along]
    rows, columns = sorted(own)
    terms = x.shape[axis]
    chunk = max(_SHORTEST, 2 * _SHARE * rows * columns // (rows + columns))
    large = any(n == columns and squeeze(tokens)[-1] != axis  # its rows are strided along the sum
                and terms * n * factor.dtype.itemsize > target.l2
                for n, (factor, tokens) in zip(own, sides))
    if columns == 1 or rows >= _ROWS or terms < 2 * chunk or not large:
        return None
    return next((n for n in range(chunk, 2 * chunk) if terms % n == 0), chunk)


def _read(node: UOp, index: Tokens) -> tuple[UOp, Tokens]:
    """Return the node below the movements of a factor, and the index at which it is read."""
    while node.op in _MOVED:
        index = index if node.op is ops.CAST else source_index(node, 0, index)
        node = node.src[0]
    return node, index
