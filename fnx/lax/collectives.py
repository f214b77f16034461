"""Collectives: what lanes of a named axis know of each other, under the names of ``jax.lax``.

    vmap(f, axis_name="i")  names the axis;  inside f, psum(x, "i") adds up the x of all lanes

All of them read the gathered lanes: psum is a sum over them, ppermute picks one of them. So the
derivative of each follows from these.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core import build, dtypes, ops
from fnx.core.array import axes, scope, tree
from fnx.core.array.arguments import flag
from fnx.core.array.array import Array
from fnx.core.array.convert import SCALARS
from fnx.core.array.public import asarray, public
from fnx.core.errors import ArgumentError, ShapeError
from fnx.core.uop import UOp

__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "pbroadcast", "pmax", "pmean", "pmin",
    "ppermute", "pshuffle", "psum", "psum_scatter", "pswapaxes",
]

Groups = Sequence[Sequence[int]] | None


class _Lanes:
    """The lanes along one named axis or several, of which the last goes fastest."""

    def __init__(self, axis_name: Hashable, groups: Groups = None) -> None:
        names = axis_name if isinstance(axis_name, tuple | list) else (axis_name,)
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
        """The number of this lane."""
        number = build.axis_index(self.axes[0])
        for axis in self.axes[1:]:
            before = build.mul(number, build.like(number, axis.size))
            number = build.add(before, build.axis_index(axis))
        return number

    def looked_up(self, table: Any) -> UOp:
        """What a table says of this lane."""
        return _picked(asarray(table)._node, self.own())

    def gathered(self, x: UOp) -> UOp:
        """The x of all lanes, or of those in the group of this one, in front."""
        out = x
        for axis in reversed(self.axes):
            out = build.all_gather(out, axis)
        out = build.reshape(out, (self.all, *x.shape))
        if self.groups is None:
            return out
        rows = np.empty((self.all, self.size), np.int32)
        for group in self.groups:
            rows[group] = group
        return _picked(out, self.looked_up(rows))

    def place(self) -> UOp:
        """The number of this lane in its group."""
        if self.groups is None:
            return self.own()
        places = np.empty(self.all, np.int32)
        for group in self.groups:
            places[group] = np.arange(self.size)
        return self.looked_up(places)

    def from_lane(self, x: UOp, lane: UOp) -> UOp:
        """The x of another lane."""
        return _picked(self.gathered(x), lane)


def _picked(x: UOp, index: UOp) -> UOp:
    """x at an index; where there are no lanes, nobody reads it."""
    if x.shape[0]:
        return build.gather(x, index)
    return build.const(0, x.dtype, (*index.shape, *x.shape[1:]))


def _mapped(f: Callable[[Array], Array], x: Any) -> Any:
    """A function of arrays on each leaf of a pytree."""
    return tree.map(lambda leaf: f(asarray(leaf)), x)


def _folded(x: Any, axis_name: Hashable, groups: Groups, monoid: ops.Op) -> Any:
    lanes = _Lanes(axis_name, groups)

    def fold(x: Array) -> Array:
        return Array(build.reduce(lanes.gathered(x._node), monoid, (0,)), x.weak)

    return _mapped(fold, x)


@public
def psum(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None) -> Any:
    """The sum over the lanes of a named axis.

    Args:
        x: a pytree of arrays, or of numbers: of a number it is the multiple, so that
            ``psum(1, name)`` is the number of lanes, which Python knows.
        axis_name: of an open ``vmap``; several in a tuple.
        axis_index_groups: numbers of lanes, in groups of one size; each adds up its own.

    Returns:
        A pytree like x, the same for all lanes.

    Raises:
        AxisNameError: no such axis is open.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x: x / fnx.lax.psum(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    lanes = _Lanes(axis_name, axis_index_groups)

    def fold(x: Any) -> Any:
        if type(x) in SCALARS:
            return x * lanes.size
        array = asarray(x)
        if array._dtype.is_bool:
            array = Array(build.cast(array._node, dtypes.int32))
        return Array(build.reduce(lanes.gathered(array._node), ops.ADD, (0,)), array.weak)

    return tree.map(fold, x)


@public
def pmean(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None) -> Any:
    """The mean over the lanes of a named axis.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        axis_index_groups: numbers of lanes, in groups of one size; each has its own mean.

    Returns:
        A pytree like x, of floats, the same for all lanes.

    Raises:
        AxisNameError: no such axis is open.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x: x - fnx.lax.pmean(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    size = _Lanes(axis_name, axis_index_groups).size
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda t: jnp.divide(t, size), total)


@public
def pmax(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None) -> Any:
    """The largest value over the lanes of a named axis.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        axis_index_groups: numbers of lanes, in groups of one size; each has its own.

    Returns:
        A pytree like x, the same for all lanes.

    Raises:
        AxisNameError: no such axis is open.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x: x - fnx.lax.pmax(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([-2.,  0.], dtype=float32)
    """
    return _folded(x, axis_name, axis_index_groups, ops.MAX)


@public
def pmin(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None) -> Any:
    """The smallest value over the lanes of a named axis.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        axis_index_groups: numbers of lanes, in groups of one size; each has its own.

    Returns:
        A pytree like x, the same for all lanes.

    Raises:
        AxisNameError: no such axis is open.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x: x - fnx.lax.pmin(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([0., 2.], dtype=float32)
    """
    return _folded(x, axis_name, axis_index_groups, ops.MIN)


@public
def all_gather(x: Any, axis_name: Hashable, *, axis_index_groups: Groups = None, axis: int = 0,
               tiled: bool = False) -> Any:
    """The values of all lanes of a named axis, in each of them.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        axis_index_groups: numbers of lanes, in groups of one size; each gathers its own.
        axis: where the lanes are in the result.
        tiled: the lanes are joined along an axis of x, instead of stacked along one more.

    Returns:
        A pytree like x, of larger arrays.

    Raises:
        AxisNameError: no such axis is open.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x: fnx.lax.all_gather(x, "i"), axis_name="i")(jnp.asarray([1.0, 3.0]))
    Array([[1., 3.],
           [1., 3.]], dtype=float32)
    """
    flag("tiled", tiled)
    lanes = _Lanes(axis_name, axis_index_groups)

    def gather(x: Array) -> Array:
        at = axes.one(axis, x.ndim + (not tiled))
        made = _stacked(lanes.gathered(x._node), at)
        if tiled:
            shape = x.shape
            made = build.reshape(made, (*shape[:at], lanes.size * shape[at], *shape[at + 1:]))
        return Array(made, x.weak)

    return _mapped(gather, x)


def _stacked(gathered: UOp, at: int) -> UOp:
    """Gathered lanes along another axis than the first."""
    order = [*range(1, len(gathered.shape))]
    order.insert(at, 0)
    return build.permute(gathered, order)


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
    lanes = _Lanes(axis_name)
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

    return _mapped(send, x)


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
    size = _Lanes(axis_name).all
    if sorted(perm) != list(range(size)):
        raise ArgumentError(f"pshuffle: expected each of {size} lanes once, got {list(perm)}")
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
    lanes = _Lanes(axis_name)
    if not 0 <= source < lanes.all:
        raise ArgumentError(f"pbroadcast: expected one of {lanes.all} lanes, got {source}")
    lane = build.const(source, dtypes.int32)
    return _mapped(lambda x: Array(lanes.from_lane(x._node, lane), x.weak), x)


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
    lanes = _Lanes(axis_name, axis_index_groups)

    def exchange(x: Array) -> Array:
        parts = _part(lanes, x, split_axis, tiled, lanes.gathered(x._node))
        at = axes.one(concat_axis, len(parts.shape) - tiled)
        made, shape = _stacked(parts, at), parts.shape[1:]
        if tiled:
            made = build.reshape(made, (*shape[:at], lanes.size * shape[at], *shape[at + 1:]))
        return Array(made, x.weak)

    return _mapped(exchange, x)


@public
def psum_scatter(x: Any, axis_name: Hashable, *, scatter_dimension: int = 0,
                 axis_index_groups: Groups = None, tiled: bool = False) -> Any:
    """The sum over the lanes of a named axis, of which each lane gets its part.

    Args:
        x: a pytree of arrays.
        axis_name: of an open ``vmap``; several in a tuple.
        scatter_dimension: the axis of x that is cut into a part for each lane.
        axis_index_groups: numbers of lanes, in groups of one size; each adds up its own.
        tiled: the axis stays, with the length of a part; else it is as long as there are lanes,
            and goes.

    Returns:
        A pytree like x, of smaller arrays.

    Raises:
        AxisNameError: no such axis is open.
        ShapeError: the axis has another length.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x: fnx.lax.psum_scatter(x, "i"), axis_name="i")(jnp.ones((2, 2)))
    Array([2., 2.], dtype=float32)
    """
    flag("tiled", tiled)
    lanes = _Lanes(axis_name, axis_index_groups)

    def scatter(x: Array) -> Array:
        total = build.reduce(lanes.gathered(x._node), ops.ADD, (0,))
        whole = build.reshape(total, (1, *total.shape))
        part = _part(lanes, x, scatter_dimension, tiled, whole)
        return Array(build.reshape(part, part.shape[1:]), x.weak)

    return _mapped(scatter, x)


def _part(lanes: _Lanes, x: Array, axis: int, tiled: bool, rows: UOp) -> UOp:
    """Of rows like x, the part of this lane along an axis of x."""
    at, n = axes.one(axis, x.ndim), lanes.size
    length = x.shape[at]
    if (length % n if tiled and n else length != n):
        raise ShapeError(f"expected axis {axis} of {x._aval} to have {'a multiple of ' * tiled}"
                         f"{n} elements, as there are lanes; got {length}")
    shape = (*rows.shape[:at + 1], n, length // n if n else 1, *rows.shape[at + 2:])
    cut = build.reshape(rows, shape)
    front = [at + 1, *[i for i in range(len(shape)) if i != at + 1]]
    own = _picked(build.permute(cut, front), lanes.place())
    return own if tiled else build.reshape(own, own.shape[:at + 1] + own.shape[at + 2:])


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


@public
def axis_index(axis_name: Hashable) -> Array:
    """The number of the lane along a named axis.

    Args:
        axis_name: of an open ``vmap``; several in a tuple, of which the last goes fastest.

    Returns:
        An int32 scalar.

    Raises:
        AxisNameError: no such axis is open.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x: x + fnx.lax.axis_index("i"), axis_name="i")(jnp.ones(3))
    Array([1., 2., 3.], dtype=float32)
    """
    return Array(_Lanes(axis_name).own())


@public
def axis_size(axis_name: Hashable) -> int:
    """How many lanes a named axis has.

    Args:
        axis_name: of an open ``vmap``; of several in a tuple it is the product.

    Returns:
        An int.

    Raises:
        AxisNameError: no such axis is open.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x: x + fnx.lax.axis_size("i"), axis_name="i")(jnp.ones(3))
    Array([4., 4., 4.], dtype=float32)
    """
    return _Lanes(axis_name).all
