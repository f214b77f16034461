"""Normalize the index that users write in brackets to a tuple of entries for indexing.py.

    x[:, [0, 2], mask]   ->   (slice(None), the node of [0, 2], the value of mask)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import convert, tree
from fnx.core.array.api_boundary import asarray, unwrap_jax_array
from fnx.core.array.array import Array
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.dimensions import Dim
from fnx.core.scope import storage
from fnx.core.support.errors import ArgumentError, DTypeError, TracedValueError


def parse_index(index: Any) -> tuple[Any, ...]:
    """Return an index as a tuple of int, slice, None, Ellipsis, masks and nodes.

    A list is an index array only inside a tuple; a bare list is an error, as NumPy has changed
    its meaning.
    """
    if isinstance(index, tuple):
        return tuple([_parse_entry(i) for i in index])
    if isinstance(index, Sequence) and not isinstance(index, str):
        raise ArgumentError(f"expected an index other than a bare {type(index).__name__}",
                            hint="use x[np.array([...])], or a tuple: x[[...], :]")
    return (_parse_entry(index),)


def _parse_entry(i: Any) -> Any:
    if type(i) is int or i is None or i is Ellipsis or type(i) is slice:
        return i if type(i) is not slice else slice(*[_parse_bound(b) for b in
                                                      (i.start, i.stop, i.step)])
    i = unwrap_jax_array(i)
    if type(i) is Array:
        return _mask_value(i) if i._dtype.is_bool else i._node
    if isinstance(i, (np.ndarray, np.generic)):
        convert.reject_masked(type(i))
        return _parse_array(np.asarray(i))
    if isinstance(i, (list, tuple)):
        if any(type(x) is Array for x in tree.leaves(i)):
            return _parse_entry(asarray(i))
        return _parse_array(convert.to_numpy(i, None) if i else np.empty(0, np.int32))
    if isinstance(i, bool):
        return np.asarray(i)
    if hasattr(i, "__index__"):
        return i.__index__()
    return i


def _mask_value(x: Array) -> NDArray | UOp:
    """Return the value of a mask if it is concrete or its trace knows it, else its node."""
    try:
        return x._numpy()
    except TracedValueError:
        return x._node


def _parse_array(i: NDArray) -> Any:
    if i.dtype.kind == "b":
        return i
    if i.size == 0 and i.dtype.kind == "f":  # np.array([])
        i = i.astype(np.int32)
    if i.dtype.kind not in "iu":
        raise DTypeError(f"expected integer or bool arrays as an index, got {i.dtype}",
                         hint="convert it with .astype(np.int32)")
    return storage.constant_node(convert.to_numpy(i, dtypes.int32)) if i.ndim else int(i)


def _parse_bound(b: Any) -> Any:
    if b is None or type(b) is int or type(b) is Dim:
        return b
    if not hasattr(b, "__index__"):
        raise DTypeError(f"expected whole numbers in a slice, got {b!r}", hint="use int(...)")
    return int(b.__index__())
