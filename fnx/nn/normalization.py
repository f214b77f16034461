"""Functions of ``fnx.nn`` along axes: softmax, logsumexp, one_hot, standardize and others."""

from __future__ import annotations

import math
from typing import Any, Literal

import fnx.numpy as jnp
from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.eager_cache import lift_ints
from fnx.core.array.promotion import as_node, as_operand, domain_node
from fnx.core.ir import build, dtypes, expr, ops
from fnx.core.ir.expr import Expr, exp, log, stop_gradient
from fnx.core.ir.ops import Op, Shape
from fnx.core.support.errors import DTypeError

__all__ = ["log_softmax", "logmeanexp", "logsumexp", "one_hot", "softmax", "standardize"]

_AXIS_ERROR = "AxisError: an axis is out of range or repeated."
_FLOATS = ("an Array, NumPy data or a Python number of any shape; bool and integers become the\n"
           "default float.")
_docstr = DocTemplate(
    x=_FLOATS, a=_FLOATS, axis="the axis or axes to sum over; None means all.",
    where="a boolean mask that broadcasts to x, of the elements to include.",
    b="factors, which broadcast with a.",
    keepdims="whether to keep the reduced axes, with length 1.",
    num_classes="the length of the new axis, static.",
    dtype="the dtype of the result; by default the default float.",
    mean="the mean to subtract; by default that of x.",
    variance="the variance to divide by; by default that of x.",
    epsilon="a constant to add to the variance.",
    returns="An Array of the shape of x, of a float dtype.", imports="fnx",
    raises=(_AXIS_ERROR, "ShapeError: the mask does not broadcast."))


def _apply_mask(where: Any, x: Expr, fill: float) -> Expr:
    """Return x where the mask holds, else ``fill``."""
    if where is None:
        return x
    return expr.where(_expand_to(Expr(as_node(as_operand(where), dtypes.bool_)), x), x, fill)


def _reduce_keepdims(x: Expr, monoid: Op, reduce_axes: tuple[int, ...]) -> Expr:
    """Reduce axes and keep them with length 1."""
    return Expr(build.reshape(build.reduce(x.node, monoid, reduce_axes),
                              _keepdims_shape(x, reduce_axes)))


def _keepdims_shape(x: Expr, reduce_axes: tuple[int, ...]) -> Shape:
    return tuple(1 if i in reduce_axes else n for i, n in enumerate(x.shape))


def _expand_to(x: Expr, target: Expr) -> Expr:
    return Expr(build.expand(x.node, target.shape))


def _max_const(x: Expr, reduce_axes: tuple[int, ...], only_finite: bool = False) -> Expr:
    """Return the maximum as a constant for differentiation: shifting by it changes no value.

    Of complex numbers it is that of the real parts. ``only_finite``: 0 in place of an infinite one.
    """
    if any(x.shape[a] == 0 for a in reduce_axes):
        return Expr(build.const(0, x.dtype, _keepdims_shape(x, reduce_axes)))
    real = expr.real(x) if x.dtype.is_complex else x
    largest = stop_gradient(_reduce_keepdims(real, ops.MAX, reduce_axes))
    if only_finite:
        largest = expr.where(abs(largest) < math.inf, largest, 0)
    return largest.cast(x.dtype)


def _subtract_max(x: Expr, reduce_axes: tuple[int, ...]) -> Expr:
    return x - _expand_to(_max_const(x, reduce_axes), x)


