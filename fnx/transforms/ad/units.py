"""Unit vectors as tangents or cotangents: a sum of products with one picks, it need not add.

    sum(k: w[j, k] * unit[i, k])   ->   w[j, i]

A unit is structurally zero beside its place (rules.py), so the other terms are nothing, also
where w is infinite. So the first matrix product of a Jacobian is a transposition. Units are
followed through movements, and into calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, ops
from fnx.core.array.trace import inline
from fnx.core.ops import Shape
from fnx.core.uop import UOp, rebuild

MAX_CALLS = 8  # that are entered one inside the other

# Of each axis of something made of the units: which axis of these it is, None: they are repeated.
UnitAxes = tuple[int | None, ...]
LANE, PLACE = 0, 1


def pick(outs: Sequence[UOp], units: UOp) -> list[UOp]:
    """The outs, where sums of products with ``units`` (one in each row) are what they pick.

    >>> from fnx.core import dtypes
    >>> w, u = (build.param(i, dtypes.float32, (3, 3)) for i in range(2))
    >>> both = [build.expand(build.reshape(x, shape), (3, 3, 3))
    ...         for x, shape in ((w, (1, 3, 3)), (u, (3, 1, 3)))]
    >>> from fnx.core.levels import show
    >>> print(show.pretty(pick([build.reduce(build.mul(*both), ops.ADD, (2,))], u)[0]))
    t0[i, j] = x0[j, i]  # float32[3, 3]
    """
    found = list(outs)
    if len(units.shape) != 2 or units.shape[0] < 2:
        return found
    for _ in range(MAX_CALLS):
        walk = _UnitWalk(units)
        found = rebuild(found, walk.visit)
        if not walk.entered:
            break
    return found


class _UnitWalk:
    def __init__(self, units: UOp) -> None:
        self.views: dict[UOp, UnitAxes] = {units: (LANE, PLACE)}
        self.entered: dict[UOp, list[UOp]] = {}  # calls that got units, as results without a call

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
        """The sum of x * units, if x does not depend on the lane."""
        view, axes = self.views.get(units, ()), node.arg.axes
        if x.op is not ops.EXPAND or LANE not in view or PLACE not in view:
            return None
        lane, place = view.index(LANE), view.index(PLACE)
        if place not in axes or lane in axes or x.src[0].shape[lane] != 1:
            return None
        shape = tuple([1 if i == lane else n for i, n in enumerate(x.shape)])
        order = list(range(len(shape)))
        order[lane], order[place] = place, lane
        rows = build.permute(build.expand(x.src[0], shape), order)
        summed = build.reduce(rows, ops.ADD, [i for i in axes if i != place])
        return build.reshape(summed, node.shape)


def _moved(node: UOp, x: UOp, view: UnitAxes | None) -> UnitAxes | None:
    """The view of a movement of something with a view."""
    if view is None:
        return None
    if node.op is ops.PERMUTE:
        return tuple([view[i] for i in node.arg])
    if node.op is ops.EXPAND:
        return view
    return _reshaped(view, x.shape, node.shape) if node.op is ops.RESHAPE else None


def _reshaped(view: UnitAxes, before: Shape, after: Shape) -> UnitAxes | None:
    """Of a RESHAPE that only adds and takes away axes of length 1."""
    rest = [(n, axis) for n, axis in zip(before, view) if n != 1]
    if [n for n, _ in rest] != [n for n in after if n != 1]:
        return None
    kept = iter([axis for _, axis in rest])
    return tuple([None if n == 1 else next(kept) for n in after])
