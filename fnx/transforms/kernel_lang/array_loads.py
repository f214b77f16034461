"""Convert a LOAD of a user-written kernel to an array over the ranges of its index.

    x[i, j]             x with its axes as they are       x[b * 4 + j]      RESHAPE to (b, j)
    x[j, i - 1]         PERMUTE, PAD, SHRINK              x[2 * i + j]      UNFOLD: windows
    x[n - 1 - i]        FLIP                              x[y[i], j]        GATHER along y[i]

An index that is one range, or the sum of two, becomes movement ops, whose derivatives are movement
ops, too. All other axes are gathered together, along with the axes whose ranges they share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import extent
from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import other_axes
from fnx.core.ir.uop import UOp
from fnx.core.rewriting import symbolic
from fnx.core.support.record import Record

RangeRank = Callable[[UOp], tuple[int, int]]  # sort key of ranges: outermost loop first


class RangedArray(Record):
    """An array with one axis for each range in ``axes``, outermost loop first."""

    node: UOp
    axes: tuple[UOp, ...] = ()


def trip_count(r: UOp) -> int:
    """Return the number of iterations of a range."""
    return symbolic.bounds(extent(r))[1]


def expand_to(x: RangedArray, axes: tuple[UOp, ...]) -> UOp:
    """Broadcast the array of a value over the ranges of ``axes`` that it does not depend on."""
    if x.axes == axes:
        return x.node
    sizes = tuple([trip_count(r) if r in x.axes else 1 for r in axes])
    return build.expand(build.reshape(x.node, sizes), tuple(map(trip_count, axes)))


def sort_axes(node: UOp, axes: Sequence[UOp], rank: RangeRank) -> RangedArray:
    """Transpose an array over the ranges ``axes`` to loop order."""
    order = sorted(range(len(axes)), key=lambda a: rank(axes[a]))
    return RangedArray(build.permute(node, order), tuple([axes[a] for a in order]))


class AffineIndex(Record):
    """An index ``shift + sum of step * range``."""

    shift: int
    steps: tuple[tuple[UOp, int], ...]


def match_affine(index: UOp, is_axis: Callable[[UOp], bool]) -> AffineIndex | None:
    """Match an affine index over ranges for which ``is_axis`` holds. None if it does not match."""
    terms, shift = symbolic.linear_terms(index)
    steps: list[tuple[UOp, int]] = []
    for monomial, step in terms.items():
        r = monomial[0]
        if len(monomial) != 1 or r.op is not ops.RANGE:
            return None
        if trip_count(r) > 1 and step:
            if not is_axis(r):
                return None
            steps.append((r, step))
    return AffineIndex(shift, tuple(sorted(steps, key=lambda t: -abs(t[1]))))


def is_movement(index: AffineIndex) -> bool:
    """Whether movement ops can read an axis at an index."""
    steps = [step for _, step in index.steps]
    return len(steps) < 2 or len(steps) == 2 and min(steps) > 0


def apply_movement(x: UOp, axis: int, index: AffineIndex) -> tuple[UOp, list[UOp]]:
    """Read an axis of an array at an affine index.

    Returns:
        The array, zero where the index is out of bounds, and the ranges that replace the axis.
    """
    backwards = len(index.steps) == 1 and index.steps[0][1] < 0
    steps = [(r, abs(step)) for r, step in index.steps]
    shift = index.shift
    if backwards:
        x, shift = build.flip(x, (axis,)), x.shape[axis] - 1 - shift
    span = 1 + sum(step * (trip_count(r) - 1) for r, step in steps)
    tiled = len(steps) == 2 and steps[1][1] == 1 and steps[0][1] == trip_count(steps[1][0])
    x = _padded_slice(x, axis, shift, span)
    ranges = [r for r, _ in steps]
    front, back = x.shape[:axis], x.shape[axis + 1:]
    if tiled or all(step == 1 for _, step in steps) and len(steps) < 2:
        return build.reshape(x, (*front, *map(trip_count, ranges), *back)), ranges
    (outer, stride), *inner = steps
    size, dilation = (trip_count(inner[0][0]), inner[0][1]) if inner else (1, 1)
    wide = build.expand(build.reshape(x, (*front, span, 1, *back)), (*front, span, size, *back))
    windows = build.unfold(wide, axis, axis + 1, stride, dilation, trip_count(outer))
    return build.reshape(windows, (*front, *map(trip_count, ranges), *back)), ranges


def _padded_slice(x: UOp, axis: int, start: int, n: int) -> UOp:
    """Return n elements of an axis from ``start`` on, padded with zeros."""
    def per_axis(value: tuple[int, int], other: Callable[[int], tuple[int, int]]
                 ) -> list[tuple[int, int]]:
        return [value if a == axis else other(m) for a, m in enumerate(x.shape)]

    size = x.shape[axis]
    low, high = max(start, 0), min(start + n, size)
    if low >= high:
        return build.const(0, x.dtype, (*x.shape[:axis], n, *x.shape[axis + 1:]))
    part = build.shrink(x, per_axis((low, high), lambda m: (0, m)))
    return build.pad(part, per_axis((low - start, start + n - high), lambda m: (0, 0)))


def load_array(x: UOp, free: Sequence[UOp], index: Sequence[UOp], rank: RangeRank,
               value: Callable[[UOp], RangedArray], is_axis: Callable[[UOp], bool],
               integer: DType) -> RangedArray:
    """Return x read at an index, as an array over the ranges of both.

    Args:
        x: an array whose leading axes are the ranges ``free``, followed by one axis for each of
            ``index``.
        free: the ranges of the leading axes, each indexed by itself.
        index: index expressions.
        rank: the order of the axes of the result.
        value: returns the array of an index expression.
        is_axis: whether a range is an axis here; otherwise it is a run-time number.
        integer: the dtype of index arrays.
    """
    forms = [AffineIndex(0, ((r, 1),)) for r in free] + [match_affine(i, is_axis) for i in index]
    nodes = [*free, *index]
    uses: dict[UOp, int] = {}
    for form in forms:
        for r, _ in form.steps if form is not None else ():
            uses[r] = uses.get(r, 0) + 1
    gathered = {a for a, form in enumerate(forms)
                if form is None or not is_movement(form)
                or a >= len(free) and any(uses[r] > 1 for r, _ in form.steps)}
    gather_ranges: set[UOp] = set()
    while True:  # also gather the axes that share ranges with a gathered index
        gather_ranges = {r for a in gathered for r in value(nodes[a]).axes}
        more = {a for a, form in enumerate(forms) if a not in gathered and form is not None
                and any(r in gather_ranges for r, _ in form.steps)}
        if not more:
            break
        gathered |= more
    x = build.pad(x, [(0, int(a in gathered and n == 0)) for a, n in enumerate(x.shape)])
    axes: list[UOp] = []
    gather_dims = sorted(gathered)
    if gathered:
        gather_axes = tuple(sorted(gather_ranges, key=rank))
        x = build.gather(x,
                         *[build.cast(expand_to(value(nodes[a]), gather_axes), integer)
                           for a in gather_dims],
                         axes=gather_dims)
        axes += gather_axes
        forms = [forms[a] for a in other_axes(gather_dims, len(forms))]
    for form in forms:
        assert form is not None
        x, ranges = apply_movement(x, len(axes), form)
        axes += ranges
    return sort_axes(x, axes, rank)


def index_dtype(nodes: Sequence[UOp]) -> DType:
    """Return the integer dtype of a kernel's indices: int32, or int64 for wide data."""
    wide = any(n.op is ops.CAST and n.dtype is dtypes.index and n.src[0].dtype.is_integer
               and n.src[0].dtype.limits[1] > dtypes.int32.limits[1] for n in nodes)
    return dtypes.as_dtype(np.int64) if wide else dtypes.int32
