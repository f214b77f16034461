"""Movements of BCOO arrays: permutations of axes, reshapes, slices, reversals, joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array import axes as axis_numbers
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.support.errors import ArgumentError, AxisError, OutOfBoundsError, ShapeError
from fnx.experimental.sparse.base import Shape, check_sparse, refuse
from fnx.experimental.sparse.bcoo import BCOO, columns, is_inside
from fnx.experimental.sparse.duplicates import bcoo_sum_duplicates, pad_elements
from fnx.experimental.sparse.layouts import bcoo_update_layout, broadcast_batches, sparse_ends

__all__ = ["bcoo_broadcast_in_dim", "bcoo_concatenate", "bcoo_dynamic_slice", "bcoo_reshape",
           "bcoo_rev", "bcoo_slice", "bcoo_squeeze", "bcoo_transpose", "index"]


def _parts(mat: BCOO, values: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Split a sequence of one value for each axis into batch, sparse and dense ones."""
    end = mat.n_batch + mat.n_sparse
    return values[:mat.n_batch], values[mat.n_batch:end], values[end:]


@public_api
def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """Return a sparse array with its axes permuted.

    Args:
        mat: the sparse array.
        permutation: the old number of each new axis; batch, sparse and dense axes stay together.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``mat`` is no BCOO.
        AxisError: not each axis occurs once.
        NotBuiltError: parts are mixed.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.asarray([[0.0, 2.0]]))
    >>> sparse.bcoo_transpose(M, permutation=(1, 0))
    BCOO(float32[2, 1], nse=1)
    """
    check_sparse("mat", mat, BCOO)
    order = axis_numbers.normalize_axis_tuple(permutation, mat.ndim)
    if len(order) != mat.ndim:
        raise AxisError(f"expected a permutation of {mat.ndim} axes, got {tuple(permutation)}")
    batch, sparse, dense = _parts(mat, order)
    n, end = mat.n_batch, mat.n_batch + mat.n_sparse
    if any(i >= n for i in batch) or any(not n <= i < end for i in sparse):
        raise refuse("a permutation that mixes batch, sparse and dense axes", "use update_layout")
    data = mat.data.transpose(*batch, n, *[i - mat.n_sparse + 1 for i in dense])
    indices = mat.indices.transpose(*batch, n, n + 1)
    if mat.n_sparse:
        indices = jnp.stack([indices[..., i - n] for i in sparse], -1)
    return BCOO((data, indices), shape=tuple([mat.shape[i] for i in order]),
                indices_sorted=mat.indices_sorted and list(sparse) == sorted(sparse),
                unique_indices=mat.unique_indices)


@public_api
def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None,
                 sharding: Any = None) -> BCOO:
    """Return a sparse array in another shape.

    Args:
        mat: the sparse array.
        new_sizes: the shape; batch, sparse and dense axes are not mixed.
        dimensions: a permutation of the axes that comes first.
        sharding: accepted as JAX's: there is one device.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``mat`` is no BCOO.
        ShapeError: another number of elements, or parts are mixed.

    >>> from fnx.experimental import sparse
    >>> print(sparse.bcoo_reshape(sparse.eye(2), new_sizes=(4,)).todense())
    [1. 0. 0. 1.]
    """
    check_sparse("mat", mat, BCOO)
    mat = mat if dimensions is None else bcoo_transpose(mat, permutation=dimensions)
    sizes = tuple([arguments.check_int("new_sizes", n) for n in new_sizes])
    batch, sparse, dense = mat.layout
    first = _split_sizes(sizes, math.prod(batch))
    second = _split_sizes(sizes, math.prod(batch) * math.prod(sparse))
    if math.prod(sizes) != mat.size or first is None or second is None or (
            second < first):
        raise ShapeError(f"expected a shape of {mat.size} elements that does not mix batch axes "
                         f"{batch}, sparse axes {sparse} and dense axes {dense}, got {sizes}",
                         hint="use update_layout first")
    new_batch, new_sparse, new_dense = sizes[:first], sizes[first:second], sizes[second:]
    full = broadcast_batches(mat)
    data = full.data.reshape(*new_batch, mat.nse, *new_dense)
    indices = full.indices.reshape(*new_batch, mat.nse, mat.n_sparse)
    if not new_sparse:
        indices = indices[..., :0]
    elif not sparse:
        indices = jnp.zeros((*indices.shape[:-1], len(new_sparse)), indices.dtype)
    elif sparse != new_sparse:
        flat = jnp.ravel_multi_index(columns(indices), sparse, mode="clip")
        new = jnp.stack(jnp.unravel_index(flat, new_sparse), -1).astype(indices.dtype)
        inside = is_inside(indices, sparse)[..., None]
        indices = jnp.where(inside, new, sparse_ends(new_sparse, indices))
    return BCOO((data, indices), shape=sizes)


