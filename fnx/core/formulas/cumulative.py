"""Cumulative reductions: element i of the result reduces elements 0 .. i of an axis.

    before  running(x: [1000, 3], axis 0, ADD)
    after   SCAN(step, 1000 steps, carry 0: [3], x)           step: (c, u) -> (c + u, c + u)

So one kernel walks the axis, vectorized over the other axes; the derivative is a cumulative
reduction in the other direction. Short axes use log2(n) fused additions of shifted arrays (Hillis
and Steele, Data Parallel Algorithms, 1986), which can fuse into the consumer's kernel. There each
element reads n others under as many conditions. Along an axis that is not the last one, where the
loop vectorizes without a transposition, the loop is faster from three elements on.
"""

from __future__ import annotations

import math

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp

_SHORT_ALONE = 16  # the longest short axis if it is the only one: a loop carry, one batch element
_SHORT_LAST_AXIS = 4
_SHORT_INNER_AXIS = 2


def cumulative(x: UOp, axis: int, monoid: Op, reverse: bool = False, name: str = "running") -> UOp:
    """Return the cumulative reduction of x along an axis, from its end if ``reverse``."""
    n = x.shape[axis]
    max_short = _SHORT_INNER_AXIS if math.prod(x.shape[axis + 1:]) > 1 else \
        _SHORT_LAST_AXIS if math.prod(x.shape[:axis]) > 1 else _SHORT_ALONE
    if n in range(max_short + 1):  # a dimension is in no range
        return _shift_and_combine(x, axis, monoid, reverse)
    shape = x.shape
    lead, trail = ([m] if m != 1 else [] for m in (
        math.prod(shape[:axis]), math.prod(shape[axis + 1:])))
    x, axis = build.reshape(x, (*lead, n, *trail)), len(lead)  # merge the axes on each side
    carry_dtype = _carry_dtype(x.dtype, monoid)
    front = [axis, *[a for a in range(len(x.shape)) if a != axis]]
    back = [front.index(a) for a in range(len(front))]
    other_shape = tuple([x.shape[a] for a in front[1:]])
    carry, element = build.param(0, carry_dtype, other_shape), build.param(1, x.dtype, other_shape)
    reduced = build.elementwise(monoid, carry, build.cast(element, carry_dtype))
    step = build.function([reduced, build.cast(reduced, x.dtype)], 2, name)
    initial = _identity(monoid, carry_dtype, other_shape)
    rows = build.permute(x, front)
    results = build_calls.scan(step, n, [], [initial], [rows], reverse)[1]
    return build.reshape(build.permute(results, back), shape)


def _carry_dtype(dtype: DType, monoid: Op) -> DType:
    """Return the dtype of the carry.

    Floats of 16 bits and less accumulate in float32, like sums. Sums and products of float32
    accumulate in float64, as each element adds a rounding error.
    """
    if not dtype.is_float or dtype.bits > 32:
        return dtype
    wide = dtype.bits == 32 and monoid in (ops.ADD, ops.MUL)
    return dtypes.float64 if wide else dtypes.float32


def _identity(monoid: Op, dtype: DType, shape: tuple[int, ...]) -> UOp:
    assert monoid.identity is not None
    return build.const(monoid.identity(dtype), dtype, shape)


def _shift_and_combine(x: UOp, axis: int, monoid: Op, reverse: bool) -> UOp:
    """Combine x[i] with its neighbor, then with the elements at distance 2, 4, ..."""
    n, step = x.shape[axis], 1
    assert monoid.identity is not None
    while step < n:
        bounds = [(0, m) for m in x.shape]
        widths = [(0, 0)] * len(bounds)
        bounds[axis] = (step, n) if reverse else (0, n - step)
        widths[axis] = (0, step) if reverse else (step, 0)
        shifted = build.pad(build.shrink(x, bounds), widths, monoid.identity(x.dtype))
        x = build.elementwise(monoid, x, shifted)
        step *= 2
    return x
