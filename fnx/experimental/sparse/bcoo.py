"""BCOO: sparse arrays as coordinates and values, with batch axes in front and dense axes behind.

    element[b..., i..., d...] = sum over k of data[b..., k, d...] where indices[b..., k] == i

Equal coordinates are summed; coordinates outside of the shape are padding and count as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import arguments, pytree_registry
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.support.errors import ArgumentError, ShapeError, TracedValueError
from fnx.core.support.process import lazy_import
from fnx.experimental.sparse.base import (
    JAXSparse,
    Layout,
    Shape,
    SparseInfo,
    check_layout,
    check_sparse,
    refuse,
)
from fnx.transforms.vmap import vmap

arithmetic = lazy_import("fnx.experimental.sparse.arithmetic")
layouts = lazy_import("fnx.experimental.sparse.layouts")
movement = lazy_import("fnx.experimental.sparse.movement")

__all__ = ["BCOO", "bcoo_extract", "bcoo_fromdense", "bcoo_sort_indices", "bcoo_sum_duplicates",
           "bcoo_todense"]


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

    def _details(self) -> str:
        return "".join([f", {name}={n}" for name, n in (
            ("n_batch", self.n_batch), ("n_dense", self.n_dense)) if n])

    @classmethod
    def fromdense(cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = "int32",
                  n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """Return the nonzero elements of an array; see ``bcoo_fromdense``."""
        return bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense,
                              index_dtype=index_dtype)

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
        return bcoo_todense(self)

    def sort_indices(self) -> BCOO:
        """Return the array with its coordinates in lexicographic order."""
        return bcoo_sort_indices(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Return the array with distinct coordinates in lexicographic order.

        Args:
            nse: the number of elements that is stored; by default as many as needed, which must be
                known while tracing.
            remove_zeros: whether elements that are zero are left out.
        """
        return bcoo_sum_duplicates(_mark_zeros(self) if remove_zeros else self, nse)

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


def _to_dense(data: Array, indices: Array, sparse: Shape) -> Array:
    if not sparse:
        return data.sum(0, dtype=data.dtype)
    zeros = jnp.zeros((*sparse, *data.shape[1:]), data.dtype)
    return zeros.at[columns(indices)].add(data, mode="drop")


@public_api
def bcoo_todense(mat: BCOO) -> Array:
    """Return a sparse array as a dense one.

    Args:
        mat: the sparse array.

    Returns:
        An Array of its shape.

    Raises:
        ArgumentError: ``mat`` is no BCOO.

    >>> from fnx.experimental import sparse
    >>> print(sparse.bcoo_todense(sparse.eye(2)))
    [[1. 0.]
     [0. 1.]]
    """
    check_sparse("mat", mat, BCOO)
    out: Array = map_batches(lambda d, i: _to_dense(d, i, mat.layout.sparse), mat.layout.batch,
                             mat.data, mat.indices)
    return out


@public_api
def bcoo_fromdense(mat: ArrayLike, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
                   index_dtype: DTypeLike = "int32") -> BCOO:
    """Return the nonzero elements of an array.

    Args:
        mat: the array.
        nse: the number of elements that is stored; by default as many as there are, which must be
            known while tracing.
        n_batch: the number of batch axes, in front.
        n_dense: the number of dense axes, behind.
        index_dtype: the dtype of the coordinates.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: negative numbers of axes, or more than there are.
        TracedValueError: ``mat`` is traced and ``nse`` is not there.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.bcoo_fromdense(jnp.asarray([[0.0, 2.0], [3.0, 0.0]]))
    >>> print(M.data, M.indices.tolist())
    [2. 3.] [[0, 1], [1, 0]]
    """
    x = asarray(mat)
    batch_axes, dense_axes = [arguments.check_int(name, n) for name, n in (
        ("n_batch", n_batch), ("n_dense", n_dense))]
    n_sparse = x.ndim - batch_axes - dense_axes
    if min(batch_axes, dense_axes, n_sparse) < 0:
        raise ArgumentError(f"expected n_batch + n_dense of at most {x.ndim} axes, got {n_batch} + "
                            f"{n_dense}")
    batch, sparse = x.shape[:batch_axes], x.shape[batch_axes:batch_axes + n_sparse]
    nonzero = x != 0
    if dense_axes:
        nonzero = nonzero.any(tuple(range(-dense_axes, 0)))
    count = _count_elements(nonzero, batch_axes) if nse is None else \
        arguments.check_int("nse", nse)

    def one(x: Array, nonzero: Array) -> tuple[Array, Array]:
        if not sparse:
            return jnp.where(jnp.arange(count).reshape(-1, *[1] * x.ndim) == 0, x, 0), \
                jnp.zeros((count, 0), index_dtype)
        where = jnp.nonzero(nonzero, size=count, fill_value=sparse)
        values = x.at[where].get(mode="fill", fill_value=0)
        return values, jnp.stack(where, -1).astype(index_dtype)
    data, indices = map_batches(one, batch, x, nonzero)
    return BCOO((data, indices), shape=x.shape, indices_sorted=True, unique_indices=True)


