"""Shape operations and array creation of ``jax.lax``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import axes, promotion
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.creation import full

__all__ = [
    "broadcast", "broadcast_in_dim", "broadcasted_iota", "concatenate", "expand_dims", "full",
    "full_like", "iota", "pad", "reshape", "rev", "squeeze", "transpose",
]


@public_api
def broadcast_in_dim(operand: ArrayLike, shape: ShapeLike, broadcast_dimensions: Sequence[int]
                    ) -> Array:
    """Broadcast to a shape, where axis i of the operand is axis ``broadcast_dimensions[i]``.

    Args:
        operand: an Array or array-like of any shape and dtype.
        shape: the shape of the result: a static int or ints.
        broadcast_dimensions: the axis of the result for each axis of the operand.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ArgumentError: ``broadcast_dimensions`` does not have one entry per axis of the operand.
        ShapeError: the lengths do not match.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.broadcast_in_dim(jnp.arange(2), (2, 2), (0,))
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    x = asarray(operand)
    size = axes.normalize_shape(shape)
    dims = axes.normalize_axis_tuple(broadcast_dimensions, len(size))
    if len(dims) != x.ndim:
        raise ArgumentError(f"broadcast_in_dim: expected {x.ndim} axes, got {dims}")
    aligned = [1] * len(size)
    for n, at in zip(x.shape, dims):
        aligned[at] = n
    ordered = build.permute(x._node, sorted(range(x.ndim), key=dims.__getitem__))
    return Array(build.expand(build.reshape(ordered, tuple(aligned)), size), x.weak)


@public_api
def broadcast(operand: ArrayLike, sizes: ShapeLike) -> Array:
    """Add leading axes of given lengths by broadcasting.

    Args:
        operand: an Array or array-like of any shape and dtype.
        sizes: the lengths of the new leading axes.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ArgumentError: a negative length.

    >>> import fnx.lax as lax
    >>> lax.broadcast(1.0, (2,)).shape
    (2,)
    """
    x = asarray(operand)
    return jnp.broadcast_to(x, axes.normalize_shape(sizes) + x.shape)


@public_api
def reshape(operand: ArrayLike, new_sizes: ShapeLike, dimensions: Sequence[int] | None = None
           ) -> Array:
    """Reshape an array, whose axes are first permuted to the order ``dimensions``.

    Args:
        operand: an Array or array-like of any shape and dtype.
        new_sizes: ints; the new shape.
        dimensions: the order in which to read the axes of the operand.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ShapeError: the number of elements differs.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reshape(jnp.arange(4), (2, 2)).shape
    (2, 2)
    """
    x = operand if dimensions is None else jnp.transpose(operand, dimensions)
    return jnp.reshape(x, new_sizes)


