"""Averages, covariance, reductions that ignore NaN, and cumulative reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import domain_node, promote_arrays
from fnx.core.ir import build
from fnx.core.rewriting.dimensions import is_equal
from fnx.core.support.errors import ShapeError
from fnx.numpy import reductions
from fnx.numpy.base import (
    all,
    argmax,
    argmin,
    broadcast_to,
    clip,
    concatenate,
    cumprod,
    cumsum,
    isnan,
    logical_and,
    logical_not,
    max,
    mean,
    min,
    prod,
    sqrt,
    sum,
)
from fnx.numpy.base import where as chosen
from fnx.numpy.math_functions import conj, imag, real

__all__ = [
    "average", "corrcoef", "cov", "cumulative_prod", "cumulative_sum", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum",
    "nanvar",
]

_docstr = DocTemplate(
    a="an Array or array-like of any shape and dtype.",
    x="an Array or array-like of at least one axis.",
    axis="the axis or axes to reduce; negative ones count from the end. None reduces all.",
    initial="a scalar, the start value of the reduction.",
    where="a boolean mask, broadcast with a, of the elements to include.",
    ddof="the number subtracted from the number of elements in the divisor.",
    mean="the precomputed mean, with the reduced axes kept as length 1; by default computed.",
    returns="An Array without the reduced axes.",
    raises=("AxisError: an axis is out of range or repeated.",
            "ArgumentError: ``out`` is given (arrays are immutable)."))


def _not_nan_mask(a: ArrayLike) -> tuple[Array, Array | None]:
    """Return the array and its not-NaN mask, or None if its dtype has no NaN."""
    x = asarray(a)
    return x, logical_not(isnan(x)) if x._dtype.is_inexact else None


def _combine_masks(not_nan: Array | None, where: ArrayLike | None) -> ArrayLike | None:
    """Combine the mask of numbers with ``where``."""
    if not_nan is None or where is None:
        return where if not_nan is None else not_nan
    return logical_and(not_nan, where)


@_docstr.family()
def _nan_accumulation(reduce: Callable[..., Array], a: ArrayLike, axis: AxisLike = None,
                      dtype: DTypeLike | None = None, out: None = None, keepdims: bool = False,
                      initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    x, not_nan = _not_nan_mask(a)
    return reduce(x, axis, dtype, None, keepdims, initial, _combine_masks(not_nan, where))


nansum = _nan_accumulation(
    sum, "nansum", "Return the sum of the elements, ignoring NaNs.",
    "print(jnp.nansum(jnp.asarray([1.0, jnp.nan, 2.0])))", "3.0")
nanprod = _nan_accumulation(
    prod, "nanprod", "Return the product of the elements, ignoring NaNs.",
    "print(jnp.nanprod(jnp.asarray([2.0, jnp.nan, 3.0])))", "6.0")


@_docstr.family(raises=("AxisError: the axis is out of range.",
                        "ShapeError: the reduction is over zero elements."))
def _nan_extreme(extreme: tuple[Callable[..., Array], float], a: ArrayLike, axis: AxisLike = None,
                 out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
                 where: ArrayLike | None = None) -> Array:
    reduce, worst = extreme
    x, not_nan = _not_nan_mask(a)
    if not_nan is None:
        return reduce(x, axis, None, keepdims, initial, where)
    result = reduce(chosen(not_nan, x, worst), axis, None, keepdims, initial, where)
    if initial is not None:
        return result
    used = not_nan if where is None else logical_and(not_nan, where)
    return chosen(all(logical_not(used), axis, None, keepdims), np.nan, result)


nanmax = _nan_extreme(
    (max, -np.inf), "nanmax", "Return the maximum, ignoring NaNs; NaN if all elements are NaN.",
    "print(jnp.nanmax(jnp.asarray([1.0, jnp.nan])))", "1.0")
nanmin = _nan_extreme(
    (min, np.inf), "nanmin", "Return the minimum, ignoring NaNs; NaN if all elements are NaN.",
    "print(jnp.nanmin(jnp.asarray([1.0, jnp.nan])))", "1.0")


@_docstr.family("An int32 Array without the axis.",
                axis="the axis; None flattens the array first.")
def _nan_arg_extreme(extreme: tuple[Callable[..., Array], float], a: ArrayLike,
                     axis: int | None = None, out: None = None, keepdims: bool | None = None
                     ) -> Array:
    arg, worst = extreme
    is_kept = False if keepdims is None else keepdims
    x, not_nan = _not_nan_mask(a)
    if not_nan is None:
        return arg(x, axis, None, is_kept)
    index = arg(chosen(not_nan, x, worst), axis, None, is_kept)
    return chosen(all(logical_not(not_nan), axis, None, is_kept), -1, index)


nanargmax = _nan_arg_extreme(
    (argmax, -np.inf), "nanargmax",
    "Return the first index of the maximum, ignoring NaNs; -1 if all elements are NaN.",
    "print(jnp.nanargmax(jnp.asarray([jnp.nan, 1.0])))", "1")
nanargmin = _nan_arg_extreme(
    (argmin, np.inf), "nanargmin",
    "Return the first index of the minimum, ignoring NaNs; -1 if all elements are NaN.",
    "print(jnp.nanargmin(jnp.asarray([jnp.nan, 1.0])))", "1")


@_docstr("An Array of a float dtype, without the reduced axes.")
def nanmean(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
            keepdims: bool = False, where: ArrayLike | None = None) -> Array:
    """Return the mean, ignoring NaNs; NaN if all elements are NaN.

    >>> print(jnp.nanmean(jnp.asarray([1.0, jnp.nan, 2.0])))
    1.5
    """
    x, not_nan = _not_nan_mask(a)
    return mean(x, axis, dtype, None, keepdims, where=_combine_masks(not_nan, where))


@_docstr.family("An Array of a float dtype, without the reduced axes.")
def _nan_spread(has_root: bool, a: ArrayLike, axis: AxisLike = None,
                dtype: DTypeLike | None = None, out: None = None, ddof: float = 0,
                keepdims: bool = False, where: ArrayLike | None = None,
                mean: ArrayLike | None = None) -> Array:
    x = Array(domain_node("inexact", a, dtype))
    used = _combine_masks(logical_not(isnan(x)), where)
    center = reductions.mean(x, axis, None, None, True, where=used) if mean is None else \
        asarray(mean)
    deviation = x - center
    total = sum((deviation * deviation.conj()).real, axis, None, None, keepdims, None, used)
    count = sum(broadcast_to(asarray(used), x.shape), axis, total.dtype, None, keepdims)
    divisor = count - arguments.check_number("ddof", ddof)
    variance = chosen(divisor > 0, total / chosen(divisor > 0, divisor, 1), np.nan)
    return sqrt(variance) if has_root else variance


nanvar = _nan_spread(
    False, "nanvar", "Return the variance, ignoring NaNs; NaN if there are too few numbers.",
    "print(jnp.nanvar(jnp.asarray([1.0, jnp.nan, 3.0])))", "1.0")
nanstd = _nan_spread(
    True, "nanstd",
    "Return the standard deviation, ignoring NaNs; NaN if there are too few numbers.",
    "print(jnp.nanstd(jnp.asarray([1.0, jnp.nan, 3.0])))", "1.0")


@_docstr.family("An Array of the shape of a, or a vector if the axis is None.",
                axis="the axis; None flattens the array first.")
def _nan_cumulative(cumulation: tuple[Callable[..., Array], int], a: ArrayLike,
                    axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
                    ) -> Array:
    cumulate, identity = cumulation
    x, not_nan = _not_nan_mask(a)
    return cumulate(x if not_nan is None else chosen(not_nan, x, identity), axis, dtype)


nancumsum = _nan_cumulative(
    (cumsum, 0), "nancumsum", "Return the cumulative sum, treating NaN as 0.",
    "print(jnp.nancumsum(jnp.asarray([1.0, jnp.nan, 2.0])))", "[1. 1. 3.]")
nancumprod = _nan_cumulative(
    (cumprod, 1), "nancumprod", "Return the cumulative product, treating NaN as 1.",
    "print(jnp.nancumprod(jnp.asarray([2.0, jnp.nan, 3.0])))", "[2. 2. 6.]")


@_docstr.family(
    "An Array of the shape of x; with ``include_initial``, one longer along the axis.",
    ("ShapeError: there are several axes and none is named.",),
    axis="the axis; optional for a vector.",
    include_initial="whether to include the identity as the first element.")
def _cumulative(cumulation: tuple[Callable[..., Array], int], x: ArrayLike, /, *,
                axis: int | None = None, dtype: DTypeLike | None = None,
                include_initial: bool = False) -> Array:
    cumulate, identity = cumulation
    array = asarray(x)
    if axis is None and array.ndim != 1:
        raise ShapeError(f"expected an axis for an array of shape {array.shape}",
                         hint="pass axis=, such as axis=0")
    ax = axes.normalize_axis(0 if axis is None else axis, array.ndim)
    out = cumulate(array, ax, convert.sum_dtype(array._dtype)
                   if dtype is None and array._dtype.is_integer else dtype)
    if not include_initial:
        return out
    initial_slab = Array(build.const(identity, out._dtype, tuple(
        [1 if i == ax else n for i, n in enumerate(out.shape)])))
    return concatenate([initial_slab, out], ax)


cumulative_sum = _cumulative(
    (cumsum, 0), "cumulative_sum",
    "Return the cumulative sum along an axis, optionally with the initial 0.",
    "print(jnp.cumulative_sum(jnp.asarray([1, 2]), include_initial=True))", "[0 1 3]")
cumulative_prod = _cumulative(
    (cumprod, 1), "cumulative_prod",
    "Return the cumulative product along an axis, optionally with the initial 1.",
    "print(jnp.cumulative_prod(jnp.asarray([2, 3]), include_initial=True))", "[1 2 6]")


@_docstr("An Array without the reduced axes; with ``returned``, (average, sum of the weights).",
         weights="weights of the shape of a, or of the axis; by default all equal.",
         returned="whether to also return the sum of the weights.",
         raises=("AxisError: the axis is out of range.",
                 "ShapeError: the weights match neither the shape nor the axis."))
def average(a: ArrayLike, axis: AxisLike = None, weights: ArrayLike | None = None,
            returned: bool = False, keepdims: bool = False) -> Any:
    """Return the weighted mean.

    >>> print(jnp.average(jnp.asarray([1.0, 4.0]), weights=jnp.asarray([2, 1])))
    2.0
    """
    x = asarray(a)
    if weights is None:
        out = mean(x, axis, keepdims=keepdims)
        total = broadcast_to(asarray(float(x.size // out.size if out.size else 0)), out.shape)
        return (out, total.astype(out.dtype)) if returned else out
    w = asarray(weights)
    if w.shape != x.shape:
        dims = axes.sorted_axes(axis, x.ndim)
        if axis is None or w.shape != tuple([x.shape[i] for i in dims]):
            raise ShapeError(f"expected weights of shape {x.shape}, or of its axes {axis}, got "
                             f"{w.shape}", hint="pass the axis of the weights")
        w = w.reshape([n if i in dims else 1 for i, n in enumerate(x.shape)])
    x, w = promote_arrays("average", x, w)
    total = sum(broadcast_to(w, x.shape), axis, None, None, keepdims)
    out = sum(x * w, axis, None, None, keepdims) / total
    return (out, total) if returned else out


# ---- covariance ---------------------------------------------------------------------------------

_cov_docstr = DocTemplate(
    m="observations: one variable per row, one observation per column.",
    x="observations: one variable per row, one observation per column.",
    y="further variables, in the same layout.",
    rowvar="whether variables are rows instead of columns.",
    bias="whether to divide by the number of observations instead of one less.",
    ddof="the number subtracted from the number of observations; overrides ``bias``.",
    fweights="the integer frequency of each observation.",
    aweights="the weight of each observation.", returns="A matrix; a scalar for a single variable.",
    raises=("ShapeError: there are more than two axes, or the weights differ in length.",
            "ArgumentError: ``ddof`` is not an integer."))


@_cov_docstr()
def cov(m: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, bias: bool = False,
        ddof: int | None = None, fweights: ArrayLike | None = None,
        aweights: ArrayLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """Return the covariance matrix of variables.

    >>> jnp.cov(jnp.asarray([[0.0, 2.0], [2.0, 0.0]]))
    Array([[ 2., -2.],
           [-2.,  2.]], dtype=float32)
    """
    rows = [_as_variables(x, rowvar, dtype) for x in (m, y) if x is not None]
    x = concatenate(rows) if len(rows) > 1 else rows[0]
    delta = (0 if bias else 1) if ddof is None else arguments.check_int("ddof", ddof)
    w: Array | None = None
    for weights in (fweights, aweights):
        if weights is not None:
            weight_array = asarray(weights)
            if weight_array.shape != x.shape[1:]:
                raise ShapeError(f"expected {x.shape[1]} weights, got shape {weight_array.shape}")
            w = weight_array.astype(x.dtype) if w is None else w * weight_array
    if w is None:
        count: Any = x.shape[1] - delta
        center = mean(x, 1, keepdims=True)
        deviations = x - center
        weighted = deviations
    else:
        total = sum(w)
        center = sum(x * w, 1, None, None, True) / total
        deviations = x - center
        weighted = deviations * w
        lost = delta if aweights is None else delta * sum(w * asarray(aweights)) / total
        count = total - lost
    out = (deviations @ conj(weighted.T)) / clip(real(asarray(count).astype(x.dtype)), 0)
    return out.reshape(()) if is_equal(out.shape[0], 1) else out


def _as_variables(observations: ArrayLike, rowvar: bool, dtype: DTypeLike | None) -> Array:
    x = Array(domain_node("inexact", observations, dtype))
    if x.ndim > 2:
        raise ShapeError(f"expected at most two axes, got shape {x.shape}")
    if x.ndim < 2:
        return x.reshape(1, -1)
    return x if rowvar else x.T


@_cov_docstr()
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True,
             dtype: DTypeLike | None = None) -> Array:
    """Return the correlation matrix of variables: covariances over the standard deviations.

    >>> jnp.corrcoef(jnp.asarray([[0.0, 2.0], [2.0, 0.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return c / c
    size = sqrt(real(c.diagonal()))
    c = c / size[:, None] / size[None, :]
    if c._dtype.is_complex:
        return clip(real(c), -1.0, 1.0) + 1j * clip(imag(c), -1.0, 1.0)
    return clip(c, -1.0, 1.0)
