"""Set operations of ``fnx.numpy``, implemented by sorting."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.formulas.cumulative import cumulative
from fnx.core.ir import build, ops
from fnx.core.support.errors import ArgumentError
from fnx.numpy.base import (
    any,
    arange,
    concatenate,
    cumsum,
    isnan,
    logical_and,
    logical_not,
    moveaxis,
    ones_like,
    ravel,
    take,
    where,
    zeros,
    zeros_like,
)
from fnx.numpy.histograms import searchsorted
from fnx.numpy.indexing import true_indices
from fnx.numpy.sorting import sort_along

__all__ = [
    "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values",
]

_docstr = DocTemplate(
    ar="an Array or array-like of any shape and dtype.",
    x="an Array or array-like of any shape and dtype.",
    ar1="an Array or array-like, which is flattened.",
    ar2="an Array or array-like, which is flattened.",
    size="the length of the result, required under tracing; missing elements are filled.",
    fill_value="the padding for missing elements; by default the minimum of the result.",
    assume_unique="a promise that neither array has duplicates.",
    equal_nan="whether NaNs are equal to each other.",
    sorted="accepted for NumPy compatibility; the result is always sorted.",
    returns="A vector in ascending order.",
    raises=("TracedValueError: the length of the result depends on traced values; give "
            "``size``.",))


class UniqueAll(NamedTuple):
    """The result of ``unique_all``."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The result of ``unique_counts``."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The result of ``unique_inverse``."""

    values: Array
    inverse_indices: Array


# ---- equal neighbours ---------------------------------------------------------------------------


def _differs(a: Array, b: Array, equal_nan: bool) -> Array:
    """Return where two arrays differ."""
    out = a != b
    if equal_nan and a._dtype.is_inexact:
        out = logical_and(out, logical_not(logical_and(isnan(a), isnan(b))))
    return out


def _run_starts(x: Array, equal_nan: bool) -> Array:
    """Return which rows of a sorted array differ from the row before; the first one does."""
    changed = _differs(x[1:], x[:-1], equal_nan)
    if x.ndim > 1:
        changed = any(changed, tuple(range(1, x.ndim)))
    return concatenate([ones_like(changed, shape=(min(1, x.shape[0]),)), changed])


def _sort_rows(x: Array) -> tuple[Array, Array]:
    """Sort the rows of an array lexicographically; also return their original positions."""
    n = x.shape[0]
    if x.ndim == 1:
        values, positions = sort_along([x._node], 0, 1, (0, -1))
        return Array(values), Array(build.cast(positions, convert.default_int()))
    columns = x.reshape(n, math.prod(x.shape[1:]))
    keys = [columns[:, j]._node for j in range(columns.shape[1])]
    positions, = sort_along(keys, 0, len(keys), (-1,))
    order = Array(build.cast(positions, convert.default_int()))
    return take(x, order, 0, mode="clip"), order


def _check_size(size: int | None) -> int | None:
    return None if size is None else arguments.check_int("size", size)


def _int_range(n: int) -> Array:
    return arange(n, dtype=convert.default_int())


# ---- unique -------------------------------------------------------------------------------------


class _UniqueRows:
    """The distinct rows of an array along its first axis, with indices, inverse and counts."""

    def __init__(self, x: Array, equal_nan: bool, size: int | None, fill_value: ArrayLike | None
                 ) -> None:
        n = x.shape[0]
        fill = None if fill_value is None else asarray(fill_value).astype(x.dtype)
        if not n and size and fill is None:
            raise ArgumentError("expected fill_value=, as there are no elements to pad with",
                                hint="pass fill_value=0")
        self.length = n
        if not math.prod(x.shape[1:]):  # rows without elements are all equal
            count = min(n, 1) if size is None else size
            self.values = x[:1] if n else x
            self._counts: list[int] | None = [n] * count
            self.indices, self.inverse = _int_range(count) * 0, _int_range(n) * 0
            return
        ordered, order = _sort_rows(x)
        is_new = _run_starts(ordered, equal_nan)
        starts = true_indices(is_new, size, 0)
        self._counts = None
        self._first, self._size = is_new, size
        self.values = take(ordered, starts, 0, mode="clip") if n else _fill_rows(x, size, fill)
        if size is not None and fill is not None and n:
            is_filled = (_int_range(size) < is_new.sum()).reshape(-1, *[1] * (x.ndim - 1))
            self.values = where(is_filled, self.values, fill)
        self.indices = take(order, starts, mode="clip") if n else order
        run_index = cumsum(is_new.astype(convert.default_int().np)) - 1
        self.inverse = zeros(n, convert.default_int().np).at[order].set(run_index)

    @property
    def counts(self) -> Array:
        """The number of occurrences of each row: the distance to the start of the next one."""
        if self._counts is not None:
            return asarray(np.asarray(self._counts, convert.default_int().np))
        n = self.length
        if not n:
            return _int_range(0)
        bounds = true_indices(self._first, None if self._size is None else self._size + 1, n)
        if self._size is None:
            bounds = concatenate([bounds, asarray(np.asarray([n], np.int32))])
        return (bounds[1:] - bounds[:-1]).astype(convert.default_int().np)


def _fill_rows(x: Array, size: int | None, fill: Array | None) -> Array:
    node = build.const(0, x._dtype) if fill is None else fill._node
    return Array(build.expand(node, (size or 0, *x.shape[1:])))


@_docstr("An Array; or a tuple of it and the requested outputs, in the order of the arguments.",
         return_index="whether to also return the index of the first occurrence of each element.",
         return_inverse="whether to also return the index into the result for each input element.",
         return_counts="whether to also return the number of occurrences of each element.",
         axis="the axis whose slices are compared; None compares the flattened elements.",
         raises=("TracedValueError: the length of the result depends on traced values; give "
                 "``size``.", "AxisError: the axis is out of range.",
                 "ArgumentError: the input is empty and ``fill_value`` is needed."))
def unique(ar: ArrayLike, return_index: bool = False, return_inverse: bool = False,
           return_counts: bool = False, axis: int | None = None, *, equal_nan: bool = True,
           size: int | None = None, fill_value: ArrayLike | None = None, sorted: bool = True
           ) -> Any:
    """Return the distinct elements in ascending order.

    >>> jnp.unique(jnp.asarray([3, 1, 3]))
    Array([1, 3], dtype=int32)
    >>> jnp.unique(jnp.asarray([3, 1, 3]), return_counts=True, size=3)
    (Array([1, 3, 1], dtype=int32), Array([1, 2, 0], dtype=int32))
    """
    x = asarray(ar)
    ax = 0 if axis is None else axes.normalize_axis(axis, x.ndim)
    rows = ravel(x) if axis is None else moveaxis(x, ax, 0)
    rows_found = _UniqueRows(rows, equal_nan, _check_size(size), fill_value)
    out = [Array(moveaxis(rows_found.values, 0, ax)._node, x.weak)]
    if return_index:
        out.append(rows_found.indices)
    if return_inverse:
        out.append(rows_found.inverse.reshape(x.shape) if axis is None else rows_found.inverse)
    if return_counts:
        out.append(rows_found.counts)
    return out[0] if len(out) == 1 else tuple(out)


@_docstr("A named tuple of values, indices, inverse_indices and counts.")
def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
               ) -> UniqueAll:
    """Return the distinct elements, their first indices, inverse indices and counts.

    NaNs are distinct from each other.

    >>> jnp.unique_all(jnp.asarray([3, 1, 3])).counts
    Array([1, 2], dtype=int32)
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size,
                             fill_value=fill_value))


