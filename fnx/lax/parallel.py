"""Reductions and gathers over a named batch axis: the collectives of ``jax.lax``.

    vmap(f, axis_name="i")  names the axis;  inside f, psum(x, "i") adds up the x of all elements

Each collective computes on the gathered batch elements: psum is a sum over them, ppermute selects
one of them. Its derivative follows from those of the gather and the reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments, axes, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.array_operators import record
from fnx.core.array.convert import SCALAR_DTYPES
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build, dtypes, ops
from fnx.lax.axis_groups import AxisGroups, GroupsLike, local_part, map_leaves, move_gathered_axis

__all__ = [
    "all_gather", "axis_index", "axis_size", "pcast", "pmax", "pmean", "pmin", "psum",
    "psum_scatter",
]


_docstr = DocTemplate(
    imports="fnx, fnx.numpy as jnp",
    x="a pytree of arrays.",
    axis_name="an axis name of an enclosing ``vmap``, or a tuple.",
    axis_index_groups="axis indices, in groups of equal size.",
    returns="A pytree like x, equal along the axis.",
    raises=["AxisNameError: no ``vmap`` names this axis."])


def _all_reduce(x: Any, axis_name: Hashable, groups: GroupsLike, monoid: ops.Op) -> Any:
    named_axis = AxisGroups(axis_name, groups)
    name, by_params = _EXTREMES[monoid]

    def reduce_leaf(x: Array) -> Array:
        out = Array(build.reduce(named_axis.all_gather(x._node), monoid, (0,)), x.weak)
        return record(out, name, by_params, x._node, **named_axis.params("axes"))

    return map_leaves(reduce_leaf, x)


@_docstr(x="a pytree of arrays, or of numbers: of a number it is the multiple, so "
               "that ``psum(1, name)`` is the number of lanes, which Python knows.")
def psum(x: Any, axis_name: Hashable, *, axis_index_groups: GroupsLike = None) -> Any:
    """Return the sum over a named axis.

    >>> fnx.vmap(lambda x: x / fnx.lax.psum(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    named_axis = AxisGroups(axis_name, axis_index_groups)

    def sum_leaf(x: Any) -> Any:
        if type(x) in SCALAR_DTYPES:
            return x * named_axis.size
        array = asarray(x)
        if array._dtype.is_bool:
            array = Array(build.cast(array._node, dtypes.int32))
        out = Array(named_axis.psum(array._node), array.weak)
        return record(out, "psum", over_axes(psum), array._node, **named_axis.params("axes"))

    return tree.map(sum_leaf, x)


@_docstr(returns="A pytree like x, of floats, equal along the axis.")
def pmean(x: Any, axis_name: Hashable, *, axis_index_groups: GroupsLike = None) -> Any:
    """Return the mean over a named axis.

    >>> fnx.vmap(lambda x: x - fnx.lax.pmean(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    size = AxisGroups(axis_name, axis_index_groups).size
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda t: jnp.divide(t, size), total)


@_docstr.family()
def _extreme(monoid: ops.Op, x: Any, axis_name: Hashable, *, axis_index_groups: GroupsLike = None
             ) -> Any:
    return _all_reduce(x, axis_name, axis_index_groups, monoid)


pmax = _extreme(
    ops.MAX, "pmax", "Return the maximum over a named axis.",
    'fnx.vmap(lambda x: x - fnx.lax.pmax(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))',
    "Array([-2.,  0.], dtype=float32)")
pmin = _extreme(
    ops.MIN, "pmin", "Return the minimum over a named axis.",
    'fnx.vmap(lambda x: x - fnx.lax.pmin(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))',
    "Array([0., 2.], dtype=float32)")


def over_axes(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction over named axes as a function of its params in JAX."""
    def compute(x: Any, *, axes: Any, axis_index_groups: Any = None, **ignored: Any) -> Any:
        return f(x, axes, axis_index_groups=axis_index_groups)
    return compute


_EXTREMES = {ops.MAX: ("pmax", over_axes(pmax)), ops.MIN: ("pmin", over_axes(pmin))}


@_docstr(returns="A pytree like x, of larger arrays.",
         axis="the gathered axis in the result.",
         tiled="the lanes are joined along an axis of x, instead of stacked along one "
                   "more.")
def all_gather(x: Any, axis_name: Hashable, *, axis_index_groups: GroupsLike = None, axis: int = 0,
               tiled: bool = False) -> Any:
    """Gather the values of all elements of a named axis in each of them.

    >>> fnx.vmap(lambda x: fnx.lax.all_gather(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([[1., 3.],
           [1., 3.]], dtype=float32)
    """
    named_axis = AxisGroups(axis_name, axis_index_groups)

    def gather(x: Array) -> Array:
        at = axes.normalize_axis(axis, x.ndim + (not tiled))
        out = move_gathered_axis(named_axis.varying(named_axis.all_gather(x._node)), at)
        if tiled:
            shape = x.shape
            out = build.reshape(out, (*shape[:at], named_axis.size * shape[at], *shape[at + 1:]))
        return record(Array(out, x.weak), "all_gather", all_gather_by_params, x._node,
                      all_gather_dimension=at, **named_axis.params("axis_name"),
                      axis_size=named_axis.size, tiled=bool(tiled))

    return map_leaves(gather, x)


def all_gather_by_params(x: Any, *, all_gather_dimension: int, axis_name: Any,
                         axis_index_groups: Any = None, tiled: bool = False, **ignored: Any) -> Any:
    """Gather, as JAX's primitive does."""
    return all_gather(x, axis_name, axis=all_gather_dimension, tiled=tiled,
                      axis_index_groups=axis_index_groups)


@_docstr(returns="A pytree like x, of smaller arrays.",
         scatter_dimension="the axis of x to split among the batch.",
         tiled="the axis stays, with the length of a part; else it is as long as there "
                   "are lanes, and goes.",
         raises=["AxisNameError: no ``vmap`` names this axis.",
                 "ShapeError: the lengths do not match."])
def psum_scatter(x: Any, axis_name: Hashable, *, scatter_dimension: int = 0,
                 axis_index_groups: GroupsLike = None, tiled: bool = False) -> Any:
    """Sum over a named axis and scatter the result: each element gets its part of it.

    >>> fnx.vmap(lambda x: fnx.lax.psum_scatter(x, "i"), axis_name="i")(jnp.ones((2, 2)))
    Array([2., 2.], dtype=float32)
    """
    named_axis = AxisGroups(axis_name, axis_index_groups)

    def scatter(x: Array) -> Array:
        total = build.reduce(named_axis.all_gather(x._node), ops.ADD, (0,))
        total_row = build.reshape(total, (1, *total.shape))
        part = local_part(named_axis, x, scatter_dimension, tiled, total_row)
        out = Array(build.reshape(part, part.shape[1:]), x.weak)
        return record(out, "reduce_scatter", reduce_scatter_by_params, x._node,
                      **named_axis.params("axis_name"), axis_size=named_axis.size,
                      scatter_dimension=axes.normalize_axis(scatter_dimension, x.ndim),
                      tiled=bool(tiled))

    return map_leaves(scatter, x)


def reduce_scatter_by_params(x: Any, *, axis_name: Any, scatter_dimension: int,
                             axis_index_groups: Any = None, tiled: bool = False, **ignored: Any
                             ) -> Any:
    """Sum and scatter, as JAX's primitive does."""
    return psum_scatter(x, axis_name, scatter_dimension=scatter_dimension, tiled=tiled,
                        axis_index_groups=axis_index_groups)


@_docstr(returns="An int32 scalar.",
         axis_name="of an open ``vmap``; several in a tuple, of which the last goes "
                       "fastest.")
def axis_index(axis_name: Hashable) -> Array:
    """Return the index along a named axis.

    >>> fnx.vmap(lambda x: x + fnx.lax.axis_index("i"), axis_name="i")(jnp.ones(3))
    Array([1., 2., 3.], dtype=float32)
    """
    return Array(AxisGroups(axis_name).axis_index())


@_docstr(returns="An int.",
         axis_name="an axis name; a tuple gives the product of sizes.")
def axis_size(axis_name: Hashable) -> int:
    """Return the size of a named axis.

    >>> fnx.vmap(lambda x: x + fnx.lax.axis_size("i"), axis_name="i")(jnp.ones(3))
    Array([4., 4., 4.], dtype=float32)
    """
    return AxisGroups(axis_name).axis_size


@_docstr(returns="The same pytree.",
         to='"varying", "reduced" or "unreduced".')
def pcast(x: Any, axis_name: Hashable, *, to: str) -> Any:
    """Declare along which named axes values may differ.

    JAX needs it of the carries of loops in ``shard_map``; fnx derives it from what they depend on.
    The gradient of a value that varies is that of each shard, and is not summed over the shards.

    >>> fnx.vmap(lambda x: fnx.lax.pcast(x, "i", to="varying"), axis_name="i")(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    named_axis = AxisGroups(axis_name)
    arguments.check_choice("to", to, ("varying", "reduced", "unreduced"))
    if to != "varying":
        return tree.map(asarray, x)
    return map_leaves(lambda x: Array(named_axis.varying(x._node), x.weak), x)
