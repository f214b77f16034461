"""Sparse arrays from nothing: empty, diagonal and random ones; and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

import fnx.numpy as jnp
import fnx.random as random
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.convert import DTypeLike, default_int
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.experimental.sparse.base import JAXSparse
from fnx.experimental.sparse.bcoo import BCOO, map_batches
from fnx.experimental.sparse.bcsr import BCSR
from fnx.experimental.sparse.duplicates import bcoo_sort_indices
from fnx.experimental.sparse.layouts import bcoo_update_layout
from fnx.experimental.sparse.plain_formats import COO, CSC, CSR

__all__ = ["empty", "eye", "random_bcoo", "todense"]

Format = Literal["bcoo", "bcsr", "coo", "csr", "csc"]


@public_api
def todense(arr: Any) -> Array:
    """Return an array as a dense one.

    Args:
        arr: a sparse array, or an array, which is returned.

    Returns:
        An Array.

    >>> from fnx.experimental import sparse
    >>> print(sparse.todense(sparse.eye(2)))
    [[1. 0.]
     [0. 1.]]
    """
    return arr.todense() if isinstance(arr, JAXSparse) else asarray(arr)


def _convert(mat: BCOO, sparse_format: Format) -> JAXSparse:
    arguments.check_choice("sparse_format", sparse_format, ("bcoo", "bcsr", "coo", "csr", "csc"))
    if sparse_format == "bcoo":
        return mat
    if sparse_format == "coo":
        if mat.ndim != 2:
            raise ShapeError(f"expected the shape of a matrix, got {mat.shape}")
        return COO((mat.data, mat.indices[:, 0], mat.indices[:, 1]), shape=mat.shape)
    rows = BCSR.from_bcoo(mat if sparse_format != "csc" else mat.transpose())
    if sparse_format == "bcsr":
        return rows
    kind = CSR if sparse_format == "csr" else CSC
    return kind((rows.data, rows.indices, rows.indptr), shape=mat.shape)


@public_api
def empty(shape: Sequence[int], dtype: DTypeLike | None = None, index_dtype: DTypeLike = "int32",
          sparse_format: Format = "bcoo", **kwds: Any) -> JAXSparse:
    """Return a sparse array of zeros.

    Args:
        shape: its shape.
        dtype: of the elements; by default float.
        index_dtype: of the coordinates.
        sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc".
        kwds: ``n_batch``, ``n_dense`` and ``nse`` of BCOO and BCSR, by default 0.

    Returns:
        A sparse array.

    Raises:
        ArgumentError: unknown format or keyword.
        ShapeError: another format than BCOO, and no matrix.

    >>> from fnx.experimental import sparse
    >>> sparse.empty((2, 3))
    BCOO(float32[2, 3], nse=0)
    """
    sizes = tuple([arguments.check_int("shape", n) for n in shape])
    n_batch, n_dense, nse = _take_counts(kwds, ("n_batch", "n_dense", "nse"))
    n_sparse = len(sizes) - n_batch - n_dense
    if n_sparse < 0:
        raise ArgumentError(f"expected n_batch + n_dense of at most {len(sizes)}")
    batch, sparse = sizes[:n_batch], sizes[n_batch:n_batch + n_sparse]
    data = jnp.zeros((*batch, nse, *sizes[n_batch + n_sparse:]), dtype)
    indices = jnp.broadcast_to(jnp.asarray(np.asarray(sparse, "int64"), index_dtype),
                               (*batch, nse, n_sparse))
    return _convert(BCOO((data, indices), shape=sizes, indices_sorted=True, unique_indices=True),
                    sparse_format)


def _take_counts(kwds: dict[str, Any], names: Sequence[str]) -> list[int]:
    for name in kwds:
        if name not in names:
            raise ArgumentError(f"expected keywords {', '.join(names)}; got {name!r}")
    counts = [arguments.check_int(name, kwds.get(name, 0)) for name in names]
    if min(counts) < 0:
        raise ArgumentError(f"expected {', '.join(names)} >= 0, got {counts}")
    return counts


@public_api
def eye(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None,
        index_dtype: DTypeLike = "int32", sparse_format: Format = "bcoo", **kwds: Any
        ) -> JAXSparse:
    """Return a sparse matrix with ones on a diagonal.

    Args:
        N: the number of rows.
        M: the number of columns; by default N.
        k: the number of the diagonal: 0 is the main one, positive ones are above.
        dtype: of the elements; by default float.
        index_dtype: of the coordinates.
        sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc".
        kwds: ``n_batch`` and ``n_dense`` of BCOO, by default 0.

    Returns:
        A sparse matrix.

    Raises:
        ArgumentError: unknown format or keyword.

    >>> from fnx.experimental import sparse
    >>> print(sparse.eye(2, 3, k=1).todense())
    [[0. 1. 0.]
     [0. 0. 1.]]
    """
    rows = arguments.check_int("N", N)
    width = rows if M is None else arguments.check_int("M", M)
    at = arguments.check_int("k", k)
    n_batch, n_dense = _take_counts(kwds, ("n_batch", "n_dense"))
    size = max(min(rows, width - at) if at > 0 else min(rows + at, width), 0)
    place = jnp.arange(size, dtype=index_dtype)
    indices = jnp.stack([place + max(-at, 0), place + max(at, 0)], -1)
    mat = BCOO((jnp.ones(size, dtype), indices), shape=(rows, width), indices_sorted=True,
               unique_indices=True)
    if n_batch or n_dense:
        mat = bcoo_update_layout(mat, n_batch=n_batch, n_dense=n_dense, on_inefficient=None)
    return _convert(mat, sparse_format)


@public_api
def random_bcoo(key: Any, shape: Sequence[int], *, dtype: DTypeLike = float,
                indices_dtype: DTypeLike | None = None, nse: float = 0.2, n_batch: int = 0,
                n_dense: int = 0, unique_indices: bool = True, sorted_indices: bool = False,
                generator: Callable[..., Any] = random.uniform, **kwds: Any) -> BCOO:
    """Return a sparse array with random elements at random places.

    Args:
        key: a key of ``fnx.random``.
        shape: the shape of the array.
        dtype: of the elements.
        indices_dtype: of the coordinates; by default int.
        nse: the number of elements, or below 1 their share.
        n_batch: the number of batch axes.
        n_dense: the number of dense axes.
        unique_indices: whether the coordinates are distinct.
        sorted_indices: whether the coordinates are in order.
        generator: makes the elements from a key, ``shape=`` and ``dtype=``.
        kwds: further arguments of the generator.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: more elements than places, or more batch and dense axes than axes.

    >>> import fnx.random as random
    >>> from fnx.experimental import sparse
    >>> sparse.random_bcoo(random.key(0), (10, 10), nse=0.1)
    BCOO(float32[10, 10], nse=10)
    """
    sizes = tuple([arguments.check_int("shape", n) for n in shape])
    lead, tail = arguments.check_int("n_batch", n_batch), arguments.check_int("n_dense", n_dense)
    n_sparse = len(sizes) - lead - tail
    if min(lead, tail, n_sparse) < 0:
        raise ArgumentError(f"expected n_batch + n_dense of at most {len(sizes)}, got {lead} + "
                            f"{tail}")
    batch, sparse = sizes[:lead], sizes[lead:lead + n_sparse]
    places = math.prod(sparse)
    if not 0 <= arguments.check_number("nse", nse) < places:
        raise ArgumentError(f"expected 0 <= nse < {places}, got {nse}")
    if 0 < nse < 1:
        count = math.ceil(nse * places)
    else:
        count = arguments.check_int("nse", nse)  # type: ignore[arg-type]
    kind = default_int().np if indices_dtype is None else indices_dtype
    keys = random.split(key, math.prod(batch) + 1)
    data = generator(keys[0], shape=(*batch, count, *sizes[lead + n_sparse:]), dtype=dtype, **kwds)

    def coordinates(key: Any) -> Array:
        if not sparse:
            return jnp.zeros((count, 0), kind)
        flat = random.choice(key, places, shape=(count,), replace=not unique_indices)
        return jnp.stack(jnp.unravel_index(flat, sparse), -1).astype(kind)
    rest = keys[1:]
    indices = map_batches(coordinates, batch, rest.reshape(*batch, *rest.shape[1:])) \
        if batch else coordinates(rest[0])
    mat = BCOO((data, indices), shape=sizes, unique_indices=unique_indices)
    return bcoo_sort_indices(mat) if sorted_indices else mat