@_docstr("A named tuple of values and counts.")
def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
                  ) -> UniqueCounts:
    """Return the distinct elements and their counts. NaNs are distinct from each other.

    >>> jnp.unique_counts(jnp.asarray([3, 1, 3])).values
    Array([1, 3], dtype=int32)
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size,
                                fill_value=fill_value))


@_docstr("A named tuple of values and inverse_indices.")
def unique_inverse(x: ArrayLike, /, *, size: int | None = None,
                   fill_value: ArrayLike | None = None) -> UniqueInverse:
    """Return the distinct elements and the inverse indices. NaNs are distinct from each other.

    >>> jnp.unique_inverse(jnp.asarray([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size,
                                 fill_value=fill_value))


@_docstr()
def unique_values(x: ArrayLike, /, *, size: int | None = None,
                  fill_value: ArrayLike | None = None) -> Array:
    """Return the distinct elements. NaNs are distinct from each other.

    >>> jnp.unique_values(jnp.asarray([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    values: Array = unique(x, equal_nan=False, size=size, fill_value=fill_value)
    return values


# ---- two sets -----------------------------------------------------------------------------------


class _MergedSets:
    """Two flat arrays sorted together; of equal elements, those of the first array come first.

    ``both`` marks the boundary between them in each run of equal elements that has both.
    """

    def __init__(self, ar1: ArrayLike, ar2: ArrayLike) -> None:
        self.a, self.b = map(ravel, promote_arrays("sets", asarray(ar1), asarray(ar2),
                                                   domain="any"))
        joined = concatenate([self.a, self.b])
        values, positions = sort_along([joined._node], 0, 1, (0, -1))
        self.values, self.order = Array(values), Array(positions)
        self.from_second = self.order >= self.a.size
        is_equal = logical_not(_differs(self.values[1:], self.values[:-1], False))
        change = logical_and(self.from_second[1:], logical_not(self.from_second[:-1]))
        self.both = logical_and(is_equal, change)

    def exclusive_mask(self) -> Array:
        """Return which elements are in a run of equal elements from one array only."""
        run = cumsum(_run_starts(self.values, False).astype("int32")) - 1
        in_both = zeros(self.values.size, "bool").at[run[1:]].max(self.both)
        return logical_not(in_both[run])

    def first_mask(self) -> Array:
        """Return which elements are the first of their value from either array."""
        is_new = _run_starts(self.values, True)
        side_changes = self.from_second[1:] != self.from_second[:-1]
        return logical_not(logical_not(is_new).at[1:].min(logical_not(side_changes)))


def _take_true(values: Array, mask: Array, size: int | None, fill_in: ArrayLike | None) -> Array:
    """Return the values selected by a mask, padded with ``fill_in`` or the smallest of them."""
    fill = None if fill_in is None else asarray(fill_in).astype(values.dtype)
    positions = true_indices(mask, _check_size(size), values.size)
    if size is None or not values.size:
        return take(values, positions, mode="clip") if values.size else \
            _fill_rows(values, size, fill)
    other = take(values, positions[:1], mode="fill", fill_value=0) if fill is None else fill
    return where(positions < values.size, take(values, positions, mode="clip"), other)


@_docstr(raises=("TracedValueError: an array is traced and there is no ``size``.",
                 "DTypeError: the dtypes do not promote."))
def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None,
            fill_value: ArrayLike | None = None) -> Array:
    """Return the distinct elements of two arrays together.

    >>> jnp.union1d(jnp.asarray([1, 3]), jnp.asarray([3, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    values: Array = unique(concatenate([ravel(ar1), ravel(ar2)]), size=size, fill_value=fill_value)
    return values


@_docstr(return_indices="whether to also return the index of the first occurrence in each array.")
def intersect1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False,
                return_indices: bool = False, *, size: int | None = None,
                fill_value: ArrayLike | None = None) -> Any:
    """Return the distinct elements that both arrays have.

    >>> jnp.intersect1d(jnp.asarray([1, 3, 3]), jnp.asarray([3, 2]))
    Array([3], dtype=int32)
    """
    merged = _MergedSets(ar1, ar2)
    n = merged.values.size
    values = _take_true(merged.values[:max(n - 1, 0)], merged.both, size, fill_value)
    if not return_indices:
        return values
    run_starts = where(_run_starts(merged.values, False), _int_range(n), 0)
    start = Array(cumulative(run_starts._node, 0, ops.MAX, name="cummax")) if n else run_starts
    positions = true_indices(merged.both, _check_size(size), n)
    int_dtype = convert.default_int().np
    in_a = take(take(merged.order, start, mode="clip"), positions, mode="fill",
                fill_value=merged.a.size)
    in_b = take(merged.order, positions + 1, mode="fill", fill_value=merged.a.size + merged.b.size)
    return values, in_a.astype(int_dtype), (in_b - merged.a.size).astype(int_dtype)


@_docstr()
def setxor1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *,
             size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Return the distinct elements that exactly one of two arrays has.

    >>> jnp.setxor1d(jnp.asarray([1, 3]), jnp.asarray([3, 2]))
    Array([1, 2], dtype=int32)
    """
    merged = _MergedSets(ar1, ar2)
    mask = merged.exclusive_mask()
    if not assume_unique:
        mask = logical_and(mask, merged.first_mask())
    return _take_true(merged.values, mask, size, fill_value)


@_docstr("A vector of the dtype of ar1, in ascending order; with ``assume_unique``, in the order "
         "of ar1.", fill_value="the padding for missing elements; by default 0.")
def setdiff1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *,
              size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Return the distinct elements of the first array that the second one lacks.

    >>> jnp.setdiff1d(jnp.asarray([1, 3]), jnp.asarray([3, 2]))
    Array([1], dtype=int32)
    """
    array = ravel(asarray(ar1))
    fill = 0 if fill_value is None else fill_value
    if assume_unique:
        return _take_true(array, isin(array, ar2, invert=True), size, fill)
    ordered = Array(sort_along([array._node], 0, 1)[0])
    mask = logical_and(_run_starts(ordered, True), isin(ordered, ar2, invert=True))
    return _take_true(ordered, mask, size, fill)


_MAX_ALL_PAIRS = 1 << 16  # most comparisons for the all-pairs method


@_docstr("A bool Array of the shape of ``element``.",
         element="an Array or array-like of any shape.",
         test_elements="an Array or array-like of any shape.",
         invert="whether to return the elements that do not occur instead.",
         method='"auto", "compare_all" (all pairs), "binary_search" or "sort"; the result is the '
                "same.", raises=("ArgumentError: the method is unknown.",))
def isin(element: ArrayLike, test_elements: ArrayLike, assume_unique: bool = False,
         invert: bool = False, *,
         method: Literal["auto", "compare_all", "binary_search", "sort"] = "auto") -> Array:
    """Return which elements occur in another array. NaN never does.

    >>> jnp.isin(jnp.asarray([1, 5]), jnp.asarray([5, 6]))
    Array([False,  True], dtype=bool)
    """
    arguments.check_choice("method", method, ("auto", "compare_all", "binary_search", "sort"))
    x, tests = promote_arrays("isin", asarray(element), asarray(test_elements), domain="any")
    tests = ravel(tests)
    if not x.size or not tests.size:
        hits = zeros_like(x, "bool")
    elif method == "compare_all" or method == "auto" and x.size * tests.size <= _MAX_ALL_PAIRS:
        hits = any(x[..., None] == tests, -1)
    else:
        ordered = Array(sort_along([tests._node], 0, 1)[0])
        index = searchsorted(ordered, x)
        hits = take(ordered, index, mode="clip") == x
    return logical_not(hits) if invert else hits
