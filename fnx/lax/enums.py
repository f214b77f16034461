"""Enums of ``jax.lax`` (precision, rounding), and small functions on bits, ranks and splits."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise, record_results
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.formulas import elementwise_math as rows
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir import build
from fnx.core.support.errors import ShapeError
from fnx.numpy import result_type

__all__ = [
    "Precision", "PrecisionLike", "RoundingMethod", "broadcast_to_rank", "clz", "collapse",
    "dtype", "population_count", "shape_as_value", "split",
]


class Precision(enum.StrEnum):
    """The precision of products; all members mean full precision here.

    >>> Precision("highest")
    <Precision.HIGHEST: 'highest'>
    """

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"


PrecisionLike = arguments.PrecisionLike


class RoundingMethod(enum.IntEnum):
    """How ``round`` rounds halves.

    >>> RoundingMethod.TO_NEAREST_EVEN.value
    1
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


_docstr = DocTemplate(
    x="an Array or array-like.", operand="an Array or array-like.",
    returns="An Array.", imports="fnx.lax as lax",
    raises=("AxisError: the axis is out of range.", "ShapeError: the lengths do not match."))

_POPCOUNT = ElementwiseFn("population_count", "whole",
                          lambda x: rows.popcount(x).cast(x.dtype), is_primitive=True)
_CLZ = ElementwiseFn("clz", "whole", lambda x: rows.leading_zeros(x).cast(x.dtype),
                     is_primitive=True)


@elementwise(_POPCOUNT, imports="fnx.lax as lax")
def population_count(x: ArrayLike) -> Array:
    """Count the bits that are set.

    >>> print(lax.population_count(-1))
    32
    """
    return apply(_POPCOUNT, _as_full_width(x)).astype(asarray(x)._dtype.np)


@elementwise(_CLZ, imports="fnx.lax as lax")
def clz(x: ArrayLike) -> Array:
    """Count the leading zero bits.

    >>> print(lax.clz(1))
    31
    """
    bits = _as_full_width(x)
    t = asarray(x)._dtype
    return (apply(_CLZ, bits) - (bits._dtype.bits - t.bits)).astype(t.np)


def _as_full_width(x: ArrayLike) -> Array:
    """Return the integers as they are, 4-bit ones as their bits in uint8."""
    array = asarray(x)
    return array.astype("uint8") & 15 if array._dtype.bits == 4 else array


@_docstr("A NumPy dtype.", raises=(), canonicalize="ignored, for JAX.")
def dtype(x: Any, *, canonicalize: bool = False) -> np.dtype[Any]:
    """Return the dtype that a value has as an array.

    >>> lax.dtype(1.5)
    dtype('float32')
    """
    out: np.dtype[Any] = result_type(x)
    return out


@_docstr(shape="ints.")
def shape_as_value(shape: Sequence[int]) -> Array:
    """Return a shape as an int32 vector.

    >>> lax.shape_as_value((2, 3))
    Array([2, 3], dtype=int32)
    """
    return asarray(np.array(axes.normalize_shape(tuple(shape)), np.int32))


@_docstr(rank="the rank of the result.")
def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """Prepend axes of length 1 up to a given rank.

    >>> lax.broadcast_to_rank(1.0, 2).shape
    (1, 1)
    """
    array, n = asarray(x), arguments.check_int("rank", rank)
    if n < array.ndim:
        raise ShapeError(f"expected at most {n} axes, got shape {array.shape}")
    return Array(build.reshape(array._node, (1,) * (n - array.ndim) + array.shape), array.weak)


@_docstr(start_dimension="the first axis.", stop_dimension="the end, exclusive; None: all.")
def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Collapse a range of axes into one.

    >>> import fnx.numpy as jnp
    >>> lax.collapse(jnp.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = asarray(operand)
    first, last, _ = slice(arguments.check_int("start_dimension", start_dimension),
                           None if stop_dimension is None else
                           arguments.check_int("stop_dimension", stop_dimension)).indices(x.ndim)
    if last < first:
        raise ShapeError(f"expected axes in order, got {start_dimension} to {stop_dimension}")
    shape = (*x.shape[:first], int(np.prod(x.shape[first:last])), *x.shape[last:])
    return Array(build.reshape(x._node, shape), x.weak)


@_docstr("A list of Arrays.", sizes="the lengths of the parts.", axis="the axis.")
def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Split an array along an axis into parts of given lengths.

    >>> import fnx.numpy as jnp
    >>> [x.shape for x in lax.split(jnp.zeros(5), (2, 3))]
    [(2,), (3,)]
    """
    x = asarray(operand)
    at, lengths = axes.normalize_axis(axis, x.ndim), axes.normalize_shape(tuple(sizes))
    if sum(lengths) != x.shape[at]:
        raise ShapeError(f"expected lengths that add up to {x.shape[at]}, got {lengths}")
    out, start = [], 0
    for n in lengths:
        out.append(x[(slice(None),) * at + (slice(start, start + n),)])
        start += n
    record_results(out, "split", split, x._node, sizes=lengths, axis=at)
    return out
