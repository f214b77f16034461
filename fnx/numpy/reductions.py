"""Reductions of ``fnx.numpy``: sum, prod, max, mean, var and their like."""

from __future__ import annotations

import math
from typing import Any

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, as_operand, domain_node
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.expr import where as chosen
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ShapeError
from fnx.numpy.composite_ufuncs import isclose
from fnx.numpy.rearrange import diagonal

__all__ = [
    "all", "allclose", "amax", "amin", "any", "array_equal", "count_nonzero", "max", "mean",
    "min", "prod", "ptp", "std", "sum", "trace", "var",
]


def reduce_axes(node: UOp, monoid: Op, axis: AxisLike, keepdims: bool) -> UOp:
    """REDUCE a node over an axis argument; keep the reduced axes as 1 on request."""
    arguments.check_bool("keepdims", keepdims)
    dims = axes.sorted_axes(axis, len(node.shape))
    out = build.reduce(node, monoid, dims)
    return build.reshape(out, tuple(1 if i in dims else n for i, n in enumerate(node.shape))) \
        if keepdims else out


def reduced_size(node: UOp, axis: AxisLike) -> int:
    """Return the number of elements that an axis argument reduces to one."""
    return math.prod(node.shape[a] for a in axes.sorted_axes(axis, len(node.shape)))


def _apply_mask(node: UOp, where: Any, monoid: Op) -> UOp:
    """Replace the elements that ``where`` excludes by the identity of the monoid."""
    if where is None:
        return node
    mask = as_node(as_operand(where), dtypes.bool_)
    shape = axes.broadcast_shapes(node.shape, mask.shape)
    node = build.expand(node, shape)
    assert monoid.identity is not None
    return build.where(build.expand(mask, shape), node,
                       build.const_like(node, monoid.identity(node.dtype)))


def _reduce(domain: str, monoid: Op, a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None,
            keepdims: bool, initial: ArrayLike | None, where: ArrayLike | None) -> Array:
    """Run a public reduction; ``domain`` is as in core/formulas/elementwise.py."""
    node = domain_node(domain, a, dtype)
    if dtype is None and domain == "integer":
        node = build.cast(node, convert.sum_dtype(node.dtype))
    t = node.dtype
    if monoid in (ops.MAX, ops.MIN):
        require_nonempty(node, axis, initial)
    typed_monoid = monoid.for_dtype(t)
    result = reduce_axes(_apply_mask(node, where, typed_monoid), typed_monoid, axis, keepdims)
    if initial is not None:
        start_value = build.expand(as_node(as_operand(initial), t), result.shape)
        result = build.elementwise(typed_monoid, result, start_value)
    return Array(result)


def require_nonempty(node: UOp, axis: Any, initial: Any) -> None:
    if initial is None and reduced_size(node, axis) == 0:
        raise ShapeError(f"expected at least one element to fold, got shape {node.shape}",
                         hint="give initial=, or test x.size first")


@public_api
def sum(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
        out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
        where: ArrayLike | None = None) -> Array:
    """Return the sum of the elements.

    Args:
        a: an Array or array-like of any shape and dtype; bool counts as int32.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        dtype: the dtype to accumulate in, and of the result.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.
        initial: a scalar, the start value of the reduction.
        where: a boolean mask, broadcast with a, of the elements to include.

    Returns:
        An Array without the reduced axes, of ``dtype``, else that of the elements.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.sum(jnp.arange(4)))
    6
    """
    arguments.check_no_out(out)
    return _reduce("integer", ops.ADD, a, axis, dtype, keepdims, initial, where)


@public_api
def prod(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
         out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
         where: ArrayLike | None = None) -> Array:
    """Return the product of the elements.

    Args:
        a: an Array or array-like of any shape and dtype; bool counts as int32.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        dtype: the dtype to accumulate in, and of the result.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.
        initial: a scalar, the start value of the reduction.
        where: a boolean mask, broadcast with a, of the elements to include.

    Returns:
        An Array without the reduced axes, of ``dtype``, else that of the elements.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.prod(jnp.arange(1, 4)))
    6
    """
    arguments.check_no_out(out)
    return _reduce("integer", ops.MUL, a, axis, dtype, keepdims, initial, where)


