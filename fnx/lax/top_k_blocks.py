"""Top-k without sorting whole rows: only the blocks with the k largest maxima can have them.

    before  k last of SORT(x[b, n])                       n * log(n)^2 comparisons
    after   peaks = max(x[b, n / m, m])                   one pass
            blocks = top_k(peaks, k), in ascending order  the same again, of n / m
            k last of SORT(x[b, blocks, m])               of k * m elements

An element whose block is not among these has k elements before it: the maxima of blocks that are
larger, or equal and earlier. So the result is exact, also in the order of equal elements.
"""

from __future__ import annotations

import math

import numpy as np

from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.numpy.sorting import sort_along

MIN_REDUCTION = 3  # elements of a row for each that is still sorted; below, the row is sorted
COPIED = 64  # elements, where a row is padded, that take as long to copy as one to sort


def block_size(dtype: DType, n: int, k: int) -> int | None:
    """Return the size of blocks with the fewest elements to sort; None if that does not pay.

    >>> from fnx.core.ir import dtypes
    >>> block_size(dtypes.float32, 10_000, 5), block_size(dtypes.float32, 100, 50)
    (40, None)
    """
    if not 0 < k <= n // MIN_REDUCTION or not (dtype.is_float or dtype.is_integer):
        return None
    middle = math.isqrt(n // k)  # of n / m + k * m, where both are equal
    work = {m: -(-n // m) + k * m + (n // COPIED if n % m else 0)
            for m in range(max(2, middle // 2), 2 * middle + 1)}
    size = min(work, key=lambda m: work[m], default=None)
    return size if size is not None and work[size] * MIN_REDUCTION <= n else None


def top_indices(x: UOp, k: int) -> UOp:
    """Return the indices of the k largest elements of each row, largest first.

    >>> from fnx.core.array.array import Array
    >>> import fnx, fnx.numpy as jnp
    >>> indices = fnx.jit(lambda x: Array(top_indices(x._node, 3)))
    >>> indices(jnp.asarray([[1.0, 5.0, 3.0, 5.0]]))
    Array([[1, 3, 2]], dtype=int32)
    """
    rows, n = x.shape
    size = block_size(x.dtype, n, k)
    if size is None:
        return _by_sorting(x, k)
    count = -(-n // size)
    grid = build.reshape(build.pad(x, [(0, 0), (0, count * size - n)], _lowest(x.dtype)),
                         (rows, count, size))
    chosen, = sort_along([top_indices(build.reduce(grid, ops.MAX, (2,)), k)], 1, 1)
    candidates = build.gather(grid, _row_numbers(rows, k), chosen, axes=(0, 1))
    at = top_indices(build.reshape(candidates, (rows, k * size)), k)
    width = build.const_like(at, size)
    block = build.elementwise(ops.IDIV, at, width)
    first = build.gather(chosen, _row_numbers(rows, k), block, axes=(0, 1))
    return build.add(build.mul(first, width), build.sub(at, build.mul(block, width)))


def _by_sorting(x: UOp, k: int) -> UOp:
    """The row is reversed first, so that stable sorting puts equal elements in order."""
    n = x.shape[1]
    _, indices = sort_along([build.flip(x, [1])], 1, 1, (0, -1))
    largest = build.flip(build.shrink(indices, [(0, x.shape[0]), (n - k, n)]), [1])
    return build.sub(build.const_like(largest, max(0, n - 1)), largest)


def _row_numbers(rows: int, k: int) -> UOp:
    return build.expand(build.reshape(build.iota(rows), (rows, 1)), (rows, k))


def _lowest(dtype: DType) -> float | int:
    return -math.inf if dtype.is_float else int(np.iinfo(dtype.np).min)
