"""Coordinates of BCOO arrays in order, equal ones summed, and padding."""

from __future__ import annotations

import numpy as np

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array
from fnx.core.support.errors import TracedValueError
from fnx.experimental.sparse.base import Shape, check_sparse
from fnx.experimental.sparse.bcoo import BCOO, columns, is_inside, map_batches

__all__ = ["bcoo_sort_indices", "bcoo_sum_duplicates", "mark_zeros", "pad_elements", "read_count",
           "sort_rows"]


def read_count(count: Array) -> int:
    """Return a number of elements, which must be known while tracing."""
    try:
        return int(count)
    except TracedValueError as error:
        error.set_hint("give the number of stored elements, nse=")
        raise


def sort_rows(indices: Array, sparse: Shape) -> tuple[Array, Array, Array, Array]:
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
        return one_row if nse in (None, 1) else pad_elements(one_row, nse or 0)
    rows, inside, order, first = map_batches(
        lambda indices: sort_rows(indices, sparse), mat.indices.shape[:mat.n_batch], mat.indices)
    if nse is not None:
        count = arguments.check_int("nse", nse)
    else:
        count = read_count((first & inside).sum(-1).max()) if rows.size else 0

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


def pad_elements(mat: BCOO, nse: int) -> BCOO:
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


def mark_zeros(mat: BCOO) -> BCOO:
    """Return the array with elements that are zero as padding."""
    zero = (mat.data == 0).all(tuple(range(mat.n_batch + 1, mat.data.ndim)))
    end = jnp.asarray(np.asarray(mat.layout.sparse, "int64"), mat.indices.dtype)
    return BCOO((mat.data, jnp.where(zero[..., None], end, mat.indices)), shape=mat.shape)