@public_api
def max(a: ArrayLike, axis: AxisLike = None, out: None = None,
        keepdims: bool = False, initial: ArrayLike | None = None,
        where: ArrayLike | None = None) -> Array:
    """Return the maximum. NaN propagates; ties split the derivative equally.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.
        initial: a scalar, the start value of the reduction.
        where: a boolean mask, broadcast with a, of the elements to include.

    Returns:
        An Array without the reduced axes, of the dtype of a.

    Raises:
        AxisError: an axis is out of range or repeated.
        ShapeError: the reduction is over zero elements and has no ``initial``.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.max(jnp.arange(4)))
    3
    """
    arguments.check_no_out(out)
    return _reduce("any", ops.MAX, a, axis, None, keepdims, initial, where)


@public_api
def min(a: ArrayLike, axis: AxisLike = None, out: None = None,
        keepdims: bool = False, initial: ArrayLike | None = None,
        where: ArrayLike | None = None) -> Array:
    """Return the minimum. NaN propagates; ties split the derivative equally.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.
        initial: a scalar, the start value of the reduction.
        where: a boolean mask, broadcast with a, of the elements to include.

    Returns:
        An Array without the reduced axes, of the dtype of a.

    Raises:
        AxisError: an axis is out of range or repeated.
        ShapeError: the reduction is over zero elements and has no ``initial``.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.min(jnp.arange(4)))
    0
    """
    arguments.check_no_out(out)
    return _reduce("any", ops.MIN, a, axis, None, keepdims, initial, where)


@public_api
def all(a: ArrayLike, axis: AxisLike = None, out: None = None,
        keepdims: bool = False, *, where: ArrayLike | None = None) -> Array:
    """Return whether all elements are true.

    Args:
        a: an Array or array-like of any shape and dtype; nonzero values are true.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.
        where: a boolean mask, broadcast with a, of the elements to include.

    Returns:
        An Array without the reduced axes, of bool.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.all(jnp.arange(4)))
    False
    """
    arguments.check_no_out(out)
    return _reduce("truth", ops.AND, a, axis, None, keepdims, None, where)


@public_api
def any(a: ArrayLike, axis: AxisLike = None, out: None = None,
        keepdims: bool = False, *, where: ArrayLike | None = None) -> Array:
    """Return whether any element is true.

    Args:
        a: an Array or array-like of any shape and dtype; nonzero values are true.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.
        where: a boolean mask, broadcast with a, of the elements to include.

    Returns:
        An Array without the reduced axes, of bool.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.any(jnp.arange(4)))
    True
    """
    arguments.check_no_out(out)
    return _reduce("truth", ops.OR, a, axis, None, keepdims, None, where)


amax, amin = max, min

