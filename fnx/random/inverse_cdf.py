"""Distributions that are sampled by the inverse of the CDF: normal, gumbel, laplace and others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx.core.array import array_operators, axes, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.formulas import error_functions
from fnx.core.ir import build
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, erf, log, log1p, where
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.numpy import maximum, minimum, moveaxis
from fnx.numpy.reductions import argmax
from fnx.random.keys import ONE_KEY, single_key_words, split
from fnx.random.uniform_samplers import (
    BOUNDS_RAISE,
    MODE_RAISES,
    DrawMode,
    ShardingLike,
    broadcast_bounds,
    check_mode,
    float_dtype,
    sampler_docs,
    uniform_between,
    unit_uniform,
)

sorting = lazy_import("fnx.lax.sorting")

__all__ = [
    "categorical", "exponential", "gumbel", "laplace", "logistic", "normal", "truncated_normal",
]


@sampler_docs()
def normal(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
           out_sharding: ShardingLike = None) -> Array:
    """Draw from the standard normal distribution: sqrt(2) erf_inv(u) of a uniform u in (-1, 1).

    Complex numbers have parts of variance 1/2, each from a key of its own.
    Source: the inverse of the CDF (Giles, Approximating the erfinv Function, 2010).

    >>> print(fnx.random.normal(fnx.random.key(0)))
    1.6226422
    """
    if dtype is not None and (complex_type := convert.parse_dtype(dtype)).is_complex:
        re, im = (normal(part, shape, complex_type.real.np) * math.sqrt(0.5)
                  for part in split(key))
        return Array(build.complex_number(re._node, im._node))
    t, size = float_dtype(dtype), axes.normalize_shape(shape)
    u = uniform_between(single_key_words(key), _next_above(-1, t, size), 1.0)
    return _to_dtype(error_functions.erf_inv(u) * math.sqrt(2.0), t)


@sampler_docs(raises=BOUNDS_RAISE,
              shape="the shape of the result; by default that of the bounds.")
def truncated_normal(key: ArrayLike, lower: ArrayLike, upper: ArrayLike,
                     shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
                     out_sharding: ShardingLike = None) -> Array:
    """Draw from the normal distribution truncated to the range from lower to upper.

    Source: the inverse of the CDF, at a uniform number between the CDFs of the bounds.

    >>> x = fnx.random.truncated_normal(fnx.random.key(0), -2.0, 2.0, (100,))
    >>> bool((abs(x) < 2).all())
    True
    """
    t = float_dtype(dtype)
    size = axes.broadcast_shapes(asarray(lower).shape, asarray(upper).shape) \
        if shape is None else axes.normalize_shape(shape)
    low, high = broadcast_bounds((lower, upper), t, size)
    root = math.sqrt(2.0)
    low, high = (erf(Expr(build.to_compute(x.node)) / root).cast(t) for x in (low, high))
    u = uniform_between(single_key_words(key), low, high)
    x = _to_dtype(root * error_functions.erf_inv(u), t)
    lower_limit, upper_limit = _nudge_inward(lower, t, math.inf), _nudge_inward(upper, t, -math.inf)
    return minimum(maximum(x, lower_limit), upper_limit)


def _next_above(base: int, t: DType, shape: Shape) -> Expr:
    """Return the float above 0 (the smallest normal one) or above -1, as an array of a shape."""
    value = 2.0 ** (1 - t.bias) if base == 0 else -1 + 2.0 ** -(t.mantissa + 1)
    return Expr(build.const(value, t, shape))


def _to_dtype(x: Expr, t: DType) -> Array:
    """Convert the value of a formula to the requested dtype."""
    return Array(build.cast(x.node, t))


def _nudge_inward(bound: Any, t: DType, towards: float) -> Any:
    """Move a bound that is a plain number one float inwards; return an array bound as it is."""
    if type(bound) is Array:
        return array_operators.astype(bound, t)
    if t.np.names is not None:
        return asarray(bound, t)
    return np.nextafter(np.asarray(bound, t.np), np.asarray(towards, t.np), dtype=t.np)


@sampler_docs()
def exponential(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
                out_sharding: ShardingLike = None) -> Array:
    """Draw from the exponential distribution with mean 1.

    Source: the inverse of the CDF: -log(1 - u).

    >>> fnx.random.exponential(fnx.random.key(0), (2,)).shape
    (2,)
    """
    t = float_dtype(dtype)
    u = Expr(build.to_compute(unit_uniform(single_key_words(key), axes.normalize_shape(shape),
                                           t).node))
    return _to_dtype(-log1p(-u), t)


@sampler_docs(raises=MODE_RAISES)
def gumbel(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None,
           mode: DrawMode = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the standard Gumbel distribution: -log(-log(u)).

    Source: the inverse of the CDF.

    >>> fnx.random.gumbel(fnx.random.key(0), (2,)).shape
    (2,)
    """
    check_mode(mode)
    t, size = float_dtype(dtype), axes.normalize_shape(shape)
    return _to_dtype(-log(-log(uniform_between(single_key_words(key), _next_above(0, t, size),
                                               1.0))), t)


