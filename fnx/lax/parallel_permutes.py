"""Collectives of ``jax.lax`` that move values between the elements of a named axis."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import axes
from fnx.core.array.api_boundary import public_api
from fnx.core.array.arguments import check_int
from fnx.core.array.array import Array
from fnx.core.array.array_operators import record
from fnx.core.ir import build, dtypes
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError
from fnx.lax.axis_groups import AxisGroups, GroupsLike, local_part, map_leaves, move_gathered_axis

__all__ = ["all_to_all", "pbroadcast", "ppermute", "pshuffle", "pswapaxes"]


@public_api
def ppermute(x: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any:
    """Permute the values along a named axis by pairs (source, destination).

    Args:
        x: a pytree of arrays.
        axis_name: the name of an axis of an enclosing ``vmap``, or a tuple of names.
        perm: pairs (source, destination) of axis indices; each index occurs at most once as
            source and once as destination. Of several axes, the one that was opened last goes
            fastest, in whatever order they are named.

    Returns:
        A pytree like x; zeros at indices that are no destination.

    Raises:
        AxisNameError: no enclosing ``vmap`` names this axis.
        ArgumentError: an index is out of range or repeated.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> shift = lambda x: fnx.lax.ppermute(x, "i", [(0, 1), (1, 2)])
    >>> fnx.vmap(shift, axis_name="i")(jnp.asarray([1.0, 2.0, 3.0]))
    Array([0., 1., 2.], dtype=float32)
    """
    opened = scope.open_axes()
    axes_named = sorted(AxisGroups(axis_name).axes, key=opened.index)
    named_axis = AxisGroups(tuple([a.name for a in axes_named]))
    try:
        pairs = [(operator.index(a), operator.index(b)) for a, b in perm]
    except (TypeError, ValueError):
        raise ArgumentError("ppermute: expected (source, destination) pairs of axis indices, got "
                            f"{perm!r}"
                            ) from None
    for indices in zip(*pairs):
        if len(set(indices)) < len(indices) or \
                not all(0 <= i < named_axis.axis_size for i in indices):
            raise ArgumentError(f"ppermute: expected each of {named_axis.axis_size} axis indices "
                                f"at most once as source and as destination, got {pairs}",
                                hint="pass (source, destination) pairs with indices from 0 to "
                                     f"{named_axis.axis_size - 1}")
    source = np.full(operator.index(named_axis.axis_size), -1, np.int32)
    for a, b in pairs:
        source[b] = a
    has_source = named_axis.lookup(source >= 0)
    unused = [i for i in range(len(source)) if i not in source]  # by those that get zeros
    source[source < 0] = unused
    source_index = named_axis.permuted_index(source)

    def send(x: Array) -> Array:
        value = named_axis.from_index(x._node, source_index)
        if len(pairs) < named_axis.axis_size:
            value = build.where(build.expand(has_source, x.shape), value,
                                build.const_like(value, 0))
        return record(Array(value, x.weak), "ppermute", ppermute, x._node,
                      axis_name=tuple([a.name for a in named_axis.axes]), perm=tuple(pairs))

    return map_leaves(send, x)


@public_api
def pshuffle(x: Any, axis_name: Hashable, perm: Sequence[int]) -> Any:
    """Permute the values along a named axis by a list of sources.

    Args:
        x: a pytree of arrays.
        axis_name: the name of an axis of an enclosing ``vmap``, or a tuple of names.
        perm: the source index for each index of the axis; a permutation.

    Returns:
        A pytree like x.

    Raises:
        AxisNameError: no enclosing ``vmap`` names this axis.
        ArgumentError: ``perm`` is not a permutation of the indices.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> swap = lambda x: fnx.lax.pshuffle(x, "i", [1, 0])
    >>> fnx.vmap(swap, axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([3., 1.], dtype=float32)
    """
    size = AxisGroups(axis_name).axis_size
    perm = [check_int("an axis index of perm", index) for index in perm]
    if sorted(perm) != list(range(size)):
        raise ArgumentError(f"pshuffle: expected each of {size} axis indices once, got {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(size))))


@public_api
def pbroadcast(x: Any, axis_name: Hashable, source: int) -> Any:
    """Broadcast the values at one index of a named axis to all of it.

    Args:
        x: a pytree of arrays.
        axis_name: the name of an axis of an enclosing ``vmap``, or a tuple of names.
        source: the index along the axis.

    Returns:
        A pytree like x, the same at all indices.

    Raises:
        AxisNameError: no enclosing ``vmap`` names this axis.
        ArgumentError: the index is out of range.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> last = lambda x: fnx.lax.pbroadcast(x, "i", 1)
    >>> fnx.vmap(last, axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([3., 3.], dtype=float32)
    """
    named_axis = AxisGroups(axis_name)
    if not 0 <= source < named_axis.axis_size:
        raise ArgumentError(f"pbroadcast: expected one of {named_axis.axis_size} axis indices, got "
                            f"{source}")
    source_index = build.const(source, dtypes.int32)
    return map_leaves(lambda x: Array(named_axis.from_index(x._node, source_index), x.weak), x)


@public_api
def all_to_all(x: Any, axis_name: Hashable, split_axis: int, concat_axis: int, *,
               axis_index_groups: GroupsLike = None, tiled: bool = False) -> Any:
    """Exchange parts along a named axis: index i sends part j to index j, and joins what it gets.

    Args:
        x: a pytree of arrays.
        axis_name: the name of an axis of an enclosing ``vmap``, or a tuple of names.
        split_axis: the axis of x to split into one part per index of the named axis.
        concat_axis: the axis of the result along which the received parts are joined.
        axis_index_groups: axis indices in groups of equal size; parts are exchanged within each.
        tiled: True: ``split_axis`` remains, with the length of a part, and the parts are
            concatenated along an existing axis. False: ``split_axis`` has the size of the named
            axis and is removed, and the parts are stacked along a new axis.

    Returns:
        A pytree like x.

    Raises:
        AxisNameError: no enclosing ``vmap`` names this axis.
        ShapeError: the length of ``split_axis`` does not match the size of the named axis.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> exchange = lambda x: fnx.lax.all_to_all(x, "i", 0, 0)
    >>> fnx.vmap(exchange, axis_name="i")(jnp.asarray([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    named_axis = AxisGroups(axis_name, axis_index_groups)

    def exchange(x: Array) -> Array:
        parts = local_part(named_axis, x, split_axis, tiled, named_axis.all_gather(x._node))
        at = axes.normalize_axis(concat_axis, len(parts.shape) - tiled)
        joined, shape = move_gathered_axis(parts, at), parts.shape[1:]
        if tiled:
            joined = build.reshape(joined,
                                   (*shape[:at], named_axis.size * shape[at], *shape[at + 1:]))
        return record(Array(joined, x.weak), "all_to_all", all_to_all, x._node,
                      **named_axis.params("axis_name"), concat_axis=at,
                      split_axis=axes.normalize_axis(split_axis, x.ndim), tiled=bool(tiled))

    return map_leaves(exchange, x)


@public_api
def pswapaxes(x: Any, axis_name: Hashable, axis: int, *,
              axis_index_groups: GroupsLike = None) -> Any:
    """Swap a named axis with an axis of the array.

    Args:
        x: a pytree of arrays.
        axis_name: the name of an axis of an enclosing ``vmap``, or a tuple of names.
        axis: an axis of x, of the size of the named axis.
        axis_index_groups: axis indices in groups of equal size; parts are exchanged within each.

    Returns:
        A pytree like x.

    Raises:
        AxisNameError: no enclosing ``vmap`` names this axis.
        ShapeError: the length of the axis is not the size of the named axis.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> swap = lambda x: fnx.lax.pswapaxes(x, "i", 0)
    >>> fnx.vmap(swap, axis_name="i")(jnp.asarray([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
