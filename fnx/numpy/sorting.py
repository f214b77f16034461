"""Sorting, partitioning and their index variants."""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.array import axes, convert
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build, build_calls, dtypes
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, ShapeError

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort", "sort_complex"]


def sort_along(xs: Sequence[UOp], axis: int, n_keys: int, results: Sequence[int] | None = None
               ) -> list[UOp]:
    """Return the results of a SORT along an axis (build.sort)."""
    rank = len(xs[0].shape)
    order = [*[a for a in range(rank) if a != axis], axis]
    inverse = sorted(range(rank), key=order.__getitem__)
    sorted_nodes = build_calls.sort([build.permute(x, order) for x in xs], n_keys, results)
    return [build.permute(x, inverse) for x in sorted_nodes]


_docstr = DocTemplate(
    a="an Array or array-like of any dtype.",
    axis="the axis to sort along; None sorts all elements, flattened in row-major order.",
    kind="unsupported; must be None, as there is one sort.",
    order="unsupported; must be None, as there are no fields.",
    stable="whether equal elements keep their order; they always do.",
    descending="whether to sort in descending order.",
    returns="An Array of the shape and dtype of ``a``; a vector if ``axis`` is None.",
    raises=("AxisError: the axis is out of range.",
            "ArgumentError: ``kind`` or ``order`` is given."))


def _sort_args(a: ArrayLike, axis: int | None, kind: None, order: None, stable: bool,
               descending: bool
               ) -> tuple[Array, int]:
    """Return the array, flattened if ``axis`` is None, and the axis to sort along."""
    if kind is not None or order is not None:
        raise ArgumentError(f"expected kind=None and order=None, got {kind!r} and {order!r}",
                            hint="leave both out: the sort is always stable")
    x = asarray(a)
    if axis is None:
        return Array(build.reshape(x._node, (x.size,)), x.weak), 0
    return x, axes.normalize_axis(axis, x.ndim)


@_docstr()
def sort(a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
         stable: bool = True, descending: bool = False) -> Array:
    """Sort the elements along an axis. NaNs come last.

    >>> jnp.sort(jnp.asarray([[3, 1], [2, 4]]), axis=0)
    Array([[2, 1],
           [3, 4]], dtype=int32)
    """
    x, ax = _sort_args(a, axis, kind, order, stable, descending)
    node, = sort_along([x._node], ax, 1)
    return Array(build.flip(node, [ax]) if descending else node, x.weak)


@_docstr("An Array of the shape of ``a``; a vector if ``axis`` is None.",
         dtype="of the indices; by default int.")
def argsort(a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
            stable: bool = True, descending: bool = False,
            dtype: DTypeLike | None = None) -> Array:
    """Return the indices that sort an array along an axis. Equal elements keep their order.

    >>> jnp.argsort(jnp.asarray([3.0, 1.0, 2.0]))
    Array([1, 2, 0], dtype=int32)
    """
    x, ax = _sort_args(a, axis, kind, order, stable, descending)
    if not descending:
        return _as_index(sort_along([x._node], ax, 1, [-1])[0], dtype)
    reversed_index, = sort_along([build.flip(x._node, [ax])], ax, 1, [-1])
    last = build.const_like(reversed_index, max(0, x.shape[ax] - 1))
    return _as_index(build.sub(last, build.flip(reversed_index, [ax])), dtype)


def _as_index(node: UOp, dtype: DTypeLike | None = None) -> Array:
    """Cast indices to a dtype, by default int."""
    kind = convert.default_int() if dtype is None else convert.parse_dtype(dtype)
    return Array(build.cast(node, kind))


@_docstr("A complex Array of the shape of ``a``.")
def sort_complex(a: ArrayLike) -> Array:
    """Sort along the last axis by the real parts, then the imaginary parts.

    >>> jnp.sort_complex(jnp.asarray([2j, 1j, -1]))
    Array([-1.+0.j,  0.+1.j,  0.+2.j], dtype=complex64)
    """
    x = asarray(a)
    return sort(Array(build.cast(x._node, dtypes.complex_of(x._dtype))))


@public_api
def lexsort(keys: Sequence[ArrayLike] | ArrayLike, axis: int = -1) -> Array:
    """Return the indices that sort by several keys; the last key is the primary one.

    Args:
        keys: a sequence of Arrays of one shape, or an Array whose rows are the keys.
        axis: the axis of a key to sort along.

    Returns:
        An Array of the default int dtype, of the shape of a key.

    Raises:
        ArgumentError: there are no keys.
        ShapeError: the keys differ in shape.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.lexsort((jnp.asarray([1, 0, 2]), jnp.asarray([5, 5, 4])))
    Array([2, 1, 0], dtype=int32)
    """
    arrays = [asarray(k) for k in
              (keys if isinstance(keys, list | tuple) else asarray(keys))]
    if not arrays:
        raise ArgumentError("expected at least one key, got none")
    for x in arrays:
        if x.shape != arrays[0].shape:
            raise ShapeError(f"expected keys of equal shape, got {arrays[0].shape} and {x.shape}")
    if not arrays[0].ndim:
        return asarray(0, convert.default_int())
    ax = axes.normalize_axis(axis, arrays[0].ndim)
    order, = sort_along([x._node for x in reversed(arrays)], ax, len(arrays), [-1])
    return _as_index(order)


def _resolve_kth(a: ArrayLike, kth: int, axis: int) -> tuple[Array, int, int]:
    x = asarray(a)
    ax = axes.normalize_axis(axis, x.ndim)
    return x, axes.normalize_axis(kth, x.shape[ax]), ax


def _split_after(node: UOp, ax: int, k: int) -> list[UOp]:
    """Split a node along an axis: elements up to and including k, and the remaining ones."""
    n = node.shape[ax]
    return [build.shrink(node, [bounds if i == ax else (0, m) for i, m in enumerate(node.shape)])
            for bounds in ((0, k + 1), (k + 1, n))]


_partition_docstr = DocTemplate(
    a="an Array or array-like of any dtype.", axis="the axis.",
    kth="the index that gets its sorted element; negative values count from the end.",
    returns="An Array of the shape and dtype of a: ascending up to ``kth``, descending after it.",
    raises=("AxisError: the axis or ``kth`` is out of range.",))


@_partition_docstr()
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Partition the elements: element ``kth`` is in its sorted position, no larger ones before it.

    >>> jnp.partition(jnp.asarray([4, 3, 1, 2]), 1)
    Array([1, 2, 4, 3], dtype=int32)
    """
    x, k, ax = _resolve_kth(a, kth, axis)
    low, high = _split_after(sort_along([x._node], ax, 1)[0], ax, k)
    return Array(build.concat([low, build.flip(high, [ax])], ax), x.weak)


@_partition_docstr("An int32 Array of the shape of a; the indices after ``kth`` ascend.")
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Return the indices that partition an array: see ``partition``.

    >>> jnp.argpartition(jnp.asarray([4, 3, 1, 2]), 1)
    Array([2, 3, 0, 1], dtype=int32)
    """
    x, k, ax = _resolve_kth(a, kth, axis)
    low, high = _split_after(sort_along([x._node], ax, 1, [-1])[0], ax, k)
    return Array(build.concat([low, sort_along([high], ax, 1)[0]], ax))
