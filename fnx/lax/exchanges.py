"""Collectives that move values from lane to lane, under the names of ``jax.lax``."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from fnx.core import build, dtypes
from fnx.core.array import axes
from fnx.core.array.arguments import flag, integer
from fnx.core.array.array import Array
from fnx.core.array.public import public
from fnx.core.errors import ArgumentError
from fnx.lax.lanes import GroupedLanes, Groups, mapped, part_of, stacked

__all__ = ["all_to_all", "pbroadcast", "ppermute", "pshuffle", "pswapaxes"]


@public
def ppermute(x: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any:
    """Values sent from lane to lane.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        perm: pairs (from, to) of numbers of lanes; no lane sends, or is sent, twice.

    Returns:
        A pytree like x; zeros in a lane that nothing is sent to.

    Raises:
        AxisNameError: no such axis is open.
        ArgumentError: a lane that does not exist, or that is there twice.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> shift = lambda x: fnx.lax.ppermute(x, "i", [(0, 1), (1, 2)])
    >>> fnx.vmap(shift, axis_name="i")(jnp.asarray([1.0, 2.0, 3.0]))
    Array([0., 1., 2.], dtype=float32)
    """
    lanes = GroupedLanes(axis_name)
    try:
        pairs = [(operator.index(a), operator.index(b)) for a, b in perm]
    except (TypeError, ValueError):
        raise ArgumentError(f"ppermute: expected pairs (from, to) of lanes, got {perm!r}"
                            ) from None
    for numbers in zip(*pairs):
        if len(set(numbers)) < len(numbers) or not all(0 <= i < lanes.all for i in numbers):
            raise ArgumentError(f"ppermute: expected each of {lanes.all} lanes at most once as "
                                f"source and as destination, got {pairs}",
                                hint=f"lanes are 0 to {lanes.all - 1}; write (from, to) for each")
    source = np.full(lanes.all, -1, np.int32)
    for a, b in pairs:
        source[b] = a
    lane = lanes.looked_up(np.maximum(source, 0))
    sent = lanes.looked_up(source >= 0)

    def send(x: Array) -> Array:
        found = lanes.from_lane(x._node, lane)
        if len(pairs) == lanes.all:
            return Array(found, x.weak)
        return Array(build.where(build.expand(sent, x.shape), found, build.like(found, 0)), x.weak)

    return mapped(send, x)


@public
def pshuffle(x: Any, axis_name: Hashable, perm: Sequence[int]) -> Any:
    """Each lane gets the values of another.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        perm: for each lane, the one whose values it gets; each lane once.

    Returns:
        A pytree like x.

    Raises:
        AxisNameError: no such axis is open.
        ArgumentError: ``perm`` does not have each lane once.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> swap = lambda x: fnx.lax.pshuffle(x, "i", [1, 0])
    >>> fnx.vmap(swap, axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([3., 1.], dtype=float32)
    """
    size = GroupedLanes(axis_name).all
    perm = [integer("a lane of perm", lane) for lane in perm]
    if sorted(perm) != list(range(size)):
        raise ArgumentError(f"pshuffle: expected each of {size} lanes once, got {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(size))))


@public
def pbroadcast(x: Any, axis_name: Hashable, source: int) -> Any:
    """The values of one lane, in all of them.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        source: the number of the lane.

    Returns:
        A pytree like x, the same for all lanes.

    Raises:
        AxisNameError: no such axis is open.
        ArgumentError: there is no such lane.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> last = lambda x: fnx.lax.pbroadcast(x, "i", 1)
    >>> fnx.vmap(last, axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([3., 3.], dtype=float32)
    """
    lanes = GroupedLanes(axis_name)
    if not 0 <= source < lanes.all:
        raise ArgumentError(f"pbroadcast: expected one of {lanes.all} lanes, got {source}")
    lane = build.const(source, dtypes.int32)
    return mapped(lambda x: Array(lanes.from_lane(x._node, lane), x.weak), x)


@public
def all_to_all(x: Any, axis_name: Hashable, split_axis: int, concat_axis: int, *,
               axis_index_groups: Groups = None, tiled: bool = False) -> Any:
    """Each lane sends part j of its array to lane j, and joins what it is sent.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        split_axis: the axis of x that is cut into a part for each lane.
        concat_axis: where the parts are in the result, in the order of the lanes.
        axis_index_groups: numbers of lanes, in groups of one size; each exchanges its own.
        tiled: ``split_axis`` stays, with the length of a part, and the parts are joined along
            an axis that is there; else it is as long as there are lanes, and goes.

    Returns:
        A pytree like x.

    Raises:
        AxisNameError: no such axis is open.
        ShapeError: ``split_axis`` has another length.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> exchange = lambda x: fnx.lax.all_to_all(x, "i", 0, 0)
    >>> fnx.vmap(exchange, axis_name="i")(jnp.asarray([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    flag("tiled", tiled)
    lanes = GroupedLanes(axis_name, axis_index_groups)

    def exchange(x: Array) -> Array:
        parts = part_of(lanes, x, split_axis, tiled, lanes.gathered(x._node))
        at = axes.one(concat_axis, len(parts.shape) - tiled)
        made, shape = stacked(parts, at), parts.shape[1:]
        if tiled:
            made = build.reshape(made, (*shape[:at], lanes.size * shape[at], *shape[at + 1:]))
        return Array(made, x.weak)

    return mapped(exchange, x)


@public
def pswapaxes(x: Any, axis_name: Hashable, axis: int, *, axis_index_groups: Groups = None) -> Any:
    """A named axis and one of the array in each other's place.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        axis: of x; it is as long as there are lanes.
        axis_index_groups: numbers of lanes, in groups of one size; each exchanges its own.

    Returns:
        A pytree like x.

    Raises:
        AxisNameError: no such axis is open.
        ShapeError: the axis has another length.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> swap = lambda x: fnx.lax.pswapaxes(x, "i", 0)
    >>> fnx.vmap(swap, axis_name="i")(jnp.asarray([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
