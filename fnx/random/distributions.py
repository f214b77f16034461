"""Distributions that are sampled by the inverse of the CDF: normal, gumbel, laplace and others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx.core import build
from fnx.core.array import arguments, axes, operate, special
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.public import asarray, public
from fnx.core.dtypes import DType
from fnx.core.errors import NotBuiltError, ShapeError
from fnx.core.expr import Expr, erf, log, log1p, where
from fnx.core.ops import Shape
from fnx.numpy import maximum, minimum
from fnx.numpy.searching import argmax
from fnx.random.draws import (
    DrawMode,
    Placement,
    between,
    bounds,
    check_mode,
    float_dtype,
    placement,
    unit,
)
from fnx.random.keys import words_of

__all__ = [
    "categorical", "exponential", "gumbel", "laplace", "logistic", "normal", "truncated_normal",
]


@public
def normal(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
           out_sharding: Placement = None) -> Array:
    """Draw from the standard normal distribution: sqrt(2) erf_inv(u) of a uniform u in (-1, 1).

    Args:
        key: a key from ``random.key``.
        shape: the shape of the result: a static int or ints.
        dtype: a float dtype; by default the default float.
        out_sharding: accepted for compatibility with JAX; there is only one device.

    Returns:
        An Array.

    Raises:
        ShapeError: ``key`` is not a single key.
        DTypeError: ``dtype`` is not a float dtype.

    Source: the inverse of the CDF (Giles, Approximating the erfinv Function, 2010).

    >>> import fnx.random
    >>> print(fnx.random.normal(fnx.random.key(0)))
    1.6226422
    """
    placement(out_sharding)
    t, size = float_dtype(dtype), axes.shape(shape)
    u = between(words_of(key), _above(-1, t, size), 1.0)
    return _drawn(special.erf_inv(u) * math.sqrt(2.0), t)


@public
def truncated_normal(key: ArrayLike, lower: ArrayLike, upper: ArrayLike,
                     shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
                     out_sharding: Placement = None) -> Array:
    """Draw from the normal distribution truncated to the range from lower to upper.

    Args:
        key: a key from ``random.key``.
        lower: the lower bound, in standard deviations.
        upper: the upper bound, in standard deviations.
        shape: the shape of the result; by default that of the bounds.
        dtype: a float dtype; by default the default float.
        out_sharding: accepted for compatibility with JAX; there is only one device.

    Returns:
        An Array.

    Raises:
        ShapeError: ``key`` is not a single key.
        DTypeError: ``dtype`` is not a float dtype.
        ShapeError: the bounds do not broadcast to the shape.

    Source: the inverse of the CDF, at a uniform number between the CDFs of the bounds.

    >>> import fnx.random
    >>> x = fnx.random.truncated_normal(fnx.random.key(0), -2.0, 2.0, (100,))
    >>> bool((abs(x) < 2).all())
    True
    """
    placement(out_sharding)
    t = float_dtype(dtype)
    size = axes.broadcast_shapes(asarray(lower).shape, asarray(upper).shape) \
        if shape is None else axes.shape(shape)
    low, high = bounds((lower, upper), t, size)
    root = math.sqrt(2.0)
    low, high = (erf(Expr(build.wide(x.node)) / root).cast(t) for x in (low, high))
    u = between(words_of(key), low, high)
    x = _drawn(root * special.erf_inv(u), t)
    least, most = _inner(lower, t, math.inf), _inner(upper, t, -math.inf)
    return minimum(maximum(x, least), most)


def _above(number: int, t: DType, shape: Shape) -> Expr:
    """Return the float above 0 (the smallest normal one) or above -1, as an array of a shape."""
    least = 2.0 ** (1 - t.bias) if number == 0 else -1 + 2.0 ** -(t.mantissa + 1)
    return Expr(build.const(least, t, shape))


def _drawn(x: Expr, t: DType) -> Array:
    """Convert the value of a formula to the requested dtype."""
    return Array(build.cast(x.node, t))


def _inner(bound: Any, t: DType, towards: float) -> Any:
    """Move a bound that is a plain number one float inwards; return an array bound as it is."""
    if type(bound) is Array:
        return operate.astype(bound, t)
    if t.np.names is not None:
        return asarray(bound, t)
    return np.nextafter(np.asarray(bound, t.np), np.asarray(towards, t.np), dtype=t.np)


@public
def exponential(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
                out_sharding: Placement = None) -> Array:
    """Draw from the exponential distribution with mean 1.

    Args:
        key: a key from ``random.key``.
        shape: the shape of the result: a static int or ints.
        dtype: a float dtype; by default the default float.
        out_sharding: accepted for compatibility with JAX; there is only one device.

    Returns:
        An Array.

    Raises:
        ShapeError: ``key`` is not a single key.
        DTypeError: ``dtype`` is not a float dtype.

    Source: the inverse of the CDF: -log(1 - u).

    >>> import fnx.random
    >>> fnx.random.exponential(fnx.random.key(0), (2,)).shape
    (2,)
    """
    placement(out_sharding)
    t = float_dtype(dtype)
    u = Expr(build.wide(unit(words_of(key), axes.shape(shape), t).node))
    return _drawn(-log1p(-u), t)


@public
def gumbel(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None,
           mode: DrawMode = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the standard Gumbel distribution: -log(-log(u)).

    Args:
        key: a key from ``random.key``.
        shape: the shape of the result: a static int or ints.
        dtype: a float dtype; by default the default float.
        mode: None or "low".
        out_sharding: accepted for compatibility with JAX; there is only one device.

    Returns:
        An Array.

    Raises:
        ShapeError: ``key`` is not a single key.
        DTypeError: ``dtype`` is not a float dtype.
        NotBuiltError: ``mode`` is "high".

    Source: the inverse of the CDF.

    >>> import fnx.random
    >>> fnx.random.gumbel(fnx.random.key(0), (2,)).shape
    (2,)
    """
    placement(out_sharding)
    check_mode(mode)
    t, size = float_dtype(dtype), axes.shape(shape)
    return _drawn(-log(-log(between(words_of(key), _above(0, t, size), 1.0))), t)


