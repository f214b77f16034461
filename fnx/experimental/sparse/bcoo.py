"""BCOO: sparse arrays as coordinates and values, with batch axes in front and dense axes behind.

    element[b..., i..., d...] = sum over k of data[b..., k, d...] where indices[b..., k] == i

Equal coordinates are summed; coordinates outside of the shape are padding and count as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments, pytree_registry
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.support.process import lazy_import
from fnx.experimental.sparse.base import (
    JAXSparse,
    Layout,
    Shape,
    SparseInfo,
    check_layout,
    refuse,
)
from fnx.transforms.vmap import vmap

arithmetic = lazy_import("fnx.experimental.sparse.arithmetic")
conversions = lazy_import("fnx.experimental.sparse.conversions")
duplicates = lazy_import("fnx.experimental.sparse.duplicates")
layouts = lazy_import("fnx.experimental.sparse.layouts")
movement = lazy_import("fnx.experimental.sparse.movement")

__all__ = ["BCOO", "batched_shape", "columns", "is_inside", "map_batches"]


class BCOO(JAXSparse):
    """A sparse array as coordinates and values. It is a pytree of two leaves.

    Args:
        args: (data, indices): values of shape (batch..., nse, dense...) and coordinates of shape
            (batch..., nse, sparse axes).
        shape: the shape of the array: batch, sparse and dense axes.
        indices_sorted: whether the coordinates are known to be in lexicographic order.
        unique_indices: whether the coordinates are known to be distinct.

    Raises:
        ShapeError: the buffers do not fit the shape.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.asarray([[0.0, 2.0], [3.0, 0.0]]))
    >>> M, M @ jnp.ones(2)
    (BCOO(float32[2, 2], nse=2), Array([2., 3.], dtype=float32))
    """

    indices: Array
    indices_sorted: bool
    unique_indices: bool
    _batch_axes: int  # of the shape, for leaves that have none

    def __init__(self, args: tuple[Any, Any], *, shape: Sequence[int],
                 indices_sorted: bool = False, unique_indices: bool = False) -> None:
        super().__init__(args, shape=shape)
        self.data, self.indices = [asarray(x) for x in args]
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        check_layout(self.data, self.indices, self.shape)

    @property
    def nse(self) -> int:
        """The number of specified elements (of each batch element)."""
        return self.indices.shape[-2]

    @property
    def n_batch(self) -> int:
        """The number of batch axes."""
        return self.indices.ndim - 2

    @property
    def n_sparse(self) -> int:
        """The number of sparse axes."""
        return self.indices.shape[-1]

    @property
    def n_dense(self) -> int:
        """The number of dense axes."""
        return self.data.ndim - 1 - self.n_batch

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def layout(self) -> Layout:
        """The batch, sparse and dense parts of the shape."""
        end = self.n_batch + self.n_sparse
        return Layout(self.shape[:self.n_batch], self.shape[self.n_batch:end], self.shape[end:])

    @classmethod
    def fromdense(cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = "int32",
                  n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """Return the nonzero elements of an array; see ``bcoo_fromdense``."""
        out: BCOO = conversions.bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense,
                                               index_dtype=index_dtype)
        return out

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0,
                          n_batch: int = 0) -> BCOO:
        """Return the elements of a sparse array of SciPy."""
        if n_dense or n_batch:
            raise refuse("from_scipy_sparse with batch or dense axes", "use update_layout")
        coo = mat.tocoo()
        indices = np.stack([coo.row, coo.col], -1)
        return cls((jnp.asarray(coo.data), jnp.asarray(indices, index_dtype or "int32")),
                   shape=coo.shape)

    def todense(self) -> Array:
        """Return a dense array."""
        out: Array = conversions.bcoo_todense(self)
        return out

    def sort_indices(self) -> BCOO:
        """Return the array with its coordinates in lexicographic order."""
        out: BCOO = duplicates.bcoo_sort_indices(self)
        return out

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Return the array with distinct coordinates in lexicographic order.

        Args:
            nse: the number of elements that is stored; by default as many as needed, which must be
                known while tracing.
            remove_zeros: whether elements that are zero are left out.
        """
        out: BCOO = duplicates.bcoo_sum_duplicates(
            duplicates.mark_zeros(self) if remove_zeros else self, nse)
        return out

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Return the array with axes permuted, each within its part."""
        order = range(self.ndim)[::-1] if axes is None else axes
        out: BCOO = movement.bcoo_transpose(self, permutation=tuple(order))
        return out

    def reshape(self, *args: Any, **kwargs: Any) -> BCOO:
        """Return the array in another shape that does not mix its parts."""
        shape = args[0] if len(args) == 1 and isinstance(args[0], Sequence) else args
        sizes = tuple([arguments.check_int("shape", n) for n in kwargs.get("shape", shape)])
        if -1 in sizes:
            rest = math.prod(n for n in sizes if n != -1)
            sizes = tuple([self.size // max(rest, 1) if n == -1 else n for n in sizes])
        out: BCOO = movement.bcoo_reshape(self, new_sizes=sizes)
        return out

    def astype(self, dtype: DTypeLike) -> BCOO:
        """Return the array with elements of another dtype."""
        return self._with_data(self.data.astype(dtype))

    def update_layout(self, *, n_batch: int | None = None, n_dense: int | None = None,
                      on_inefficient: str | None = "error") -> BCOO:
        """Return the array with other batch and dense axes; see ``bcoo_update_layout``."""
        out: BCOO = layouts.bcoo_update_layout(self, n_batch=n_batch, n_dense=n_dense,
                                               on_inefficient=on_inefficient)
        return out

    def sum(self, axis: int | Sequence[int] | None = None) -> Any:
        """Return the sum over axes: a sparse array, or a number if no axis is left."""
        return arithmetic.sum_axes(self, axis)

    def _with_data(self, data: Array) -> BCOO:
        """Return an array with the same coordinates."""
        return BCOO((data, self.indices), shape=self.shape, indices_sorted=self.indices_sorted,
                    unique_indices=self.unique_indices)

    def __neg__(self) -> BCOO:
        return self._with_data(-self.data)

    def __pos__(self) -> BCOO:
        return self._with_data(+self.data)

    def __abs__(self) -> BCOO:
        return arithmetic.map_elements(jnp.abs, self)  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> Any:
        return arithmetic.add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return arithmetic.add(self, -other)

    def __rsub__(self, other: Any) -> Any:
        return arithmetic.add(-self, other)

    def __mul__(self, other: Any) -> BCOO:
        return arithmetic.multiply(self, other)  # type: ignore[no-any-return]

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> BCOO:
        if isinstance(other, JAXSparse):
            raise refuse("division by a sparse array")
        return arithmetic.multiply(self, 1 / asarray(other))  # type: ignore[no-any-return]

    def __pow__(self, exponent: Any) -> BCOO:
        if isinstance(exponent, JAXSparse) or not np.all(np.asarray(exponent) > 0):
            raise refuse("a power of a sparse array with an exponent that is not positive")
        return arithmetic.map_elements(  # type: ignore[no-any-return]
            lambda x: x ** exponent, self)

    def __matmul__(self, other: Any) -> Any:
        return arithmetic.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return arithmetic.matmul(other, self)

    def __getitem__(self, item: Any) -> Any:
        return movement.index(self, item)

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self.shape[0])])

    def tree_flatten(self) -> tuple[tuple[Array, Array], Any]:
        """Return the buffers, and what is static."""
        n_batch = self.indices.ndim - 2 if hasattr(self.indices, "ndim") else self._batch_axes
        return (self.data, self.indices), (self.shape, n_batch, self.indices_sorted,
                                           self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> BCOO:
        """Return an array of buffers without checks: they may be anything."""
        shape, n_batch, indices_sorted, unique_indices = aux_data
        new = object.__new__(cls)
        new.data, new.indices = children
        new.shape = batched_shape(shape, n_batch, new.data, new.indices, 2)
        new.indices_sorted, new.unique_indices = indices_sorted, unique_indices
        new._batch_axes = n_batch
        return new


def batched_shape(shape: Shape, n_batch: int, data: Any, indices: Any, fixed: int) -> Shape:
    """Return the shape of a sparse array after vmap took batch axes away or added them."""
    now = getattr(indices, "ndim", n_batch + fixed) - fixed
    if now == n_batch or not hasattr(data, "shape"):
        return shape
    batch = tuple([max(a, b) for a, b in zip(data.shape[:now], indices.shape[:now])])
    return batch + shape[n_batch:]


pytree_registry.register_pytree_node_class(BCOO)


def map_batches(f: Callable[..., Any], batch: Shape, *buffers: Array) -> Any:
    """Map a function of buffers without batch axes over all batch axes, which may be broadcast."""
    if not batch:
        return f(*buffers)
    n, rows, mapped = len(batch), [], []
    for x in buffers:
        one = math.prod(x.shape[:n]) == 1 < math.prod(batch)  # the same for all
        mapped.append(None if one else 0)
        rows.append(x.reshape(x.shape[n:]) if one else jnp.broadcast_to(
            x, (*batch, *x.shape[n:])).reshape(math.prod(batch), *x.shape[n:]))
    results = vmap(f, in_axes=mapped, axis_size=math.prod(batch))(*rows)
    if isinstance(results, tuple):
        return tuple([x.reshape(*batch, *x.shape[1:]) for x in results])
    return results.reshape(*batch, *results.shape[1:])


def columns(indices: Array) -> tuple[Array, ...]:
    return tuple([indices[..., i] for i in range(indices.shape[-1])])


def is_inside(indices: Array, sparse: Shape) -> Array:
    """Return which coordinates are inside of the shape."""
    return (indices < jnp.asarray(np.asarray(sparse, "int64"), indices.dtype)).all(-1)
