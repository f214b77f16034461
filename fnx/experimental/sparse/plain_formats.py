"""COO, CSR and CSC: sparse matrices without batch and dense axes, as JAX has them beside BCOO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import fnx.numpy as jnp
from fnx.core.array import pytree_registry
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.support.errors import ShapeError
from fnx.experimental.sparse.arithmetic import matmul
from fnx.experimental.sparse.base import JAXSparse, check_sparse, refuse
from fnx.experimental.sparse.bcoo import BCOO
from fnx.experimental.sparse.bcsr import BCSR, rows_of
from fnx.experimental.sparse.conversions import bcoo_fromdense

__all__ = ["COO", "CSC", "CSR", "coo_fromdense", "coo_matmat", "coo_matvec", "coo_todense",
           "csr_fromdense", "csr_matmat", "csr_matvec", "csr_todense"]

M = TypeVar("M", bound="_PlainMatrix")


class _PlainMatrix(JAXSparse):
    """What the three formats share: products by BCOO, and their names of buffers."""

    _buffers: tuple[str, ...]

    def __init__(self, args: tuple[Any, ...], *, shape: Sequence[int]) -> None:
        super().__init__(args, shape=shape)
        if len(self.shape) != 2 or len(args) != 3:
            raise ShapeError(f"expected three buffers of a matrix, got {len(args)} and shape "
                             f"{self.shape}")
        for name, buffer in zip(self._buffers, args):
            setattr(self, name, asarray(buffer))

    @property
    def nse(self) -> int:
        """The number of specified elements."""
        return self.data.size

    def to_bcoo(self) -> BCOO:
        """Return the matrix as a BCOO."""
        raise NotImplementedError

    def todense(self) -> Array:
        """Return a dense matrix."""
        return self.to_bcoo().todense()

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise refuse("a product of two sparse matrices", "use BCOO")
        if getattr(other, "ndim", 1) > 2:
            raise refuse("a product with a stack of matrices", "use BCOO")
        return matmul(self.to_bcoo(), other)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return the buffers, and what is static."""
        return tuple([getattr(self, name) for name in self._buffers]), self.shape

    @classmethod
    def tree_unflatten(cls: type[M], aux_data: Any, children: Any) -> M:
        """Return a matrix of buffers without checks: they may be anything."""
        new = object.__new__(cls)
        new.shape = aux_data
        for name, buffer in zip(cls._buffers, children):
            setattr(new, name, buffer)
        return new


class COO(_PlainMatrix):
    """A sparse matrix as rows, columns and values.

    Args:
        args: (data, row, col).
        shape: the shape of the matrix.
        rows_sorted: whether elements are known to be in order of rows.
        cols_sorted: whether elements are known to be in order of columns.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> sparse.COO.fromdense(jnp.eye(2))
    COO(float32[2, 2], nse=2)
    """

    _buffers = ("data", "row", "col")
    row: Array
    col: Array

    def __init__(self, args: tuple[Any, ...], *, shape: Sequence[int], rows_sorted: bool = False,
                 cols_sorted: bool = False) -> None:
        super().__init__(args, shape=shape)

    @classmethod
    def fromdense(cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = "int32"
                  ) -> COO:
        """Return the nonzero elements of a matrix."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    def to_bcoo(self) -> BCOO:
        """Return the matrix as a BCOO."""
        return BCOO((self.data, jnp.stack([self.row, self.col], -1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        """Return the transposed matrix."""
        _check_no_axes(axes)
        return COO((self.data, self.col, self.row), shape=self.shape[::-1])


class CSR(_PlainMatrix):
    """A sparse matrix as compressed rows.

    Args:
        args: (data, indices, indptr): values, columns, starts of rows.
        shape: the shape of the matrix.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> sparse.CSR.fromdense(jnp.eye(2))
    CSR(float32[2, 2], nse=2)
    """

    _buffers = ("data", "indices", "indptr")
    indices: Array
    indptr: Array

    @classmethod
    def fromdense(cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = "int32"
                  ) -> CSR:
        """Return the nonzero elements of a matrix."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    def to_bcoo(self) -> BCOO:
        """Return the matrix as a BCOO."""
        rows = rows_of(self.indptr, self.nse).astype(self.indices.dtype)
        return BCOO((self.data, jnp.stack([rows, self.indices], -1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> CSC:
        """Return the transposed matrix."""
        _check_no_axes(axes)
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])


class CSC(_PlainMatrix):
    """A sparse matrix as compressed columns.

    Args:
        args: (data, indices, indptr): values, rows, starts of columns.
        shape: the shape of the matrix.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> sparse.CSC.fromdense(jnp.eye(2))
    CSC(float32[2, 2], nse=2)
    """

    _buffers = ("data", "indices", "indptr")
    indices: Array
    indptr: Array

    @classmethod
    def fromdense(cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = "int32"
                  ) -> CSC:
        """Return the nonzero elements of a matrix."""
        return csr_fromdense(asarray(mat).T, nse=nse, index_dtype=index_dtype).transpose()

    def to_bcoo(self) -> BCOO:
        """Return the matrix as a BCOO."""
        return self.transpose().to_bcoo().transpose()

    def transpose(self, axes: Sequence[int] | None = None) -> CSR:
        """Return the transposed matrix."""
        _check_no_axes(axes)
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])


