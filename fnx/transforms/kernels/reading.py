"""What a hand-written kernel reads, as an array over the ranges of its index.

    x[i, j]             x with its axes as they are       x[b * 4 + j]      RESHAPE to (b, j)
    x[j, i - 1]         PERMUTE, PAD, SHRINK              x[2 * i + j]      UNFOLD: windows
    x[n - 1 - i]        FLIP                              x[y[i], j]        GATHER along y[i]

An index that is one range, or the sum of two, is a movement: so are its derivatives. All others
are gathered together, with the axes whose ranges they share.
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

Rank = Callable[[UOp], tuple[int, int]]  # sorts ranges: the outermost loop first


class Over(Record):
    """An array with an axis for each of some ranges, the outermost loop first."""

    node: UOp
    axes: tuple[UOp, ...] = ()


def length(r: UOp) -> int:
    """How many iterations a range has."""
    return symbolic.bounds(extent(r))[1]


def spread(x: Over, axes: tuple[UOp, ...]) -> UOp:
    """The array of a value, repeated over the ranges among ``axes`` that it does not depend on."""
    if x.axes == axes:
        return x.node
    kept = tuple([length(r) if r in x.axes else 1 for r in axes])
    return build.expand(build.reshape(x.node, kept), tuple(map(length, axes)))


def ordered(node: UOp, axes: Sequence[UOp], rank: Rank) -> Over:
    """An array whose axes are those ranges, with the axes in the order of the loops."""
    order = sorted(range(len(axes)), key=lambda a: rank(axes[a]))
    return Over(build.permute(node, order), tuple([axes[a] for a in order]))


class Affine(Record):
    """An index ``shift + sum of step * range``."""

    shift: int
    steps: tuple[tuple[UOp, int], ...]


def affine(index: UOp, axes: Callable[[UOp], bool]) -> Affine | None:
    """An index as a sum of ranges for which ``axes`` holds; None: it is none."""
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
    """Whether an index reads its axis by a movement."""
    steps = [step for _, step in index.steps]
    return len(steps) < 2 or len(steps) == 2 and min(steps) > 0


def moved(x: UOp, axis: int, index: Affine) -> tuple[UOp, list[UOp]]:
    """The array with its axis read at an index; the ranges that stand in its place.

    Places outside of the axis are zero.
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
    """n places of an axis from ``start`` on; zeros where there are none."""
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
    """The array of x at an index, over all ranges of both.

    Args:
        x: its first axes are those of the ranges ``free``, which read themselves; then one for
            each of ``index``.
        free: ranges.
        index: index expressions.
        rank: the order of the axes of the result.
        value: the array of an index expression.
        is_axis: whether a range is an axis here; otherwise it is a number that is data.
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
    while True:  # axes of ranges that are read by a gathered index are gathered with it
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
    """The integer that holds the indices of a kernel: those that are data may be wide."""
    wide = any(n.op is ops.CAST and n.dtype is dtypes.index and n.src[0].dtype.is_integer
               and n.src[0].dtype.limits[1] > dtypes.int32.limits[1] for n in nodes)
    return dtypes.as_dtype(np.int64) if wide else dtypes.int32
