"""Sorting under NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build
from fnx.core.array import arguments, axes
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.public import asarray, public
from fnx.core.errors import ArgumentError
from fnx.core.uop import UOp

__all__ = ["argsort", "sort"]


def in_order(xs: Sequence[UOp], axis: int, n_keys: int, kept: Sequence[int] | None = None
             ) -> list[UOp]:
    """The results of a SORT along an axis (build.sort)."""
    rank = len(xs[0].shape)
    order = [*[a for a in range(rank) if a != axis], axis]
    back = sorted(range(rank), key=order.__getitem__)
    found = build.sort([build.permute(x, order) for x in xs], n_keys, kept)
    return [build.permute(x, back) for x in found]


def _given(a: ArrayLike, axis: int | None, kind: None, order: None, stable: bool, descending: bool
           ) -> tuple[Array, int]:
    """The array, flat where there is no axis, and the axis."""
    arguments.flag("stable", stable)
    arguments.flag("descending", descending)
    if kind is not None or order is not None:
        raise ArgumentError(f"expected kind=None and order=None, got {kind!r} and {order!r}",
                            hint="there is one sort, which is stable; leave both out")
    x = asarray(a)
    if axis is None:
        return Array(build.reshape(x._node, (x.size,)), x.weak), 0
    return x, axes.one(axis, x.ndim)


@public
def sort(a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
         stable: bool = True, descending: bool = False) -> Array:
    """Elements in order along an axis. NaNs come last.

    Args:
        a: an Array or what ``asarray`` takes, of any dtype.
        axis: along which axis; None: of all elements in row-major order.
        kind: None; there is one sort.
        order: None; there are no fields.
        stable: whether equals stay in order; they do in any case.
        descending: whether the largest comes first.

    Returns:
        An Array of the shape and dtype of ``a``; of one axis where ``axis`` is None.

    Raises:
        AxisError: an axis outside of the array.
        ArgumentError: another ``kind`` or ``order``.

    >>> import fnx.numpy as jnp
    >>> jnp.sort(jnp.asarray([[3, 1], [2, 4]]), axis=0)
    Array([[2, 1],
           [3, 4]], dtype=int32)
    """
    x, at = _given(a, axis, kind, order, stable, descending)
    node, = in_order([x._node], at, 1)
    return Array(build.flip(node, [at]) if descending else node, x.weak)


@public
def argsort(a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
            stable: bool = True, descending: bool = False) -> Array:
    """Where the elements in order are: indices along an axis. Equals stay in order.

    Args:
        a: an Array or what ``asarray`` takes, of any dtype.
        axis: along which axis; None: of all elements in row-major order.
        kind: None; there is one sort.
        order: None; there are no fields.
        stable: whether equals stay in order; they do in any case.
        descending: whether the largest comes first.

    Returns:
        An int32 Array of the shape of ``a``; of one axis where ``axis`` is None.

    Raises:
        AxisError: an axis outside of the array.
        ArgumentError: another ``kind`` or ``order``.

    >>> import fnx.numpy as jnp
    >>> jnp.argsort(jnp.asarray([3.0, 1.0, 2.0]))
    Array([1, 2, 0], dtype=int32)
    """
    x, at = _given(a, axis, kind, order, stable, descending)
    if not descending:
        return Array(in_order([x._node], at, 1, [-1])[0])
    places, = in_order([build.flip(x._node, [at])], at, 1, [-1])
    last = build.like(places, max(0, x.shape[at] - 1))
    return Array(build.sub(last, build.flip(places, [at])))