@_docstr()
def softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Return exp(x) divided by its sum along an axis; 0 where the mask ``where`` is False.

    >>> fnx.nn.softmax(fnx.numpy.zeros(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    node = _apply_mask(where, Expr(domain_node("inexact", x)), -math.inf)
    reduce_axes = axes.sorted_axes(axis, len(node.shape))
    exps = exp(_subtract_max(node, reduce_axes))
    total = _expand_to(_reduce_keepdims(exps, ops.ADD, reduce_axes), node)
    return Array(_apply_mask(where, exps / total, 0.0).node)


@_docstr()
def log_softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Return log(softmax(x)), without underflow of small probabilities.

    >>> print(fnx.nn.log_softmax(fnx.numpy.asarray([0.0])))
    [0.]
    """
    node = _apply_mask(where, Expr(domain_node("inexact", x)), -math.inf)
    reduce_axes = axes.sorted_axes(axis, len(node.shape))
    shifted = _subtract_max(node, reduce_axes)
    total = log(_reduce_keepdims(exp(shifted), ops.ADD, reduce_axes))
    return Array(_apply_mask(where, shifted - _expand_to(total, node), -math.inf).node)


@_docstr("An Array without the axes, of a float dtype.",
         (_AXIS_ERROR, "ShapeError: the shapes do not broadcast."),
         axis="the axis or axes to reduce; None means all.",
         return_sign="whether to return a pair: the logarithm of the absolute value, and the sign.",
         where="a boolean mask that broadcasts to a, of the elements to include.")
def logsumexp(a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None,
              keepdims: bool = False, return_sign: bool = False,
              where: ArrayLike | None = None) -> Any:
    """Return log(sum(b * exp(a))), without overflow; -inf, with derivative 0, if all are -inf.

    >>> print(fnx.nn.logsumexp(fnx.numpy.asarray([1000.0])))
    1000.0
    """
    node = _apply_mask(where, Expr(domain_node("inexact", a)), -math.inf)
    factor = None if b is None else Expr(as_node(as_operand(b), node.dtype))
    if factor is not None:
        shape = axes.broadcast_shapes(node.shape, factor.shape)
        node, factor = (Expr(build.expand(x.node, shape)) for x in (node, factor))
        node = expr.where(factor.eq(0), -math.inf, node)
    reduce_axes = axes.sorted_axes(axis, len(node.shape))
    max_value = _max_const(node, reduce_axes, only_finite=True)
    exps = exp(node - _expand_to(max_value, node))
    total = _reduce_keepdims(exps if factor is None else factor * exps, ops.ADD, reduce_axes)
    size = jnp.abs(Array(total.node)) if return_sign else Array(total.node)
    out = expr.where(total.eq(0), -math.inf, log(Expr(size._node)) + max_value).node
    results = [Array(out), *([jnp.sign(Array(total.node))] if return_sign else [])]
    if not keepdims:
        results = [jnp.squeeze(x, reduce_axes) for x in results]
    return tuple(results) if return_sign else results[0]


@_docstr("An Array without the axes, of a float dtype.",
         (_AXIS_ERROR,),
         x="an Array, NumPy data or a Python number of any shape.",
         axis="the axis or axes to reduce; None means all.")
def logmeanexp(x: ArrayLike, axis: AxisLike = None, where: ArrayLike | None = None,
               keepdims: bool = False) -> Array:
    """Return the logarithm of the mean of exponentials.

    >>> print(fnx.nn.logmeanexp(fnx.numpy.asarray([1000.0, 1000.0])))
    1000.0
    """
    log_total: Array = logsumexp(x, axis, keepdims=keepdims, where=where)
    ones = jnp.ones_like(jnp.asarray(x), log_total.dtype)
    return log_total - jnp.log(jnp.sum(ones, axis, keepdims=keepdims, where=where))


@lift_ints(x=0)
@_docstr("An Array with one more axis.",
         ("DTypeError: x has a float or bool dtype.", "AxisError: the axis is out of range."),
         x="integers of any shape; those outside of 0..num_classes-1 give zeros.",
         axis="the position of the new axis in the result.")
def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = None,
            axis: int = -1) -> Array:
    """Encode integers along a new axis: 1 at the index that equals the integer, 0 elsewhere.

    >>> fnx.nn.one_hot(fnx.numpy.asarray([1, 0]), 2)
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    node = asarray(x)._node
    if not node.dtype.is_integer:
        raise DTypeError(f"expected integer labels, got {node.dtype}",
                         hint="convert them with .astype(int32)")
    at = axes.normalize_axis(axis, len(node.shape) + 1)
    n = axes.normalize_shape(arguments.check_int("num_classes", num_classes))[0]
    shape = (*node.shape[:at], n, *node.shape[at:])
    class_ids = build.reshape(build.iota(n), tuple(n if i == at else 1 for i in range(len(shape))))
    label, position = (Expr(build.expand(x, shape)) for x in (
        build.reshape(node, (*node.shape[:at], 1, *node.shape[at:])),
        build.cast(class_ids, node.dtype)))
    kind = convert.default_float() if dtype is None else convert.parse_dtype(dtype)
    return Array(label.eq(position).cast(kind).node)


@_docstr(raises=(_AXIS_ERROR,),
         axis="the axis or axes of mean and variance.",
         algorithm="JAX's way to the variance; both are the mean of squared deviations here.",
         where="a boolean mask that broadcasts to x, of the elements in mean and variance.")
def standardize(x: ArrayLike, axis: AxisLike = -1, mean: ArrayLike | None = None,
                variance: ArrayLike | None = None, epsilon: ArrayLike = 1e-5,
                where: ArrayLike | None = None, *,
                algorithm: Literal["fast", "stable"] = "fast") -> Array:
    """Return (x - mean) / sqrt(variance + epsilon).

    Source: Ba, Kiros and Hinton, Layer Normalization, 2016.

    >>> print(fnx.nn.standardize(fnx.numpy.asarray([1.0, 3.0]), epsilon=0.0))
    [-1.  1.]
    """
    arguments.check_choice("algorithm", algorithm, ("fast", "stable"))
    array = jnp.asarray(x)
    center = jnp.mean(array, axis, keepdims=True, where=where) if mean is None else \
        jnp.asarray(mean)
    if variance is not None:
        var = jnp.asarray(variance)
    elif mean is None:
        var = jnp.mean(jnp.square(array - center), axis, keepdims=True, where=where)
    else:
        var = jnp.mean(jnp.square(array), axis, keepdims=True, where=where) - jnp.square(center)
    deviation = jnp.sqrt(jnp.add(var, epsilon))
    return (array - center) / deviation