@sampler_docs()
def laplace(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
            out_sharding: ShardingLike = None) -> Array:
    """Draw from the standard Laplace distribution: exponential with a random sign.

    Source: the inverse of the CDF.

    >>> fnx.random.laplace(fnx.random.key(0), (2,)).shape
    (2,)
    """
    t, size = float_dtype(dtype), axes.normalize_shape(shape)
    u = uniform_between(single_key_words(key), _next_above(-1, t, size), 1.0)
    tail = log1p(-abs(u))
    return _to_dtype(where(u.eq(0), u, where(u < 0, -tail, tail)), t)


@sampler_docs()
def logistic(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
             out_sharding: ShardingLike = None) -> Array:
    """Draw from the standard logistic distribution: log(u / (1 - u)).

    Source: the inverse of the CDF.

    >>> fnx.random.logistic(fnx.random.key(0), (2,)).shape
    (2,)
    """
    t, size = float_dtype(dtype), axes.normalize_shape(shape)
    u = uniform_between(single_key_words(key), _next_above(0, t, size), 1.0)
    return _to_dtype(log(u / (1 - u)), t)


@sampler_docs(
    "An int32 Array of the shape.",
    (ONE_KEY, "ShapeError: ``shape`` does not end in the other axes of the logits.",
     "ArgumentError: without replacement, there are more draws than categories."),
    logits="unnormalized log probabilities along the axis.", axis="the axis of categories.",
    shape="the shape of the result, which ends in the other axes of the logits; by default\n"
          "these axes.", replace="whether an index may be drawn twice for the same logits.")
def categorical(key: ArrayLike, logits: ArrayLike, axis: int = -1, shape: ShapeLike | None = None,
                replace: bool = True, mode: DrawMode = None, *,
                out_sharding: ShardingLike = None) -> Array:
    """Draw indices with probabilities softmax(logits), as argmax of logits + Gumbel noise.

    Source: Gumbel, Statistical Theory of Extreme Values, 1954; without replacement, the largest
    are drawn: Vieira, Gumbel-max trick and weighted reservoir sampling, 2014.

    >>> import fnx.numpy as jnp
    >>> print(fnx.random.categorical(fnx.random.key(0), jnp.asarray([0.0, -jnp.inf])))
    0
    """
    x = asarray(logits)
    at = axes.normalize_axis(axis, x.ndim)
    batch = x.shape[:at] + x.shape[at + 1:]
    size = batch if shape is None else axes.normalize_shape(shape)
    lead = size[:len(size) - len(batch)]
    if axes.broadcast_shapes(size, batch) != size:
        raise ShapeError(f"categorical: expected a shape that ends in {batch}, got {size}",
                         hint="shape is that of the result, with the batch axes last")
    if not replace:
        count, n = math.prod(lead), x.shape[at]
        if count > n or size[len(lead):] != batch:
            raise ArgumentError(f"categorical: expected at most {n} draws without replacement from "
                                f"{n} categories of each of {batch}, got shape {size}",
                                hint="pass a smaller shape, or replace=True")
        noisy = moveaxis(gumbel(key, x.shape, x.dtype, mode) + x, at, -1)
        drawn = sorting.top_k(noisy, count)[1]
        return moveaxis(drawn, -1, 0).reshape(size)
    tail = list(size[len(lead):])
    tail.insert(at, x.shape[at])
    noise = gumbel(key, (*lead, *tail), x.dtype, mode)
    return argmax(noise + x, axis=at - x.ndim)
