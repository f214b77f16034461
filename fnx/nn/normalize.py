"""Functions of ``fnx.nn`` along axes: softmax, logsumexp, one_hot, standardize and others."""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as jnp
from fnx.core import build, dtypes, expr, ops
from fnx.core.array import arguments, axes, convert
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, in_domain, operand
from fnx.core.array.public import asarray, public
from fnx.core.errors import DTypeError
from fnx.core.expr import Expr, exp, log, stop
from fnx.core.ops import Op, Shape

__all__ = ["log_softmax", "logmeanexp", "logsumexp", "one_hot", "softmax", "standardize"]


def _mask(where: Any, x: Expr, fill: float) -> Expr:
    """Return x where the mask holds, else ``fill``."""
    if where is None:
        return x
    return expr.where(_spread(Expr(as_node(operand(where), dtypes.bool_)), x), x, fill)


def _over(x: Expr, monoid: Op, over: tuple[int, ...]) -> Expr:
    """Reduce axes and keep them with length 1."""
    return Expr(build.reshape(build.reduce(x.node, monoid, over), _kept(x, over)))


def _kept(x: Expr, over: tuple[int, ...]) -> Shape:
    return tuple(1 if i in over else n for i, n in enumerate(x.shape))


def _spread(x: Expr, to: Expr) -> Expr:
    return Expr(build.expand(x.node, to.shape))


def _largest(x: Expr, over: tuple[int, ...]) -> Expr:
    """Return the maximum as a constant for differentiation: shifting by it changes no value."""
    if any(x.shape[a] == 0 for a in over):
        return Expr(build.const(0, x.dtype, _kept(x, over)))
    return stop(_over(x, ops.MAX, over))


def _shifted(x: Expr, over: tuple[int, ...]) -> Expr:
    return x - _spread(_largest(x, over), x)


