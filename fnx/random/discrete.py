"""Discrete distributions: Poisson, binomial, multinomial, geometric."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike, default_int, parse_dtype
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.formulas import gamma as rows
from fnx.core.support.process import lazy_import
from fnx.random.continuous import broadcast_params
from fnx.random.keys import key_argument, split
from fnx.random.uniform_samplers import ShardingLike, float_dtype, public_sampler, uniform

while_loop = lazy_import("fnx.transforms.control_flow.while_loop", "while_loop")

__all__ = ["binomial", "geometric", "multinomial", "poisson"]

_docstr = DocTemplate(
    key="a key from ``random.key``.",
    shape="the result shape; by default that of the parameters.", p="probabilities, from 0 to 1.",
    n="the total number.", returns="An Array.", imports="fnx.random as random", wrap=public_sampler,
    raises=("ShapeError: not one key, or the parameters do not broadcast.",
            "DTypeError: wrong kind of dtype."))
_MAX_STEPS = 100_000  # iteration limit of a rejection loop


@_docstr(dtype="an integer dtype; by default int32.")
def geometric(key: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None,
              dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw the number of trials of probability p up to the first success.

    >>> random.geometric(random.key(0), 1.0).tolist()
    1
    """
    kind = default_int() if dtype is None else parse_dtype(dtype)
    size, t, (chance,) = broadcast_params(shape, None, p)
    u = uniform(key, size, t)
    trials = jnp.floor(jnp.log(jnp.where(u == 0, 1, u)) / jnp.log1p(-chance)) + 1
    return trials.astype(kind.np)


@_docstr(lam="the mean.", dtype="an integer dtype; by default int32.")
def poisson(key: ArrayLike, lam: ArrayLike, shape: ShapeLike | None = None,
            dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the Poisson distribution.

    Source: Knuth's multiplication for means below 10 (The Art of Computer Programming 2, 3.4.1),
    beyond Hoermann's transformed rejection (The transformed rejection method for generating
    Poisson random variables, 1993).

    >>> random.poisson(random.key(0), 0.0).tolist()
    0
    """
    kind = default_int() if dtype is None else parse_dtype(dtype)
    size, _, (mean,) = broadcast_params(shape, None, lam)
    small = jnp.isnan(mean) | (mean < 10)
    small_draws = _poisson_knuth(key, jnp.where(small, mean, 0), size)
    large_draws = _poisson_rejection(key, jnp.where(small, 1e5, mean))
    return jnp.where(mean == 0, 0, jnp.where(small, small_draws, large_draws)).astype(kind.np)


def _poisson_knuth(key: ArrayLike, mean: Array, size: tuple[int, ...]) -> Array:
    def step(state: Any) -> Any:
        i, count, k, total = state
        k, subkey = split(k)
        count = jnp.where(total > -mean, count + 1, count)
        return i + 1, count, k, total + jnp.log(uniform(subkey, size, "float32"))
    start = (asarray(0), jnp.zeros_like(mean), key_argument(key), jnp.zeros_like(mean))
    counts: Array = while_loop(
        lambda s: (s[3] > -mean).any() & (s[0] < _MAX_STEPS), step, start)[1]
    return counts - 1


def _poisson_rejection(key: ArrayLike, mean: Array) -> Array:
    b = 0.931 + 2.53 * jnp.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse, bound = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def propose(u: Array, v: Array) -> tuple[Array, Array]:
        us = 0.5 - jnp.abs(u)
        x = jnp.floor((2 * a / us + b) * u + mean + 0.43)
        lhs = jnp.log(v * inverse / (a / (us * us) + b))
        rhs = -mean + x * jnp.log(mean) - apply(rows.LGAMMA, x + 1)
        rejected = (x < 0) | (us < 0.013) & (v > us)
        return x, (us >= 0.07) & (v <= bound) | ~rejected & (lhs <= rhs)
    return _repeat_rejected(key, propose, jnp.full_like(mean, -1))


def _repeat_rejected(key: ArrayLike, propose: Callable[[Array, Array], tuple[Array, Array]],
                     out: Array) -> Array:
    """Replace the elements of ``out`` by proposals until one is accepted for each.

    Args:
        propose: uniform numbers in [-0.5, 0.5) and in [0, 1) -> (numbers, which are accepted).
    """
    def step(state: Any) -> Any:
        i, out, accepted, k = state
        k, one, two = split(k, 3)
        x, accept = propose(uniform(one, out.shape, out.dtype) - 0.5,
                            uniform(two, out.shape, out.dtype))
        return i + 1, jnp.where(accept, x, out), accepted | accept, k
    start = (asarray(0), out, jnp.zeros_like(out, "bool"), key_argument(key))
    draws: Array = while_loop(lambda s: (~s[2]).any() & (s[0] < _MAX_STEPS), step, start)[1]
    return draws


@_docstr(dtype="a float dtype; by default the default float.")
def binomial(key: ArrayLike, n: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None,
             dtype: DTypeLike | None = None) -> Array:
    """Draw the number of successes of n trials of probability p.

    The numbers differ from those of JAX.

    Source: sums of geometric numbers where n p is below 10, beyond Hoermann's BTRS (The generation
    of binomial random variates, 1993).

    >>> random.binomial(random.key(0), 5.0, 1.0).tolist()
    5.0
    """
    size, kind, (count, chance) = broadcast_params(shape, dtype, n, p)
    flipped = chance > 0.5
    q = jnp.where(flipped, 1 - chance, chance)
    invalid = ~(count >= 0) | ~(q >= 0)
    count, q = jnp.where(invalid, 0, jnp.floor(count)), jnp.where(invalid, 0, q)
    is_small = count * q < 10
    one, two = split(key)
    small_draws = _binomial_gaps(one, jnp.where(is_small, count, 0), q, size)
    large_draws = _binomial_btrs(two, jnp.where(is_small, 1000, count), jnp.where(is_small, 0.5, q))
    out = jnp.where(is_small, small_draws, large_draws)
    return jnp.where(invalid, math.nan, jnp.where(flipped, count - out, out))


def _binomial_gaps(key: ArrayLike, n: Array, p: Array, size: tuple[int, ...]) -> Array:
    """Draw binomial numbers: count the geometric gaps between successes that fit into n."""
    is_positive = p > 0
    scale = jnp.log1p(-jnp.where(is_positive, p, 0.5))

    def step(state: Any) -> Any:
        i, count, used, k = state
        k, subkey = split(k)
        u = uniform(subkey, size, n.dtype)
        used = used + jnp.floor(jnp.log1p(-u) / scale) + 1
        return i + 1, jnp.where((used <= n) & is_positive, count + 1, count), used, k
    start = (asarray(0), jnp.zeros_like(n), jnp.zeros_like(n), key_argument(key))
    counts: Array = while_loop(
        lambda s: ((s[2] <= n) & is_positive).any() & (s[0] < _MAX_STEPS), step, start)[1]
    return counts


def _stirling_tail(k: Array) -> Array:
    """Return log k! minus the leading terms of Stirling's formula."""
    return apply(rows.LGAMMA, k + 1) - (
        (k + 0.5) * jnp.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi))