def _count_elements(nonzero: Array, n_batch: int) -> int:
    if not nonzero.size:
        return 0
    counts = nonzero.sum(tuple(range(n_batch, nonzero.ndim))).max()
    return _read_count(counts)


def _read_count(count: Array) -> int:
    try:
        return int(count)
    except TracedValueError as error:
        error.set_hint("give the number of stored elements, nse=")
        raise


def _extract(indices: Array, dense: Array) -> Array:
    if not indices.shape[-1]:
        return jnp.broadcast_to(dense, (indices.shape[0], *dense.shape))
    return dense.at[columns(indices)].get(mode="fill", fill_value=0)


@public_api
def bcoo_extract(sparr: BCOO, arr: ArrayLike, *, assume_unique: bool | None = None) -> BCOO:
    """Return the elements of a dense array at the coordinates of a sparse one.

    Args:
        sparr: the sparse array.
        arr: the dense array, of its shape.
        assume_unique: whether each coordinate gets its element; otherwise the first of equal ones
            does and the others get 0. By default what ``sparr`` knows.

    Returns:
        A BCOO with the coordinates of ``sparr``.

    Raises:
        ArgumentError: ``sparr`` is no BCOO.
        ShapeError: the shapes differ.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> print(sparse.bcoo_extract(sparse.eye(2), jnp.asarray([[1.0, 2.0], [3.0, 4.0]])).data)
    [1. 4.]
    """
    check_sparse("sparr", sparr, BCOO)
    dense = asarray(arr)
    if dense.shape != sparr.shape:
        raise ShapeError(f"expected an array of shape {sparr.shape}, got {dense.shape}")
    unique = sparr.unique_indices if assume_unique is None else assume_unique

    def one(indices: Array, dense: Array) -> Array:
        values = _extract(indices, dense)
        if unique or not indices.shape[-1]:
            return values
        _, _, order, first = _sort_rows(indices, sparr.layout.sparse)
        is_first = jnp.zeros(indices.shape[0], "bool").at[order].set(first)
        return jnp.where(is_first.reshape(-1, *[1] * (values.ndim - 1)), values, 0)
    return sparr._with_data(map_batches(one, sparr.layout.batch, sparr.indices, dense))


def _sort_rows(indices: Array, sparse: Shape) -> tuple[Array, Array, Array, Array]:
    """Sort coordinates; padding comes last.

    Returns:
        (coordinates, which are inside, their old positions, which differ from the one before).
    """
    end = jnp.asarray(np.asarray(sparse, "int64"), indices.dtype)
    inside = is_inside(indices, sparse)
    rows = jnp.where(inside[:, None], indices, end)
    *sorted_columns, order = lax.sort(
        (*columns(rows), jnp.arange(indices.shape[0], dtype="int32")), num_keys=len(sparse))
    rows = jnp.stack(sorted_columns, -1)
    first = jnp.concatenate([jnp.ones(min(rows.shape[0], 1), "bool"),
                             (rows[1:] != rows[:-1]).any(-1)])
    return rows, is_inside(rows, sparse), order, first


