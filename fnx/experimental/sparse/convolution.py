"""Convolutions of sparse signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array
from fnx.core.array.convert import DTypeLike
from fnx.core.support.errors import ShapeError
from fnx.experimental.sparse.base import refuse
from fnx.experimental.sparse.bcoo import BCOO
from fnx.experimental.sparse.conversions import bcoo_fromdense
from fnx.experimental.sparse.layouts import bcoo_update_layout
from fnx.lax.generic_reductions import Padding, resolve_padding

__all__ = ["bcoo_conv_general_dilated"]


@public_api
def bcoo_conv_general_dilated(
        lhs: Any, rhs: Any, *, window_strides: Sequence[int], padding: Padding,
        lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
        dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1,
        precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
        out_sharding: Any = None) -> BCOO:
    """Convolve a signal of one dimension and one feature with a kernel, both sparse or dense.

    Args:
        lhs: the signal, of shape (1, 1, n).
        rhs: the kernel, of shape (1, 1, m).
        window_strides: (1,).
        padding: the padding, as for ``lax.conv_general_dilated``.
        lhs_dilation: None or (1,).
        rhs_dilation: None or (1,).
        dimension_numbers: None.
        feature_group_count: 1.
        batch_group_count: 1.
        precision: accepted as JAX's.
        preferred_element_type: the dtype of the result.
        out_sharding: accepted as JAX's: there is one device.

    Returns:
        A BCOO of shape (1, 1, length).

    Raises:
        NotBuiltError: other shapes, strides or dilations.
        ShapeError: an operand has not three axes.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.asarray([[[0.0, 2.0, 0.0, 1.0]]]))
    >>> out = sparse.bcoo_conv_general_dilated(x, jnp.asarray([[[3.0, 5.0]]]), window_strides=(1,),
    ...                                        padding="VALID")
    >>> print(out.todense()[0, 0])
    [10.  6.  5.]
    """
    plain = (None, (1,), [1])
    if window_strides not in plain or lhs_dilation not in plain or rhs_dilation not in plain or \
            (feature_group_count, batch_group_count) != (1, 1) or dimension_numbers is not None:
        raise refuse("a sparse convolution with strides, dilations, groups or other layouts")
    signal, kernel = [_signal(x) for x in (lhs, rhs)]
    n, m = signal.shape[0], kernel.shape[0]
    (before, after), = resolve_padding(padding, (n,), (m,), (1,))
    length = max(0, n + before + after - m + 1)
    data = (signal.data[:, None] * kernel.data).reshape(-1)
    at = (signal.indices[:, :1] + before - kernel.indices[:, 0]).reshape(-1)
    inside = ((signal.indices[:, :1] < n) & (kernel.indices[:, 0] < m)).reshape(-1) & (at >= 0)
    data = jnp.where(inside, data, 0)
    data = data if preferred_element_type is None else data.astype(preferred_element_type)
    indices = jnp.where(inside, at, length)
    return BCOO((data[None, None], indices[None, None, :, None]), shape=(1, 1, length))


def _signal(x: Any) -> BCOO:
    """Return a signal of one feature as a vector of coordinates and values."""
    shape = x.shape if isinstance(x, BCOO) else asarray(x).shape
    if len(shape) != 3:
        raise ShapeError(f"expected a signal of shape (1, 1, n), got {shape}")
    if shape[:2] != (1, 1):
        raise refuse(f"a sparse convolution of several signals or features {shape}",
                     "use vmap, or sparse.todense")
    mat = x if isinstance(x, BCOO) else bcoo_fromdense(x, nse=asarray(x).size)
    flat = bcoo_update_layout(mat, n_batch=2, n_dense=0)
    values: Array = flat.data[0, 0]
    return BCOO((values, flat.indices[0, 0]), shape=shape[2:])
