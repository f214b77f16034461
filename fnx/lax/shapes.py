"""Movement, reductions and contractions under the names of ``jax.lax``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core import build, ops
from fnx.core.array import axes, convert, operate, promotion
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike, asarray, public
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, promoted
from fnx.core.errors import ArgumentError, ShapeError
from fnx.numpy.contraction import contract
from fnx.numpy.reductions import fold


@public
def broadcast_in_dim(operand: ArrayLike, shape: ShapeLike, broadcast_dimensions: Sequence[int]
                    ) -> Array:
    """Axis i of the operand becomes axis ``broadcast_dimensions[i]`` of the shape.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.broadcast_in_dim(jnp.arange(2), (2, 2), (0,))
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    x = asarray(operand)
    size = axes.shape(shape)
    places = axes.listed(broadcast_dimensions, len(size))
    if len(places) != x.ndim or list(places) != sorted(places):
        raise ArgumentError(f"broadcast_in_dim: expected {x.ndim} increasing axes, got {places}")
    line = [1] * len(size)
    for n, at in zip(x.shape, places):
        line[at] = n
    return Array(build.expand(build.reshape(x._node, tuple(line)), size), x.weak)


@public
def broadcast(operand: ArrayLike, sizes: ShapeLike) -> Array:
    """New leading axes of these lengths.

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

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reshape(jnp.arange(4), (2, 2)).shape
    (2, 2)
    """
    x = operand if dimensions is None else jnp.transpose(operand, dimensions)
    return jnp.reshape(x, new_sizes)


@public
def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Axes in another order.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.transpose(jnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return jnp.transpose(operand, tuple(permutation))


@public
def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The order reversed along axes.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.rev(jnp.arange(3), (0,))
    Array([2, 1, 0], dtype=int32)
    """
    return jnp.flip(operand, tuple(dimensions))


@public
def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Without these axes, which have length 1.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.squeeze(jnp.zeros((1, 2)), (0,)).shape
    (2,)
    """
    return jnp.squeeze(array, tuple(dimensions))


@public
def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """New axes of length 1.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.expand_dims(jnp.zeros(2), (0,)).shape
    (1, 2)
    """
    return jnp.expand_dims(array, tuple(dimensions))


@public
def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """Arrays one after the other along an axis.

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
        padding_config: (before, after, between) for each axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.pad(jnp.arange(1, 3), 0, [(1, 0, 1)])
    Array([0, 1, 0, 2], dtype=int32)
    """
    x = asarray(operand)
    fill = as_node(promotion.operand(padding_value), x._dtype)
    node = x._node
    if len(padding_config) != x.ndim or any(k < 0 for _, _, k in padding_config):
        raise ArgumentError(f"pad: expected {x.ndim} triples (before, after, between >= 0), got "
                            f"{list(padding_config)}")
    for at, (_, _, between) in enumerate(padding_config):
        n = node.shape[at]
        if between and n > 1:
            lead, rest = node.shape[:at], node.shape[at + 1:]
            widths = [(0, 0)] * (at + 1) + [(0, between)] + [(0, 0)] * len(rest)
            node = build.pad(build.reshape(node, (*lead, n, 1, *rest)), widths, fill)
            node = build.reshape(node, (*lead, n * (between + 1), *rest))
            bounds = [(0, m) for m in node.shape]
            bounds[at] = (0, n + (n - 1) * between)
            node = build.shrink(node, bounds)
    node = build.pad(node, [(max(0, lo), max(0, hi)) for lo, hi, _ in padding_config], fill)
    cuts = []
    for n, (lo, hi, _) in zip(node.shape, padding_config):
        low, high = max(0, -lo), n - max(0, -hi)
        if low > high:
            raise ShapeError(f"pad: expected a result of length >= 0, got {high - low}")
        cuts.append((low, high))
    return Array(build.shrink(node, cuts), x.weak)


@public
def iota(dtype: DTypeLike, size: int) -> Array:
    """0, 1, ... size - 1.

    >>> import fnx.lax as lax
    >>> lax.iota("float32", 2)
    Array([0., 1.], dtype=float32)
    """
    return jnp.arange(size, dtype=dtype)


@public
def broadcasted_iota(dtype: DTypeLike, shape: ShapeLike, dimension: int) -> Array:
    """The index along one axis, at each place of a shape.

    >>> import fnx.lax as lax
    >>> lax.broadcasted_iota("int32", (2, 2), 0)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    size = axes.shape(shape)
    at = axes.one(dimension, len(size))
    return broadcast_in_dim(jnp.arange(size[at], dtype=dtype), size, (at,))


@public
def full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """An array of one value.

    >>> import fnx.lax as lax
    >>> lax.full((1,), 2.0, "float32")
    Array([2.], dtype=float32)
    """
    return jnp.full(shape, fill_value, dtype)


@public
def full_like(x: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None,
              shape: ShapeLike | None = None) -> Array:
    """One value in the shape and dtype of x.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.full_like(jnp.zeros(1), 2)
    Array([2.], dtype=float32)
    """
    return jnp.full_like(x, fill_value, dtype, shape)


# ---- reductions -------------------------------------------------------------------------------


@public
def reduce_sum(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The sum over axes.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape, of integers or floats.
        axes: which axes go.

    Returns:
        An Array without these axes, of the dtype of the operand.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reduce_sum(jnp.asarray([1, 2, 4]), (0,))
    Array(7, dtype=int32)
    """
    return Array(fold(asarray(operand)._node, ops.ADD, tuple(axes), False))


@public
def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The product over axes.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape, of integers or floats.
        axes: which axes go.

    Returns:
        An Array without these axes, of the dtype of the operand.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reduce_prod(jnp.asarray([1, 2, 4]), (0,))
    Array(8, dtype=int32)
    """
    return Array(fold(asarray(operand)._node, ops.MUL, tuple(axes), False))


@public
def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The largest over axes; NaN wins.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape, of any dtype.
        axes: which axes go.

    Returns:
        An Array without these axes, of the dtype of the operand.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reduce_max(jnp.asarray([1, 2, 4]), (0,))
    Array(4, dtype=int32)
    """
    return Array(fold(asarray(operand)._node, ops.MAX, tuple(axes), False))


@public
def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The smallest over axes; NaN wins.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape, of any dtype.
        axes: which axes go.

    Returns:
        An Array without these axes, of the dtype of the operand.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reduce_min(jnp.asarray([1, 2, 4]), (0,))
    Array(1, dtype=int32)
    """
    return Array(fold(asarray(operand)._node, ops.MIN, tuple(axes), False))


@public
def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """All bits that all have, over axes.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape, of bool or integers.
        axes: which axes go.

    Returns:
        An Array without these axes, of the dtype of the operand.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reduce_and(jnp.asarray([3, 6]), (0,))
    Array(2, dtype=int32)
    """
    return Array(fold(asarray(operand)._node, ops.AND, tuple(axes), False))


@public
def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """All bits that any has, over axes.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape, of bool or integers.
        axes: which axes go.

    Returns:
        An Array without these axes, of the dtype of the operand.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reduce_or(jnp.asarray([3, 6]), (0,))
    Array(7, dtype=int32)
    """
    return Array(fold(asarray(operand)._node, ops.OR, tuple(axes), False))


@public
def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Exclusive or over axes.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape, of bool or integers.
        axes: which axes go.

    Returns:
        An Array without these axes, of the dtype of the operand.

    Raises:
        AxisError: an axis outside of the array, or named twice.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reduce_xor(jnp.asarray([3, 6]), (0,))
    Array(5, dtype=int32)
    """
    return Array(fold(asarray(operand)._node, ops.XOR, tuple(axes), False))


@public
def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike = int) -> Array:
    """The first index of the largest element along an axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.argmax(jnp.arange(3), 0, int))
    2
    """
    return operate.astype(jnp.argmax(operand, axis), index_dtype)


