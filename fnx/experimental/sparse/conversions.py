"""BCOO and dense arrays: from one to the other, and elements at given coordinates."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.experimental.sparse.base import Shape, check_sparse
from fnx.experimental.sparse.bcoo import BCOO, columns, map_batches
from fnx.experimental.sparse.duplicates import read_count, sort_rows

__all__ = ["bcoo_extract", "bcoo_fromdense", "bcoo_todense"]


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
    return read_count(counts)


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
        _, _, order, first = sort_rows(indices, sparr.layout.sparse)
        is_first = jnp.zeros(indices.shape[0], "bool").at[order].set(first)
        return jnp.where(is_first.reshape(-1, *[1] * (values.ndim - 1)), values, 0)
    return sparr._with_data(map_batches(one, sparr.layout.batch, sparr.indices, dense))
