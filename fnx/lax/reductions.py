"""Folds of axes under the names of ``jax.lax``."""

from __future__ import annotations

from collections.abc import Sequence

import fnx.numpy as jnp
from fnx.core import ops
from fnx.core.array import arguments, axes, operate
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import in_domain
from fnx.core.array.public import asarray, public
from fnx.core.array.running import running
from fnx.core.ops import Op
from fnx.numpy.reductions import fold

__all__ = [
    "argmax", "argmin", "cumprod", "cumsum", "reduce_and", "reduce_max", "reduce_min",
    "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor",
]


def _reduced(monoid: Op, x: ArrayLike, over: Sequence[int]) -> Array:
    return Array(fold(asarray(x)._node, monoid, tuple(over), False))


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
    return _reduced(ops.ADD, operand, axes)


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
    return _reduced(ops.MUL, operand, axes)


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
    return _reduced(ops.MAX, operand, axes)


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
    return _reduced(ops.MIN, operand, axes)


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
    return _reduced(ops.AND, operand, axes)


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
    return _reduced(ops.OR, operand, axes)


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
    return _reduced(ops.XOR, operand, axes)


@public
def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike = int) -> Array:
    """The first index of the largest element along an axis.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        axis: along which axis.
        index_dtype: of the result.

    Returns:
        An Array without the axis, of the index dtype.

    Raises:
        ShapeError: there is nothing to fold.
        AxisError: an axis outside of the array.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.argmax(jnp.arange(3), 0, int))
    2
    """
    return operate.astype(jnp.argmax(operand, axis), index_dtype)


@public
def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike = int) -> Array:
    """The first index of the smallest element along an axis.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        axis: along which axis.
        index_dtype: of the result.

    Returns:
        An Array without the axis, of the index dtype.

    Raises:
        ShapeError: there is nothing to fold.
        AxisError: an axis outside of the array.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.argmin(jnp.arange(3), 0, int))
    0
    """
    return operate.astype(jnp.argmin(operand, axis), index_dtype)


def _running(operand: ArrayLike, axis: int, reverse: bool, monoid: Op, name: str) -> Array:
    arguments.flag("reverse", reverse)
    node = in_domain("integer", operand)
    return Array(running(node, axes.one(axis, len(node.shape)), monoid, reverse, name))


@public
def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running sums along an axis, from its end if ``reverse``.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        axis: along which axis.
        reverse: whether to begin at the end of the axis.

    Returns:
        An Array of the shape of the operand.

    Raises:
        AxisError: an axis outside of the array.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.cumsum(jnp.arange(3), reverse=True)
    Array([3, 3, 2], dtype=int32)
    """
    return _running(operand, axis, reverse, ops.ADD, "cumsum")


@public
def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running products along an axis, from its end if ``reverse``.

    Args:
        operand: an Array or what ``asarray`` takes, of any shape and dtype.
        axis: along which axis.
        reverse: whether to begin at the end of the axis.

    Returns:
        An Array of the shape of the operand.

    Raises:
        AxisError: an axis outside of the array.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.cumprod(jnp.arange(1, 4))
    Array([1, 2, 6], dtype=int32)
    """
    return _running(operand, axis, reverse, ops.MUL, "cumprod")
