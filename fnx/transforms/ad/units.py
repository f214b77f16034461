"""Contractions with the standard basis: a sum of products with a one-hot vector is an index.

    sum(k: w[j, k] * unit[i, k])          ->   w[j, i]
    sum(k: w[j, k] * unit[i, k, c])       ->   w[j, k of i] where c is that of i, else 0

A basis vector is symbolically zero except at its one (rules.py), so the other terms vanish, even
if w is infinite. So the first matrix product of a Jacobian is a transposition. The basis is
tracked through movement ops, and into calls.

Row i of the basis of an array of n elements is 1 at element i. An axis of a view of the basis
is the rows, a digit of the flat index (``i // stride % length``), or neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core import build, ops
from fnx.core.array.trace import inline
from fnx.core.ops import Shape
from fnx.core.record import Record
from fnx.core.uop import UOp, rebuild

MAX_CALLS = 8  # nesting depth of calls that are inlined


class PlaceDigit(Record):
    """``i // stride % length``, a digit of the flat index i."""

    stride: int
    length: int


LANE = "lane"
UnitAxes = tuple[PlaceDigit | str | None, ...]  # None: an axis that is broadcast


def pick(outs: Sequence[UOp], units: UOp) -> list[UOp]:
    """Return the outs, with contractions with ``units`` (a one in each row) turned into indexing.

    >>> from fnx.core import dtypes
    >>> w, u = (build.param(i, dtypes.float32, (3, 3)) for i in range(2))
    >>> both = [build.expand(build.reshape(x, shape), (3, 3, 3))
    ...         for x, shape in ((w, (1, 3, 3)), (u, (3, 1, 3)))]
    >>> from fnx.core.levels import show
    >>> print(show.pretty(pick([build.reduce(build.mul(*both), ops.ADD, (2,))], u)[0]))
    t0[i, j] = x0[j, i]  # float32[3, 3]
    """
    found = list(outs)
    if len(units.shape) < 2 or units.shape[0] < 2:
        return found
    for _ in range(MAX_CALLS):
        walk = _UnitWalk(units)
        found = rebuild(found, walk.visit)
        if not walk.entered:
            break
    return found


class _UnitWalk:
    def __init__(self, units: UOp) -> None:
        self.n, *lengths = units.shape
        place = [None if n == 1 else PlaceDigit(math.prod(lengths[i + 1:]), n)
                 for i, n in enumerate(lengths)]
        self.views: dict[UOp, UnitAxes] = {units: (LANE, *place)}
        self.entered: dict[UOp, list[UOp]] = {}  # calls that take units -> their inlined results

    def visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.GET and src[0] in self.entered:
            result: UOp = self.entered[src[0]][node.arg]
            return result
        if node.op is ops.REDUCE and node.arg.monoid is ops.ADD and src[0].op is ops.MUL:
            a, b = src[0].src
            found = self._picked(a, b, node)
            return self._picked(b, a, node) if found is None else found
        if any(s in self.views for s in src):
            made = node.over(src)
            if node.op is ops.CALL and src[0].op is ops.FUNCTION:
                self.entered[made] = inline(src[0], src[1:])
            elif (view := _moved(node, src[0], self.views.get(src[0]))) is not None:
                self.views[made] = view
            return made
        return None

    def _picked(self, x: UOp, units: UOp, node: UOp) -> UOp | None:
        """Return the sum of x * units, if x does not depend on the rows."""
        view, axes = self.views.get(units, ()), node.arg.axes
        if x.op is not ops.EXPAND or LANE not in view:
            return None
        lane = view.index(LANE)
        digits = {i: v for i, v in enumerate(view) if isinstance(v, PlaceDigit)}
        picked = sorted([i for i in digits if i in axes], key=lambda i: -digits[i].stride)
        if not picked or lane in axes or x.src[0].shape[lane] != 1:
            return None
        shape = tuple([1 if i == lane else n for i, n in enumerate(x.shape)])
        rest = [i for i in axes if i not in picked]
        summed = build.reduce(build.expand(x.src[0], shape), ops.ADD, rest) if rest else \
            build.expand(x.src[0], shape)
        left = [i for i in range(len(shape)) if i not in rest]  # the axes of ``summed``
        kept = [i for i in left if i not in picked and i != lane]
        rows = build.permute(summed, [left.index(i) for i in (lane, *picked, *kept)])
        lengths = tuple([shape[i] for i in kept])
        found = build.reshape(self._along_lanes(rows, [digits[i] for i in picked], lengths),
                              (self.n, *lengths))
        at = sum(i < lane for i in kept)
        order = [*range(1, at + 1), 0, *range(at + 1, len(kept) + 1)]
        found = build.permute(found, order)
        for i in kept:
            if i in digits:
                axis = kept.index(i) + (i > lane)
                found = build.where(self._is_at(digits[i], at, axis, found.shape), found,
                                    build.const(0, found.dtype, found.shape))
        return build.reshape(found, node.shape)

    def _along_lanes(self, rows: UOp, digits: Sequence[PlaceDigit], lengths: Shape) -> UOp:
        """Expand ``rows`` (1, the digits, more axes) to one entry per row, in front, which has
        these digits."""
        small: list[int] = []
        whole: list[int] = []
        above = self.n
        for d in digits:
            between = above // (d.stride * d.length)
            small += [1, d.length]
            whole += [between, d.length]
            above = d.stride
        made = build.reshape(rows, (*small, 1, *lengths))
        return build.expand(made, (*whole, above, *lengths))

    def _is_at(self, digit: PlaceDigit, lane: int, axis: int, shape: Shape) -> UOp:
        """Whether the flat index of a row has the digit that equals the index of an axis."""
        above = self.n // (digit.stride * digit.length)
        index = build.iota(digit.length)
        own = build.expand(build.reshape(index, (1, digit.length, 1)),
                           (above, digit.length, digit.stride))
        lanes = build.reshape(own, tuple([self.n if i == lane else 1 for i in range(len(shape))]))
        places = build.reshape(index, tuple([digit.length if i == axis else 1
                                             for i in range(len(shape))]))
        return build.eq(build.expand(lanes, shape), build.expand(places, shape))


def _moved(node: UOp, x: UOp, view: UnitAxes | None) -> UnitAxes | None:
    """Return the view of a movement op of something with a view."""
    if view is None:
        return None
    if node.op is ops.PERMUTE:
        return tuple([view[i] for i in node.arg])
    if node.op is ops.EXPAND:
        return view
    return _reshaped(view, x.shape, node.shape) if node.op is ops.RESHAPE else None


def _reshaped(view: UnitAxes, before: Shape, after: Shape) -> UnitAxes | None:
    """Return the view of a RESHAPE that splits or joins digits and leaves other axes unchanged."""
    waiting = [(n, v) for n, v in zip(before, view) if n != 1]
    out: list[PlaceDigit | str | None] = []
    for n in after:
        if n == 1:
            out.append(None)
            continue
        if not waiting:
            return None
        length, v = waiting.pop(0)
        while length < n and waiting and isinstance(v, PlaceDigit):
            more, low = waiting.pop(0)
            if not isinstance(low, PlaceDigit) or v.stride != low.stride * low.length:
                return None
            length, v = length * more, PlaceDigit(low.stride, v.length * low.length)
        if length > n and length % n == 0 and isinstance(v, PlaceDigit):
            rest = length // n
            waiting.insert(0, (rest, PlaceDigit(v.stride, rest)))
            v = PlaceDigit(v.stride * rest, n)
        elif length != n:
            return None
        out.append(v)
    return tuple(out)
