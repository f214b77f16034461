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

from fnx.core import build, dtypes, ops
from fnx.core.dtypes import DType
from fnx.core.parts import extent
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.row_parts import others
from fnx.core.uop import UOp

Rank = Callable[[UOp], tuple[int, int]]  # sort key of ranges: outermost loop first


class Over(Record):
    """An array with one axis for each range in ``axes``, outermost loop first."""

    node: UOp
    axes: tuple[UOp, ...] = ()


def length(r: UOp) -> int:
    """Return the number of iterations of a range."""
    return symbolic.bounds(extent(r))[1]


def spread(x: Over, axes: tuple[UOp, ...]) -> UOp:
    """Broadcast the array of a value over the ranges of ``axes`` that it does not depend on."""
    if x.axes == axes:
        return x.node
    kept = tuple([length(r) if r in x.axes else 1 for r in axes])
    return build.expand(build.reshape(x.node, kept), tuple(map(length, axes)))


def ordered(node: UOp, axes: Sequence[UOp], rank: Rank) -> Over:
    """Transpose an array over the ranges ``axes`` to loop order."""
    order = sorted(range(len(axes)), key=lambda a: rank(axes[a]))
    return Over(build.permute(node, order), tuple([axes[a] for a in order]))


class Affine(Record):
    """An index ``shift + sum of step * range``."""

    shift: int
    steps: tuple[tuple[UOp, int], ...]


def affine(index: UOp, axes: Callable[[UOp], bool]) -> Affine | None:
    """Match an affine index over ranges for which ``axes`` holds. None if it does not match."""
    terms, shift = symbolic.linear(index)
    found: list[tuple[UOp, int]] = []
    for monomial, step in terms.items():
        r = monomial[0]
        if len(monomial) != 1 or r.op is not ops.RANGE:
            return None
        if length(r) > 1 and step:
            if not axes(r):
                return None
            found.append((r, step))
    return Affine(shift, tuple(sorted(found, key=lambda t: -abs(t[1]))))


def is_movement(index: Affine) -> bool:
    """Whether movement ops can read an axis at an index."""
    steps = [step for _, step in index.steps]
    return len(steps) < 2 or len(steps) == 2 and min(steps) > 0


def moved(x: UOp, axis: int, index: Affine) -> tuple[UOp, list[UOp]]:
    """Read an axis of an array at an affine index.

    Returns:
        The array, zero where the index is out of bounds, and the ranges that replace the axis.
    """
    backwards = len(index.steps) == 1 and index.steps[0][1] < 0
    steps = [(r, abs(step)) for r, step in index.steps]
    shift = index.shift
    if backwards:
        x, shift = build.flip(x, (axis,)), x.shape[axis] - 1 - shift
    reach = 1 + sum(step * (length(r) - 1) for r, step in steps)
    tiled = len(steps) == 2 and steps[1][1] == 1 and steps[0][1] == length(steps[1][0])
    x = _window(x, axis, shift, reach)
    ranges = [r for r, _ in steps]
    front, back = x.shape[:axis], x.shape[axis + 1:]
    if tiled or all(step == 1 for _, step in steps) and len(steps) < 2:
        return build.reshape(x, (*front, *map(length, ranges), *back)), ranges
    (outer, stride), *inner = steps
    size, dilation = (length(inner[0][0]), inner[0][1]) if inner else (1, 1)
    wide = build.expand(build.reshape(x, (*front, reach, 1, *back)), (*front, reach, size, *back))
    windows = build.unfold(wide, axis, axis + 1, stride, dilation, length(outer))
    return build.reshape(windows, (*front, *map(length, ranges), *back)), ranges


def _window(x: UOp, axis: int, start: int, n: int) -> UOp:
    """Return n elements of an axis from ``start`` on, padded with zeros."""
    def along(value: tuple[int, int], other: Callable[[int], tuple[int, int]]
              ) -> list[tuple[int, int]]:
        return [value if a == axis else other(m) for a, m in enumerate(x.shape)]

    size = x.shape[axis]
    low, high = max(start, 0), min(start + n, size)
    if low >= high:
        return build.const(0, x.dtype, (*x.shape[:axis], n, *x.shape[axis + 1:]))
    part = build.shrink(x, along((low, high), lambda m: (0, m)))
    return build.pad(part, along((low - start, start + n - high), lambda m: (0, 0)))


def read(x: UOp, free: Sequence[UOp], index: Sequence[UOp], rank: Rank,
         value: Callable[[UOp], Over], is_axis: Callable[[UOp], bool], integer: DType) -> Over:
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
    forms = [Affine(0, ((r, 1),)) for r in free] + [affine(i, is_axis) for i in index]
    nodes = [*free, *index]
    seen: dict[UOp, int] = {}
    for form in forms:
        for r, _ in form.steps if form is not None else ():
            seen[r] = seen.get(r, 0) + 1
    gathered = {a for a, form in enumerate(forms)
                if form is None or not is_movement(form)
                or a >= len(free) and any(seen[r] > 1 for r, _ in form.steps)}
    taken: set[UOp] = set()
    while True:  # also gather the axes that share ranges with a gathered index
        taken = {r for a in gathered for r in value(nodes[a]).axes}
        more = {a for a, form in enumerate(forms) if a not in gathered and form is not None
                and any(r in taken for r, _ in form.steps)}
        if not more:
            break
        gathered |= more
    x = build.pad(x, [(0, int(a in gathered and n == 0)) for a, n in enumerate(x.shape)])
    axes: list[UOp] = []
    first = sorted(gathered)
    if gathered:
        over = tuple(sorted(taken, key=rank))
        x = build.gather(x, *[build.cast(spread(value(nodes[a]), over), integer) for a in first],
                         axes=first)
        axes += over
        forms = [forms[a] for a in others(first, len(forms))]
    for form in forms:
        assert form is not None
        x, ranges = moved(x, len(axes), form)
        axes += ranges
    return ordered(x, axes, rank)


def index_dtype(nodes: Sequence[UOp]) -> DType:
    """Return the integer dtype of a kernel's indices: int32, or int64 for wide data."""
    wide = any(n.op is ops.CAST and n.dtype is dtypes.index and n.src[0].dtype.is_integer
               and n.src[0].dtype.limits[1] > dtypes.int32.limits[1] for n in nodes)
    return dtypes.as_dtype(np.int64) if wide else dtypes.int32
