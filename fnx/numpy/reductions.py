"""Reductions of ``fnx.numpy``: sum, max, mean, var and their like; argmax; cumulative sums."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import as_node, as_operand, domain_node
from fnx.core.formulas.elementwise import MAXIMUM, MINIMUM
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr, isnan, where
from fnx.core.ir.expr import where as chosen
from fnx.core.ir.index_arrays import index_dtype
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.support.config import config
from fnx.core.support.errors import ShapeError
from fnx.core.support.process import lazy_import
from fnx.numpy.composite_ufuncs import isclose
from fnx.numpy.rearrange import diagonal

__all__ = [
    "all", "allclose", "amax", "amin", "any", "argmax", "argmin", "array_equal", "count_nonzero",
    "cumprod", "cumsum", "max", "mean", "min", "prod", "ptp", "std", "sum", "trace", "var",
]


def reduce_axes(node: UOp, monoid: Op, axis: AxisLike, keepdims: bool) -> UOp:
    """REDUCE a node over an axis argument; keep the reduced axes as 1 on request."""
    dims = axes.sorted_axes(axis, len(node.shape))
    if node.dtype.is_complex and monoid in (ops.MAX, ops.MIN):
        out = _complex_extreme(node, monoid, dims)
    else:
        out = build.reduce(node, monoid, dims)
    return build.reshape(out, tuple(1 if i in dims else n for i, n in enumerate(node.shape))) \
        if keepdims else out


def _complex_extreme(node: UOp, monoid: Op, dims: tuple[int, ...]) -> UOp:
    """Return the extreme element: that with the extreme real part, then imaginary part."""
    keepdims = tuple([1 if i in dims else n for i, n in enumerate(node.shape)])
    re = Expr(build.real(node))
    extreme = build.reduce(re.node, monoid, dims)
    wins = re.eq(Expr(build.expand(build.reshape(extreme, keepdims), node.shape)))
    assert monoid.identity is not None
    candidates = chosen(wins, Expr(build.imag(node)), monoid.identity(re.dtype))
    im = Expr(build.reduce(candidates.node, monoid, dims))
    out_im = chosen(isnan(Expr(extreme)), math.nan, im)
    return build.complex_number(extreme, out_im.node)


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
        combine = _COMBINE.get(typed_monoid) if t.is_complex else None
        result = build.elementwise(typed_monoid, result, start_value) if combine is None else \
            combine.build(result, start_value)
    return Array(result)


_COMBINE = {ops.MAX: MAXIMUM, ops.MIN: MINIMUM}  # functions that also order complex numbers


def require_nonempty(node: UOp, axis: Any, initial: Any) -> None:
    if initial is None and reduced_size(node, axis) == 0:
        raise ShapeError(f"expected at least one element to reduce, got shape {node.shape}",
                         hint="pass initial=, or check x.size first")


_docstr = DocTemplate(
    a="an Array or array-like of any shape and dtype.",
    axis="the axis or axes to reduce; negative ones count from the end. None reduces all.",
    out="unsupported; must be None.", keepdims="whether to keep the reduced axes, with length 1.",
    initial="a scalar, the start value of the reduction.",
    where="a boolean mask, broadcast with a, of the elements to include.",
    returns="An Array without the reduced axes, of the dtype of a.",
    raises=("AxisError: an axis is out of range or repeated.",
            "ArgumentError: ``out`` is given (arrays are immutable)."))


@_docstr.family("An Array without the reduced axes, of ``dtype``, else that of the elements.",
                a="an Array or array-like of any shape and dtype; bool counts as int32.",
                dtype="the dtype to accumulate in, and of the result.",
                promote_integers="whether integers narrower than the default int become it.")
def _accumulation(monoid: Op, a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
                  out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
                  where: ArrayLike | None = None, promote_integers: bool = True) -> Array:
    if dtype is None and not promote_integers:
        x = asarray(a)
        dtype = dtypes.int32 if x._dtype.is_bool else x.dtype
    return _reduce("integer", monoid, a, axis, dtype, keepdims, initial, where)


@_docstr.family(raises=(
    "AxisError: an axis is out of range or repeated.",
    "ShapeError: the reduction is over zero elements and has no ``initial``.",
    "ArgumentError: ``out`` is given (arrays are immutable)."))
def _extreme(monoid: Op, a: ArrayLike, axis: AxisLike = None, out: None = None,
             keepdims: bool = False, initial: ArrayLike | None = None,
             where: ArrayLike | None = None) -> Array:
    return _reduce("any", monoid, a, axis, None, keepdims, initial, where)


@_docstr.family("An Array without the reduced axes, of bool.",
                a="an Array or array-like of any shape and dtype; nonzero values are true.")
def _quantifier(monoid: Op, a: ArrayLike, axis: AxisLike = None, out: None = None,
                keepdims: bool = False, *, where: ArrayLike | None = None) -> Array:
    return _reduce("truth", monoid, a, axis, None, keepdims, None, where)


sum = _accumulation(ops.ADD, "sum", "Return the sum of the elements.",
                    "print(jnp.sum(jnp.arange(4)))", "6")
prod = _accumulation(ops.MUL, "prod", "Return the product of the elements.",
                     "print(jnp.prod(jnp.arange(1, 4)))", "6")
max = _extreme(
    ops.MAX, "max", "Return the maximum. NaN propagates; ties split the derivative equally.",
    "print(jnp.max(jnp.arange(4)))", "3")
min = _extreme(
    ops.MIN, "min", "Return the minimum. NaN propagates; ties split the derivative equally.",
    "print(jnp.min(jnp.arange(4)))", "0")
all = _quantifier(ops.AND, "all", "Return whether all elements are true.",
                  "print(jnp.all(jnp.arange(4)))", "False")
any = _quantifier(ops.OR, "any", "Return whether any element is true.",
                  "print(jnp.any(jnp.arange(4)))", "True")


amax, amin = max, min


@_docstr("An Array of the default int dtype, without the reduced axes.",
         ("AxisError: an axis is out of range or repeated.",))
def count_nonzero(a: ArrayLike, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Count the nonzero elements.

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


_statistic_docstr = _docstr.replace(
    dtype="the dtype to compute in; by default that of a, or the default float for bool and "
          "integers.",
    mean="the mean, with the reduced axes of length 1; by default it is computed.",
    ddof="the number subtracted from the number of elements in the divisor.",
    correction="the same as ``ddof``; overrides it.", returns="An Array without the reduced axes.")


@_statistic_docstr()
def mean(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
         keepdims: bool = False, *, where: ArrayLike | None = None) -> Array:
    """Return the arithmetic mean, accumulated in its dtype; integers give the default float.

    >>> print(jnp.mean(jnp.arange(4)))
    1.5
    """
    node = domain_node("inexact", a, dtype)
    return Array(build.cast(_mean(build.to_compute(node), axis, keepdims, where), node.dtype))


@_statistic_docstr.family()
def _spread(has_root: bool, a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
            out: None = None, ddof: float = 0, keepdims: bool = False, *,
            where: ArrayLike | None = None, mean: ArrayLike | None = None,
            correction: float | None = None) -> Array:
    delta = arguments.check_number("ddof", ddof) if correction is None else \
        arguments.check_number("correction", correction)
    operand = domain_node("inexact", a, dtype)
    node = build.to_compute(operand)
    center = build.expand(_mean(node, axis, True, where) if mean is None else
                          as_node(asarray(mean), node.dtype), node.shape)
    deviation = build.sub(node, center)
    parts = [build.real(deviation), build.imag(deviation)] if node.dtype.is_complex else [deviation]
    squares = [Expr(part)**2 for part in parts]
    square = squares[0] + squares[1] if len(squares) > 1 else squares[0]
    variance = build.cast(_mean(square.node, axis, keepdims, where, delta), operand.dtype.real)
    return Array(build.sqrt(variance) if has_root else variance)


var = _spread(
    False, "var",
    "Return the variance: the sum of squared (absolute) deviations from the mean, over n - ddof.",
    "print(jnp.var(jnp.asarray([1.0, 3.0])))", "1.0")
std = _spread(
    True, "std", "Return the standard deviation: the square root of ``var``.",
    "print(jnp.std(jnp.asarray([1.0, 3.0])))", "1.0")


@_docstr(raises=("AxisError: an axis is out of range or repeated.",
                 "ShapeError: the reduction is over zero elements."))
def ptp(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the range of values: the maximum minus the minimum.

    >>> print(jnp.ptp(jnp.asarray([1.0, 3.0])))
    2.0
    """
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


