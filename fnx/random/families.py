"""Continuous distributions that are derived from uniform, normal and gamma numbers.

Each consumes random bits in the same order as JAX 0.10, so that the same key gives the same
numbers up to rounding.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import axes, scope
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.documented import Family
from fnx.core.array.public import asarray
from fnx.core.errors import ArgumentError, ShapeError
from fnx.core.process import load
from fnx.random.distributions import exponential, normal
from fnx.random.draws import Placement, float_dtype, placement, rademacher, uniform
from fnx.random.keys import split
from fnx.transforms.vmap import vmap

__all__ = [
    "ball", "beta", "cauchy", "chisquare", "dirichlet", "double_sided_maxwell", "f", "gamma",
    "generalized_normal", "loggamma", "lognormal", "maxwell", "multivariate_normal", "pareto",
    "rayleigh", "t", "triangular", "wald", "weibull_min",
]

_family = Family(
    key="a key, as ``random.key`` makes it.",
    shape="of the result; by default that of the parameters.",
    dtype="a float dtype; by default the default float.", a="the shape of the distribution.",
    b="the second shape of the distribution.", df="degrees of freedom.", mean="the mean.",
    scale="what the numbers are multiplied with.", loc="what is added.", p="the power.",
    returns="An Array.", at="fnx.random as random",
    raises=("ShapeError: not one key, or a shape that the parameters do not broadcast to.",
            "DTypeError: no float dtype."))


def sized(shape: ShapeLike | None, dtype: DTypeLike | None, *parameters: ArrayLike
          ) -> tuple[tuple[int, ...], Any, list[Array]]:
    """Return the shape of the result, its dtype, and the parameters broadcast to the shape."""
    kind = float_dtype(dtype)
    given = [asarray(p).astype(kind.np) for p in parameters]
    common = axes.broadcast_shapes(*[p.shape for p in given])
    size = common if shape is None else axes.shape(shape)
    if axes.broadcast_shapes(common, size) != size:
        raise ShapeError(f"expected parameters that broadcast to {size}, got shape {common}")
    return size, kind, [jnp.broadcast_to(p, size) for p in given]


@_family()
def cauchy(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
           out_sharding: Placement = None) -> Array:
    """Draw from the Cauchy distribution, of density 1 / (pi (1 + x**2)).

    >>> random.cauchy(random.key(0), (2,)).shape
    (2,)
    """
    placement(out_sharding)
    t = float_dtype(dtype)
    u = uniform(key, shape, t, float(jnp.finfo(t.np).eps), 1.0)
    return jnp.tan(math.pi * (u - 0.5))


@_family(sigma="the standard deviation of the logarithm.")
def lognormal(key: ArrayLike, sigma: ArrayLike = 1.0, shape: ShapeLike | None = None,
              dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the log-normal distribution: numbers whose logarithm is normal.

    >>> random.lognormal(random.key(0), shape=(2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (s,) = sized(shape, dtype, sigma)
    return jnp.exp(normal(key, size, kind) * s)


@_family()
def maxwell(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
            out_sharding: Placement = None) -> Array:
    """Draw from the Maxwell distribution: lengths of vectors of three normal numbers.

    >>> random.maxwell(random.key(0), (2,)).shape
    (2,)
    """
    placement(out_sharding)
    draws = normal(key, (*axes.shape(shape), 3), dtype)
    return jnp.linalg.norm(draws, axis=-1)


@_family()
def double_sided_maxwell(key: ArrayLike, loc: ArrayLike, scale: ArrayLike, shape: ShapeLike = (),
                         dtype: DTypeLike | None = None) -> Array:
    """Draw Maxwell numbers with random signs, times ``scale``, plus ``loc``.

    >>> random.double_sided_maxwell(random.key(0), 0.0, 1.0, (2,)).shape
    (2,)
    """
    one, two = split(key)
    common = axes.broadcast_shapes(np.shape(loc), np.shape(scale))
    size = (axes.shape(shape) or common) + common
    return rademacher(two, size, dtype) * maxwell(one, size, dtype) * scale + loc


@_family(concentration="the power of the distribution.")
def weibull_min(key: ArrayLike, scale: ArrayLike, concentration: ArrayLike, shape: ShapeLike = (),
                dtype: DTypeLike | None = None) -> Array:
    """Draw from the Weibull distribution.

    >>> random.weibull_min(random.key(0), 1.0, 2.0, (2,)).shape
    (2,)
    """
    u = uniform(key, shape, dtype)
    return jnp.power(-jnp.log1p(-u), 1.0 / asarray(concentration)) * scale


@_family()
def rayleigh(key: ArrayLike, scale: ArrayLike, shape: ShapeLike | None = None,
             dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the Rayleigh distribution: lengths of vectors of two normal numbers.

    >>> random.rayleigh(random.key(0), 1.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (s,) = sized(shape, dtype, scale)
    return s * jnp.sqrt(jnp.log(uniform(key, size, kind)) * -2)


@_family(b="the power of the tail.")
def pareto(key: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None,
           dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the Pareto distribution, of density b / x**(b + 1) for x >= 1.

    >>> random.pareto(random.key(0), 2.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (power,) = sized(shape, dtype, b)
    return jnp.exp(exponential(key, size, kind) / power)


@_family()
def wald(key: ArrayLike, mean: ArrayLike, shape: ShapeLike | None = None,
         dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the inverse Gaussian (Wald) distribution of scale 1.

    Source: Michael, Schucany and Haas, Generating random variates using transformations with
    multiple roots (1976).

    >>> random.wald(random.key(0), 1.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (m,) = sized(shape, dtype, mean)
    one, two = split(key)
    y, z = normal(one, size, kind) ** 2, uniform(two, size, kind)
    x = m + m * m * y / 2 - m / 2 * jnp.sqrt(4 * m * y + m * m * (y * y))
    return jnp.where(z <= m / (m + x), x, m * m / x)


@_family(left="the least number.", mode="the most likely number.", right="the largest number.")
def triangular(key: ArrayLike, left: ArrayLike, mode: ArrayLike, right: ArrayLike,
               shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
               out_sharding: Placement = None) -> Array:
    """Draw from the triangular distribution, whose density peaks at ``mode``.

    >>> random.triangular(random.key(0), 0.0, 1.0, 2.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (low, middle, high) = sized(shape, dtype, left, mode, right)
    u = uniform(key, size, kind)
    rising = low + jnp.sqrt(u * (high - low) * (middle - low))
    falling = high - jnp.sqrt((1 - u) * (high - low) * (high - middle))
    return jnp.where(u < (middle - low) / (high - low), rising, falling)


# ---- derived from gamma numbers -----------------------------------------------------------------


def _while(goes_on: Any, step: Any, start: Any) -> Any:
    return load("fnx.transforms.loops.while_loop").while_loop(goes_on, step, start)


def _gamma_of_one(key: Array, a: Array, log_space: bool) -> Array:
    """Draw one gamma number.

    Source: Marsaglia and Tsang, A simple method for generating gamma variables (2000).
    """
    large = a >= 1
    third = np.array(1 / 3, a.dtype)[()]
    d = jnp.where(large, a, a + 1) - third
    c = third / jnp.sqrt(d)
    key, last = split(key)
    zero, one = jnp.zeros_like(a), jnp.ones_like(a)

    def goes_on(state: Any) -> Any:
        _, square, v, u = state
        slow = jnp.log(u) >= square * 0.5 + d * (1 - v + jnp.log(v))
        return (u >= 1 - 0.0331 * square * square) & slow

    def draw(state: Any) -> Any:
        k, _, _ = state
        k, own = split(k)
        x = normal(own, (), a.dtype)
        return k, x, 1 + x * c

    def step(state: Any) -> Any:
        k, own, other = split(state[0], 3)
        _, x, v = _while(lambda s: s[2] <= 0, draw, (own, zero, -one))
        return k, x * x, v * v * v, uniform(other, (), a.dtype)
    _, _, v, _ = _while(goes_on, step, (key, zero, one, 2 * one))
    if log_space:
        drawn = -exponential(last, (), a.dtype)
        boost = jnp.where(large | (drawn == 0), 0, drawn * (1 / a))
        return asarray(jnp.log(d) + jnp.log(v) + boost)
    boost = jnp.where(large, 1, jnp.power(1 - uniform(last, (), a.dtype), 1 / a))
    return asarray(d * v * boost)


def _gammas(key: ArrayLike, a: Array, log_space: bool) -> Array:
    """Draw gamma numbers; within a trace they are differentiable with respect to a."""
    if not a.size:
        return a
    done: Array = (_moving(log_space) if scope.is_open() else functools.partial(
        _drawn, log_space))(asarray(key), a)
    return done


def _drawn(log_space: bool, key: Array, a: Array) -> Array:
    keys = split(key, a.size)
    made = vmap(lambda k, x: _gamma_of_one(k, x, log_space))(keys, a.ravel())
    return asarray(made).reshape(a.shape)


@functools.cache
def _moving(log_space: bool) -> Any:
    """Return the sampler with an implicit derivative by the shape parameter, at constant CDF.

    Differentiating through the steps of the sampler would ignore which proposal is accepted.
    """
    rule = load("fnx.transforms.custom.jvp").custom_jvp(functools.partial(_drawn, log_space))
    slope = _log_slope if log_space else load("fnx.lax.bits").random_gamma_grad

    def moved(primals: Any, tangents: Any) -> Any:
        drawn = rule(*primals)
        return drawn, slope(primals[1], drawn) * tangents[1]
    rule.defjvp(moved)
    return rule


def _log_slope(a: Array, log: Array) -> Array:
    """Return the derivative of the logarithm of a gamma number by the shape parameter.

    For small x the CDF is x**a / gamma(a + 1).
    """
    small = log < math.log(np.finfo(a.dtype).eps) if a.dtype.itemsize > 2 else log < -8
    x = jnp.exp(jnp.where(small, 0, log))
    near_0 = (load("fnx.scipy.special").digamma(a + 1) - log) / a
    return asarray(jnp.where(small, near_0, load("fnx.lax.bits").random_gamma_grad(a, x) / x))


@_family()
def gamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None,
          dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the gamma distribution, of density x**(a - 1) exp(-x) / gamma(a).

    Source: Marsaglia and Tsang, A simple method for generating gamma variables (2000).

    >>> random.gamma(random.key(0), 2.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    _, _, (shapes,) = sized(shape, dtype, a)
    return _gammas(key, shapes, False)


@_family()
def loggamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None,
             dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw logarithms of gamma numbers, which do not underflow for small a.

    >>> random.loggamma(random.key(0), 0.1, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    _, _, (shapes,) = sized(shape, dtype, a)
    return _gammas(key, shapes, True)


@_family()
def beta(key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None,
         dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the beta distribution, of density x**(a - 1) (1 - x)**(b - 1) / beta(a, b).

    >>> random.beta(random.key(0), 2.0, 3.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (p, q) = sized(shape, dtype, a, b)
    one, two = split(key)
    x, y = loggamma(one, p, size, kind), loggamma(two, q, size, kind)
    top = jnp.maximum(x, y)
    x, y = jnp.exp(x - top), jnp.exp(y - top)
    return x / (x + y)


@_family(alpha="the shapes, along the last axis.",
         shape="of the result without its last axis; by default that of alpha.")
def dirichlet(key: ArrayLike, alpha: ArrayLike, shape: ShapeLike | None = None,
              dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the Dirichlet distribution: density proportional to the product of p**(alpha - 1).

    >>> random.dirichlet(random.key(0), jnp.ones(3)).shape
    (3,)
    """
    placement(out_sharding)
    shapes = asarray(alpha)
    if not shapes.ndim:
        raise ShapeError("expected alpha of at least one axis, got a number")
    front = shapes.shape[:-1] if shape is None else axes.shape(shape)
    logs = loggamma(key, shapes, (*front, shapes.shape[-1]), dtype)
    parts = jnp.exp(logs - jnp.max(logs, -1, keepdims=True))
    return parts / jnp.sum(parts, -1, keepdims=True)


@_family()
def chisquare(key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None,
              dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the chi-square distribution: sums of squares of ``df`` normal numbers.

    >>> random.chisquare(random.key(0), 3.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (n,) = sized(shape, dtype, df)
    return jnp.exp(loggamma(key, n / 2, size, kind)) * 2


@_family(dfnum="degrees of freedom of the numerator.", dfden="of the denominator.")
def f(key: ArrayLike, dfnum: ArrayLike, dfden: ArrayLike, shape: ShapeLike | None = None,
      dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the F distribution: the ratio of two chi-square numbers over their degrees.

    >>> random.f(random.key(0), 3.0, 4.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (n, d) = sized(shape, dtype, dfnum, dfden)
    one, two = split(key)
    return chisquare(two, n, size, kind) / n / (chisquare(one, d, size, kind) / d)


@_family()
def t(key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None,
      dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from Student's t distribution.

    >>> random.t(random.key(0), 3.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    size, kind, (n,) = sized(shape, dtype, df)
    one, two = split(key)
    return normal(one, size, kind) * jnp.sqrt(n / 2 / gamma(two, n / 2, size, kind))


@_family()
def generalized_normal(key: ArrayLike, p: ArrayLike, shape: ShapeLike = (),
                       dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw from the generalized normal distribution: density proportional to exp(-abs(x)**p).

    >>> random.generalized_normal(random.key(0), 2.0, (2,)).shape
    (2,)
    """
    placement(out_sharding)
    one, two = split(key)
    power = 1 / asarray(p)
    size = gamma(one, power, shape, dtype)
    return rademacher(two, shape, dtype) * size ** power


@_family(d="how many dimensions.", p="of the norm.", shape="of the result without its last axis.")
def ball(key: ArrayLike, d: int, p: float = 2, shape: ShapeLike = (),
         dtype: DTypeLike | None = None, *, out_sharding: Placement = None) -> Array:
    """Draw uniform points of the unit ball in the p-norm.

    Source: Barthe, Guedon, Mendelson and Naor, A probabilistic approach to the geometry of the
    l_p^n-ball (2005).

    >>> random.ball(random.key(0), 3).shape
    (3,)
    """
    placement(out_sharding)
    one, two = split(key)
    size = axes.shape(shape)
    g = generalized_normal(one, p, (*size, *axes.shape(d)), dtype)
    e = exponential(two, size, dtype)
    return g / ((jnp.sum(jnp.abs(g) ** p, -1) + e) ** (1 / asarray(p)))[..., None]


@_family(mean="a vector, or several.", cov="a positive definite matrix, or several.",
         shape="of the result without its last axis.", method='"cholesky".',
         raises=("ShapeError: a covariance of another shape than the mean.",
                 "ArgumentError: another method: svd and eigh are not built."))
def multivariate_normal(key: ArrayLike, mean: ArrayLike, cov: ArrayLike,
                        shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
                        method: str = "cholesky", *, out_sharding: Placement = None) -> Array:
    """Draw normal vectors with a mean and a covariance.

    >>> random.multivariate_normal(random.key(0), jnp.zeros(2), jnp.eye(2)).shape
    (2,)
    """
    placement(out_sharding)
    if method != "cholesky":
        raise ArgumentError(f"expected method 'cholesky', got {method!r}",
                            hint="svd and eigh are not built")
    kind = float_dtype(dtype)
    m, c = asarray(mean).astype(kind.np), asarray(cov).astype(kind.np)
    if m.ndim < 1 or c.shape[-2:] != (m.shape[-1],) * 2:
        raise ShapeError(f"expected a vector and a square matrix, got shapes {m.shape} and "
                         f"{c.shape}")
    front = axes.broadcast_shapes(m.shape[:-1], c.shape[:-2])
    size = front if shape is None else axes.shape(shape)
    draws = normal(key, (*size, m.shape[-1]), kind)
    return m + jnp.matvec(cholesky_factor(c), draws)


def cholesky_factor(c: Array) -> Array:
    """Return the lower Cholesky factor, computed column by column."""
    n = c.shape[-1]
    columns: list[Array] = []
    for j in range(n):
        left = c[..., j]
        for done in columns:
            left = left - done * done[..., j:j + 1]
        column = left / jnp.sqrt(left[..., j:j + 1])
        columns.append(jnp.where(np.arange(n) < j, 0, column))
    return jnp.stack(columns, -1)
