"""Weighted sums of windows of elements: what resizes and filters by tables are.

    weigh_windows(x, axis, windows)    result i: sum(k: windows.weights[i, k] * x[start[i] + k])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.support.process import lazy_import
from fnx.numpy.rearrange import take
from fnx.numpy.reductions import sum as sum_of

linear_call = lazy_import("fnx.transforms.custom.linear", "linear_call")


@dataclass(frozen=True)
class Windows:
    """The weights of elements in each of m results: those of the elements ``start[i]``,
    ``start[i] + 1``, ... are ``weights[i]``.

    >>> import fnx.numpy as jnp
    >>> halves = Windows.of(np.array([[0, 1], [1, 2], [2, 3]]), np.full((3, 2), 0.5), 4)
    >>> halves.apply(jnp.asarray([1.0, 2.0, 4.0, 8.0]), 0)
    Array([1.5, 3. , 6. ], dtype=float32)
    >>> halves.transpose().weights
    array([[0.5, 0. ],
           [0.5, 0.5],
           [0.5, 0.5],
           [0. , 0.5]])
    """

    start: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]
    n: int

    @staticmethod
    def of(index: np.ndarray[Any, Any], weights: np.ndarray[Any, Any], n: int) -> Windows:
        """Return windows of successive elements ``index[i]``; those outside of the n elements count
        for the one at the edge."""
        length = min(index.shape[1], n)
        start = np.clip(index[:, 0], 0, n - length)
        inside = np.zeros((len(index), length))
        rows = np.arange(len(index))
        for k in range(index.shape[1]):
            np.add.at(inside, (rows, np.clip(index[:, k], 0, n - 1) - start), weights[:, k])
        return Windows(start, inside, n)

    def transpose(self) -> Windows:
        """Return the windows of results in which each element has a weight."""
        m, length = self.weights.shape
        k = np.arange(self.n)
        low = np.searchsorted(self.start, k - length, "right")
        high = np.searchsorted(self.start, k, "right")
        count = max(1, int((high - low).max(initial=0)))
        start = np.clip(low, 0, max(0, m - count))
        rows = start[:, None] + np.arange(count)
        offset = k[:, None] - self.start[rows]
        values = self.weights[rows, np.clip(offset, 0, length - 1)]
        return Windows(start, np.where((offset >= 0) & (offset < length), values, 0.0), m)

    def apply(self, x: Array, axis: int) -> Array:
        """Return the weighted sums along an axis."""
        m, length = self.weights.shape
        if length == 1 and np.all(self.weights == 1):
            return take(x, asarray(self.start, "int32"), axis, mode="clip")
        index = asarray(self.start[:, None] + np.arange(length), "int32")
        weights = asarray(self.weights, x.dtype)
        column = (m, length) + (1,) * (x.ndim - 1 - axis)
        elements: Array = take(x, index, axis, mode="clip")
        return sum_of(elements * weights.reshape(column), axis + 1)


def weigh_windows(x: Array, axis: int, windows: Windows) -> Array:
    """Return weighted sums along an axis; the derivative has windows, too, so it scatters nothing.

    >>> import fnx, fnx.numpy as jnp
    >>> halves = Windows.of(np.array([[0, 1], [1, 2]]), np.full((2, 2), 0.5), 3)
    >>> fnx.grad(lambda x: weigh_windows(x, 0, halves).sum())(jnp.zeros(3))
    Array([0.5, 1. , 0.5], dtype=float32)
    """
    if not x._dtype.is_inexact or np.any(np.diff(windows.start) < 0):
        return windows.apply(x, axis)
    back = windows.transpose()
    sums: Array = linear_call(lambda _, x: windows.apply(x, axis), lambda _, g: back.apply(g, axis),
                              (), x)
    return sums
