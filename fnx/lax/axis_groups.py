"""The elements of a named axis, in groups: the common part of all collectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import axes, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.ir import build, build_named_axes, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, ShapeError

GroupsLike = Sequence[Sequence[int]] | None
_LONG = 32  # entries of a table that is no expression


class AxisGroups:
    """The elements of one or several named axes (row-major), optionally in groups.

    Attributes:
        axes: the named axes.
        axis_size: the number of elements.
        groups: axis indices of each group, or None.
        size: the number of elements of a group.
    """

    def __init__(self, axis_name: Hashable, groups: GroupsLike = None) -> None:
        names = axis_name if isinstance(axis_name, tuple | list) else (axis_name,)
        for name in names:
            if not isinstance(name, Hashable):
                raise ArgumentError(f"expected an axis name, got {type(name).__name__}",
                                    hint="name the axis with vmap(..., axis_name=...)")
        self.axes = [scope.named_axis(name) for name in names]
        self.axis_size = math.prod([a.size for a in self.axes])
        self.groups = None if groups is None else self._checked(groups)
        self.size = self.axis_size if self.groups is None else self.groups.shape[1]

    def _checked(self, groups: Sequence[Sequence[int]]) -> Any:
        try:
            table = np.asarray([list(g) for g in groups])
        except (TypeError, ValueError):  # not sequences, or of several lengths
            table = None
        if table is None or table.ndim != 2 or not np.array_equal(
                np.sort(table, None), np.arange(self.axis_size)):
            raise ArgumentError("expected axis_index_groups of equal size with each of the "
                                f"{self.axis_size} axis indices once, got {groups!r}")
        return table.astype(np.int32)

    def params(self, name: str) -> dict[str, Any]:
        """Return the params of a primitive over the axes; ``name`` is that of the axis names."""
        groups = None if self.groups is None else tuple(map(tuple, self.groups.tolist()))
        return {name: tuple([a.name for a in self.axes]), "axis_index_groups": groups}

    def axis_index(self) -> UOp:
        """Return the index of this element along the axes."""
        if not self.axes:
            return build.const(0, dtypes.int32)
        index = build_named_axes.axis_index(self.axes[0])
        for axis in self.axes[1:]:
            scaled = build.mul(index, build.const_like(index, axis.size))
            index = build.add(scaled, build_named_axes.axis_index(axis))
        return index

    def lookup(self, table: Any) -> UOp:
        """Look up the entry of a table for this element."""
        return take_first_axis(asarray(table)._node, self.axis_index())

    def permuted_index(self, table: Any) -> UOp:
        """Return the entry of a permutation for this element: an expression, if it is a shift or
        short, so that the compiler knows who sends to whom."""
        n, i, shift = self.axis_size, self.axis_index(), table[:1].sum()
        if (table == (np.arange(n) + shift) % n).all():
            moved = build.add(i, build.const_like(i, shift))
            return build.where(build.lt(moved, build.const_like(i, n)), moved,
                               build.sub(moved, build.const_like(i, n)))
        if n > _LONG:
            return self.lookup(table)
        out = build.const_like(i, table[-1])
        for at, entry in enumerate(table[:-1]):
            out = build.where(build.eq(i, build.const_like(i, at)), build.const_like(i, entry), out)
        return out

    def all_gather(self, x: UOp) -> UOp:
        """Gather x from all elements, or those of this element's group, along a new first axis."""
        out = x
        for axis in reversed(self.axes):
            out = build_named_axes.all_gather(out, axis)
        out = build.reshape(out, (self.axis_size, *x.shape))
        if self.groups is None:
            return out
        members = np.empty((self.axis_size, self.size), np.int32)
        for group in self.groups:
            members[group] = group
        return take_first_axis(out, self.lookup(members))

    def varying(self, x: UOp) -> UOp:
        """Return x as a value that varies along the axes, where derivatives ask for that."""
        for axis in self.axes:
            if axis.sums_cotangents:
                x = build_named_axes.pvary_like(x, build_named_axes.axis_index(axis), axis)
        return x

    def psum(self, x: UOp) -> UOp:
        """Return the sum of x over all elements, or those of this element's group."""
        if self.groups is not None or not all(axis.sums_cotangents for axis in self.axes):
            return build.reduce(self.all_gather(x), ops.ADD, (0,))
        x = self.varying(x)
        for axis in reversed(self.axes):  # the same value, whose cotangent is the same for each
            x = build_named_axes.psum_like(x, build.const(0, dtypes.int32), axis)
        return x

    def group_index(self) -> UOp:
        """Return the index of this element within its group."""
        if self.groups is None:
            return self.axis_index()
        positions = np.empty(self.axis_size, np.int32)
        for group in self.groups:
            positions[group] = np.arange(self.size)
        return self.lookup(positions)

    def from_index(self, x: UOp, index: UOp) -> UOp:
        """Return the x of another element."""
        return take_first_axis(self.all_gather(x), index)


def take_first_axis(x: UOp, index: UOp) -> UOp:
    """Gather x at an index of its first axis; zeros if that axis is empty."""
    if x.shape[0]:
        return build.gather(x, index)
    return build.const(0, x.dtype, (*index.shape, *x.shape[1:]))


def map_leaves(f: Callable[[Array], Array], x: Any) -> Any:
    """Apply a function of arrays to each leaf of a pytree."""
    return tree.map(lambda leaf: f(asarray(leaf)), x)


def move_gathered_axis(gathered: UOp, at: int) -> UOp:
    """Move the gathered axis from the front to axis ``at``."""
    order = [*range(1, len(gathered.shape))]
    order.insert(at, 0)
    return build.permute(gathered, order)


def local_part(named_axis: AxisGroups, x: Array, axis: int, tiled: bool, rows: UOp) -> UOp:
    """Cut rows like x along an axis of x and return the part of this element."""
    at, n = axes.normalize_axis(axis, x.ndim), named_axis.size
    length = x.shape[at]
    if (length % n if tiled and n else length != n):
        raise ShapeError(f"expected axis {axis} of {x._aval} to have {'a multiple of ' * tiled}{n} "
                         f"elements, the size of the named axis; got {length}")
    shape = (*rows.shape[:at + 1], n, length // n if n else 1, *rows.shape[at + 2:])
    split = build.reshape(rows, shape)
    order = [at + 1, *[i for i in range(len(shape)) if i != at + 1]]
    part = take_first_axis(build.permute(split, order), named_axis.group_index())
    return part if tiled else build.reshape(part, part.shape[:at + 1] + part.shape[at + 2:])