@public_api
def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1,
          dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Return the sum of a diagonal.

    Args:
        a: an Array or array-like of at least two axes.
        offset: the diagonal: 0 is the main one, positive above, negative below.
        axis1: the axis of rows.
        axis2: the axis of columns.
        dtype: the dtype of the result; by default that of a, or int32 for bool.
        out: unsupported; must be None.

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
    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return asarray(False)
    equals = x == y
    return all(equals | ((x != x) & (y != y)) if equal_nan else equals)


cumulative = lazy_import("fnx.core.formulas.cumulative", "cumulative")


@_docstr.family("An Array of the default int dtype, without the reduced axis.",
                ("ShapeError: the reduction is over zero elements.",
                 "AxisError: the axis is out of range."),
                axis="the axis to search; None searches the flattened array.")
def _arg_extreme(monoid: Op, a: ArrayLike, axis: int | None = None, out: None = None,
                 keepdims: bool | None = None) -> Array:
    arguments.check_optional_bool("keepdims", keepdims)
    x = asarray(a)
    node = as_node(x, dtypes.int32) if x._dtype.is_bool else x._node
    if axis is None:
        flat = build.reshape(node, (x.size,))
        out_node = _first_extreme(flat, 0, monoid)
        shape = (1,) * x.ndim
    else:
        ax = axes.normalize_axis(axis, x.ndim)
        out_node = _first_extreme(node, ax, monoid)
        shape = (*x.shape[:ax], 1, *x.shape[ax + 1:])
    index = build.reshape(out_node, shape) if keepdims else out_node
    return Array(build.cast(index, convert.default_int()))