@public_api
def count_nonzero(a: ArrayLike, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Count the nonzero elements.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        keepdims: whether to keep the reduced axes, with length 1.

    Returns:
        An Array of the default int dtype, without the reduced axes.

    Raises:
        AxisError: an axis is out of range or repeated.

    >>> import fnx.numpy as jnp
    >>> print(jnp.count_nonzero(jnp.asarray([0, 3, 4])))
    2
    """
    node = build.cast(as_node(asarray(a), dtypes.bool_), convert.default_int())
    return Array(reduce_axes(node, ops.ADD, axis, keepdims))


def _mean(node: UOp, axis: Any, keepdims: bool, where: Any, ddof: float = 0) -> UOp:
    """Return the sum over (number of elements - ``ddof``), in the dtype of the node.

    The result is NaN where that divisor is not positive.
    """
    if where is None:
        divisor, sums = reduced_size(node, axis) - ddof, reduce_axes(node, ops.ADD, axis, keepdims)
        return (Expr(sums) / divisor).node if divisor > 0 else build.const_like(sums, math.nan)
    masked_sums, count = (Expr(reduce_axes(_apply_mask(x, where, ops.ADD), ops.ADD, axis, keepdims))
                          for x in (node, build.const_like(node, 1)))
    if not ddof:
        return (masked_sums / count).node
    is_valid = count > ddof
    return chosen(is_valid, masked_sums / chosen(is_valid, count - ddof, 1), math.nan).node


@public_api
def mean(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
         keepdims: bool = False, *, where: ArrayLike | None = None) -> Array:
    """Return the arithmetic mean, accumulated in its dtype; integers give the default float.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        dtype: the dtype to compute in; by default that of a, or the default float for bool and
            integers.
        out: unsupported; must be None.
        keepdims: whether to keep the reduced axes, with length 1.
        where: a boolean mask, broadcast with a, of the elements to include.

    Returns:
        An Array without the reduced axes.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.mean(jnp.arange(4)))
    1.5
    """
    arguments.check_no_out(out)
    node = domain_node("inexact", a, dtype)
    return Array(build.cast(_mean(build.to_compute(node), axis, keepdims, where), node.dtype))


@public_api
def var(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
        ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
        correction: float | None = None) -> Array:
    """Return the variance: the sum of squared deviations from the mean, over n - ddof.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        dtype: the dtype to compute in; by default that of a, or the default float for bool and
            integers.
        out: unsupported; must be None.
        ddof: the number subtracted from the number of elements in the divisor.
        keepdims: whether to keep the reduced axes, with length 1.
        where: a boolean mask, broadcast with a, of the elements to include.
        correction: the same as ``ddof``; overrides it.

    Returns:
        An Array without the reduced axes.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.var(jnp.asarray([1.0, 3.0])))
    1.0
    """
    arguments.check_no_out(out)
    delta = arguments.check_number("ddof", ddof) if correction is None else \
        arguments.check_number("correction", correction)
    operand = domain_node("inexact", a, dtype)
    node = build.to_compute(operand)
    center = build.expand(_mean(node, axis, True, where), node.shape)
    square = (Expr(node) - Expr(center))**2
    return Array(build.cast(_mean(square.node, axis, keepdims, where, delta), operand.dtype))


@public_api
def std(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
        ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
        correction: float | None = None) -> Array:
    """Return the standard deviation: the square root of ``var``.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        dtype: the dtype to compute in; by default that of a, or the default float for bool and
            integers.
        out: unsupported; must be None.
        ddof: the number subtracted from the number of elements in the divisor.
        keepdims: whether to keep the reduced axes, with length 1.
        where: a boolean mask, broadcast with a, of the elements to include.
        correction: the same as ``ddof``; overrides it.

    Returns:
        An Array without the reduced axes.

    Raises:
        AxisError: an axis is out of range or repeated.
        ArgumentError: ``out`` is given (arrays are immutable).

    >>> import fnx.numpy as jnp
    >>> print(jnp.std(jnp.asarray([1.0, 3.0])))
    1.0
    """
    arguments.check_no_out(out)
    return Array(build.sqrt(var(a, axis, dtype, None, ddof, keepdims, where=where,
                                correction=correction)._node))


@public_api
def ptp(a: ArrayLike, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Return the range of values: the maximum minus the minimum.

    Args:
        a: an Array or array-like of any shape and dtype.
        axis: the axis or axes to reduce; negative ones count from the end. None reduces all.
        keepdims: whether to keep the reduced axes, with length 1.

    Returns:
        An Array without the reduced axes, of the dtype of a.

    Raises:
        AxisError: an axis is out of range or repeated.
        ShapeError: the reduction is over zero elements.

    >>> import fnx.numpy as jnp
    >>> print(jnp.ptp(jnp.asarray([1.0, 3.0])))
    2.0
    """
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


@public_api
def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1,
          dtype: DTypeLike | None = None) -> Array:
    """Return the sum of a diagonal.

    Args:
        a: an Array or array-like of at least two axes.
        offset: the diagonal: 0 is the main one, positive above, negative below.
        axis1: the axis of rows.
        axis2: the axis of columns.
        dtype: the dtype of the result; by default that of a, or int32 for bool.

    Returns:
        An Array without the two axes.

    Raises:
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> print(jnp.trace(jnp.eye(3)))
    3.0
    """
    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


@public_api
def allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8,
             equal_nan: bool = False) -> Array:
    """Return whether all elements are close: see ``isclose``.

    Args:
        a: an Array or array-like of any dtype.
        b: an Array or array-like of any dtype; the relative tolerance refers to it.
        rtol: relative tolerance.
        atol: absolute tolerance.
        equal_nan: whether two NaNs count as close.

    Returns:
        A 0-d bool Array.

    Raises:
        ShapeError: the shapes do not broadcast.

    >>> import fnx.numpy as jnp
    >>> print(jnp.allclose(jnp.ones(2), 1.0))
    True
    """
    return all(isclose(a, b, rtol, atol, equal_nan))


@public_api
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Return whether two arrays have the same shape and equal elements.

    Args:
        a1: an Array or array-like of any shape and dtype.
        a2: an Array or array-like of any shape and dtype.
        equal_nan: whether two NaNs count as equal.

    Returns:
        A 0-d bool Array.

    >>> import fnx.numpy as jnp
    >>> print(jnp.array_equal(jnp.ones(2), jnp.ones(3)))
    False
    """
    arguments.check_bool("equal_nan", equal_nan)
    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return asarray(False)
    equals = x == y
    return all(equals | ((x != x) & (y != y)) if equal_nan else equals)
