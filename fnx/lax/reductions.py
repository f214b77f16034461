"""Reductions of ``jax.lax`` with known functions: reduce_sum, reduce_max, argmax and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def _reduce(monoid: Op, operand: ArrayLike, axes: Sequence[int]) -> Array:
    x = asarray(operand)
    if monoid in (ops.MAX, ops.MIN):
        monoid = monoid.for_dtype(x._dtype)
    return Array(reduce_axes(x._node, monoid, tuple(axes), False))


_number_reduction = _docstr.family(operand="an Array or array-like of integers or floats.")(_reduce)
_extreme = _docstr.family()(_reduce)
_bit_reduction = _docstr.family(operand="an Array or array-like of bool or integers.")(_reduce)

reduce_sum = _number_reduction(
    ops.ADD, "reduce_sum", "Return the sum over axes.",
    "lax.reduce_sum(jnp.asarray([1, 2, 4]), (0,))", "Array(7, dtype=int32)")
reduce_prod = _number_reduction(
    ops.MUL, "reduce_prod", "Return the product over axes.",
    "lax.reduce_prod(jnp.asarray([1, 2, 4]), (0,))", "Array(8, dtype=int32)")
reduce_max = _extreme(
    ops.MAX, "reduce_max", "Return the maximum over axes; NaN propagates.",
    "lax.reduce_max(jnp.asarray([1, 2, 4]), (0,))", "Array(4, dtype=int32)")
reduce_min = _extreme(
    ops.MIN, "reduce_min", "Return the minimum over axes; NaN propagates.",
    "lax.reduce_min(jnp.asarray([1, 2, 4]), (0,))", "Array(1, dtype=int32)")
reduce_and = _bit_reduction(
    ops.AND, "reduce_and", "Return the bitwise and over axes.",
    "lax.reduce_and(jnp.asarray([3, 6]), (0,))", "Array(2, dtype=int32)")
reduce_or = _bit_reduction(
    ops.OR, "reduce_or", "Return the bitwise or over axes.",
    "lax.reduce_or(jnp.asarray([3, 6]), (0,))", "Array(7, dtype=int32)")
reduce_xor = _bit_reduction(
    ops.XOR, "reduce_xor", "Return the bitwise exclusive or over axes.",
    "lax.reduce_xor(jnp.asarray([3, 6]), (0,))", "Array(5, dtype=int32)")


@_arg_docstr.family()
def _arg_extreme(argextreme: Callable[..., Array], operand: ArrayLike, axis: int,
                 index_dtype: DTypeLike) -> Array:
    return array_operators.astype(argextreme(operand, axis), index_dtype)


argmax = _arg_extreme(
    jnp.argmax, "argmax", "Return the first index of the maximum along an axis.",
    "print(lax.argmax(jnp.arange(3), 0, int))", "2")
argmin = _arg_extreme(
    jnp.argmin, "argmin", "Return the first index of the minimum along an axis.",
    "print(lax.argmin(jnp.arange(3), 0, int))", "0")
