"""The elements of a named axis, in groups: the common part of all collectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fnx.core import build, dtypes
from fnx.core.array import axes, scope, tree
from fnx.core.array.array import Array
from fnx.core.array.public import asarray
from fnx.core.errors import ArgumentError, ShapeError
from fnx.core.uop import UOp

Groups = Sequence[Sequence[int]] | None


class GroupedLanes:
    """The elements of one or several named axes (row-major), optionally in groups.

    Attributes:
        axes: the named axes.
        all: the number of elements.
        groups: axis indices of each group, or None.
        size: the number of elements of a group.
    """

    def __init__(self, axis_name: Hashable, groups: Groups = None) -> None:
        names = axis_name if isinstance(axis_name, tuple | list) else (axis_name,)
        for name in names:
            if not isinstance(name, Hashable):
                raise ArgumentError(f"expected the name of an axis, got {type(name).__name__}",
                                    hint="vmap(..., axis_name=...) gives it")
        self.axes = [scope.named_axis(name) for name in names]
        self.all = math.prod([a.size for a in self.axes])
        self.groups = None if groups is None else self._checked(groups)
        self.size = self.all if self.groups is None else self.groups.shape[1]

    def _checked(self, groups: Sequence[Sequence[int]]) -> Any:
        try:
            table = np.asarray([list(g) for g in groups])
        except (TypeError, ValueError):  # not sequences, or of several lengths
            table = None
        if table is None or table.ndim != 2 or not np.array_equal(
                np.sort(table, None), np.arange(self.all)):
            raise ArgumentError(f"expected axis_index_groups of one size that have each of the "
                                f"{self.all} lanes once, got {groups!r}")
        return table.astype(np.int32)

    def own(self) -> UOp:
        """Return the index of this element along the axes."""
        if not self.axes:
            return build.const(0, dtypes.int32)
        number = build.axis_index(self.axes[0])
        for axis in self.axes[1:]:
            before = build.mul(number, build.like(number, axis.size))
            number = build.add(before, build.axis_index(axis))
        return number

    def looked_up(self, table: Any) -> UOp:
        """Look up the entry of a table for this element."""
        return picked(asarray(table)._node, self.own())

    def gathered(self, x: UOp) -> UOp:
        """Gather x from all elements, or those of this element's group, along a new first axis."""
        out = x
        for axis in reversed(self.axes):
            out = build.all_gather(out, axis)
        out = build.reshape(out, (self.all, *x.shape))
        if self.groups is None:
            return out
        rows = np.empty((self.all, self.size), np.int32)
        for group in self.groups:
            rows[group] = group
        return picked(out, self.looked_up(rows))

    def place(self) -> UOp:
        """Return the index of this element within its group."""
        if self.groups is None:
            return self.own()
        places = np.empty(self.all, np.int32)
        for group in self.groups:
            places[group] = np.arange(self.size)
        return self.looked_up(places)

    def from_lane(self, x: UOp, lane: UOp) -> UOp:
        """Return the x of another element."""
        return picked(self.gathered(x), lane)


def picked(x: UOp, index: UOp) -> UOp:
    """Gather x at an index of its first axis; zeros if that axis is empty."""
    if x.shape[0]:
        return build.gather(x, index)
    return build.const(0, x.dtype, (*index.shape, *x.shape[1:]))


def mapped(f: Callable[[Array], Array], x: Any) -> Any:
    """Apply a function of arrays to each leaf of a pytree."""
    return tree.map(lambda leaf: f(asarray(leaf)), x)


def stacked(gathered: UOp, at: int) -> UOp:
    """Move the gathered axis from the front to axis ``at``."""
    order = [*range(1, len(gathered.shape))]
    order.insert(at, 0)
    return build.permute(gathered, order)


def part_of(lanes: GroupedLanes, x: Array, axis: int, tiled: bool, rows: UOp) -> UOp:
    """Cut rows like x along an axis of x and return the part of this element."""
    at, n = axes.one(axis, x.ndim), lanes.size
    length = x.shape[at]
    if (length % n if tiled and n else length != n):
        raise ShapeError(f"expected axis {axis} of {x._aval} to have {'a multiple of ' * tiled}"
                         f"{n} elements, as there are lanes; got {length}")
    shape = (*rows.shape[:at + 1], n, length // n if n else 1, *rows.shape[at + 2:])
    cut = build.reshape(rows, shape)
    front = [at + 1, *[i for i in range(len(shape)) if i != at + 1]]
    own = picked(build.permute(cut, front), lanes.place())
    return own if tiled else build.reshape(own, own.shape[:at + 1] + own.shape[at + 2:])
