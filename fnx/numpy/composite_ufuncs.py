"""Elementwise functions of ``fnx.numpy`` that are composed of others: where, clip, round."""

from __future__ import annotations

import math
from typing import Any, overload

from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, dtype_and_weak, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.promotion import as_node, as_operand, broadcast_nodes, promote_operands
from fnx.core.ir import build, dtypes
from fnx.core.support.errors import ArgumentError, DTypeError
from fnx.core.support.process import lazy_import
from fnx.numpy.dtypes import finfo
from fnx.numpy.ufuncs import (
    absolute,
    add,
    equal,
    isfinite,
    isnan,
    less_equal,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    rint,
    subtract,
)

indexing = lazy_import("fnx.numpy.indexing")

__all__ = ["clip", "isclose", "nan_to_num", "round", "where"]


@overload
def where(condition: ArrayLike, x: None = None, y: None = None, /, *, size: int | None = None,
          fill_value: Any = None) -> tuple[Array, ...]: ...


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /, *, size: int | None = None,
          fill_value: Any = None) -> Array: ...


@public_api
def where(condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, /, *,
          size: int | None = None, fill_value: Any = None) -> Any:
    """Select x where the condition holds, else y. The unselected operand gets no derivative.

    A condition alone gives the indices where it holds, as ``nonzero`` does.

    Args:
        condition: an Array or array-like of any dtype; nonzero values are true.
        x: the values where it holds; x and y are promoted to a common dtype.
        y: the values where it does not hold.
        size: with a condition alone, the number of indices, which must be static under tracing.
        fill_value: with a condition alone, the padding if there are fewer than ``size``.

    Returns:
        An Array of the common shape of all three, and the common dtype of x and y.

    Raises:
        ArgumentError: x is given without y, or ``size`` or ``fill_value`` with both.
        ShapeError: the shapes do not broadcast.

    >>> import fnx.numpy as jnp
    >>> jnp.where(jnp.arange(3) > 0, jnp.ones(3), 0.0)
    Array([0., 1., 1.], dtype=float32)
    """
    if x is None and y is None:
        return indexing.nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None or size is not None or fill_value is not None:
        raise ArgumentError("where: expected both x and y, or a condition with size= and "
                            "fill_value=",
                            hint="pass both x and y, or neither")
    (a, b), weak = promote_operands("any", "where", (x, y), broadcast=False)
    mask = as_node(as_operand(condition), dtypes.bool_)
    return Array(build.where(*broadcast_nodes("where", [mask, a, b])), weak)


@public_api
def clip(arr: ArrayLike, /, min: ArrayLike | None = None,
         max: ArrayLike | None = None) -> Array:
    """Clamp ``arr`` to the bounds ``min`` and ``max``, where they are given.

    Args:
        arr: an Array or array-like of any shape and dtype.
        min: lower bounds, or None.
        max: upper bounds, or None; they take precedence over the lower ones.

    Returns:
        An Array of the shape and dtype that all are broadcast and promoted to.

    Raises:
        DTypeError: an operand is complex: complex numbers have no range.
        ShapeError: the shapes do not broadcast.

    >>> import fnx.numpy as jnp
    >>> jnp.clip(jnp.arange(4), 1, 2)
    Array([1, 1, 2, 2], dtype=int32)
    """
    x = asarray(arr)
    if any(dtype_and_weak(as_operand(v))[0].is_complex for v in (x, min, max) if v is not None):
        raise DTypeError("expected real numbers, got complex ones, which have no range",
                         hint="clip x.real and x.imag, or scale by abs(x)")
    if min is not None:
        x = maximum(min, x)
    return x if max is None else minimum(max, x)


@public_api
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Round to the nearest multiple of 10**-decimals; ties round to even.

    Args:
        a: an Array or array-like of any shape and dtype.
        decimals: the number of decimal places; negative values round to tens, hundreds, ...
        out: unsupported; must be None.

    Returns:
        An Array of the shape and dtype of a.

    Raises:
        ArgumentError: ``decimals`` is not an int.

    >>> import fnx.numpy as jnp
    >>> print(jnp.round(2.345, 1))
    2.3
    """
    decimals = arguments.check_int("decimals", decimals)
    x = asarray(a)
    if x._dtype.is_complex:
        return Array(build.complex_number(round(x.real, decimals)._node,
                                          round(x.imag, decimals)._node), x.weak)
    if x._dtype.is_integer and decimals >= 0:
        return x
    if decimals == 0:
        return rint(x)
    max_decimals = math.floor(math.log10(finfo(x.dtype if x._dtype.is_float else "float32").max))
    if decimals > max_decimals:  # finer than the spacing of all but subnormal numbers
        return x
    if decimals < -max_decimals:  # all round to 0
        return x * 0
    scale = float(10 ** decimals) if decimals >= 0 else 1.0 / 10 ** -decimals
    rounded = rint(x * scale) / scale
    return rounded if x._dtype.is_float else rounded.astype(x.dtype)


@public_api
def nan_to_num(x: ArrayLike, copy: bool = True, nan: ArrayLike = 0.0,
               posinf: ArrayLike | None = None, neginf: ArrayLike | None = None) -> Array:
    """Replace NaN and infinities; infinities become the largest finite numbers by default.

    Args:
        x: an Array or array-like of any shape and dtype.
        copy: accepted for compatibility with NumPy; as Arrays are immutable, it has no effect.
        nan: the replacement for NaN.
        posinf: the replacement for inf; by default the largest finite number.
        neginf: the replacement for -inf; by default the smallest finite number.

    Returns:
        An Array of the shape and dtype of x; integers are unchanged.

    >>> import fnx.numpy as jnp
    >>> print(jnp.nan_to_num(float("nan")))
    0.0
    """
    arguments.check_bool("copy", copy)
    array = asarray(x)
    if array._dtype.is_complex:
        parts = [nan_to_num(part, copy, nan, posinf, neginf)._node
                 for part in (array.real, array.imag)]
        return Array(build.complex_number(*parts))
    if not array._dtype.is_float:
        return array
    info = finfo(array.dtype)
    top = float(info.max) if posinf is None else posinf
    bottom = float(info.min) if neginf is None else neginf
    array = where(isnan(array), nan, array)
    array = where(equal(array, math.inf), top, array)
    return Array(where(equal(array, -math.inf), bottom, array)._node)


@public_api
def isclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8,
            equal_nan: bool = False) -> Array:
    """Return whether |a - b| <= atol + rtol * |b|, elementwise.

    Args:
        a: an Array or array-like of any dtype.
        b: an Array or array-like of any dtype; the relative tolerance refers to it.
        rtol: relative tolerance.
        atol: absolute tolerance.
        equal_nan: whether two NaNs count as close.

    Returns:
        A bool Array of the shape that a and b broadcast to.

    Raises:
        ShapeError: the shapes do not broadcast.

    >>> import fnx.numpy as jnp
    >>> print(jnp.isclose(1.0, 1.000001))
    True
    """
    a, b = [x.astype("int32") if x._dtype.is_bool or x._dtype.is_integer and x._dtype.bits < 8
            else x for x in (asarray(a), asarray(b))]
    is_near = less_equal(absolute(subtract(a, b)), add(atol, multiply(rtol, absolute(b))))
    both_finite = logical_and(isfinite(a), isfinite(b))
    close = where(both_finite, is_near, equal(a, b))
    return logical_or(close, logical_and(isnan(a), isnan(b))) if equal_nan else close
