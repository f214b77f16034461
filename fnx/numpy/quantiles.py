"""The median and other quantiles."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import domain_node, promote_arrays
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.numpy.base import (
    any,
    broadcast_to,
    ceil,
    clip,
    cumsum,
    floor,
    isnan,
    logical_not,
    logical_or,
    moveaxis,
    sum,
    take_along_axis,
    where,
)
from fnx.numpy.sorting import sort_along

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

QuantileMethod: TypeAlias = Literal[
    "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"]
_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")

_docstr = DocTemplate(
    a="an Array or array-like of any shape.",
    q="the quantiles: floats from 0 to 1, a scalar or a vector.",
    axis="the axis or axes to reduce; negative ones count from the end. None reduces all.",
    overwrite_input="must be False: arrays are immutable.",
    method='the interpolation between elements: "linear", "lower", "higher", "midpoint", '
           '"nearest" or "inverted_cdf".',
    weights='the weights of the elements, for "inverted_cdf" only: of the shape of a, or of the '
            "axis.",
    returns="An Array of floats without the reduced axes, with the axis of q first.",
    raises=("AxisError: an axis is out of range or repeated.",
            "ArgumentError: the method is unknown, or takes no weights.",
            "ShapeError: the shape of q or of the weights is invalid.",
            "DTypeError: q is not of a float dtype."))


class _Sorted:
    """The reduced elements, sorted along a last axis: numbers first, then NaNs."""

    def __init__(self, a: ArrayLike, axis: AxisLike, weights: ArrayLike | None) -> None:
        x = Array(domain_node("inexact", a, None))
        self.shape = x.shape
        self.over = axes.sorted_axes(axis, x.ndim)
        self.kind = x.dtype
        w = None if weights is None else _broadcast_weights(asarray(weights), x, self.over)
        if w is not None:
            x, w = promote_arrays("quantile", x, w, broadcast=True)
            self.kind = x.dtype
        flat = [self._flat(y) for y in (x, w) if y is not None]
        nodes = sort_along([where(isnan(flat[0]), np.nan, flat[0])._node,
                            *[y._node for y in flat[1:]]], flat[0].ndim - 1, 1)
        self.values = Array(nodes[0])
        self.weights = None if w is None else Array(nodes[1])
        self.nans = isnan(self.values)

    def _flat(self, x: Array) -> Array:
        outer_shape = [n for i, n in enumerate(self.shape) if i not in self.over]
        order = [i for i in range(x.ndim) if i not in self.over] + [*self.over]
        count = math.prod(self.shape[i] for i in self.over)
        return Array(build.reshape(build.permute(x._node, order), (*outer_shape, count)))

    def at(self, index: Array) -> Array:
        """Return the elements at indices along the last axis."""
        return take_along_axis(self.values, index, -1, mode="clip")

    def placed(self, values: Array, q: Array, keepdims: bool) -> Array:
        """Move the quantile axis to the front, and keep the reduced axes as 1 on request."""
        out = moveaxis(values, -1, 0)
        full = [1 if i in self.over else n for i, n in enumerate(self.shape)]
        inner = full if keepdims else [n for i, n in enumerate(self.shape) if i not in self.over]
        return out.reshape(*q.shape, *inner).astype(self.kind)


def _broadcast_weights(w: Array, x: Array, dims: tuple[int, ...]) -> Array:
    """Broadcast weights to the shape of x."""
    if w.shape == x.shape:
        return w
    lengths = tuple([x.shape[i] for i in dims])
    if w.shape != lengths:
        raise ShapeError(f"expected weights of shape {x.shape} or {lengths}, got {w.shape}")
    return broadcast_to(w.reshape([n if i in dims else 1 for i, n in enumerate(x.shape)]), x.shape)


def _quantile(a: ArrayLike, q: ArrayLike, axis: AxisLike, overwrite_input: bool,
              method: QuantileMethod, keepdims: bool, weights: ArrayLike | None,
              skip: bool) -> Array:
    arguments.check_choice("overwrite_input", overwrite_input, (False,))
    arguments.check_choice("method", method, _METHODS)
    if weights is not None and method != "inverted_cdf":
        raise ArgumentError(f'expected method="inverted_cdf" where there are weights, got '
                            f"{method!r}")
    if asarray(a)._dtype.is_complex:
        raise DTypeError("expected real numbers, got complex ones, which have no order",
                         hint="take the quantile of x.real, x.imag or abs(x)")
    fractions = asarray(q)
    if not fractions._dtype.is_float:
        raise DTypeError(f"expected q as floats from 0 to 1, got {fractions._dtype}",
                         hint="write 1.0 instead of 1; use percentile for percentages")
    if fractions.ndim > 1:
        raise ShapeError(f"expected a scalar or vector q, got shape {fractions.shape}")
    rows = _Sorted(a, axis, weights)
    if not rows.values.shape[-1] and fractions.size:
        raise ShapeError(f"expected at least one element to reduce, got shape {rows.shape}",
                         hint="check x.size first")
    count = sum(logical_not(rows.nans), -1, fractions.dtype, keepdims=True) if skip else \
        asarray(rows.values.shape[-1]).astype(fractions.dtype)
    method_fn = _inv_cdf if method == "inverted_cdf" else _lerp
    result = method_fn(rows, fractions.reshape(-1), count, method, skip)
    if not skip:
        result = where(rows.nans[..., -1:], np.nan, result)
    return rows.placed(result, fractions, keepdims)


def _lerp(rows: _Sorted, q: Array, count: Array, method: QuantileMethod, skip: bool) -> Array:
    """Interpolate between two neighbors, for each element of q along a last axis."""
    position = q * (count - 1)
    low, high = floor(position), ceil(position)
    fraction = position - low
    low_index, high_index = (clip(x, 0, count - 1).astype("int32") for x in (low, high))
    shape = (*rows.values.shape[:-1], q.size)
    lo, hi = (rows.at(broadcast_to(x, shape)) for x in (low_index, high_index))
    if method == "linear":
        return lo.astype(q.dtype) * (1 - fraction) + hi.astype(q.dtype) * fraction
    if method == "nearest":
        return where(fraction <= 0.5, lo, hi)
    return {"lower": lo, "higher": hi}[method] if method != "midpoint" else (lo + hi) * 0.5


def _inv_cdf(rows: _Sorted, q: Array, count: Array, method: QuantileMethod, skip: bool) -> Array:
    """Return the first element at which the cumulative weight reaches the fraction q."""
    w = rows.weights
    if w is None:
        w = where(rows.nans, 0, rows.values * 0 + 1).astype(rows.kind)
        is_invalid = rows.nans & False
    else:
        is_invalid = logical_or(w < 0, isnan(w))
        w = where(logical_or(is_invalid, rows.nans), 0, w)
    total = cumsum(w, -1)
    before = total[..., None, :] < (q * total[..., -1:])[..., None]
    index = clip(sum(before, -1, convert.default_int().np), 0, count - 1).astype("int32")
    is_nan = any(is_invalid, -1, keepdims=True)
    if skip:
        is_nan = logical_or(is_nan, count == 0)
    return where(is_nan, np.nan, rows.at(index))


@_docstr.family()
def _fraction_quantile(skip: bool, a: ArrayLike, q: ArrayLike, axis: AxisLike = None,
                       out: None = None, overwrite_input: bool = False,
                       method: QuantileMethod = "linear", keepdims: bool = False, *,
                       weights: ArrayLike | None = None) -> Array:
    return _quantile(a, q, axis, overwrite_input, method, keepdims, weights, skip)


quantile = _fraction_quantile(
    False, "quantile", "Return the q-th quantiles of the elements; NaN if any element is NaN.",
    "print(jnp.quantile(jnp.asarray([1.0, 2.0, 4.0]), 0.75))", "3.0")
nanquantile = _fraction_quantile(
    True, "nanquantile", "Return the q-th quantiles of the elements, ignoring NaNs.",
    "print(jnp.nanquantile(jnp.asarray([1.0, jnp.nan, 4.0]), 0.5))", "2.5")


def _to_fractions(q: ArrayLike) -> Array:
    return Array(domain_node("inexact", q, None)) / 100


@_docstr(q="the percentiles: numbers from 0 to 100, a scalar or a vector.")
def percentile(a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
               overwrite_input: bool = False, method: QuantileMethod = "linear",
               keepdims: bool = False, *, weights: ArrayLike | None = None,
               out_sharding: None = None) -> Array:
    """Return the q-th percentiles of the elements; NaN if any element is NaN.

    >>> print(jnp.percentile(jnp.asarray([1.0, 2.0, 4.0]), 75))
    3.0
    """
    arguments.check_choice("out_sharding", out_sharding, (None,))
    return _quantile(a, _to_fractions(q), axis, overwrite_input, method, keepdims, weights,
                     False)


@_docstr(q="the percentiles: numbers from 0 to 100, a scalar or a vector.")
def nanpercentile(a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
                  overwrite_input: bool = False, method: QuantileMethod = "linear",
                  keepdims: bool = False, *, weights: ArrayLike | None = None) -> Array:
    """Return the q-th percentiles of the elements, ignoring NaNs.

    >>> print(jnp.nanpercentile(jnp.asarray([1.0, jnp.nan, 4.0]), 50))
    2.5
    """
    return _quantile(a, _to_fractions(q), axis, overwrite_input, method, keepdims, weights,
                     True)


@_docstr.family("An Array of floats without the reduced axes.",
                ("AxisError: an axis is out of range or repeated.",
                 "ShapeError: the reduction is over zero elements."))
def _median(skip: bool, a: ArrayLike, axis: AxisLike = None, out: None = None,
            overwrite_input: bool = False, keepdims: bool = False) -> Array:
    return _quantile(a, 0.5, axis, overwrite_input, "midpoint", keepdims, None, skip)


_MIDDLE = "\n\n    Of an even number of elements, it is the mean of the two in the middle."
median = _median(False, "median", "Return the median; NaN if any element is NaN." + _MIDDLE,
                 "print(jnp.median(jnp.asarray([1.0, 2.0, 4.0])))", "2.0")
nanmedian = _median(True, "nanmedian", "Return the median, ignoring NaNs." + _MIDDLE,
                    "print(jnp.nanmedian(jnp.asarray([1.0, jnp.nan, 4.0])))", "2.5")
