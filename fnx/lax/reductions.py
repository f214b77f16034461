"""Reductions of ``jax.lax`` with known functions: reduce_sum, reduce_max, argmax and others."""

from __future__ import annotations

from collections.abc import Sequence

import fnx.numpy as jnp
from fnx.core.array import array_operators
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import ops
from fnx.core.ir.ops import Op
from fnx.numpy.reductions import reduce_axes

__all__ = [
    "argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
    "reduce_sum", "reduce_xor",
]

_IMPORTS = "fnx.lax as lax, fnx.numpy as jnp"
_docstr = DocTemplate(
    operand="an Array or array-like.", axes="the axes to reduce.",
    returns="An Array without these axes, of the dtype of the operand.",
    raises=("AxisError: an axis is out of range or repeated.",), imports=_IMPORTS)
_arg_docstr = DocTemplate(
    operand="an Array or array-like.",
    axis="the axis.", index_dtype="the result dtype.",
    returns="An Array without the axis, of the index dtype.",
    raises=("ShapeError: the axis is empty.", "AxisError: the axis is out of range."),
    imports=_IMPORTS)
_NUMERIC_OPERAND = "an Array or array-like of integers or floats."
_BITS_OPERAND = "an Array or array-like of bool or integers."


def _reduce(monoid: Op, x: ArrayLike, axes: Sequence[int]) -> Array:
    return Array(reduce_axes(asarray(x)._node, monoid, tuple(axes), False))


@_docstr(operand=_NUMERIC_OPERAND)
def reduce_sum(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the sum over axes.

    >>> lax.reduce_sum(jnp.asarray([1, 2, 4]), (0,))
    Array(7, dtype=int32)
    """
    return _reduce(ops.ADD, operand, axes)


@_docstr(operand=_NUMERIC_OPERAND)
def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the product over axes.

    >>> lax.reduce_prod(jnp.asarray([1, 2, 4]), (0,))
    Array(8, dtype=int32)
    """
    return _reduce(ops.MUL, operand, axes)


@_docstr()
def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the maximum over axes; NaN propagates.

    >>> lax.reduce_max(jnp.asarray([1, 2, 4]), (0,))
    Array(4, dtype=int32)
    """
    x = asarray(operand)
    return _reduce(ops.MAX.for_dtype(x._dtype), x, axes)


@_docstr()
def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the minimum over axes; NaN propagates.

    >>> lax.reduce_min(jnp.asarray([1, 2, 4]), (0,))
    Array(1, dtype=int32)
    """
    x = asarray(operand)
    return _reduce(ops.MIN.for_dtype(x._dtype), x, axes)


@_docstr(operand=_BITS_OPERAND)
def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise and over axes.

    >>> lax.reduce_and(jnp.asarray([3, 6]), (0,))
    Array(2, dtype=int32)
    """
    return _reduce(ops.AND, operand, axes)


@_docstr(operand=_BITS_OPERAND)
def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise or over axes.

    >>> lax.reduce_or(jnp.asarray([3, 6]), (0,))
    Array(7, dtype=int32)
    """
    return _reduce(ops.OR, operand, axes)


@_docstr(operand=_BITS_OPERAND)
def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise exclusive or over axes.

    >>> lax.reduce_xor(jnp.asarray([3, 6]), (0,))
    Array(5, dtype=int32)
    """
    return _reduce(ops.XOR, operand, axes)


@_arg_docstr()
def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike = int) -> Array:
    """Return the first index of the maximum along an axis.

    >>> print(lax.argmax(jnp.arange(3), 0, int))
    2
    """
    return array_operators.astype(jnp.argmax(operand, axis), index_dtype)


@_arg_docstr()
def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike = int) -> Array:
    """Return the first index of the minimum along an axis.

    >>> print(lax.argmin(jnp.arange(3), 0, int))
    0
    """
    return array_operators.astype(jnp.argmin(operand, axis), index_dtype)