@public_api
def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Permute the axes.

    Args:
        operand: an Array or array-like of any shape and dtype.
        permutation: the axis of the operand for each axis of the result.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        AxisError: ``permutation`` does not name each axis once.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.transpose(jnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return jnp.transpose(operand, tuple(permutation))


@public_api
def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Reverse the order of elements along axes.

    Args:
        operand: an Array or array-like of any shape and dtype.
        dimensions: the axes to reverse.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        AxisError: an axis is out of range or repeated.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.rev(jnp.arange(3), (0,))
    Array([2, 1, 0], dtype=int32)
    """
    return jnp.flip(operand, tuple(dimensions))


@public_api
def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Remove axes of length 1.

    Args:
        array: an Array or array-like of any shape and dtype.
        dimensions: the axes to remove.

    Returns:
        An Array of the dtype of the array.

    Raises:
        ShapeError: the length of an axis is not 1.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.squeeze(jnp.zeros((1, 2)), (0,)).shape
    (2,)
    """
    return jnp.squeeze(array, tuple(dimensions))


@public_api
def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Insert axes of length 1.

    Args:
        array: an Array or array-like of any shape and dtype.
        dimensions: the positions of the new axes in the result.

    Returns:
        An Array of the dtype of the array.

    Raises:
        AxisError: an axis is out of range or repeated.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.expand_dims(jnp.zeros(2), (0,)).shape
    (1, 2)
    """
    return jnp.expand_dims(array, tuple(dimensions))


@public_api
def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """Concatenate arrays along an axis.

    Args:
        operands: Arrays that agree in all other axes; their dtypes promote.
        dimension: the axis to concatenate along.

    Returns:
        An Array of the common dtype.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the other axes differ.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.concatenate([jnp.zeros(1), jnp.ones(1)], 0)
    Array([0., 1.], dtype=float32)
    """
    return jnp.concatenate(operands, dimension)


@public_api
def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]
        ) -> Array:
    """Pad each axis with elements before, after and between its own; negative numbers crop.

    Args:
        operand: an Array or array-like of any shape and dtype.
        padding_value: a number.
        padding_config: (before, after, between) for each axis.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ArgumentError: there is not one triple for each axis.
        ShapeError: the result would have a negative length.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.pad(jnp.arange(1, 3), 0, [(1, 0, 1)])
    Array([0, 1, 0, 2], dtype=int32)
    """
    x = asarray(operand)
    fill = as_node(promotion.as_operand(padding_value), x._dtype)
    node = x._node
    try:
        triples = [tuple(map(operator.index, triple)) for triple in padding_config]
    except TypeError:
        triples = []
    if len(triples) != x.ndim or any(len(t) != 3 or t[2] < 0 for t in triples):
        raise ArgumentError(f"expected {x.ndim} triples of ints (low, high, interior >= 0), got "
                            f"{padding_config!r}",
                            hint="pass one per axis, such as [(1, 0, 0)]")
    for at, (_, _, between) in enumerate(triples):
        n = node.shape[at]
        if between and n > 1:
            lead, tail = node.shape[:at], node.shape[at + 1:]
            widths = [(0, 0)] * (at + 1) + [(0, between)] + [(0, 0)] * len(tail)
            node = build.pad(build.reshape(node, (*lead, n, 1, *tail)), widths, fill)
            node = build.reshape(node, (*lead, n * (between + 1), *tail))
            bounds = [(0, m) for m in node.shape]
            bounds[at] = (0, n + (n - 1) * between)
            node = build.shrink(node, bounds)
    node = build.pad(node, [(max(0, lo), max(0, hi)) for lo, hi, _ in triples], fill)
    cuts = []
    for n, (lo, hi, _) in zip(node.shape, triples):
        low, high = max(0, -lo), n - max(0, -hi)
        if low > high:
            raise ShapeError(f"pad: expected a result of length >= 0, got {high - low}")
        cuts.append((low, high))
    return Array(build.shrink(node, cuts), x.weak)


@public_api
def iota(dtype: DTypeLike, size: int) -> Array:
    """Return 0, 1, ... size - 1.

    Args:
        dtype: the dtype of the result.
        size: the number of elements.

    Returns:
        An Array of shape (size,).

    Raises:
        ArgumentError: a length is negative or not an int.
        TracedValueError: a length is traced.

    >>> import fnx.lax as lax
    >>> lax.iota("float32", 2)
    Array([0., 1.], dtype=float32)
    """
    return jnp.arange(size, dtype=dtype)


@public_api
def broadcasted_iota(dtype: DTypeLike, shape: ShapeLike, dimension: int) -> Array:
    """Return an array of a shape that holds the index along one axis at each position.

    Args:
        dtype: the dtype of the result.
        shape: the shape of the result: a static int or ints.
        dimension: the axis whose indices to return.

    Returns:
        An Array.

    Raises:
        ArgumentError: a length is negative or not an int.
        TracedValueError: a length is traced.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax
    >>> lax.broadcasted_iota("int32", (2, 2), 0)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    size = axes.normalize_shape(shape)
    at = axes.normalize_axis(dimension, len(size))
    return broadcast_in_dim(jnp.arange(size[at], dtype=dtype), size, (at,))


@public_api
def full_like(x: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None,
              shape: ShapeLike | None = None) -> Array:
    """Fill an array of the shape and dtype of x with one value.

    Args:
        x: an Array, or any object with a shape and a dtype.
        fill_value: a number, or values that broadcast to the shape.
        dtype: the dtype of the result; by default that of x.
        shape: the shape of the result; by default that of x.

    Returns:
        An Array.

    Raises:
        ArgumentError: a length is negative or not an int.
        TracedValueError: a length is traced.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.full_like(jnp.zeros(1), 2)
    Array([2.], dtype=float32)
    """
    return jnp.full_like(x, fill_value, dtype, shape)