@public_api
def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """Return a sparse array with its coordinates in lexicographic order.

    Args:
        mat: the sparse array.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``mat`` is no BCOO.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_sort_indices(sparse.eye(2)).indices_sorted
    True
    """
    check_sparse("mat", mat, BCOO)
    if not mat.n_sparse:
        return mat

    def one(data: Array, indices: Array) -> tuple[Array, Array]:
        *sorted_columns, order = lax.sort(
            (*columns(indices), jnp.arange(indices.shape[0], dtype="int32")),
            num_keys=indices.shape[1])
        return data.at[order].get(mode="clip"), jnp.stack(sorted_columns, -1)
    data, indices = map_batches(one, mat.layout.batch, mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True,
                unique_indices=mat.unique_indices)


@public_api
def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Return a sparse array with distinct coordinates in lexicographic order.

    Args:
        mat: the sparse array.
        nse: the number of elements that is stored; by default as many as needed, which must be
            known while tracing. Elements beyond it are left out.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``mat`` is no BCOO.
        TracedValueError: the coordinates are traced and ``nse`` is not there.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO((jnp.ones(3), jnp.asarray([[1], [0], [1]])), shape=(4,))
    >>> print(sparse.bcoo_sum_duplicates(M).data)
    [1. 2.]
    """
    check_sparse("mat", mat, BCOO)
    batch, sparse, _ = mat.layout
    if not sparse:
        data = mat.data.sum(mat.n_batch, keepdims=True, dtype=mat.data.dtype)
        one_row = BCOO((data, mat.indices[..., :1, :]), shape=mat.shape, indices_sorted=True,
                       unique_indices=True)
        return one_row if nse in (None, 1) else _pad_elements(one_row, nse or 0)
    rows, inside, order, first = map_batches(
        lambda indices: _sort_rows(indices, sparse), mat.indices.shape[:mat.n_batch], mat.indices)
    if nse is not None:
        count = arguments.check_int("nse", nse)
    else:
        count = _read_count((first & inside).sum(-1).max()) if rows.size else 0

    def one(data: Array, rows: Array, order: Array, first: Array) -> tuple[Array, Array]:
        segment = jnp.cumsum(first.astype("int32")) - 1
        values = jnp.zeros((count, *data.shape[1:]), data.dtype).at[segment].add(
            data.at[order].get(mode="clip"), mode="drop")
        end = jnp.asarray(np.asarray(sparse, "int64"), rows.dtype)
        places = jnp.broadcast_to(end, (count, len(sparse))).at[segment].set(rows, mode="drop")
        padding = ~is_inside(places, sparse)
        return jnp.where(padding.reshape(-1, *[1] * (data.ndim - 1)), 0, values), places
    data, indices = map_batches(one, batch, mat.data, rows, order, first)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def _pad_elements(mat: BCOO, nse: int) -> BCOO:
    """Return the array with padding, or without its last elements."""
    extra = nse - mat.nse
    if extra <= 0:
        data = jnp.moveaxis(jnp.moveaxis(mat.data, mat.n_batch, 0)[:nse], 0, mat.n_batch)
        indices = mat.indices[..., :nse, :]
    else:
        widths = [(0, extra if i == mat.n_batch else 0) for i in range(mat.data.ndim)]
        data = jnp.pad(mat.data, widths)
        end = jnp.asarray(np.asarray(mat.layout.sparse, "int64"), mat.indices.dtype)
        shape = (*mat.indices.shape[:-2], extra, mat.n_sparse)
        indices = jnp.concatenate([mat.indices, jnp.broadcast_to(end, shape)], -2)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=mat.indices_sorted,
                unique_indices=mat.unique_indices)


def _mark_zeros(mat: BCOO) -> BCOO:
    """Return the array with elements that are zero as padding."""
    zero = (mat.data == 0).all(tuple(range(mat.n_batch + 1, mat.data.ndim)))
    end = jnp.asarray(np.asarray(mat.layout.sparse, "int64"), mat.indices.dtype)
    return BCOO((mat.data, jnp.where(zero[..., None], end, mat.indices)), shape=mat.shape)
