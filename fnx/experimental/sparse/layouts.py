"""Layouts of BCOO arrays: which axes are batch, sparse and dense ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array
from fnx.core.support.errors import ArgumentError
from fnx.experimental.sparse.base import (
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    check_sparse,
)
from fnx.experimental.sparse.bcoo import BCOO

__all__ = ["bcoo_update_layout", "broadcast_batches", "sparse_ends"]


def broadcast_batches(mat: BCOO) -> BCOO:
    """Return the array with buffers whose batch axes have their full length."""
    batch = mat.layout.batch
    data = jnp.broadcast_to(mat.data, (*batch, *mat.data.shape[len(batch):]))
    indices = jnp.broadcast_to(mat.indices, (*batch, *mat.indices.shape[len(batch):]))
    return BCOO((data, indices), shape=mat.shape, indices_sorted=mat.indices_sorted,
                unique_indices=mat.unique_indices)


def sparse_ends(sizes: Sequence[int], like: Array) -> Array:
    """Return sizes of sparse axes in the dtype of coordinates: the coordinates of padding."""
    return jnp.asarray(np.asarray(sizes, "int64"), like.dtype)


@public_api
def bcoo_update_layout(mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None,
                       on_inefficient: str | None = "error") -> BCOO:
    """Return a sparse array with other numbers of batch and dense axes.

    Args:
        mat: the sparse array.
        n_batch: the number of batch axes; None: as before.
        n_dense: the number of dense axes; None: as before.
        on_inefficient: what happens if a sparse axis that is longer than 1 becomes a batch or
            dense one, which stores zeros: "error", "warn" or None.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``mat`` is no BCOO, or has not so many axes.
        SparseEfficiencyError: zeros would be stored.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_update_layout(sparse.eye(2), n_batch=1, on_inefficient=None)
    BCOO(float32[2, 2], nse=2, n_batch=1)
    """
    check_sparse("mat", mat, BCOO)
    arguments.check_choice("on_inefficient", on_inefficient, ("error", "warn", None))
    batch = mat.n_batch if n_batch is None else arguments.check_int("n_batch", n_batch)
    dense = mat.n_dense if n_dense is None else arguments.check_int("n_dense", n_dense)
    if min(batch, dense) < 0 or batch + dense > mat.ndim:
        raise ArgumentError(f"expected n_batch + n_dense of at most {mat.ndim}, got {batch} + "
                            f"{dense}")
    stored = mat.shape[mat.n_batch:batch] + mat.shape[mat.ndim - dense:mat.ndim - mat.n_dense]
    if any(size > 1 for size in stored):
        text = f"{mat} with n_batch={batch} and n_dense={dense} stores many zeros"
        if on_inefficient == "error":
            raise SparseEfficiencyError(text, hint='use on_inefficient="warn" or None')
        if on_inefficient == "warn":
            warnings.warn(text, SparseEfficiencyWarning, stacklevel=3)
    full = broadcast_batches(mat)
    while full.n_dense > dense:
        full = _dense_to_sparse(full)
    while full.n_batch > batch:
        full = _batch_to_sparse(full)
    while full.n_dense < dense:
        full = _sparse_to_dense(full)
    while full.n_batch < batch:
        full = _sparse_to_batch(full)
    return full


def _dense_to_sparse(mat: BCOO) -> BCOO:
    n, size = mat.n_batch, mat.layout.dense[0]
    data = mat.data.reshape(*mat.layout.batch, mat.nse * size, *mat.layout.dense[1:])
    places = jnp.broadcast_to(jnp.arange(size, dtype=mat.indices.dtype),
                              (*mat.layout.batch, mat.nse, size))
    rows = jnp.broadcast_to(mat.indices[..., None, :], (*places.shape, mat.n_sparse))
    indices = jnp.concatenate([rows, places[..., None]], -1)
    return BCOO((data, indices.reshape(*mat.layout.batch, mat.nse * size, mat.n_sparse + 1)),
                shape=mat.shape, unique_indices=mat.unique_indices and n >= 0)


def _batch_to_sparse(mat: BCOO) -> BCOO:
    *batch, size = mat.layout.batch
    data = mat.data.reshape(*batch, size * mat.nse, *mat.layout.dense)
    places = jnp.broadcast_to(jnp.arange(size, dtype=mat.indices.dtype)[:, None],
                              (*batch, size, mat.nse))
    indices = jnp.concatenate([places[..., None], mat.indices], -1)
    return BCOO((data, indices.reshape(*batch, size * mat.nse, mat.n_sparse + 1)), shape=mat.shape,
                unique_indices=mat.unique_indices)


def _sparse_to_dense(mat: BCOO) -> BCOO:
    size, n = mat.layout.sparse[-1], mat.n_batch
    here = jnp.arange(size) == mat.indices[..., -1:]
    values = jnp.expand_dims(mat.data, n + 1)
    data = jnp.where(here.reshape(*here.shape, *[1] * mat.n_dense), values, 0)
    return BCOO((data, mat.indices[..., :-1]), shape=mat.shape)


def _sparse_to_batch(mat: BCOO) -> BCOO:
    size, n = mat.layout.sparse[0], mat.n_batch
    here = jnp.arange(size)[:, None] == mat.indices[..., 0][..., None, :]
    mask = here.reshape(*here.shape, *[1] * mat.n_dense)
    data = jnp.where(mask, jnp.expand_dims(mat.data, n), 0)
    rest = mat.indices[..., None, :, 1:]
    indices = jnp.where(here[..., None], rest, sparse_ends(mat.layout.sparse[1:], rest))
    return BCOO((data, indices), shape=mat.shape, unique_indices=mat.unique_indices)