for _kind in (COO, CSR, CSC):
    pytree_registry.register_pytree_node_class(_kind)


def _check_no_axes(axes: Any) -> None:
    if axes is not None:
        raise refuse("transpose with axes", "leave them out")


@public_api
def coo_fromdense(mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = "int32"
                  ) -> COO:
    """Return the nonzero elements of a matrix.

    Args:
        mat: the matrix.
        nse: the number of elements that is stored; by default as many as there are.
        index_dtype: the dtype of rows and columns.

    Returns:
        A COO.

    Raises:
        ShapeError: ``mat`` is no matrix.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> print(sparse.coo_fromdense(jnp.asarray([[0.0, 2.0], [3.0, 0.0]])).col)
    [1 0]
    """
    coo = bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
    return COO((coo.data, *[coo.indices[:, i] for i in range(coo.n_sparse)]), shape=coo.shape)


@public_api
def csr_fromdense(mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = "int32"
                  ) -> CSR:
    """Return the nonzero elements of a matrix as compressed rows.

    Args:
        mat: the matrix.
        nse: the number of elements that is stored; by default as many as there are.
        index_dtype: the dtype of columns and starts of rows.

    Returns:
        A CSR.

    Raises:
        ShapeError: ``mat`` is no matrix.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> print(sparse.csr_fromdense(jnp.asarray([[0.0, 2.0], [3.0, 0.0]])).indptr)
    [0 1 2]
    """
    rows = BCSR.from_bcoo(bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype))
    return CSR((rows.data, rows.indices, rows.indptr), shape=rows.shape)


_docstr = DocTemplate(
    mat="the sparse matrix.", v="the vector.", B="the dense matrix.",
    transpose="whether the sparse matrix is transposed.", returns="An Array.",
    imports="fnx.numpy as jnp, fnx.experimental.sparse as sparse",
    raises=("ArgumentError: ``mat`` has another format.", "ShapeError: the lengths differ."))


@_docstr.family("An Array of its shape.", ("ArgumentError: ``mat`` has another format.",))
def _todense(kind: type[_PlainMatrix], mat: JAXSparse) -> Array:
    return _checked(mat, kind).todense()


@_docstr.family("A vector.")
def _matvec(kind: type[_PlainMatrix], mat: JAXSparse, v: ArrayLike, transpose: bool = False
            ) -> Array:
    return _multiply(_checked(mat, kind), v, transpose, 1)


@_docstr.family("A matrix.")
def _matmat(kind: type[_PlainMatrix], mat: JAXSparse, B: ArrayLike, *, transpose: bool = False
            ) -> Array:
    return _multiply(_checked(mat, kind), B, transpose, 2)


def _checked(mat: Any, kind: type[M]) -> M:
    check_sparse("mat", mat, kind)
    return cast(M, mat)


def _multiply(mat: _PlainMatrix, other: ArrayLike, transpose: bool, rank: int) -> Array:
    x = asarray(other)
    if x.ndim != rank:
        raise ShapeError(f"expected an array with {rank} axes, got shape {x.shape}")
    coo = mat.to_bcoo()
    out: Array = matmul(coo.transpose() if transpose else coo, x)
    return out


_DENSE = "Return a sparse matrix as a dense one."
_OF_VECTOR = "Return the product of a sparse matrix and a vector."
_OF_MATRIX = "Return the product of a sparse and a dense matrix."

coo_todense = _todense(
    COO, "coo_todense", _DENSE, "print(sparse.coo_todense(sparse.coo_fromdense(jnp.eye(1))))",
    "[[1.]]")
csr_todense = _todense(
    CSR, "csr_todense", _DENSE, "print(sparse.csr_todense(sparse.csr_fromdense(jnp.eye(1))))",
    "[[1.]]")
coo_matvec = _matvec(
    COO, "coo_matvec", _OF_VECTOR,
    "print(sparse.coo_matvec(sparse.coo_fromdense(jnp.eye(2)), jnp.ones(2)))", "[1. 1.]")
csr_matvec = _matvec(
    CSR, "csr_matvec", _OF_VECTOR,
    "print(sparse.csr_matvec(sparse.csr_fromdense(jnp.eye(2)), jnp.ones(2)))", "[1. 1.]")
coo_matmat = _matmat(
    COO, "coo_matmat", _OF_MATRIX,
    "print(sparse.coo_matmat(sparse.coo_fromdense(jnp.eye(1)), jnp.ones((1, 2))))", "[[1. 1.]]")
csr_matmat = _matmat(
    CSR, "csr_matmat", _OF_MATRIX,
    "print(sparse.csr_matmat(sparse.csr_fromdense(jnp.eye(1)), jnp.ones((1, 2))))", "[[1. 1.]]")