@public
def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike = int) -> Array:
    """The first index of the smallest element along an axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.argmin(jnp.arange(3), 0, int))
    0
    """
    return operate.astype(jnp.argmin(operand, axis), index_dtype)


@public
def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running sums along an axis, from its end if ``reverse``.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.cumsum(jnp.arange(3), reverse=True)
    Array([3, 3, 2], dtype=int32)
    """
    if reverse:
        return jnp.flip(jnp.cumsum(jnp.flip(operand, axis), axis), axis)
    return jnp.cumsum(operand, axis)


@public
def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running products along an axis, from its end if ``reverse``.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.cumprod(jnp.arange(1, 4))
    Array([1, 2, 6], dtype=int32)
    """
    if reverse:
        return jnp.flip(jnp.cumprod(jnp.flip(operand, axis), axis), axis)
    return jnp.cumprod(operand, axis)


# ---- contractions -----------------------------------------------------------------------------


@public
def dot(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None,
        preferred_element_type: DTypeLike | None = None) -> Array:
    """Product of vectors and matrices.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.dot(jnp.ones(3), jnp.ones(3)))
    3.0
    """
    return jnp.dot(lhs, rhs, preferred_element_type=preferred_element_type)


@public
def dot_general(lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: Any,
                precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
               ) -> Array:
    """Sum of products over pairs of axes, for each index of the batch axes.

    Args:
        dimension_numbers: ((folded of lhs, folded of rhs), (batch of lhs, batch of rhs)).

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> x = jnp.ones((2, 3, 4))
    >>> lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,)))).shape
    (2, 3, 3)
    """
    (fold_l, fold_r), (batch_l, batch_r) = dimension_numbers
    (x, y), _ = promoted("any", "dot_general", (lhs, rhs), broadcast=False)
    if preferred_element_type is not None:
        t = convert.dtype_argument(preferred_element_type)
        x, y = build.cast(x, t), build.cast(y, t)
    pairs = [*zip(batch_l, batch_r), *zip(fold_l, fold_r)]
    for i, j in pairs:
        if x.shape[i] != y.shape[j]:
            raise ShapeError(f"dot_general: expected axis {i} of {x.shape} as long as axis {j} "
                             f"of {y.shape}")
    of_l = {i: ("shared", n) for n, (i, _) in enumerate(pairs)}
    of_r = {j: ("shared", n) for n, (_, j) in enumerate(pairs)}
    la = tuple(of_l.get(i, ("left", i)) for i in range(len(x.shape)))
    lb = tuple(of_r.get(j, ("right", j)) for j in range(len(y.shape)))
    batch = tuple(("shared", n) for n in range(len(batch_l)))
    out = (*batch, *[z for z in la if z[0] == "left"], *[z for z in lb if z[0] == "right"])
    return Array(contract(x, la, y, lb, out))


@public
def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Matrix product of the last two axes, for each index of the others.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.batch_matmul(jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5))).shape
    (2, 3, 5)
    """
    return jnp.matmul(lhs, rhs)

