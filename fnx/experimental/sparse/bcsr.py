"""BCSR: sparse matrices as compressed rows, with batch axes in front and dense axes behind.

Elements ``indptr[r]`` to ``indptr[r + 1]`` are those of row r; elements after the last row are
padding. Products, sums and derivatives are those of BCOO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import pytree_registry
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.experimental.sparse.arithmetic import DotDimensions, bcoo_dot_general, matmul
from fnx.experimental.sparse.base import JAXSparse, SparseInfo, check_sparse, fits_batch, refuse
from fnx.experimental.sparse.bcoo import BCOO, batched_shape, map_batches
from fnx.experimental.sparse.conversions import bcoo_fromdense, bcoo_todense
from fnx.experimental.sparse.duplicates import bcoo_sort_indices, bcoo_sum_duplicates, mark_zeros
from fnx.experimental.sparse.movement import bcoo_broadcast_in_dim, bcoo_concatenate, index

__all__ = ["BCSR", "bcsr_broadcast_in_dim", "bcsr_concatenate", "bcsr_dot_general",
           "bcsr_extract", "bcsr_fromdense", "bcsr_sum_duplicates", "bcsr_todense"]


class BCSR(JAXSparse):
    """A sparse matrix as compressed rows. It is a pytree of three leaves.

    Args:
        args: (data, indices, indptr): values of shape (batch..., nse, dense...), columns of shape
            (batch..., nse), and starts of rows of shape (batch..., rows + 1).
        shape: the shape of the array: batch axes, rows, columns, dense axes.
        indices_sorted: whether the columns are known to be in order within rows.
        unique_indices: whether the columns are known to be distinct within rows.

    Raises:
        ShapeError: the buffers do not fit the shape.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCSR.fromdense(jnp.asarray([[0.0, 2.0], [3.0, 0.0]]))
    >>> M, M @ jnp.ones(2)
    (BCSR(float32[2, 2], nse=2), Array([2., 3.], dtype=float32))
    """

    indices: Array
    indptr: Array
    indices_sorted: bool
    unique_indices: bool
    _batch_axes: int  # of the shape, for leaves that have none

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int],
                 indices_sorted: bool = False, unique_indices: bool = False) -> None:
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = [asarray(x) for x in args]
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        n = self.indices.ndim - 1
        batch, rest = self.shape[:n], self.shape[n + 2:]
        fits = n >= 0 and len(self.shape) >= n + 2 and all(
            fits_batch(x.shape[:n], batch) for x in (self.data, self.indices, self.indptr)) and \
            self.data.shape[n:] == (self.indices.shape[-1], *rest) and \
            self.indptr.shape[n:] == (self.shape[n] + 1,)
        if not fits:
            raise ShapeError(
                f"expected data (batch..., nse, dense...), indices (batch..., nse) and indptr "
                f"(batch..., rows + 1) of an array of shape {self.shape}, got {self.data.shape}, "
                f"{self.indices.shape} and {self.indptr.shape}")

    @property
    def nse(self) -> int:
        """The number of specified elements (of each batch element)."""
        return self.indices.shape[-1]

    @property
    def n_batch(self) -> int:
        """The number of batch axes."""
        return self.indices.ndim - 1

    @property
    def n_sparse(self) -> int:
        """The number of sparse axes: rows and columns."""
        return 2

    @property
    def n_dense(self) -> int:
        """The number of dense axes."""
        return self.data.ndim - self.indices.ndim

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @classmethod
    def fromdense(cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = "int32",
                  n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """Return the nonzero elements of a matrix; see ``bcsr_fromdense``."""
        return bcsr_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense,
                              index_dtype=index_dtype)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """Return the elements of a BCOO with two sparse axes."""
        check_sparse("arr", arr, BCOO)
        if arr.n_sparse != 2:
            raise ShapeError(f"expected an array with two sparse axes, got {arr}")
        mat = arr if arr.indices_sorted else bcoo_sort_indices(arr)
        batch, (rows, _), _ = mat.layout

        def starts(indices: Array) -> Array:
            counts = jnp.zeros(rows + 1, indices.dtype).at[indices[:, 0] + 1].add(1, mode="drop")
            return jnp.cumsum(counts).astype(indices.dtype)
        lead = mat.indices.shape[:mat.n_batch]
        indptr = map_batches(starts, lead, mat.indices)
        return cls((mat.data, mat.indices[..., 1], indptr), shape=mat.shape, indices_sorted=True,
                   unique_indices=mat.unique_indices)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0,
                          n_batch: int = 0) -> BCSR:
        """Return the elements of a sparse matrix of SciPy."""
        if n_dense or n_batch:
            raise refuse("from_scipy_sparse with batch or dense axes", "use BCOO.update_layout")
        csr = mat.tocsr()
        dtype = index_dtype or "int32"
        return cls((jnp.asarray(csr.data), jnp.asarray(csr.indices, dtype),
                    jnp.asarray(csr.indptr, dtype)), shape=csr.shape)

    def to_bcoo(self) -> BCOO:
        """Return the array as coordinates and values."""
        batch = self.indices.shape[:self.n_batch]
        rows = map_batches(lambda columns, starts: rows_of(starts, columns.shape[0]), tuple([
            max(a, b) for a, b in zip(batch, self.indptr.shape)]), self.indices, self.indptr)
        columns = jnp.broadcast_to(self.indices, rows.shape)
        return BCOO((self.data, jnp.stack([rows.astype(columns.dtype), columns], -1)),
                    shape=self.shape, indices_sorted=self.indices_sorted,
                    unique_indices=self.unique_indices)

    def todense(self) -> Array:
        """Return a dense array."""
        return bcsr_todense(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """Return the matrix with distinct columns in order; see ``BCOO.sum_duplicates``."""
        coo = self.to_bcoo()
        return BCSR.from_bcoo(bcoo_sum_duplicates(mark_zeros(coo) if remove_zeros else coo, nse))

    def transpose(self, axes: Sequence[int] | None = None) -> BCSR:
        """Return the matrix with its axes permuted."""
        return BCSR.from_bcoo(self.to_bcoo().transpose(axes))

    def __neg__(self) -> BCSR:
        return BCSR((-self.data, self.indices, self.indptr), shape=self.shape,
                    indices_sorted=self.indices_sorted, unique_indices=self.unique_indices)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise refuse("a product of compressed rows with a sparse array", "use to_bcoo")
        return matmul(self.to_bcoo(), other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self.to_bcoo())

    def __getitem__(self, item: Any) -> Any:
        out = index(self.to_bcoo(), item)
        return BCSR.from_bcoo(out) if out.n_sparse == 2 else out

    def tree_flatten(self) -> tuple[tuple[Array, Array, Array], Any]:
        """Return the buffers, and what is static."""
        n_batch = self.indices.ndim - 1 if hasattr(self.indices, "ndim") else self._batch_axes
        return (self.data, self.indices, self.indptr), (
            self.shape, n_batch, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> BCSR:
        """Return a matrix of buffers without checks: they may be anything."""
        shape, n_batch, indices_sorted, unique_indices = aux_data
        new = object.__new__(cls)
        new.data, new.indices, new.indptr = children
        new.shape = batched_shape(shape, n_batch, new.data, new.indices, 1)
        new.indices_sorted, new.unique_indices = indices_sorted, unique_indices
        new._batch_axes = n_batch
        return new


pytree_registry.register_pytree_node_class(BCSR)


def rows_of(starts: Array, nse: int) -> Array:
    """Return the row of each element; that of padding is the number of rows."""
    first = jnp.zeros(nse + 1, "int32").at[starts].add(1, mode="clip")[:nse]
    return jnp.cumsum(first) - 1


@public_api
def bcsr_fromdense(mat: ArrayLike, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
                   index_dtype: DTypeLike = "int32") -> BCSR:
    """Return the nonzero elements of a matrix as compressed rows.

    Args:
        mat: the array, with two sparse axes.
        nse: the number of elements that is stored; by default as many as there are, which must be
            known while tracing.
        n_batch: the number of batch axes, in front.
        n_dense: the number of dense axes, behind.
        index_dtype: the dtype of columns and starts of rows.

    Returns:
        A BCSR.

    Raises:
        ShapeError: not two axes are sparse.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> print(sparse.bcsr_fromdense(jnp.eye(3)).indptr)
    [0 1 2 3]
    """
    coo = bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    return BCSR.from_bcoo(coo)


@public_api
def bcsr_todense(mat: BCSR) -> Array:
    """Return a sparse matrix as a dense one.

    Args:
        mat: the sparse matrix.

    Returns:
        An Array of its shape.

    Raises:
        ArgumentError: ``mat`` is no BCSR.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> print(sparse.bcsr_todense(sparse.bcsr_fromdense(jnp.eye(2))))
    [[1. 0.]
     [0. 1.]]
    """
    check_sparse("mat", mat, BCSR)
    return bcoo_todense(mat.to_bcoo())


@public_api
def bcsr_extract(indices: ArrayLike, indptr: ArrayLike, mat: ArrayLike) -> Array:
    """Return the elements of a dense matrix at the places of a sparse one.

    Args:
        indices: the columns.
        indptr: the starts of rows.
        mat: the dense matrix.

    Returns:
        The values.

    Raises:
        ShapeError: the shapes do not fit.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.bcsr_fromdense(jnp.eye(2))
    >>> print(sparse.bcsr_extract(M.indices, M.indptr, jnp.asarray([[1.0, 2.0], [3.0, 4.0]])))
    [1. 4.]
    """
    columns, starts, dense = asarray(indices), asarray(indptr), asarray(mat)
    n = columns.ndim - 1
    if dense.ndim < n + 2 or starts.shape[n:] != (dense.shape[n] + 1,):
        raise ShapeError(f"expected indptr of one element more than rows, got {starts.shape} for "
                         f"an array of shape {dense.shape}")

    def one(columns: Array, starts: Array, dense: Array) -> Array:
        at = (rows_of(starts, columns.shape[0]), columns)
        return dense.at[at].get(mode="fill", fill_value=0)
    result: Array = map_batches(one, dense.shape[:n], columns, starts, dense)
    return result


@public_api
def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Return a sparse matrix with distinct columns in order within rows.

    Args:
        mat: the sparse matrix.
        nse: the number of elements that is stored; by default as many as needed, which must be
            known while tracing.

    Returns:
        A BCSR.

    Raises:
        ArgumentError: ``mat`` is no BCSR.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCSR((jnp.ones(2), jnp.asarray([1, 1]), jnp.asarray([0, 2])), shape=(1, 3))
    >>> print(sparse.bcsr_sum_duplicates(M).data)
    [2.]
    """
    check_sparse("mat", mat, BCSR)
    return mat.sum_duplicates(nse, remove_zeros=False)


