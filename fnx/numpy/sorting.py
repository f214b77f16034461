"""Sorting under NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, build_calls
from fnx.core.array import arguments, axes, convert
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.documented import Family
from fnx.core.array.public import asarray, public
from fnx.core.errors import ArgumentError, ShapeError
from fnx.core.uop import UOp

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort"]


def in_order(xs: Sequence[UOp], axis: int, n_keys: int, kept: Sequence[int] | None = None
             ) -> list[UOp]:
    """The results of a SORT along an axis (build.sort)."""
    rank = len(xs[0].shape)
    order = [*[a for a in range(rank) if a != axis], axis]
    back = sorted(range(rank), key=order.__getitem__)
    found = build_calls.sort([build.permute(x, order) for x in xs], n_keys, kept)
    return [build.permute(x, back) for x in found]


_family = Family(
    a="an Array or what ``asarray`` takes, of any dtype.",
    axis="along which axis; None: of all elements in row-major order.",
    kind="None; there is one sort.", order="None; there are no fields.",
    stable="whether equals stay in order; they do in any case.",
    descending="whether the largest comes first.",
    returns="An Array of the shape and dtype of ``a``; of one axis where ``axis`` is None.",
    raises=("AxisError: an axis outside of the array.",
            "ArgumentError: another ``kind`` or ``order``."))


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


@_family()
def sort(a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
         stable: bool = True, descending: bool = False) -> Array:
    """Elements in order along an axis. NaNs come last.

    >>> jnp.sort(jnp.asarray([[3, 1], [2, 4]]), axis=0)
    Array([[2, 1],
           [3, 4]], dtype=int32)
    """
    x, at = _given(a, axis, kind, order, stable, descending)
    node, = in_order([x._node], at, 1)
    return Array(build.flip(node, [at]) if descending else node, x.weak)


@_family("An int32 Array of the shape of ``a``; of one axis where ``axis`` is None.")
def argsort(a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
            stable: bool = True, descending: bool = False) -> Array:
    """Where the elements in order are: indices along an axis. Equals stay in order.

    >>> jnp.argsort(jnp.asarray([3.0, 1.0, 2.0]))
    Array([1, 2, 0], dtype=int32)
    """
    x, at = _given(a, axis, kind, order, stable, descending)
    if not descending:
        return _places(in_order([x._node], at, 1, [-1])[0])
    places, = in_order([build.flip(x._node, [at])], at, 1, [-1])
    last = build.like(places, max(0, x.shape[at] - 1))
    return _places(build.sub(last, build.flip(places, [at])))


def _places(node: UOp) -> Array:
    """Indices, as wide as a Python int is."""
    return Array(build.cast(node, convert.default_int()))


@public
def lexsort(keys: Sequence[ArrayLike] | ArrayLike, axis: int = -1) -> Array:
    """Where the elements in order are, by several keys: the last one counts first.

    Args:
        keys: Arrays of one shape, or an Array whose rows they are.
        axis: along which axis of a key.

    Returns:
        An Array of the default int, of the shape of a key.

    Raises:
        ArgumentError: no keys.
        ShapeError: keys of different shapes.
        AxisError: an axis outside of the keys.

    >>> import fnx.numpy as jnp
    >>> jnp.lexsort((jnp.asarray([1, 0, 2]), jnp.asarray([5, 5, 4])))
    Array([2, 1, 0], dtype=int32)
    """
    given = [asarray(k) for k in
             (keys if isinstance(keys, list | tuple) else asarray(keys))]
    if not given:
        raise ArgumentError("expected at least one key, got none")
    for x in given:
        if x.shape != given[0].shape:
            raise ShapeError(f"expected keys of one shape, got {given[0].shape} and {x.shape}")
    if not given[0].ndim:
        return asarray(0, convert.default_int())
    at = axes.one(axis, given[0].ndim)
    order, = in_order([x._node for x in reversed(given)], at, len(given), [-1])
    return _places(order)


def _parted(a: ArrayLike, kth: int, axis: int) -> tuple[Array, int, int]:
    x = asarray(a)
    at = axes.one(axis, x.ndim)
    return x, axes.one(kth, x.shape[at]), at


def _halves(node: UOp, at: int, k: int) -> list[UOp]:
    """What is up to k along an axis, and what follows."""
    n = node.shape[at]
    return [build.shrink(node, [ends if i == at else (0, m) for i, m in enumerate(node.shape)])
            for ends in ((0, k + 1), (k + 1, n))]


@public
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Elements so that one is where it is in order, no larger ones before it. NaNs come last.

    Args:
        a: an Array or what ``asarray`` takes, of any dtype.
        kth: which element is where it is in order; negative ones count from the end.
        axis: along which axis.

    Returns:
        An Array of the shape and dtype of a: ascending up to ``kth``, descending after it.

    Raises:
        AxisError: an axis outside of the array, or no such element.

    >>> import fnx.numpy as jnp
    >>> jnp.partition(jnp.asarray([4, 3, 1, 2]), 1)
    Array([1, 2, 4, 3], dtype=int32)
    """
    x, k, at = _parted(a, kth, axis)
    low, high = _halves(in_order([x._node], at, 1)[0], at, k)
    return Array(build.concat([low, build.flip(high, [at])], at), x.weak)


@public
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The indices of a partition: see ``partition``.

    Args:
        a: an Array or what ``asarray`` takes, of any dtype.
        kth: which element is where it is in order; negative ones count from the end.
        axis: along which axis.

    Returns:
        An int32 Array of the shape of a; the indices after ``kth`` ascend.

    Raises:
        AxisError: an axis outside of the array, or no such element.

    >>> import fnx.numpy as jnp
    >>> jnp.argpartition(jnp.asarray([4, 3, 1, 2]), 1)
    Array([2, 3, 0, 1], dtype=int32)
    """
    x, k, at = _parted(a, kth, axis)
    low, high = _halves(in_order([x._node], at, 1, [-1])[0], at, k)
    return Array(build.concat([low, in_order([high], at, 1)[0]], at))
