"""Sorting and top-k of ``jax.lax``."""

from __future__ import annotations

from typing import Any

from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import record_results
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.numpy.rearrange import take_along_axis
from fnx.numpy.reductions import argmax
from fnx.numpy.sorting import sort_along

__all__ = ["approx_max_k", "approx_min_k", "sort", "sort_key_val", "top_k"]


@public_api
def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort along an axis; several operands are sorted together by the first ones.

    NaNs come last, -0.0 and 0.0 are equal, and the sort is stable.

    Args:
        operand: an Array, or a sequence of Arrays of one shape.
        dimension: the axis to sort along.
        is_stable: whether the sort must be stable; it always is.
        num_keys: the number of leading operands that are keys, compared lexicographically.

    Returns:
        An Array, or a tuple of them, of the shapes and dtypes of the operands.

    Raises:
        ArgumentError: there are no operands, or ``num_keys`` is not from 1 to their number.
        ShapeError: the operands differ in shape.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.sort(jnp.asarray([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    >>> lax.sort((jnp.asarray([1, 0, 1]), jnp.asarray([7, 8, 6])), num_keys=2)
    (Array([0, 1, 1], dtype=int32), Array([8, 6, 7], dtype=int32))
    """
    is_sequence = isinstance(operand, tuple | list)
    arrays = [asarray(x) for x in (operand if is_sequence else (operand,))]
    if not arrays:
        raise ArgumentError("expected operands, got none")
    keys = arguments.check_int("num_keys", num_keys)
    if not 1 <= keys <= len(arrays):
        raise ArgumentError(f"expected num_keys from 1 to {len(arrays)}, got {keys}",
                            hint="the first num_keys operands are the keys")
    for x in arrays:
        if x.shape != arrays[0].shape:
            raise ShapeError(f"expected operands of equal shape, got {arrays[0].shape} and "
                             f"{x.shape}")
    at = axes.normalize_axis(dimension, arrays[0].ndim)
    sorted_nodes = sort_along([x._node for x in arrays], at, keys)
    out = tuple([Array(node, x.weak) for node, x in zip(sorted_nodes, arrays)])
    return out if is_sequence else out[0]


@public_api
def sort_key_val(keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
                 ) -> tuple[Array, Array]:
    """Sort keys along an axis, and values together with their keys.

    Args:
        keys: an Array or array-like of any dtype.
        values: an array of the shape of the keys.
        dimension: the axis to sort along.
        is_stable: whether the sort must be stable; it always is.

    Returns:
        (sorted keys, sorted values).

    Raises:
        ShapeError: the operands differ in shape.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.sort_key_val(jnp.asarray([3, 1, 2]), jnp.asarray([10, 20, 30]))[1]
    Array([20, 30, 10], dtype=int32)
    """
    sorted_keys, sorted_values = sort((keys, values), dimension, is_stable)
    return sorted_keys, sorted_values


# ---- the largest ------------------------------------------------------------------------------


@public_api
def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> list[Array]:
    """Return the k largest elements along an axis, largest first, and their indices.

    Equal elements are in the order of their indices. NaNs are larger than all numbers.

    Args:
        operand: an Array or array-like with at least one axis.
        k: the number of elements, static.
        axis: the axis to select along.

    Returns:
        A list of the elements and their int32 indices.

    Raises:
        ArgumentError: k is below 0 or exceeds the length of the axis.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.top_k(jnp.asarray([1.0, 5.0, 3.0, 5.0]), 3)
    [Array([5., 5., 3.], dtype=float32), Array([1, 3, 2], dtype=int32)]
    """
    x = asarray(operand)
    at = axes.normalize_axis(axis, x.ndim)
    out = [*_top_k(x, at, k, largest=True)]
    record_results(out, "top_k", top_k, x._node, k=out[0].shape[at], axis=at)
    return out


def _top_k(x: Array, axis: int, k: int, largest: bool) -> tuple[Array, Array]:
    """Return the k smallest or largest elements in order, and their indices.

    For the largest the array is reversed first, so that stable sorting puts equal elements in the
    order of their indices.
    """
    n, k = x.shape[axis], arguments.check_int("k", k)
    if not 0 <= k <= n:
        raise ArgumentError(f"expected k from 0 to {n}, the length of the axis, got {k}")
    if k == 1 and largest:
        index = argmax(x, axis, None, True)
        return take_along_axis(x, index, axis, "clip"), index.astype("int32")
    node = build.flip(x._node, [axis]) if largest else x._node
    values, indices = sort_along([node], axis, 1, (0, -1))
    bounds = [(0, m) for m in x.shape]
    bounds[axis] = (n - k, n) if largest else (0, k)
    values, indices = build.shrink(values, bounds), build.shrink(indices, bounds)
    if largest:
        values, indices = build.flip(values, [axis]), build.flip(indices, [axis])
        indices = build.sub(build.const_like(indices, max(0, n - 1)), indices)
    return Array(values, x.weak), Array(indices)


_approx_docstr = DocTemplate(
    operand="floats.", k="the number, static.",
    reduction_dimension="the axis.",
    recall_target="ignored: the result is exact.",
    reduction_input_size_override="ignored.",
    aggregate_to_topk="ignored: always k elements.",
    returns="The elements, in order, and their int32 indices.",
    raises=("DTypeError: the operand is not floats.",
            "ArgumentError: k is out of range.",
            "AxisError: the axis is out of range."), imports="fnx.lax as lax, fnx.numpy as jnp")


@_approx_docstr.family()
def _approx_top_k(largest: bool, operand: ArrayLike, k: int, reduction_dimension: int = -1,
                  recall_target: float = 0.95, reduction_input_size_override: int = -1,
                  aggregate_to_topk: bool = True) -> tuple[Array, Array]:
    arguments.check_int("reduction_input_size_override", reduction_input_size_override)
    arguments.check_number("recall_target", recall_target)
    x = asarray(operand)
    if not x._dtype.is_float:
        raise DTypeError(f"expected an array of floats, got {x._aval}",
                         hint="convert it with .astype(float), or use lax.top_k")
    at = axes.normalize_axis(reduction_dimension, x.ndim)
    return _top_k(x, at, k, largest)


approx_max_k = _approx_top_k(
    True, "approx_max_k",
    "Return the k largest elements along an axis and their indices; exact here.",
    "lax.approx_max_k(jnp.asarray([1.0, 5.0, 3.0]), 2)[1]", "Array([1, 2], dtype=int32)")
approx_min_k = _approx_top_k(
    False, "approx_min_k",
    "Return the k smallest elements along an axis and their indices; exact here.",
    "lax.approx_min_k(jnp.asarray([1.0, 5.0, 3.0]), 2)[1]", "Array([0, 2], dtype=int32)")