@public_api
def bcsr_dot_general(lhs: Any, rhs: Any, *, dimension_numbers: DotDimensions,
                     precision: None = None, preferred_element_type: DTypeLike | None = None,
                     out_sharding: Any = None) -> Array:
    """Contract axes of a sparse matrix and a dense array.

    Args:
        lhs: a BCSR or an array.
        rhs: an array.
        dimension_numbers: ((contracted axes of lhs, of rhs), (batch axes of lhs, of rhs)).
        precision: accepted as JAX's.
        preferred_element_type: the dtype of the result.
        out_sharding: accepted as JAX's: there is one device.

    Returns:
        An Array.

    Raises:
        NotBuiltError: ``rhs`` is sparse.
        ShapeError: the lengths of paired axes differ.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.bcsr_fromdense(jnp.eye(2))
    >>> print(sparse.bcsr_dot_general(M, jnp.asarray([3.0, 4.0]),
    ...                               dimension_numbers=(([1], [0]), ([], []))))
    [3. 4.]
    """
    if isinstance(rhs, JAXSparse):
        raise refuse("a product with a sparse right operand", "use to_bcoo and bcoo_dot_general")
    left = lhs.to_bcoo() if isinstance(lhs, BCSR) else lhs
    out: Array = bcoo_dot_general(left, rhs, dimension_numbers=dimension_numbers,
                                  preferred_element_type=preferred_element_type)
    return out