@public
def softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Return exp(x) divided by its sum along an axis; 0 where the mask ``where`` is False.

    Args:
        x: an Array, NumPy data or a Python number of any shape; bool and integers become the
            default float.
        axis: the axis or axes to sum over; None means all.
        where: a boolean mask that broadcasts to x, of the elements to include.

    Returns:
        An Array of the shape of x, of a float dtype.

    Raises:
        AxisError: an axis is out of range or repeated.
        ShapeError: the mask does not broadcast.

    >>> import fnx
    >>> fnx.nn.softmax(fnx.numpy.zeros(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    node = _mask(where, Expr(in_domain("inexact", x)), -math.inf)
    over = axes.several(axis, len(node.shape))
    powers = exp(_shifted(node, over))
    total = _spread(_over(powers, ops.ADD, over), node)
    return Array(_mask(where, powers / total, 0.0).node)


@public
def log_softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Return log(softmax(x)), without underflow of small probabilities.

    Args:
        x: an Array, NumPy data or a Python number of any shape; bool and integers become the
            default float.
        axis: the axis or axes to sum over; None means all.
        where: a boolean mask that broadcasts to x, of the elements to include.

    Returns:
        An Array of the shape of x, of a float dtype.

    Raises:
        AxisError: an axis is out of range or repeated.
        ShapeError: the mask does not broadcast.

    >>> import fnx
    >>> print(fnx.nn.log_softmax(fnx.numpy.asarray([0.0])))
    [0.]
    """
    node = _mask(where, Expr(in_domain("inexact", x)), -math.inf)
    over = axes.several(axis, len(node.shape))
    shifted = _shifted(node, over)
    total = log(_over(exp(shifted), ops.ADD, over))
    return Array(_mask(where, shifted - _spread(total, node), -math.inf).node)


@public
def logsumexp(a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None,
              keepdims: bool = False, where: ArrayLike | None = None) -> Array:
    """Return log(sum(b * exp(a))), without overflow; -inf, with derivative 0, if all are -inf.

    Args:
        a: an Array, NumPy data or a Python number of any shape; bool and integers become the
            default float.
        axis: the axis or axes to reduce; None means all.
        b: factors, which broadcast with a.
        keepdims: whether to keep the reduced axes, with length 1.
        where: a boolean mask that broadcasts to a, of the elements to include.

    Returns:
        An Array without the axes, of a float dtype.

    Raises:
        AxisError: an axis is out of range or repeated.
        ShapeError: the shapes do not broadcast.

    >>> import fnx
    >>> print(fnx.nn.logsumexp(fnx.numpy.asarray([1000.0])))
    1000.0
    """
    arguments.flag("keepdims", keepdims)
    node = _mask(where, Expr(in_domain("inexact", a)), -math.inf)
    factor = None if b is None else Expr(as_node(operand(b), node.dtype))
    if factor is not None:
        shape = axes.broadcast_shapes(node.shape, factor.shape)
        node, factor = (Expr(build.expand(x.node, shape)) for x in (node, factor))
        node = expr.where(factor.eq(0), -math.inf, node)
    over = axes.several(axis, len(node.shape))
    top = _largest(node, over)
    top = expr.where(abs(top) < math.inf, top, 0)
    powers = exp(node - _spread(top, node))
    total = _over(powers if factor is None else factor * powers, ops.ADD, over)
    out = expr.where(total.eq(0), -math.inf, log(total) + top).node
    if not keepdims:
        out = build.reshape(out, tuple(n for i, n in enumerate(node.shape) if i not in over))
    return Array(out)


@public
def logmeanexp(x: ArrayLike, axis: AxisLike = None, where: ArrayLike | None = None,
               keepdims: bool = False) -> Array:
    """Return the logarithm of the mean of exponentials.

    Args:
        x: an Array, NumPy data or a Python number of any shape.
        axis: the axis or axes to reduce; None means all.
        where: a boolean mask that broadcasts to x, of the elements to include.
        keepdims: whether to keep the reduced axes, with length 1.

    Returns:
        An Array without the axes, of a float dtype.

    Raises:
        AxisError: an axis is out of range or repeated.

    >>> import fnx
    >>> print(fnx.nn.logmeanexp(fnx.numpy.asarray([1000.0, 1000.0])))
    1000.0
    """
    found = logsumexp(x, axis, keepdims=keepdims, where=where)
    ones = jnp.ones_like(jnp.asarray(x), found.dtype)
    return found - jnp.log(jnp.sum(ones, axis, keepdims=keepdims, where=where))


@public
def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike = float, axis: int = -1) -> Array:
    """Encode integers along a new axis: 1 at the index that equals the integer, 0 elsewhere.

    Args:
        x: integers of any shape; those outside of 0..num_classes-1 give zeros.
        num_classes: the length of the new axis, static.
        dtype: the dtype of the result; by default the default float.
        axis: the position of the new axis in the result.

    Returns:
        An Array with one more axis.

    Raises:
        DTypeError: x has a float or bool dtype.
        AxisError: the axis is out of range.

    >>> import fnx
    >>> fnx.nn.one_hot(fnx.numpy.asarray([1, 0]), 2)
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    node = asarray(x)._node
    if not node.dtype.is_integer:
        raise DTypeError(f"expected integers as labels, got {node.dtype}",
                         hint="convert them with .astype(int32)")
    at = axes.one(axis, len(node.shape) + 1)
    n = axes.shape(num_classes)[0]
    shape = (*node.shape[:at], n, *node.shape[at:])
    line = build.reshape(build.iota(n), tuple(n if i == at else 1 for i in range(len(shape))))
    place, label = (Expr(build.expand(x, shape)) for x in (
        build.reshape(node, (*node.shape[:at], 1, *node.shape[at:])),
        build.cast(line, node.dtype)))
    return Array(place.eq(label).cast(convert.dtype_argument(dtype)).node)


@public
def standardize(x: ArrayLike, axis: AxisLike = -1, mean: ArrayLike | None = None,
                variance: ArrayLike | None = None, epsilon: ArrayLike = 1e-5,
                where: ArrayLike | None = None) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon).

    Args:
        x: an Array, NumPy data or a Python number of any shape; bool and integers become the
            default float.
        axis: the axis or axes of mean and variance.
        mean: the mean to subtract; by default that of x.
        variance: the variance to divide by; by default that of x.
        epsilon: a constant to add to the variance.
        where: a boolean mask that broadcasts to x, of the elements in mean and variance.

    Returns:
        An Array of the shape of x, of a float dtype.

    Raises:
        AxisError: an axis is out of range or repeated.

    Source: Ba, Kiros and Hinton, Layer Normalization, 2016.

    >>> import fnx
    >>> print(fnx.nn.standardize(fnx.numpy.asarray([1.0, 3.0]), epsilon=0.0))
    [-1.  1.]
    """
    array = jnp.asarray(x)
    middle = jnp.mean(array, axis, keepdims=True, where=where) if mean is None else \
        jnp.asarray(mean)
    if variance is not None:
        spread = jnp.asarray(variance)
    elif mean is None:
        spread = jnp.mean(jnp.square(array - middle), axis, keepdims=True, where=where)
    else:
        spread = jnp.mean(jnp.square(array), axis, keepdims=True, where=where) - jnp.square(middle)
    deviation = jnp.sqrt(jnp.add(spread, epsilon))
    return (array - middle) / deviation