def _binomial_btrs(key: ArrayLike, n: Array, p: Array) -> Array:
    stddev = jnp.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * stddev
    a, c = -0.0873 + 0.0248 * b + 0.01 * p, n * p + 0.5
    bound, alpha = 0.92 - 4.2 / b, (2.83 + 5.1 / b) * stddev
    mode = jnp.floor((n + 1) * p)
    odds = p / (1 - p)

    def propose(u: Array, v: Array) -> tuple[Array, Array]:
        us = 0.5 - jnp.abs(u)
        x = jnp.floor((2 * a / us + b) * u + c)
        in_range = (x >= 0) & (x <= n)
        y = jnp.where(in_range, x, mode)
        lhs = jnp.log(v * alpha / (a / (us * us) + b))
        rhs = ((mode + 0.5) * jnp.log((mode + 1) / (odds * (n - mode + 1)))
               + (n + 1) * jnp.log((n - mode + 1) / (n - y + 1))
               + (y + 0.5) * jnp.log(odds * (n - y + 1) / (y + 1))
               + _stirling_tail(mode) + _stirling_tail(n - mode) - _stirling_tail(y) -
               _stirling_tail(n - y))
        accept = (us >= 0.07) & (v <= bound) | in_range & (lhs <= rhs)
        return y, accept & in_range
    return _repeat_rejected(key, propose, jnp.zeros_like(n))


@_docstr(p="probabilities, along the last axis.", shape="the result shape; default: p.shape.",
         dtype="a float dtype; by default the default float.", unroll="ignored, for JAX.")
def multinomial(key: ArrayLike, n: ArrayLike, p: ArrayLike, *, shape: ShapeLike | None = None,
                dtype: DTypeLike | None = None, unroll: int | bool = 1) -> Array:
    """Draw the number of trials, of n, with each outcome.

    >>> random.multinomial(random.key(0), 5.0, jnp.asarray([0.0, 1.0])).tolist()
    [0.0, 5.0]
    """
    if unroll is not True and unroll is not False:
        arguments.check_int("unroll", unroll)
    kind = float_dtype(dtype)
    chances = asarray(p).astype(kind.np)
    size = chances.shape if shape is None else axes.normalize_shape(shape)
    chances = jnp.broadcast_to(chances, size)
    remaining = jnp.broadcast_to(asarray(n).astype(kind.np), size[:-1])
    total = jnp.flip(jnp.cumsum(jnp.flip(chances, -1), -1), -1)
    ratios = chances / jnp.where(total == 0, 1, total)
    keys, out = split(key, size[-1]), []
    for i in range(size[-1]):
        count = binomial(keys[i], remaining, jnp.clip(ratios[..., i], 0, 1), dtype=kind)
        remaining = remaining - count
        out.append(count)
    return jnp.stack(out, -1)