@public_api
def bcsr_broadcast_in_dim(mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int],
                          sharding: Any = None) -> BCSR:
    """Return a sparse matrix with new axes.

    Args:
        mat: the sparse matrix.
        shape: the new shape.
        broadcast_dimensions: the number of each axis in the new shape.
        sharding: accepted as JAX's: there is one device.

    Returns:
        A BCSR.

    Raises:
        ArgumentError: ``mat`` is no BCSR.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.bcsr_fromdense(jnp.eye(2))
    >>> sparse.bcsr_broadcast_in_dim(M, shape=(3, 2, 2), broadcast_dimensions=(1, 2))
    BCSR(float32[3, 2, 2], nse=2, n_batch=1)
    """
    check_sparse("mat", mat, BCSR)
    return BCSR.from_bcoo(bcoo_broadcast_in_dim(mat.to_bcoo(), shape=shape,
                                                broadcast_dimensions=broadcast_dimensions))


@public_api
def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Join sparse matrices along a batch or sparse axis.

    Args:
        operands: sparse matrices of one shape, but for that axis.
        dimension: the axis.

    Returns:
        A BCSR.

    Raises:
        ArgumentError: an operand is no BCSR, or there is none.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.bcsr_fromdense(jnp.eye(2))
    >>> sparse.bcsr_concatenate([M, M], dimension=0)
    BCSR(float32[4, 2], nse=4)
    """
    for operand in operands:
        check_sparse("each operand", operand, BCSR)
    if not operands:
        raise ArgumentError("expected sparse matrices, got none")
    return BCSR.from_bcoo(bcoo_concatenate([x.to_bcoo() for x in operands], dimension=dimension))
