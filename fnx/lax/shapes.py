"""Movement and creation under the names of ``jax.lax``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core import build
from fnx.core.array import axes, promotion
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node
from fnx.core.array.public import asarray, public
from fnx.core.errors import ArgumentError, ShapeError
from fnx.numpy.creation import full

__all__ = [
    "broadcast", "broadcast_in_dim", "broadcasted_iota", "concatenate", "expand_dims", "full",
    "full_like", "iota", "pad", "reshape", "rev", "squeeze", "transpose",
]


@public
def broadcast_in_dim(operand: ArrayLike, shape: ShapeLike, broadcast_dimensions: Sequence[int]
                    ) -> Array:
    """Axis i of the operand becomes axis ``broadcast_dimensions[i]`` of the shape.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        shape: of the result: an int or ints, known while tracing.
        broadcast_dimensions: for each axis of the operand, which axis of the result it is.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ArgumentError: more or fewer axes than the operand's.
        ShapeError: the lengths do not fit.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.broadcast_in_dim(jnp.arange(2), (2, 2), (0,))
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    x = asarray(operand)
    size = axes.shape(shape)
    places = axes.listed(broadcast_dimensions, len(size))
    if len(places) != x.ndim:
        raise ArgumentError(f"broadcast_in_dim: expected {x.ndim} axes, got {places}")
    line = [1] * len(size)
    for n, at in zip(x.shape, places):
        line[at] = n
    ordered = build.permute(x._node, sorted(range(x.ndim), key=places.__getitem__))
    return Array(build.expand(build.reshape(ordered, tuple(line)), size), x.weak)


@public
def broadcast(operand: ArrayLike, sizes: ShapeLike) -> Array:
    """New leading axes of these lengths.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        sizes: lengths of the new leading axes.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ArgumentError: a negative length.

    >>> import fnx.lax as lax
    >>> lax.broadcast(1.0, (2,)).shape
    (2,)
    """
    x = asarray(operand)
    return jnp.broadcast_to(x, axes.shape(sizes) + x.shape)


@public
def reshape(operand: ArrayLike, new_sizes: ShapeLike, dimensions: Sequence[int] | None = None
           ) -> Array:
    """The elements (of the axes in order ``dimensions``) under another shape.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        new_sizes: ints.
        dimensions: the order in which the axes of the operand are read.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ShapeError: another number of elements.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reshape(jnp.arange(4), (2, 2)).shape
    (2, 2)
    """
    x = operand if dimensions is None else jnp.transpose(operand, dimensions)
    return jnp.reshape(x, new_sizes)


@public
def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Axes in another order.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        permutation: which axis of the operand each axis of the result is.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        AxisError: not every axis once.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.transpose(jnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return jnp.transpose(operand, tuple(permutation))


@public
def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The order reversed along axes.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        dimensions: which axes.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.rev(jnp.arange(3), (0,))
    Array([2, 1, 0], dtype=int32)
    """
    return jnp.flip(operand, tuple(dimensions))


@public
def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Without these axes, which have length 1.

    Args:
        array: an Array or what ``asarray`` takes, of any shape and dtype.
        dimensions: which axes.

    Returns:
        An Array of the dtype of the array.

    Raises:
        ShapeError: an axis whose length is not 1.
        AxisError: an axis outside of the array.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.squeeze(jnp.zeros((1, 2)), (0,)).shape
    (2,)
    """
    return jnp.squeeze(array, tuple(dimensions))


@public
def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """New axes of length 1.

    Args:
        array: an Array or what ``asarray`` takes, of any shape and dtype.
        dimensions: places in the result.

    Returns:
        An Array of the dtype of the array.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.expand_dims(jnp.zeros(2), (0,)).shape
    (1, 2)
    """
    return jnp.expand_dims(array, tuple(dimensions))


@public
def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """Arrays one after the other along an axis.

    Args:
        operands: Arrays whose other axes agree, of dtypes that promote.
        dimension: along which axis.

    Returns:
        An Array of the common dtype.

    Raises:
        ArgumentError: no array at all.
        ShapeError: other axes that differ.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.concatenate([jnp.zeros(1), jnp.ones(1)], 0)
    Array([0., 1.], dtype=float32)
    """
    return jnp.concatenate(operands, dimension)


@public
def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]
        ) -> Array:
    """Elements added before, after and between those of each axis; negative numbers cut.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        padding_value: a number.
        padding_config: (before, after, between) for each axis.

    Returns:
        An Array of the dtype of the operand.

    Raises:
        ArgumentError: not one triple for each axis.
        ShapeError: a negative length.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.pad(jnp.arange(1, 3), 0, [(1, 0, 1)])
    Array([0, 1, 0, 2], dtype=int32)
    """
    x = asarray(operand)
    fill = as_node(promotion.operand(padding_value), x._dtype)
    node = x._node
    try:
        triples = [tuple(map(operator.index, triple)) for triple in padding_config]
    except TypeError:
        triples = []
    if len(triples) != x.ndim or any(len(t) != 3 or t[2] < 0 for t in triples):
        raise ArgumentError(f"expected {x.ndim} triples of ints (before, after, between >= 0), got "
                            f"{padding_config!r}", hint="one for each axis: [(1, 0, 0)]")
    for at, (_, _, between) in enumerate(triples):
        n = node.shape[at]
        if between and n > 1:
            lead, rest = node.shape[:at], node.shape[at + 1:]
            widths = [(0, 0)] * (at + 1) + [(0, between)] + [(0, 0)] * len(rest)
            node = build.pad(build.reshape(node, (*lead, n, 1, *rest)), widths, fill)
            node = build.reshape(node, (*lead, n * (between + 1), *rest))
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


@public
def iota(dtype: DTypeLike, size: int) -> Array:
    """0, 1, ... size - 1.

    Args:
        dtype: of the result.
        size: how many.

    Returns:
        An Array of shape (size,).

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.

    >>> import fnx.lax as lax
    >>> lax.iota("float32", 2)
    Array([0., 1.], dtype=float32)
    """
    return jnp.arange(size, dtype=dtype)


@public
def broadcasted_iota(dtype: DTypeLike, shape: ShapeLike, dimension: int) -> Array:
    """The index along one axis, at each place of a shape.

    Args:
        dtype: of the result.
        shape: of the result: an int or ints, known while tracing.
        dimension: the axis whose index it is.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.
        AxisError: an axis outside of the array.

    >>> import fnx.lax as lax
    >>> lax.broadcasted_iota("int32", (2, 2), 0)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    size = axes.shape(shape)
    at = axes.one(dimension, len(size))
    return broadcast_in_dim(jnp.arange(size[at], dtype=dtype), size, (at,))


@public
def full_like(x: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None,
              shape: ShapeLike | None = None) -> Array:
    """One value in the shape and dtype of x.

    Args:
        x: an Array, or anything with a shape and a dtype.
        fill_value: a number, or values that broadcast to the shape.
        dtype: of the result; by default that of x.
        shape: of the result; by default that of x.

    Returns:
        An Array.

    Raises:
        ArgumentError: a negative length, or one that is no int.
        TracedValueError: a length that is traced.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.full_like(jnp.zeros(1), 2)
    Array([2.], dtype=float32)
    """
    return jnp.full_like(x, fill_value, dtype, shape)