def _split_sizes(sizes: Shape, count: int) -> int | None:
    """Return how many of the sizes, as many as can be, have a product of ``count``."""
    ends = [i for i in range(len(sizes) + 1) if math.prod(sizes[:i]) == count]
    return ends[-1] if ends else None


@public_api
def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Return a sparse array without some axes of length 1.

    Args:
        arr: the sparse array.
        dimensions: the axes.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``arr`` is no BCOO.
        ShapeError: an axis has not length 1.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_squeeze(sparse.empty((1, 3)), dimensions=(0,))
    BCOO(float32[3], nse=0)
    """
    check_sparse("arr", arr, BCOO)
    dims = axis_numbers.normalize_axis_tuple(dimensions, arr.ndim)
    if any(arr.shape[i] != 1 for i in dims):
        raise ShapeError(f"expected axes of length 1, got axes {dims} of shape {arr.shape}")
    n, n_sparse = arr.n_batch, arr.n_sparse
    batch = tuple([i for i in dims if i < n])
    left = [i for i in range(n_sparse) if i + n not in dims]
    indices = arr.indices
    if len(left) < n_sparse:
        inside = is_inside(indices, arr.layout.sparse)
        indices = jnp.stack([jnp.where(inside, indices[..., i], arr.shape[n + i]) for i in left],
                            -1) if left else indices[..., :0]
    data = arr.data.squeeze(batch + tuple([i - n_sparse + 1 for i in dims if i >= n + n_sparse]))
    if not left and n_sparse:
        data = jnp.where(inside.squeeze(batch).reshape(*data.shape[:n - len(batch) + 1], *[1] * (
            data.ndim - n + len(batch) - 1)), data, 0)
    return BCOO((data, indices.squeeze(batch)),
                shape=tuple([size for i, size in enumerate(arr.shape) if i not in dims]),
                indices_sorted=arr.indices_sorted, unique_indices=arr.unique_indices)


def _select(mat: BCOO, start: Any, sizes: Sequence[int], strides: Sequence[int]) -> BCOO:
    """Return elements of the sparse axes: those from ``start`` at multiples of the strides."""
    n, sparse = mat.n_batch, mat.layout.sparse
    if not mat.n_sparse:
        return mat
    steps = mat.indices - start
    step, size = sparse_ends(strides, mat.indices), sparse_ends(sizes, mat.indices)
    selected = ((steps >= 0) & (steps % step == 0) & (steps // step < size)).all(-1) & \
        is_inside(mat.indices, sparse)
    indices = jnp.where(selected[..., None], steps // step, size)
    mask = selected.reshape(*selected.shape, *[1] * mat.n_dense)
    shape = (*mat.layout.batch, *sizes, *mat.layout.dense)
    out = BCOO((jnp.where(mask, mat.data, 0), indices), shape=shape)
    limit = math.prod(sizes)
    return bcoo_sum_duplicates(out, nse=limit) if limit < mat.nse and n >= 0 else out


def _select_rest(mat: BCOO, slices: Sequence[slice]) -> BCOO:
    """Return slices of batch and dense axes; those of sparse axes are ignored."""
    full = broadcast_batches(mat)
    batch, _, dense = _parts(mat, slices)
    data = full.data[(*batch, slice(None), *dense)]
    indices = full.indices[(*batch,)] if batch else full.indices
    shape = (*data.shape[:mat.n_batch], *mat.layout.sparse, *data.shape[mat.n_batch + 1:])
    return BCOO((data, indices), shape=shape, indices_sorted=mat.indices_sorted,
                unique_indices=mat.unique_indices)


@public_api
def bcoo_slice(mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int],
               strides: Sequence[int] | None = None) -> BCOO:
    """Return a slice of a sparse array.

    Args:
        mat: the sparse array.
        start_indices: the first index along each axis.
        limit_indices: the index after the last one.
        strides: the steps; by default 1.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``mat`` is no BCOO.
        ShapeError: not one number for each axis, or an index is out of bounds.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.arange(6.0))
    >>> print(sparse.bcoo_slice(M, start_indices=(1,), limit_indices=(6,), strides=(2,)).todense())
    [1. 3. 5.]
    """
    check_sparse("mat", mat, BCOO)
    starts, limits, steps = [tuple([arguments.check_int("index", i) for i in values]) for values in
                             (start_indices, limit_indices, strides or (1,) * mat.ndim)]
    if not len(starts) == len(limits) == len(steps) == mat.ndim or any(
            not 0 <= a <= b <= n or step < 1
            for a, b, step, n in zip(starts, limits, steps, mat.shape)):
        raise ShapeError(f"expected slices in bounds for each axis of shape {mat.shape}, got "
                         f"starts {starts}, limits {limits} and strides {steps}")
    rest = _select_rest(mat, [slice(*bounds) for bounds in zip(starts, limits, steps)])
    sizes = [-(-(b - a) // step) for a, b, step in zip(starts, limits, steps)]
    if _parts(mat, sizes)[1] == list(mat.layout.sparse):
        return rest
    return _select(rest, sparse_ends(_parts(mat, starts)[1], rest.indices), _parts(mat, sizes)[1],
                   _parts(mat, steps)[1])


@public_api
def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]
                       ) -> BCOO:
    """Return a slice of a sparse array that starts where traced values say.

    Args:
        mat: the sparse array.
        start_indices: the first index along each axis; moved so that the slice is inside.
        slice_sizes: the lengths.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``mat`` is no BCOO.
        ShapeError: not one number for each axis, or a length is greater than that of its axis.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.arange(4.0))
    >>> print(sparse.bcoo_dynamic_slice(M, (jnp.asarray(2),), (2,)).todense())
    [2. 3.]
    """
    check_sparse("mat", mat, BCOO)
    sizes = tuple([arguments.check_int("slice_sizes", n) for n in slice_sizes])
    starts = [asarray(i) for i in start_indices]
    if not len(starts) == len(sizes) == mat.ndim or any(
            not 0 <= size <= n for size, n in zip(sizes, mat.shape)):
        raise ShapeError(f"expected starts and lengths for each axis of shape {mat.shape}, got "
                         f"{len(starts)} starts and lengths {sizes}")
    full = broadcast_batches(mat)
    starts = [jnp.clip(jnp.where(i < 0, i + n, i), 0, n - size)
              for i, size, n in zip(starts, sizes, mat.shape)]
    batch, sparse, dense = _parts(mat, starts)
    batch_sizes, sparse_sizes, dense_sizes = _parts(mat, sizes)
    data = lax.dynamic_slice(full.data, [*batch, 0, *dense],
                             (*batch_sizes, mat.nse, *dense_sizes))
    indices = lax.dynamic_slice(full.indices, [*batch, 0, 0],
                                (*batch_sizes, mat.nse, mat.n_sparse))
    rest = BCOO((data, indices), shape=(*batch_sizes, *mat.layout.sparse, *dense_sizes))
    if not sparse:
        return rest
    return _select(rest, jnp.stack(sparse).astype(indices.dtype), sparse_sizes, (1,) * len(sparse))


@public_api
def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """Return a sparse array with axes reversed.

    Args:
        operand: the sparse array.
        dimensions: the axes.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``operand`` is no BCOO.
        AxisError: an axis is out of range.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> print(sparse.bcoo_rev(sparse.BCOO.fromdense(jnp.arange(3.0)), (0,)).todense())
    [2. 1. 0.]
    """
    check_sparse("operand", operand, BCOO)
    dims = axis_numbers.normalize_axis_tuple(dimensions, operand.ndim)
    backwards = slice(None, None, -1)
    rest = _select_rest(operand, [backwards if i in dims else slice(None)
                                  for i in range(operand.ndim)])
    n, sparse = operand.n_batch, operand.layout.sparse
    if not any(n <= i < n + len(sparse) for i in dims):
        return rest
    inside = is_inside(rest.indices, sparse)
    new = jnp.stack([size - 1 - i if at + n in dims else i for at, (i, size) in enumerate(
        zip(columns(rest.indices), sparse))], -1)
    indices = jnp.where(inside[..., None], new, sparse_ends(sparse, new))
    return BCOO((rest.data, indices), shape=operand.shape, unique_indices=operand.unique_indices)


@public_api
def bcoo_broadcast_in_dim(mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int],
                          sharding: Any = None) -> BCOO:
    """Return a sparse array with new axes; those in front of sparse axes are batch axes.

    Args:
        mat: the sparse array.
        shape: the new shape.
        broadcast_dimensions: the number of each axis in the new shape.
        sharding: accepted as JAX's: there is one device.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: ``mat`` is no BCOO.
        ShapeError: not one new axis for each, or parts are mixed.
        NotBuiltError: sparse axes would be repeated.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.asarray([0.0, 2.0]))
    >>> sparse.bcoo_broadcast_in_dim(M, shape=(3, 2), broadcast_dimensions=(1,))
    BCOO(float32[3, 2], nse=1, n_batch=1)
    """
    check_sparse("mat", mat, BCOO)
    dims, sizes = tuple(broadcast_dimensions), tuple(shape)
    if len(dims) != mat.ndim or list(dims) != sorted(set(dims)):
        raise ShapeError(f"expected {mat.ndim} increasing axes, got {dims}")
    batch, sparse, dense = _parts(mat, dims)
    n = min(dims[mat.n_batch:], default=len(sizes))
    n_dense = len(sizes) - min(dense) if dense else 0
    new_sparse = sizes[n:len(sizes) - n_dense]
    if math.prod(mat.layout.sparse) != math.prod(new_sparse):
        raise refuse("broadcast along sparse axes", "use sparse.todense")
    data = lax.broadcast_in_dim(
        mat.data, (*sizes[:n], mat.nse, *sizes[len(sizes) - n_dense:]),
        (*batch, n, *[i - len(new_sparse) + 1 for i in dense]))
    indices = lax.broadcast_in_dim(mat.indices, (*sizes[:n], mat.nse, mat.n_sparse),
                                   (*batch, n, n + 1))
    if len(new_sparse) != mat.n_sparse:
        inside = is_inside(indices, mat.layout.sparse)
        old = dict(zip(sparse, columns(indices)))
        new = [old[i] if i in old else jnp.where(inside, 0, sizes[i])
               for i in range(n, n + len(new_sparse))]
        indices = jnp.stack([i.astype(indices.dtype) for i in new], -1)
    return BCOO((data, indices), shape=sizes)


@public_api
def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Join sparse arrays along a batch or sparse axis.

    Args:
        operands: sparse arrays of one shape, but for that axis.
        dimension: the axis.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: an operand is no BCOO, or there is none.
        ShapeError: the shapes or the numbers of batch and dense axes differ.
        NotBuiltError: the axis is dense.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_concatenate([sparse.eye(2), sparse.eye(2)], dimension=0)
    BCOO(float32[4, 2], nse=4)
    """
    for operand in operands:
        check_sparse("each operand", operand, BCOO)
    if not operands:
        raise ArgumentError("expected sparse arrays, got none")
    first = operands[0]
    at = axis_numbers.normalize_axis(dimension, first.ndim)
    ranks = {x.n_batch for x in operands}
    if ranks == {0, 1} and at == 0:
        n_batch = 1 if all(x.shape[0] == 1 for x in operands if not x.n_batch) else 0
        operands = [bcoo_update_layout(x, n_batch=n_batch) for x in operands]
        first = operands[0]
    shapes = {(*x.shape[:at], 0, *x.shape[at + 1:]) for x in operands}
    if len(shapes) != 1 or len({(x.n_batch, x.n_dense) for x in operands}) != 1:
        raise ShapeError("expected sparse arrays of one shape, but for the axis, and of one "
                         f"layout, got {list(operands)}", hint="use update_layout")
    n = first.n_batch
    if at >= n + first.n_sparse:
        raise refuse("concatenation along a dense axis", "use update_layout")
    full = [broadcast_batches(x) for x in operands]
    shape = list(first.shape)
    shape[at] = sum(x.shape[at] for x in operands)
    if at < n:
        full = [pad_elements(x, max(y.nse for y in full)) for x in full]
        data, indices = [jnp.concatenate([getattr(x, name) for x in full], at)
                         for name in ("data", "indices")]
        return BCOO((data, indices), shape=shape)
    rows, offset = [], 0
    for x in full:
        column = jnp.arange(first.n_sparse) == at - n
        inside = is_inside(x.indices, x.layout.sparse)[..., None]
        moved = x.indices + jnp.where(column, offset, 0).astype(x.indices.dtype)
        rows.append(jnp.where(inside, moved, sparse_ends(shape[n:n + first.n_sparse], moved)))
        offset += x.shape[at]
    return BCOO((jnp.concatenate([x.data for x in full], n), jnp.concatenate(rows, n)),
                shape=shape)


