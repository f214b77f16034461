"""Discrete distributions: Poisson, binomial, multinomial, geometric."""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments, axes
from fnx.core.array import gamma as rows
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike, default_int, dtype_argument
from fnx.core.array.documented import Family
from fnx.core.array.operate import apply
from fnx.core.array.public import asarray
from fnx.core.process import load
from fnx.random.draws import Placement, float_dtype, placement, uniform
from fnx.random.families import sized
from fnx.random.keys import split

__all__ = ["binomial", "geometric", "multinomial", "poisson"]

_family = Family(
    key="a key, as ``random.key`` makes it.",
    shape="of the result; by default that of the parameters.", p="probabilities, from 0 to 1.",
    n="of how many.", returns="An Array.", at="fnx.random as random",
    raises=("ShapeError: not one key, or a shape that the parameters do not broadcast to.",
            "DTypeError: another kind of dtype."))
_MOST = 100_000  # iteration limit of a rejection loop


def _while(goes_on: Any, step: Any, start: Any) -> Any:
    return load("fnx.transforms.loops.while_loop").while_loop(goes_on, step, start)


@_family(dtype="an integer dtype; by default int32.")
def geometric(key: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None,
              dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw the number of trials of probability p up to the first success.

    >>> random.geometric(random.key(0), 1.0).tolist()
    1
    """
    placement(out_sharding)
    kind = default_int() if dtype is None else dtype_argument(dtype)
    size, t, (chance,) = sized(shape, None, p)
    u = uniform(key, size, t)
    trials = jnp.floor(jnp.log(jnp.where(u == 0, 1, u)) / jnp.log1p(-chance)) + 1
    return trials.astype(kind.np)


@_family(lam="the mean.", dtype="an integer dtype; by default int32.")
def poisson(key: ArrayLike, lam: ArrayLike, shape: ShapeLike | None = None,
            dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the Poisson distribution.

    Source: Knuth's multiplication for means below 10 (The Art of Computer Programming 2, 3.4.1),
    beyond Hoermann's transformed rejection (The transformed rejection method for generating
    Poisson random variables, 1993).

    >>> random.poisson(random.key(0), 0.0).tolist()
    0
    """
    placement(out_sharding)
    kind = default_int() if dtype is None else dtype_argument(dtype)
    size, _, (mean,) = sized(shape, None, lam)
    small = jnp.isnan(mean) | (mean < 10)
    few = _by_products(key, jnp.where(small, mean, 0), size)
    many = _by_rejection(key, jnp.where(small, 1e5, mean), size)
    return jnp.where(mean == 0, 0, jnp.where(small, few, many)).astype(kind.np)


def _by_products(key: ArrayLike, mean: Array, size: tuple[int, ...]) -> Array:
    def step(state: Any) -> Any:
        i, count, k, total = state
        k, own = split(k)
        count = jnp.where(total > -mean, count + 1, count)
        return i + 1, count, k, total + jnp.log(uniform(own, size, "float32"))
    start = (asarray(0), jnp.zeros_like(mean), asarray(key), jnp.zeros_like(mean))
    found: Array = _while(lambda s: (s[3] > -mean).any() & (s[0] < _MOST), step, start)[1]
    return found - 1


def _by_rejection(key: ArrayLike, mean: Array, size: tuple[int, ...]) -> Array:
    b = 0.931 + 2.53 * jnp.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse, bound = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def step(state: Any) -> Any:
        i, out, done, k = state
        k, one, two = split(k, 3)
        u, v = uniform(one, size, mean.dtype) - 0.5, uniform(two, size, mean.dtype)
        us = 0.5 - jnp.abs(u)
        x = jnp.floor((2 * a / us + b) * u + mean + 0.43)
        left = jnp.log(v * inverse / (a / (us * us) + b))
        right = -mean + x * jnp.log(mean) - apply(rows.LGAMMA, x + 1)
        never = (x < 0) | (us < 0.013) & (v > us)
        taken = (us >= 0.07) & (v <= bound) | ~never & (left <= right)
        return i + 1, jnp.where(taken, x, out), done | taken, k
    start = (asarray(0), jnp.full_like(mean, -1), jnp.zeros_like(mean, "bool"), asarray(key))
    found: Array = _while(lambda s: (~s[2]).any() & (s[0] < _MOST), step, start)[1]
    return found


@_family(dtype="a float dtype; by default the default float.")
def binomial(key: ArrayLike, n: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None,
             dtype: DTypeLike | None = None) -> Array:
    """Draw the number of successes of n trials of probability p.

    The numbers differ from those of JAX.

    Source: sums of geometric numbers where n p is below 10, beyond Hoermann's BTRS (The generation
    of binomial random variates, 1993).

    >>> random.binomial(random.key(0), 5.0, 1.0).tolist()
    5.0
    """
    size, kind, (count, chance) = sized(shape, dtype, n, p)
    turned = chance > 0.5
    q = jnp.where(turned, 1 - chance, chance)
    bad = ~(count >= 0) | ~(q >= 0)
    count, q = jnp.where(bad, 0, jnp.floor(count)), jnp.where(bad, 0, q)
    few = count * q < 10
    one, two = split(key)
    low = _by_gaps(one, jnp.where(few, count, 0), q, size)
    high = _btrs(two, jnp.where(few, 1000, count), jnp.where(few, 0.5, q), size)
    out = jnp.where(few, low, high)
    return jnp.where(bad, math.nan, jnp.where(turned, count - out, out))


def _by_gaps(key: ArrayLike, n: Array, p: Array, size: tuple[int, ...]) -> Array:
    """Draw binomial numbers: count the geometric gaps between successes that fit into n."""
    some = p > 0
    scale = jnp.log1p(-jnp.where(some, p, 0.5))

    def step(state: Any) -> Any:
        i, count, used, k = state
        k, own = split(k)
        u = uniform(own, size, n.dtype)
        used = used + jnp.floor(jnp.log1p(-u) / scale) + 1
        return i + 1, jnp.where((used <= n) & some, count + 1, count), used, k
    start = (asarray(0), jnp.zeros_like(n), jnp.zeros_like(n), asarray(key))
    found: Array = _while(
        lambda s: ((s[2] <= n) & some).any() & (s[0] < _MOST), step, start)[1]
    return found


def _tail(k: Array) -> Array:
    """Return log k! minus the leading terms of Stirling's formula."""
    return apply(rows.LGAMMA, k + 1) - (
        (k + 0.5) * jnp.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi))


