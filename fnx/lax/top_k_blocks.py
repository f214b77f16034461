"""Top-k without sorting whole rows: only the blocks with the k largest maxima can have them.

    before  the last k of SORT(x[b, n])                   k passes, or a whole sort
    after   peaks = max(x[b, n / m, m])                   one pass
            blocks = the last k of peaks, in order        of n / m elements
            the last k of SORT(x[b, blocks, m])           of k * m elements

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

SHORT = 1 << 12  # elements of a row that stays in the L1 cache of a core: passes over it are cheap
MIN_REDUCTION = 3  # elements of a row for each that is still sorted; below, the row is sorted
COPIED = 64  # elements, where a row is padded, that take as long to copy as one to sort


def block_size(dtype: DType, n: int, k: int) -> int | None:
    """Return the size of blocks with the fewest elements to sort; None if that does not pay.

    >>> from fnx.core.ir import dtypes
    >>> block_size(dtypes.float32, 10_000, 5), block_size(dtypes.float32, 1000, 5)
    (40, None)
    """
    if n <= SHORT or not 0 < k <= n // MIN_REDUCTION or not (dtype.is_float or dtype.is_integer):
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
    last = _last_indices(x, k, reverse=True)
    return build.sub(build.const_like(last, x.shape[1] - 1), build.flip(last, [1]))


def _last_indices(x: UOp, k: int, reverse: bool = False) -> UOp:
    """Return the indices of the k last elements of each row in ascending order, stably sorted: of
    equal elements, later ones come last. ``reverse`` reverses the row first; blocks of a long row
    are read as they lie, and only what is left of it is reversed."""
    rows, n = x.shape
    size = block_size(x.dtype, n, k)
    if size is None:
        _, indices = sort_along([build.flip(x, [1]) if reverse else x], 1, 1, (0, -1))
        return build.shrink(indices, [(0, rows), (n - k, n)])
    count, missing = -(-n // size), -n % size
    widths = (0, missing) if reverse else (missing, 0)
    padded = build.pad(x, [(0, 0), widths], _lowest(x.dtype)) if missing else x
    grid = build.reshape(padded, (rows, count, size))
    peaks = build.reduce(grid, ops.MAX, (2,))
    chosen, = sort_along([_last_indices(peaks, k, reverse)], 1, 1)
    block = build.sub(build.const_like(chosen, count - 1), chosen) if reverse else chosen
    candidates = build.gather(grid, _row_numbers(rows, k), block, axes=(0, 1))
    if reverse:
        candidates = build.flip(candidates, [2])
    at = _last_indices(build.reshape(candidates, (rows, k * size)), k)
    width = build.const_like(at, size)
    which = build.elementwise(ops.IDIV, at, width)
    start = build.mul(build.gather(chosen, _row_numbers(rows, k), which, axes=(0, 1)), width)
    offset = build.sub(build.sub(at, build.mul(which, width)), build.const_like(at, missing))
    return build.add(start, offset)


def _row_numbers(rows: int, k: int) -> UOp:
    return build.expand(build.reshape(build.iota(rows), (rows, 1)), (rows, k))


def _lowest(dtype: DType) -> float | int:
    return -math.inf if dtype.is_float else int(np.iinfo(dtype.np).min)
