"""Weighted sums of windows of elements: what resizes and filters by tables are.

    weigh_windows(x, axis, windows)    result i: sum(k: windows.weights[i, k] * x[start[i] + k])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array.api_boundary import constant_array
from fnx.core.array.array import Array
from fnx.core.scope.scope import is_traced
from fnx.core.support.record import Record
from fnx.numpy.creation import arange
from fnx.numpy.rearrange import take
from fnx.numpy.reductions import sum as sum_of
from fnx.transforms.custom.vmap import CallWithRules


class Windows(Record):
    """The weights of elements in each of m results: those of the elements ``start[i]``,
    ``start[i] + 1``, ... are ``weights[i]``.

    >>> halves = Windows.of(np.array([[0, 1], [1, 2], [2, 3]]), np.full((3, 2), 0.5), 4)
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

    def tables(self, dtype: Any) -> tuple[Array, Array]:
        """Return start and weights as Arrays."""
        return constant_array(self.start, "int32"), constant_array(self.weights, dtype)


def cubic_near(d: Any, a: float) -> Any:
    """Return Keys's cubic kernel of slope ``a`` at distances of at most 1: -0.5 in his paper, -0.75
    in some libraries."""
    return ((a + 2) * d - (a + 3)) * d * d + 1


def cubic_far(d: Any, a: float) -> Any:
    """Return Keys's cubic kernel at distances of 1 to 2; beyond, it is 0."""
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def weigh_windows(x: Array, axis: int, windows: Windows) -> Array:
    """Return weighted sums along an axis; the derivative has windows, too, so it scatters nothing.

    >>> import fnx, fnx.numpy as jnp
    >>> halves = Windows.of(np.array([[0, 1], [1, 2]]), np.full((2, 2), 0.5), 3)
    >>> weigh_windows(jnp.asarray([1.0, 2.0, 4.0]), 0, halves)
    Array([1.5, 3. ], dtype=float32)
    >>> fnx.grad(lambda x: weigh_windows(x, 0, halves).sum())(jnp.zeros(3))
    Array([0.5, 1. , 0.5], dtype=float32)
    """
    start, weights = windows.tables(x.dtype)
    ascend = not np.any(np.diff(windows.start) < 0)  # else the transpose has no windows
    if is_traced([x._node]) and x._dtype.is_inexact and ascend:
        return _sums(x, (start, weights), windows.transpose().tables(x.dtype), (None,) * axis)
    if windows.weights.shape[1] == 1 and np.all(windows.weights == 1):
        return take(x, start, axis, mode="clip")
    return _sums_of_tables(axis, x, (start, weights))


def _sums_of_tables(axis: int, x: Array, tables: tuple[Array, Array]) -> Array:
    start, weights = tables
    m, length = weights.shape
    index = start[:, None] + arange(length, dtype="int32")
    elements: Array = take(x, index, axis, mode="clip")
    return sum_of(elements * weights.reshape((m, length) + (1,) * (x.ndim - 1 - axis)), axis + 1)


def _sums_of(x: Array, tables: Any, transposed: Any, axis: tuple[None, ...]) -> Array:
    """Sum along an axis: as many Nones, which are part of the tree of arguments."""
    return _sums_of_tables(len(axis), x, tables)


def _jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _sums(*primals), _sums(tangents[0], *primals[1:])


def _forward(x: Array, tables: Any, transposed: Any, axis: tuple[None, ...]) -> Any:
    return _sums(x, tables, transposed, axis), (tables, transposed, axis)


def _backward(saved: Any, ct: Array) -> Any:
    tables, transposed, axis = saved
    return _sums(ct, transposed, tables, axis), None, None, axis


_sums: CallWithRules[Any, Array] = CallWithRules(_sums_of, _jvp, (_forward, _backward))