def index(mat: BCOO, item: Any) -> Any:
    """Return ``mat[item]`` for integers, slices, None and an Ellipsis."""
    items = list(item) if isinstance(item, tuple) else [item]
    count = sum(x is not None and x is not Ellipsis for x in items)
    if count > mat.ndim or items.count(Ellipsis) > 1:
        raise ShapeError(f"expected at most {mat.ndim} indices, got {item!r}")
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    items[at:at + 1] = [slice(None)] * (mat.ndim - count)
    starts, limits, steps, backwards, squeezed, added = [], [], [], [], [], []
    axis, new_axis = 0, 0
    for x in items:
        if x is None:
            added.append(new_axis)
            new_axis += 1
            continue
        size = mat.shape[axis]
        if isinstance(x, slice):
            first, last, step = x.indices(size)
            picked = range(first, last, step)
            if step < 0:
                backwards.append(axis)
                first, last = (picked[-1], picked[0] + 1) if picked else (0, 0)
            starts.append(first)
            limits.append(max(first, last))
            steps.append(abs(step))
            new_axis += 1
        else:
            i = _check_index(x, size)
            starts.append(i)
            limits.append(i + 1)
            steps.append(1)
            squeezed.append(axis)
        axis += 1
    out = bcoo_slice(mat, start_indices=starts, limit_indices=limits, strides=steps)
    out = bcoo_rev(out, backwards) if backwards else out
    out = bcoo_squeeze(out, dimensions=squeezed) if squeezed else out
    if added:
        shape = [0] * new_axis
        dims = [i for i in range(new_axis) if i not in added]
        for i in added:
            shape[i] = 1
        for i, size in zip(dims, out.shape):
            shape[i] = size
        out = bcoo_broadcast_in_dim(out, shape=shape, broadcast_dimensions=dims)
    return out


def _check_index(x: Any, size: int) -> int:
    if getattr(x, "ndim", 0):
        raise refuse("an index that is an array", "use slices and integers")
    i = arguments.check_int("index", x)
    if not -size <= i < size:
        raise OutOfBoundsError(f"expected {-size} <= index < {size}, got {i}")
    return i % size