@public
def laplace(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
            out_sharding: Placement = None) -> Array:
    """Draw from the standard Laplace distribution: exponential with a random sign.

    Args:
        key: a key from ``random.key``.
        shape: the shape of the result: a static int or ints.
        dtype: a float dtype; by default the default float.
        out_sharding: accepted for compatibility with JAX; there is only one device.

    Returns:
        An Array.

    Raises:
        ShapeError: ``key`` is not a single key.
        DTypeError: ``dtype`` is not a float dtype.

    Source: the inverse of the CDF.

    >>> import fnx.random
    >>> fnx.random.laplace(fnx.random.key(0), (2,)).shape
    (2,)
    """
    placement(out_sharding)
    t, size = float_dtype(dtype), axes.shape(shape)
    u = between(words_of(key), _above(-1, t, size), 1.0)
    tail = log1p(-abs(u))
    return _drawn(where(u.eq(0), u, where(u < 0, -tail, tail)), t)


@public
def logistic(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
             out_sharding: Placement = None) -> Array:
    """Draw from the standard logistic distribution: log(u / (1 - u)).

    Args:
        key: a key from ``random.key``.
        shape: the shape of the result: a static int or ints.
        dtype: a float dtype; by default the default float.
        out_sharding: accepted for compatibility with JAX; there is only one device.

    Returns:
        An Array.

    Raises:
        ShapeError: ``key`` is not a single key.
        DTypeError: ``dtype`` is not a float dtype.

    Source: the inverse of the CDF.

    >>> import fnx.random
    >>> fnx.random.logistic(fnx.random.key(0), (2,)).shape
    (2,)
    """
    placement(out_sharding)
    t, size = float_dtype(dtype), axes.shape(shape)
    u = between(words_of(key), _above(0, t, size), 1.0)
    return _drawn(log(u / (1 - u)), t)


@public
def categorical(key: ArrayLike, logits: ArrayLike, axis: int = -1, shape: ShapeLike | None = None,
                replace: bool = True, mode: DrawMode = None, *,
                out_sharding: Placement = None) -> Array:
    """Draw indices with probabilities softmax(logits), as argmax of logits + Gumbel noise.

    Args:
        key: a key from ``random.key``.
        logits: unnormalized log probabilities along the axis.
        axis: the axis of categories.
        shape: the shape of the result, which ends in the other axes of the logits; by default
            these axes.
        replace: True: draws are independent.
        mode: None or "low".
        out_sharding: accepted for compatibility with JAX; there is only one device.

    Returns:
        An int32 Array of the shape.

    Raises:
        ShapeError: ``key`` is not a single key.
        ShapeError: ``shape`` does not end in the other axes of the logits.
        NotBuiltError: ``replace`` is False.

    Source: Gumbel, Statistical Theory of Extreme Values, 1954.

    >>> import fnx.numpy as jnp
    >>> import fnx.random
    >>> print(fnx.random.categorical(fnx.random.key(0), jnp.asarray([0.0, -jnp.inf])))
    0
    """
    placement(out_sharding)
    arguments.flag("replace", replace)
    if not replace:
        raise NotBuiltError("categorical: expected replace=True",
                            hint="draws without replacement need a sort, which is to come")
    x = asarray(logits)
    at = axes.one(axis, x.ndim)
    batch = x.shape[:at] + x.shape[at + 1:]
    wanted = batch if shape is None else axes.shape(shape)
    lead = wanted[:len(wanted) - len(batch)]
    if axes.broadcast_shapes(wanted, batch) != wanted:
        raise ShapeError(f"categorical: expected a shape that ends in {batch}, got {wanted}",
                         hint="shape is that of the result: batch axes last")
    rest = list(wanted[len(lead):])
    rest.insert(at, x.shape[at])
    noise = gumbel(key, (*lead, *rest), x.dtype, mode)
    return argmax(noise + x, axis=at - x.ndim)
