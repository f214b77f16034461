"""Slices of a BCOO array at traced places: ``lax.gather``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.lax as lax
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.support.errors import DTypeError, ShapeError
from fnx.experimental.sparse.base import check_sparse, refuse
from fnx.experimental.sparse.bcoo import BCOO
from fnx.experimental.sparse.layouts import bcoo_update_layout
from fnx.experimental.sparse.movement import (
    bcoo_dynamic_slice,
    bcoo_reshape,
    bcoo_squeeze,
    bcoo_transpose,
)
from fnx.transforms.vmap import vmap

__all__ = ["bcoo_gather"]


@public_api
def bcoo_gather(operand: BCOO, start_indices: ArrayLike,
                dimension_numbers: lax.GatherDimensionNumbers, slice_sizes: Sequence[int], *,
                unique_indices: bool = False, indices_are_sorted: bool = False,
                mode: Any = None, fill_value: None = None) -> BCOO:
    """Return slices of a sparse array that start at given places.

    Args:
        operand: the sparse array.
        start_indices: the places: the last axis has one index for each axis that
            ``dimension_numbers`` names.
        dimension_numbers: the roles of axes, as for ``lax.gather``.
        slice_sizes: the lengths of the slices.
        unique_indices: accepted as JAX's.
        indices_are_sorted: accepted as JAX's.
        mode: None or "promise_in_bounds"; places are moved so that slices are inside.
        fill_value: None.

    Returns:
        A BCOO with the axes of the places and of the slices.

    Raises:
        ArgumentError: ``operand`` is no BCOO.
        NotBuiltError: another mode.
        DTypeError: the places are not integers.
        ShapeError: the roles do not fit the shapes.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> roles = lax.GatherDimensionNumbers((), (0,), (0,))
    >>> M = sparse.BCOO.fromdense(jnp.arange(4.0))
    >>> print(sparse.bcoo_gather(M, jnp.asarray([[3], [1]]), roles, (1,)).todense())
    [3. 1.]
    """
    check_sparse("operand", operand, BCOO)
    if mode not in (None, "promise_in_bounds") and "PROMISE_IN_BOUNDS" not in str(mode):
        raise refuse(f"mode={mode!r}", "leave it out")
    starts = asarray(start_indices)
    offsets, collapsed, mapped = [tuple(getattr(dimension_numbers, name)) for name in (
        "offset_dims", "collapsed_slice_dims", "start_index_map")]
    if not starts._dtype.is_integer:
        raise DTypeError(f"expected start_indices as integers, got {starts.dtype}")
    if not starts.ndim or starts.shape[-1] != len(mapped) or len(slice_sizes) != operand.ndim or \
            len(offsets) + len(collapsed) != operand.ndim:
        raise ShapeError(f"expected places of {len(mapped)} indices and slices of {operand.ndim} "
                         f"axes, got shapes {starts.shape} and {tuple(slice_sizes)}")
    batch = starts.shape[:-1]

    def one(place: Array) -> BCOO:
        full: list[Any] = [0] * operand.ndim
        for i, axis in enumerate(mapped):
            full[axis] = place[i]
        piece = bcoo_dynamic_slice(operand, full, slice_sizes)
        return bcoo_squeeze(piece, dimensions=collapsed) if collapsed else piece
    if not batch:
        return one(starts)
    rows = vmap(one)(starts.reshape(-1, len(mapped)))
    out = bcoo_reshape(rows, new_sizes=(*batch, *rows.shape[1:])) if len(batch) > 1 else rows
    order = [0] * out.ndim  # from the axes of places and then slices to those of the result
    front = [i for i in range(out.ndim) if i not in offsets]
    for at, i in enumerate((*front, *offsets)):
        order[i] = at
    if order == list(range(out.ndim)):
        return out
    return bcoo_transpose(bcoo_update_layout(out, n_batch=0), permutation=tuple(order))
