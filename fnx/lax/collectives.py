"""Reductions and gathers over a named batch axis: the collectives of ``jax.lax``.

    vmap(f, axis_name="i")  names the axis;  inside f, psum(x, "i") adds up the x of all elements

Each collective computes on the gathered batch elements: psum is a sum over them, ppermute selects
one of them. Its derivative follows from those of the gather and the reduction.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import fnx.numpy as jnp
from fnx.core import build, dtypes, ops
from fnx.core.array import axes, tree
from fnx.core.array.arguments import flag
from fnx.core.array.array import Array
from fnx.core.array.convert import SCALARS
from fnx.core.array.documented import Family
from fnx.core.array.public import asarray
from fnx.lax.lanes import GroupedLanes, Groups, mapped, part_of, stacked

__all__ = [
    "all_gather", "axis_index", "axis_size", "pmax", "pmean", "pmin", "psum", "psum_scatter",
]


_over_lanes = Family(
    at="fnx, fnx.numpy as jnp",
    x="a pytree of arrays.",
    axis_name="of an open ``vmap``; several in a tuple.",
    axis_index_groups="numbers of lanes, in groups of one size; each has its own.",
    returns="A pytree like x, the same for all lanes.",
    raises=["AxisNameError: no such axis is open."])


def _folded(x: Any, axis_name: Hashable, groups: Groups, monoid: ops.Op) -> Any:
    lanes = GroupedLanes(axis_name, groups)

    def fold(x: Array) -> Array:
        return Array(build.reduce(lanes.gathered(x._node), monoid, (0,)), x.weak)

    return mapped(fold, x)


@_over_lanes(x="a pytree of arrays, or of numbers: of a number it is the multiple, so "
               "that ``psum(1, name)`` is the number of lanes, which Python knows.")
def psum(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None) -> Any:
    """Return the sum over a named axis.

    >>> fnx.vmap(lambda x: x / fnx.lax.psum(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    lanes = GroupedLanes(axis_name, axis_index_groups)

    def fold(x: Any) -> Any:
        if type(x) in SCALARS:
            return x * lanes.size
        array = asarray(x)
        if array._dtype.is_bool:
            array = Array(build.cast(array._node, dtypes.int32))
        return Array(build.reduce(lanes.gathered(array._node), ops.ADD, (0,)), array.weak)

    return tree.map(fold, x)


@_over_lanes(returns="A pytree like x, of floats, the same for all lanes.")
def pmean(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None) -> Any:
    """Return the mean over a named axis.

    >>> fnx.vmap(lambda x: x - fnx.lax.pmean(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    size = GroupedLanes(axis_name, axis_index_groups).size
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda t: jnp.divide(t, size), total)


@_over_lanes()
def pmax(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None) -> Any:
    """Return the maximum over a named axis.

    >>> fnx.vmap(lambda x: x - fnx.lax.pmax(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([-2.,  0.], dtype=float32)
    """
    return _folded(x, axis_name, axis_index_groups, ops.MAX)


@_over_lanes()
def pmin(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None) -> Any:
    """Return the minimum over a named axis.

    >>> fnx.vmap(lambda x: x - fnx.lax.pmin(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([0., 2.], dtype=float32)
    """
    return _folded(x, axis_name, axis_index_groups, ops.MIN)


@_over_lanes(returns="A pytree like x, of larger arrays.",
             axis="where the lanes are in the result.",
             tiled="the lanes are joined along an axis of x, instead of stacked along one "
                   "more.")
def all_gather(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None, axis: int = 0,
               tiled: bool = False) -> Any:
    """Gather the values of all elements of a named axis in each of them.

    >>> fnx.vmap(lambda x: fnx.lax.all_gather(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([[1., 3.],
           [1., 3.]], dtype=float32)
    """
    flag("tiled", tiled)
    lanes = GroupedLanes(axis_name, axis_index_groups)

    def gather(x: Array) -> Array:
        at = axes.one(axis, x.ndim + (not tiled))
        made = stacked(lanes.gathered(x._node), at)
        if tiled:
            shape = x.shape
            made = build.reshape(made, (*shape[:at], lanes.size * shape[at], *shape[at + 1:]))
        return Array(made, x.weak)

    return mapped(gather, x)


@_over_lanes(returns="A pytree like x, of smaller arrays.",
             scatter_dimension="the axis of x that is cut into a part for each lane.",
             tiled="the axis stays, with the length of a part; else it is as long as there "
                   "are lanes, and goes.",
             raises=["AxisNameError: no such axis is open.",
                     "ShapeError: the axis has another length."])
def psum_scatter(x: Any, axis_name: Hashable, *, scatter_dimension: int = 0,
                 axis_index_groups: Groups = None, tiled: bool = False) -> Any:
    """Sum over a named axis and scatter the result: each element gets its part of it.

    >>> fnx.vmap(lambda x: fnx.lax.psum_scatter(x, "i"), axis_name="i")(jnp.ones((2, 2)))
    Array([2., 2.], dtype=float32)
    """
    flag("tiled", tiled)
    lanes = GroupedLanes(axis_name, axis_index_groups)

    def scatter(x: Array) -> Array:
        total = build.reduce(lanes.gathered(x._node), ops.ADD, (0,))
        whole = build.reshape(total, (1, *total.shape))
        part = part_of(lanes, x, scatter_dimension, tiled, whole)
        return Array(build.reshape(part, part.shape[1:]), x.weak)

    return mapped(scatter, x)


@_over_lanes(returns="An int32 scalar.",
             axis_name="of an open ``vmap``; several in a tuple, of which the last goes "
                       "fastest.")
def axis_index(axis_name: Hashable) -> Array:
    """Return the index along a named axis.

    >>> fnx.vmap(lambda x: x + fnx.lax.axis_index("i"), axis_name="i")(jnp.ones(3))
    Array([1., 2., 3.], dtype=float32)
    """
    return Array(GroupedLanes(axis_name).own())


@_over_lanes(returns="An int.",
             axis_name="of an open ``vmap``; of several in a tuple it is the product.")
def axis_size(axis_name: Hashable) -> int:
    """Return the size of a named axis.

    >>> fnx.vmap(lambda x: x + fnx.lax.axis_size("i"), axis_name="i")(jnp.ones(3))
    Array([4., 4., 4.], dtype=float32)
    """
    return GroupedLanes(axis_name).all