def _btrs(key: ArrayLike, n: Array, p: Array, size: tuple[int, ...]) -> Array:
    spread = jnp.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a, c = -0.0873 + 0.0248 * b + 0.01 * p, n * p + 0.5
    bound, alpha = 0.92 - 4.2 / b, (2.83 + 5.1 / b) * spread
    middle = jnp.floor((n + 1) * p)
    odds = p / (1 - p)

    def step(state: Any) -> Any:
        i, out, done, k = state
        k, one, two = split(k, 3)
        u, v = uniform(one, size, n.dtype) - 0.5, uniform(two, size, n.dtype)
        us = 0.5 - jnp.abs(u)
        x = jnp.floor((2 * a / us + b) * u + c)
        inside = (x >= 0) & (x <= n)
        y = jnp.where(inside, x, middle)
        left = jnp.log(v * alpha / (a / (us * us) + b))
        right = ((middle + 0.5) * jnp.log((middle + 1) / (odds * (n - middle + 1)))
                 + (n + 1) * jnp.log((n - middle + 1) / (n - y + 1))
                 + (y + 0.5) * jnp.log(odds * (n - y + 1) / (y + 1))
                 + _tail(middle) + _tail(n - middle) - _tail(y) - _tail(n - y))
        taken = (us >= 0.07) & (v <= bound) | inside & (left <= right)
        taken = taken & inside
        return i + 1, jnp.where(taken, y, out), done | taken, k
    start = (asarray(0), jnp.zeros_like(n), jnp.zeros_like(n, "bool"), asarray(key))
    found: Array = _while(lambda s: (~s[2]).any() & (s[0] < _MOST), step, start)[1]
    return found


@_family(p="probabilities, along the last axis.", shape="of the result; by default that of p.",
         dtype="a float dtype; by default the default float.", unroll="accepted as JAX's.")
def multinomial(key: ArrayLike, n: ArrayLike, p: ArrayLike, *, shape: ShapeLike | None = None,
                dtype: DTypeLike | None = None, unroll: int | bool = 1) -> Array:
    """Draw the number of trials, of n, with each outcome.

    >>> random.multinomial(random.key(0), 5.0, jnp.asarray([0.0, 1.0])).tolist()
    [0.0, 5.0]
    """
    if unroll is not True and unroll is not False:
        arguments.integer("unroll", unroll)
    kind = float_dtype(dtype)
    chances = asarray(p).astype(kind.np)
    size = chances.shape if shape is None else axes.shape(shape)
    chances = jnp.broadcast_to(chances, size)
    left = jnp.broadcast_to(asarray(n).astype(kind.np), size[:-1])
    total = jnp.flip(jnp.cumsum(jnp.flip(chances, -1), -1), -1)
    ratios = chances / jnp.where(total == 0, 1, total)
    keys, out = split(key, size[-1]), []
    for i in range(size[-1]):
        count = binomial(keys[i], left, jnp.clip(ratios[..., i], 0, 1), dtype=kind)
        left = left - count
        out.append(count)
    return jnp.stack(out, -1)
