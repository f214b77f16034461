"""Reductions of ``jax.lax`` with known functions: reduce_sum, reduce_max, argmax and others."""

from __future__ import annotations

from collections.abc import Sequence

import fnx.numpy as jnp
from fnx.core import ops
from fnx.core.array import operate
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.documented import Family
from fnx.core.array.public import asarray
from fnx.core.ops import Op
from fnx.numpy.reductions import fold

__all__ = [
    "argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
    "reduce_sum", "reduce_xor",
]

_AT = "fnx.lax as lax, fnx.numpy as jnp"
_family = Family(
    operand="an Array or what ``asarray`` takes, of any shape and dtype.", axes="which axes go.",
    returns="An Array without these axes, of the dtype of the operand.",
    raises=("AxisError: an axis outside of the array, or named twice.",), at=_AT)
_place = Family(
    operand="an Array or what ``asarray`` takes, of any shape and dtype.",
    axis="along which axis.", index_dtype="of the result.",
    returns="An Array without the axis, of the index dtype.",
    raises=("ShapeError: there is nothing to fold.", "AxisError: an axis outside of the array."),
    at=_AT)
_NUMBERS = "an Array or what ``asarray`` takes, of any shape, of integers or floats."
_BITS = "an Array or what ``asarray`` takes, of any shape, of bool or integers."


def _reduced(monoid: Op, x: ArrayLike, over: Sequence[int]) -> Array:
    return Array(fold(asarray(x)._node, monoid, tuple(over), False))


@_family(operand=_NUMBERS)
def reduce_sum(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the sum over axes.

    >>> lax.reduce_sum(jnp.asarray([1, 2, 4]), (0,))
    Array(7, dtype=int32)
    """
    return _reduced(ops.ADD, operand, axes)


@_family(operand=_NUMBERS)
def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the product over axes.

    >>> lax.reduce_prod(jnp.asarray([1, 2, 4]), (0,))
    Array(8, dtype=int32)
    """
    return _reduced(ops.MUL, operand, axes)


@_family()
def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the maximum over axes; NaN propagates.

    >>> lax.reduce_max(jnp.asarray([1, 2, 4]), (0,))
    Array(4, dtype=int32)
    """
    x = asarray(operand)
    return _reduced(ops.MAX.of(x._dtype), x, axes)


@_family()
def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the minimum over axes; NaN propagates.

    >>> lax.reduce_min(jnp.asarray([1, 2, 4]), (0,))
    Array(1, dtype=int32)
    """
    x = asarray(operand)
    return _reduced(ops.MIN.of(x._dtype), x, axes)


@_family(operand=_BITS)
def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise and over axes.

    >>> lax.reduce_and(jnp.asarray([3, 6]), (0,))
    Array(2, dtype=int32)
    """
    return _reduced(ops.AND, operand, axes)


@_family(operand=_BITS)
def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise or over axes.

    >>> lax.reduce_or(jnp.asarray([3, 6]), (0,))
    Array(7, dtype=int32)
    """
    return _reduced(ops.OR, operand, axes)


@_family(operand=_BITS)
def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise exclusive or over axes.

    >>> lax.reduce_xor(jnp.asarray([3, 6]), (0,))
    Array(5, dtype=int32)
    """
    return _reduced(ops.XOR, operand, axes)


@_place()
def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike = int) -> Array:
    """Return the first index of the maximum along an axis.

    >>> print(lax.argmax(jnp.arange(3), 0, int))
    2
    """
    return operate.astype(jnp.argmax(operand, axis), index_dtype)


@_place()
def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike = int) -> Array:
    """Return the first index of the minimum along an axis.

    >>> print(lax.argmin(jnp.arange(3), 0, int))
    0
    """
    return operate.astype(jnp.argmin(operand, axis), index_dtype)
