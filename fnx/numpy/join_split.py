"""Joining and splitting of arrays."""

from __future__ import annotations

import operator
from typing import Any

from fnx.core.array import array_operators, axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import promote_operands
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.shape_manipulation import expand_dims, ravel, reshape, wrap_like

_MAX_EXTRA_SECTIONS = 1_000_000  # limit on sections beyond the number of rows

__all__ = [
    "array_split", "column_stack", "concat", "concatenate", "hstack", "split", "stack",
    "vstack",
]


def _array_list(name: str, arrays: Any) -> list[Any]:
    try:
        xs = list(arrays)
    except TypeError:
        raise ArgumentError(f"{name}: expected a sequence of arrays, got "
                            f"{type(arrays).__name__}") from None
    if not xs:
        raise ArgumentError(f"{name}: expected at least one array, got none",
                            hint="where there may be none, begin with fnx.numpy.zeros")
    return [asarray(x) for x in xs]


@public_api
def concatenate(arrays: Any, axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    """Concatenate arrays along an existing axis.

    Args:
        arrays: Arrays whose other axes agree; they are promoted to a common dtype.
        axis: the axis; None flattens the arrays first.
        dtype: the dtype of the result; by default the common one.

    Returns:
        An Array of ``dtype`` or the common dtype.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the arrays are 0-d, or their other axes differ.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.concatenate([jnp.zeros(1), jnp.ones(2)])
    Array([0., 1., 1.], dtype=float32)
    """
    xs = _array_list("concatenate", arrays)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    if xs[0].ndim == 0:
        raise ShapeError("concatenate: expected arrays of at least one axis, got 0-d ones",
                         hint="use stack")
    nodes, weak = promote_operands("any", "concatenate", xs, broadcast=False)
    out = Array(build.concat(nodes, axes.normalize_axis(axis, xs[0].ndim)), weak)
    return out if dtype is None else array_operators.astype(out, dtype)


concat = concatenate

@public_api
def stack(arrays: Any, axis: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays of one shape along a new axis.

    Args:
        arrays: Arrays of one shape.
        axis: the position of the new axis in the result.
        dtype: the dtype of the result; by default the common one.

    Returns:
        An Array with one more axis, of ``dtype`` or the common dtype.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the shapes differ.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.stack([jnp.zeros(2), jnp.ones(2)], axis=1).shape
    (2, 2)
    """
    xs = _array_list("stack", arrays)
    for x in xs:
        if x.shape != xs[0].shape:
            raise ShapeError(f"stack: expected arrays of one shape, got {xs[0].shape} and "
                             f"{x.shape}", hint="broadcast_arrays them first")
    return concatenate([expand_dims(x, axis) for x in xs], axis=axis, dtype=dtype)


def _with_min_rank(min_rank: int, x: Array, columns: bool = False) -> Array:
    if x.ndim >= min_rank:
        return x
    if columns:
        return reshape(x, (-1, 1)) if x.ndim else reshape(x, (1, 1))
    return reshape(x, (1,) * (min_rank - x.ndim) + x.shape)


@public_api
def vstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays vertically (along axis 0); vectors become rows.

    Args:
        tup: Arrays of one axis (a row each) or more.
        dtype: the dtype of the result; by default the common one.

    Returns:
        An Array of at least two axes.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the other axes differ.

    >>> import fnx.numpy as jnp
    >>> jnp.vstack([jnp.zeros(2), jnp.ones(2)]).shape
    (2, 2)
    """
    return concatenate([_with_min_rank(2, x) for x in _array_list("vstack", tup)], 0, dtype)


@public_api
def hstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays horizontally: along axis 1, or along axis 0 for vectors.

    Args:
        tup: Arrays whose other axes agree; they are promoted to a common dtype.
        dtype: the dtype of the result; by default the common one.

    Returns:
        An Array.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the other axes differ.

    >>> import fnx.numpy as jnp
    >>> jnp.hstack([jnp.zeros(2), jnp.ones(1)])
    Array([0., 0., 1.], dtype=float32)
    """
    xs = [_with_min_rank(1, x) for x in _array_list("hstack", tup)]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, dtype)


@public_api
def column_stack(tup: Any) -> Array:
    """Stack vectors as the columns of a matrix.

    Args:
        tup: Arrays of one axis (a column each) or two.

    Returns:
        An Array of at least two axes.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the numbers of rows differ.

    >>> import fnx.numpy as jnp
    >>> jnp.column_stack([jnp.zeros(2), jnp.ones(2)])
    Array([[0., 1.],
           [0., 1.]], dtype=float32)
    """
    return concatenate([_with_min_rank(2, x, True) for x in _array_list("column_stack", tup)], 1)


@public_api
def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Split an array along an axis, into equal parts or at indices.

    Args:
        ary: an Array or array-like of any shape and dtype.
        indices_or_sections: the number of equal parts, or the indices at which to split.
        axis: the axis; negative values count from the end.

    Returns:
        A list of Arrays of the dtype of the array.

    Raises:
        ShapeError: the number of parts does not divide the length.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.split(jnp.arange(4), 2)
    [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    """
    x = asarray(ary)
    n = x.shape[axes.normalize_axis(axis, x.ndim)]
    if isinstance(indices_or_sections, int) and (indices_or_sections < 1
                                                 or n % indices_or_sections):
        raise ShapeError(f"split: expected a divisor of {n}, got {indices_or_sections}",
                         hint="use array_split for unequal parts")
    return array_split(x, indices_or_sections, axis)


@public_api
def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Split an array along an axis, into parts of nearly equal length or at indices.

    Args:
        ary: an Array or array-like of any shape and dtype.
        indices_or_sections: the number of parts, or the indices at which to split.
        axis: the axis; negative values count from the end.

    Returns:
        A list of Arrays of the dtype of the array.

    Raises:
        ArgumentError: there are too many parts, or none.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> [p.shape for p in jnp.array_split(jnp.arange(5), 2)]
    [(3,), (2,)]
    """
    x = asarray(ary)
    ax = axes.normalize_axis(axis, x.ndim)
    n = x.shape[ax]
    if isinstance(indices_or_sections, int):
        k = indices_or_sections
        if k < 1:
            raise ArgumentError(f"expected at least 1 section, got {k:,}")
        if k > n + _MAX_EXTRA_SECTIONS:
            raise ArgumentError(f"expected at most {n + _MAX_EXTRA_SECTIONS:,} sections, got {k:,}")
        bounds = [i * (n // k) + min(i, n % k) for i in range(k + 1)]
    else:
        bounds = [0, *[slice(operator.index(i)).indices(n)[1] for i in indices_or_sections], n]
    out = []
    for low, high in zip(bounds, bounds[1:]):
        slices = [(0, m) for m in x.shape]
        slices[ax] = (low, max(low, high))
        out.append(wrap_like(x, build.shrink(x._node, slices)))
    return out
