"""Index arrays of GATHER and SCATTER: their dtype, arithmetic sequences, and broadcasting.

>>> index_dtype(2**31 - 1), index_dtype(2**31)
(int32, int64)
"""

from __future__ import annotations

from collections.abc import Mapping

from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp


def index_dtype(n: int) -> DType:
    """Return the dtype of indices into an axis of length n; it can also hold n itself."""
    return dtypes.int32 if n <= dtypes.int32.limits[1] else dtypes.int64


def index_range(start: int, step: int, count: int, n: int) -> UOp:
    """Return ``count`` indices first, first + step, ... into an axis of length n.

    >>> index_range(0, 1, 4, 9) is build.iota(4)
    True
    """
    t = index_dtype(n)
    values = build.iota(count, t)
    values = values if step == 1 else build.mul(values, build.const(step, t, (count,)))
    return values if start == 0 else build.add(values, build.const(start, t, (count,)))


def broadcast_indices(at: Mapping[int, UOp], parts: Mapping[int, UOp]) -> dict[int, UOp]:
    """Broadcast index arrays to a common shape: the shape of ``at``, then the parts' lengths.

    Args:
        at: axis -> index array, all of one shape.
        parts: axis -> 1-d indices into that axis.

    Returns:
        Axis -> index array of the common shape, with ascending axes.

    >>> from fnx.core.ir import dtypes
    >>> i, part = build.param(0, dtypes.int32, (4,)), build.iota(2)
    >>> {a: index.shape for a, index in broadcast_indices({1: i}, {0: part}).items()}
    {0: (4, 2), 1: (4, 2)}
    """
    shape = next(iter(at.values())).shape
    full_shape = (*shape, *[part.shape[0] for part in parts.values()])
    arrays = {a: build.reshape(i, (*shape, *[1] * len(parts))) for a, i in at.items()}
    for k, (a, part) in enumerate(parts.items(), len(shape)):
        arrays[a] = build.reshape(part,
                                  tuple([n if i == k else 1 for i, n in enumerate(full_shape)]))
    return {a: build.expand(arrays[a], full_shape) for a in sorted(arrays)}
