"""Split-K: a product of few rows, or of a long sum, is a sum of products of chunks.

    before  REDUCE(x[m, k] * w[k, n], k)                            k of 4096
    after   REDUCE(REDUCE(x[m, c, k] * w[c, k, n], k), c)           c of 8, k of 512

A tile of results traverses the whole sum. If the rows of a factor run across the sum, each step of
that traversal is another cache line, often another page, and lines are evicted before the next tile
needs the rest of them. A chunk stays in a cache while all of its tiles pass over it, and workers
share chunks.

A factor of many columns that exceeds the cache is read once if there are few rows. Then chunks are
long enough that their partial sums, written and read once, are about an eighth of both factors. Of
other products the cycles of chunks are compared with those of the whole (schedule/footprint.py).

>>> from fnx.core.ir import dtypes
>>> def split(m: int, n: int, k: int) -> UOp | None:
...     x, w = build.param(0, dtypes.float32, (k, m)), build.param(1, dtypes.float32, (k, n))
...     sides = [build.expand(build.reshape(build.permute(side, (1, 0)), shape), (m, n, k))
...              for side, shape in ((x, (m, 1, k)), (w, (1, n, k)))]
...     node = build.reduce(build.mul(*sides), ops.ADD, [2])
...     return split_k(node, node.src[0], Target("cpu"))
>>> split(32, 4096, 4096).src[0].src[0].shape, split(128, 128, 5000).src[0].src[0].shape
((8, 32, 4096, 512), (20, 128, 128, 250))
>>> split(1024, 1024, 1024) is None, split(128, 128, 1000) is None
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.tuning import LINE_BYTES, PACK_COST
from fnx.lower.fusion.index_tokens import ZERO, Tokens, source_index
from fnx.lower.schedule.footprint import Factor, Footprint, Walk, footprint, product_cycles
from fnx.lower.schedule.register_tiles import choose_register_tile

_MAX_ROWS = 112    # rows from which a product packs its factors
_TRAFFIC_RATIO = 8     # size of both factors relative to that of the partial sums
_MAX_ITEMSIZE = 8  # of an element of a factor
_MIN_CHUNK_TERMS = 16  # least terms of a chunk
_MIN_PRICED_TERMS = 256  # ... chosen by its price: four accumulators for each result
_MAX_COST_RATIO = 0.75  # cycles relative to those of fewer chunks: prices are that uncertain
_BLOCK_ROWS = 56  # rows of a block of tiles, as in schedule/contraction_tiling.py
_MOVEMENTS = frozenset({ops.RESHAPE, ops.EXPAND, ops.PERMUTE, ops.CAST})


class _Side(Record):
    """A factor of a product as it lies in memory: the bytes between neighbors along axes of the
    product, and along the results; rows or columns of the result; bytes of an element."""

    steps: dict[int, int]
    step: int
    results: int
    size: int


def split_k(node: UOp, x: UOp, target: Target) -> UOp | None:
    """Return a REDUCE as a sum over chunks of its sum; None if that does not pay.

    Args:
        node: the REDUCE.
        x: its rewritten operand.
        target: the machine; workgroups of threads have tiles of their own.
    """
    chunk = _chunk(node, target) if target.threads == 1 else None
    if chunk is None:
        return None
    axis, chunk_length = chunk
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

    summed = [a + 1 for a in node.arg.axes]
    total = build.reduce(build.reduce(factors(chunks), ops.ADD, summed), ops.ADD, [0])
    if chunked_length == x.shape[axis]:
        return total
    remainder = factors(lambda side: slice_axis(side, chunked_length, x.shape[axis]))
    return build.add(total, build.reduce(remainder, ops.ADD, node.arg.axes))


def _chunk(node: UOp, target: Target) -> tuple[int, int] | None:
    """Return the axis along which the sum of a product is split, and the length of a chunk; None
    if it is not to be split."""
    x, axes = node.src[0], node.arg.axes
    if node.arg.monoid is not ops.ADD or x.op is not ops.MUL \
            or not x.dtype.is_float or math.prod(x.shape) * _MAX_ITEMSIZE <= target.l2:
        return None
    sides = [side for factor in x.src if (side := _side(factor, x.shape, axes)) is not None]
    if len(sides) < 2 or {*sides[0].steps} & {*sides[1].steps} != {*axes}:
        return None
    rows, columns = sorted(sides, key=lambda side: side.results)
    length = _few_rows_chunk(x.shape[axes[0]], rows, columns, target) if len(axes) == 1 else None
    return (axes[0], length) if length is not None else \
        _cheapest_chunk({a: x.shape[a] for a in axes}, rows, columns, target)


def _side(factor: UOp, shape: ops.Shape, axes: tuple[int, ...]) -> _Side | None:
    """Return how a factor lies in memory; None if it lacks a summed axis, or is indexed
    otherwise than by axes of the product."""
    node, tokens = _strip_movements(factor, tuple([ZERO if n == 1 else i
                                                   for i, n in enumerate(shape)]))
    steps: dict[int, int] = {}
    step = size = node.dtype.itemsize
    for token in reversed([t for t in tokens if t != ZERO]):
        if type(token) is not int:
            return None
        steps[token] = step
        step *= shape[token]
    results = [a for a in steps if a not in axes]
    if not steps.keys() >= {*axes}:
        return None
    return _Side(steps, steps[results[0]] if results else 0,
                 math.prod([shape[a] for a in results]), size)


def _few_rows_chunk(terms: int, rows: _Side, columns: _Side, target: Target) -> int | None:
    """Return the length of chunks of a product of few rows with a factor that exceeds the cache,
    whose rows run across the sum."""
    m, n = rows.results, columns.results
    chunk = max(_MIN_CHUNK_TERMS, 2 * _TRAFFIC_RATIO * m * n // (m + n))
    exceeds_cache = columns.step == columns.size and \
        terms * n * columns.size > target.l2
    if m >= _MAX_ROWS or terms < 2 * chunk or not exceeds_cache:
        return None
    return next((c for c in range(chunk, 2 * chunk) if terms % c == 0), chunk)


def _cheapest_chunk(summed: Mapping[int, int], rows: _Side, columns: _Side, target: Target
                    ) -> tuple[int, int] | None:
    """Return the summed axis to split and the length of a chunk, if that takes fewer cycles."""
    if (rows.step, columns.step) != (rows.size, columns.size):
        return None  # a factor is read along the sum
    terms, best = math.prod(summed.values()), None
    lowest = min(_cycles(summed, rows, columns, target, packs) for packs in (False, True))
    fetched = terms * (rows.results + columns.results)
    partial = 3 * rows.results * columns.results  # fetched, written back, read
    for axis, n in summed.items():
        count = 2
        while terms // count >= _MIN_PRICED_TERMS and count <= n:
            length = -(-n // count)
            length = next((c for c in range(length, length // 2, -1) if n % c == 0), length)
            moved = Footprint((fetched + n / length * partial) * columns.size / LINE_BYTES, 1, 0)
            cycles = moved.cycles(2, misses_pages=False) + n / length * _cycles(
                {**summed, axis: length}, rows, columns, target, packs=False)
            if cycles <= _MAX_COST_RATIO * lowest:
                lowest, best = cycles, (axis, length)
            count *= 2
    return best


def _cycles(summed: Mapping[int, int], rows: _Side, columns: _Side, target: Target, packs: bool
            ) -> float:
    """Return the cycles of a product of a sum of such lengths."""
    depth: int = math.prod(summed.values())
    size = columns.size
    tile_rows, vectors, lanes = choose_register_tile(rows.results, columns.results, size, target)
    fitting = min(_BLOCK_ROWS, target.l2 // 2 // (depth * size)) // tile_rows * tile_rows
    block = min(max(tile_rows, fitting), rows.results)

    def factor(side: _Side, tile: int, block: int) -> Factor:
        loops = [(side.steps[a], n) for a, n in summed.items()]
        one, all_of_block = (footprint([*loops, (side.step, n)], side.size) for n in (tile, block))
        packing = side.results * depth / min(lanes, tile) * PACK_COST
        return Factor(Walk(one, all_of_block, -(-block // tile)), tile * depth * side.size,
                      packing if packs else None)

    reading: float = product_cycles(
        factor(rows, tile_rows, block), factor(columns, vectors * lanes, columns.results),
        -(-rows.results // block), False, target)
    arithmetic: float = rows.results * columns.results * depth / (2 * lanes)
    return reading + arithmetic


def _strip_movements(node: UOp, index: Tokens) -> tuple[UOp, Tokens]:
    """Return the node below the movements of a factor, and the index at which it is read."""
    while node.op in _MOVEMENTS:
        index = index if node.op is ops.CAST else source_index(node, 0, index)
        node = node.src[0]
    return node, index