argmax = _arg_extreme(
    ops.MAX, "argmax",
    "Return the first index of the maximum, or of the first NaN if there is one.",
    "print(jnp.argmax(jnp.asarray([1, 5, 5])))", "1")
argmin = _arg_extreme(
    ops.MIN, "argmin",
    "Return the first index of the minimum, or of the first NaN if there is one.",
    "print(jnp.argmin(jnp.asarray([5, 1, 1])))", "1")


def _first_extreme(x: UOp, ax: int, monoid: Op) -> UOp:
    """Return the first index of the extreme element.

    Lowered as one reduction of (value, index) pairs (lower/tensor/fuse_argreduce.py).
    """
    require_nonempty(x, ax, None)
    x = build.to_compute(x)
    extreme = build.expand(reduce_axes(x, monoid, ax, True), x.shape)
    is_extreme = Expr(x).eq(Expr(extreme))
    if x.dtype.is_inexact:
        is_extreme = is_extreme | isnan(Expr(x))
    n = x.shape[ax]
    count = build.iota(n, index_dtype(n) if config.x64 else dtypes.int32)
    axis_index = build.reshape(count, tuple(n if i == ax else 1 for i in range(len(x.shape))))
    candidates = where(is_extreme, Expr(build.expand(axis_index, x.shape)), n)
    return build.reduce(candidates.node, ops.MIN, (ax,))


@_docstr.family("An Array of the shape of a, or a vector if the axis is None.",
                ("AxisError: the axis is out of range.",), axis="the axis; None flattens a first.",
                dtype="the dtype of the result; by default that of a, or int32 for bool.")
def _cumulative(step: tuple[Op, str], a: ArrayLike, axis: int | None = None,
                dtype: DTypeLike | None = None, out: None = None) -> Array:
    operand = domain_node("integer", a, dtype)
    if dtype is None and asarray(a)._dtype.is_bool:
        operand = build.cast(operand, convert.default_int())
    node = build.to_compute(operand)
    if axis is None:
        node, axis = build.reshape(node, (math.prod(node.shape),)), 0
    monoid, name = step
    at = axes.normalize_axis(axis, len(node.shape))
    return Array(build.cast(cumulative_along(node, at, monoid, False, name), operand.dtype))


def cumulative_along(x: UOp, axis: int, monoid: Op, reverse: bool, name: str) -> UOp:
    """Compute all partial reductions along an axis, an equation of this name in jaxprs."""
    result = cumulative(x, axis, monoid, reverse, name)
    return set_composite(result, name, _BY_PARAMS[monoid], [x], axis=axis, reverse=reverse)


def _cumulative_by_params(monoid: Op, x: Any, *, axis: int, reverse: bool) -> Array:
    return Array(cumulative(asarray(x)._node, axis, monoid, reverse))


_BY_PARAMS = {monoid: partial(_cumulative_by_params, monoid)
              for monoid in (ops.ADD, ops.MUL, ops.MAX, ops.MIN)}

cumsum = _cumulative(
    (ops.ADD, "cumsum"), "cumsum", "Return the cumulative sum along an axis.",
    "jnp.cumsum(jnp.arange(4))", "Array([0, 1, 3, 6], dtype=int32)")
cumprod = _cumulative(
    (ops.MUL, "cumprod"), "cumprod", "Return the cumulative product along an axis.",
    "jnp.cumprod(jnp.arange(1, 4))", "Array([1, 2, 6], dtype=int32)")
