"""Continuous distributions that are derived from uniform, normal and gamma numbers.

Each consumes random bits in the same order as JAX 0.10, so that the same key gives the same
numbers up to rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import as_operand
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.random.inverse_cdf import exponential, normal
from fnx.random.keys import key_argument, split
from fnx.random.uniform_samplers import (
    ShardingLike,
    float_dtype,
    public_sampler,
    rademacher,
    uniform,
)
from fnx.transforms.vmap import vmap

_MOST_UNROLLED = 16  # rows of a covariance whose factor is computed by fused elementwise kernels

bit_ops = lazy_import("fnx.lax.bit_ops")
custom_jvp = lazy_import("fnx.transforms.custom.jvp")
special = lazy_import("fnx.scipy.special")
while_loop = lazy_import("fnx.transforms.control_flow.while_loop", "while_loop")

__all__ = [
    "ball", "beta", "cauchy", "chisquare", "dirichlet", "double_sided_maxwell", "f", "gamma",
    "generalized_normal", "loggamma", "lognormal", "maxwell", "multivariate_normal", "orthogonal",
    "pareto", "rayleigh", "t", "triangular", "wald", "weibull_min",
]

_docstr = DocTemplate(
    key="a key from ``random.key``.",
    shape="the result shape; by default that of the parameters.",
    dtype="a float dtype; by default the default float.", a="the shape parameter.",
    b="the second shape parameter.", df="degrees of freedom.", mean="the mean.",
    scale="the scale factor.", loc="the offset.", p="the power.",
    returns="An Array.", imports="fnx.random as random", wrap=public_sampler,
    raises=("ShapeError: not one key, or the parameters do not broadcast.",
            "DTypeError: not a float dtype."))


def broadcast_params(shape: ShapeLike | None, dtype: DTypeLike | None, *parameters: ArrayLike
                     ) -> tuple[tuple[int, ...], Any, list[Array]]:
    """Return the shape of the result, its dtype, and the parameters broadcast to the shape."""
    kind = float_dtype(dtype)
    arrays = [asarray(as_operand(p)).astype(kind.np) for p in parameters]
    common = axes.broadcast_shapes(*[p.shape for p in arrays])
    size = common if shape is None else axes.normalize_shape(shape)
    if axes.broadcast_shapes(common, size) != size:
        raise ShapeError(f"expected parameters that broadcast to {size}, got shape {common}")
    return size, kind, [jnp.broadcast_to(p, size) for p in arrays]


@_docstr()
def cauchy(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
           out_sharding: ShardingLike = None) -> Array:
    """Draw from the Cauchy distribution, of density 1 / (pi (1 + x**2)).

    >>> random.cauchy(random.key(0), (2,)).shape
    (2,)
    """
    t = float_dtype(dtype)
    u = uniform(key, shape, t, float(jnp.finfo(t.np).eps), 1.0)
    return jnp.tan(math.pi * (u - 0.5))


@_docstr(sigma="the standard deviation of the logarithm.")
def lognormal(key: ArrayLike, sigma: ArrayLike = 1.0, shape: ShapeLike | None = None,
              dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the log-normal distribution: numbers whose logarithm is normal.

    >>> random.lognormal(random.key(0), shape=(2,)).shape
    (2,)
    """
    size, kind, (s,) = broadcast_params(shape, dtype, sigma)
    return jnp.exp(normal(key, size, kind) * s)


@_docstr()
def maxwell(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
            out_sharding: ShardingLike = None) -> Array:
    """Draw from the Maxwell distribution: lengths of vectors of three normal numbers.

    >>> random.maxwell(random.key(0), (2,)).shape
    (2,)
    """
    draws = normal(key, (*axes.normalize_shape(shape), 3), dtype)
    return jnp.linalg.norm(draws, axis=-1)


@_docstr()
def double_sided_maxwell(key: ArrayLike, loc: ArrayLike, scale: ArrayLike, shape: ShapeLike = (),
                         dtype: DTypeLike | None = None) -> Array:
    """Draw Maxwell numbers with random signs, times ``scale``, plus ``loc``.

    >>> random.double_sided_maxwell(random.key(0), 0.0, 1.0, (2,)).shape
    (2,)
    """
    one, two = split(key)
    common = axes.broadcast_shapes(np.shape(loc), np.shape(scale))
    size = (axes.normalize_shape(shape) or common) + common
    return rademacher(two, size, dtype) * maxwell(one, size, dtype) * scale + loc


@_docstr(concentration="the shape parameter.")
def weibull_min(key: ArrayLike, scale: ArrayLike, concentration: ArrayLike, shape: ShapeLike = (),
                dtype: DTypeLike | None = None) -> Array:
    """Draw from the Weibull distribution.

    >>> random.weibull_min(random.key(0), 1.0, 2.0, (2,)).shape
    (2,)
    """
    u = uniform(key, shape, dtype)
    return jnp.power(-jnp.log1p(-u), 1.0 / asarray(concentration)) * scale


@_docstr()
def rayleigh(key: ArrayLike, scale: ArrayLike, shape: ShapeLike | None = None,
             dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the Rayleigh distribution: lengths of vectors of two normal numbers.

    >>> random.rayleigh(random.key(0), 1.0, (2,)).shape
    (2,)
    """
    size, kind, (s,) = broadcast_params(shape, dtype, scale)
    return s * jnp.sqrt(jnp.log(uniform(key, size, kind)) * -2)


@_docstr(b="the tail exponent.")
def pareto(key: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None,
           dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the Pareto distribution, of density b / x**(b + 1) for x >= 1.

    >>> random.pareto(random.key(0), 2.0, (2,)).shape
    (2,)
    """
    size, kind, (power,) = broadcast_params(shape, dtype, b)
    return jnp.exp(exponential(key, size, kind) / power)


@_docstr()
def wald(key: ArrayLike, mean: ArrayLike, shape: ShapeLike | None = None,
         dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the inverse Gaussian (Wald) distribution of scale 1.

    Source: Michael, Schucany and Haas, Generating random variates using transformations with
    multiple roots (1976).

    >>> random.wald(random.key(0), 1.0, (2,)).shape
    (2,)
    """
    size, kind, (m,) = broadcast_params(shape, dtype, mean)
    one, two = split(key)
    y, z = normal(one, size, kind) ** 2, uniform(two, size, kind)
    x = m + m * m * y / 2 - m / 2 * jnp.sqrt(4 * m * y + m * m * (y * y))
    return jnp.where(z <= m / (m + x), x, m * m / x)


@_docstr(left="the minimum.", mode="the most likely value.", right="the maximum.")
def triangular(key: ArrayLike, left: ArrayLike, mode: ArrayLike, right: ArrayLike,
               shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
               out_sharding: ShardingLike = None) -> Array:
    """Draw from the triangular distribution, whose density peaks at ``mode``.

    >>> random.triangular(random.key(0), 0.0, 1.0, 2.0, (2,)).shape
    (2,)
    """
    size, kind, (low, middle, high) = broadcast_params(shape, dtype, left, mode,
                                                       right)
    u = uniform(key, size, kind)
    rising = low + jnp.sqrt(u * (high - low) * (middle - low))
    falling = high - jnp.sqrt((1 - u) * (high - low) * (high - middle))
    return jnp.where(u < (middle - low) / (high - low), rising, falling)


# ---- derived from gamma numbers -----------------------------------------------------------------


def _draw_gamma(key: Array, a: Array, log_space: bool) -> Array:
    """Draw one gamma number.

    Source: Marsaglia and Tsang, A simple method for generating gamma variables (2000).
    """
    large = a >= 1
    third = np.array(1 / 3, a.dtype)[()]
    d = jnp.where(large, a, a + 1) - third
    c = third / jnp.sqrt(d)
    key, boost_key = split(key)
    zero, one = jnp.zeros_like(a), jnp.ones_like(a)

    def is_rejected(state: Any) -> Any:
        _, square, v, u = state
        log_test = jnp.log(u) >= square * 0.5 + d * (1 - v + jnp.log(v))
        return (u >= 1 - 0.0331 * square * square) & log_test

    def draw(state: Any) -> Any:
        k, _, _ = state
        k, subkey = split(k)
        x = normal(subkey, (), a.dtype)
        return k, x, 1 + x * c

    def step(state: Any) -> Any:
        k, normal_key, uniform_key = split(state[0], 3)
        _, x, v = while_loop(lambda s: s[2] <= 0, draw, (normal_key, zero, -one))
        return k, x * x, v * v * v, uniform(uniform_key, (), a.dtype)
    _, _, v, _ = while_loop(is_rejected, step, (key, zero, one, 2 * one))
    if log_space:
        log_uniform = -exponential(boost_key, (), a.dtype)
        boost = jnp.where(large | (log_uniform == 0), 0, log_uniform * (1 / a))
        return asarray(jnp.log(d) + jnp.log(v) + boost)
    boost = jnp.where(large, 1, jnp.power(1 - uniform(boost_key, (), a.dtype), 1 / a))
    return asarray(d * v * boost)


def _gamma_samples(key: ArrayLike, a: Array, log_space: bool) -> Array:
    """Draw gamma numbers; within a trace they are differentiable with respect to a."""
    if not a.size:
        return a
    out: Array = (_gamma_samplers()[log_space] if scope.is_open() else functools.partial(
        _draw_gammas, log_space))(key_argument(key), a)
    return out


def _draw_gammas(log_space: bool, key: Array, a: Array) -> Array:
    keys = split(key, a.size)
    samples = vmap(lambda k, x: _draw_gamma(k, x, log_space))(keys, a.ravel())
    return asarray(samples).reshape(a.shape)


@functools.cache
def _gamma_samplers() -> tuple[Any, Any]:
    return _gamma_sampler(False), _gamma_sampler(True)


def _gamma_sampler(log_space: bool) -> Any:
    """Return the sampler with an implicit derivative by the shape parameter, at constant CDF.

    Differentiating through the steps of the sampler would ignore which proposal is accepted.
    """
    rule = custom_jvp.custom_jvp(functools.partial(_draw_gammas, log_space))
    grad = _log_gamma_grad if log_space else bit_ops.random_gamma_grad

    def jvp(primals: Any, tangents: Any) -> Any:
        samples = rule(*primals)
        return samples, grad(primals[1], samples) * tangents[1]
    rule.defjvp(jvp)
    return rule


def _log_gamma_grad(a: Array, log: Array) -> Array:
    """Return the derivative of the logarithm of a gamma number by the shape parameter.

    For small x the CDF is x**a / gamma(a + 1).
    """
    is_small = log < math.log(np.finfo(a.dtype).eps) if a.dtype.itemsize > 2 else log < -8
    x = jnp.exp(jnp.where(is_small, 0, log))
    small_grad = (special.digamma(a + 1) - log) / a
    return asarray(jnp.where(is_small, small_grad, bit_ops.random_gamma_grad(a, x) / x))


@_docstr()
def gamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None,
          dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the gamma distribution, of density x**(a - 1) exp(-x) / gamma(a).

    Source: Marsaglia and Tsang, A simple method for generating gamma variables (2000).

    >>> random.gamma(random.key(0), 2.0, (2,)).shape
    (2,)
    """
    _, _, (shapes,) = broadcast_params(shape, dtype, a)
    return _gamma_samples(key, shapes, False)


@_docstr()
def loggamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None,
             dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw logarithms of gamma numbers, which do not underflow for small a.

    >>> random.loggamma(random.key(0), 0.1, (2,)).shape
    (2,)
    """
    _, _, (shapes,) = broadcast_params(shape, dtype, a)
    return _gamma_samples(key, shapes, True)


@_docstr()
def beta(key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None,
         dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the beta distribution, of density x**(a - 1) (1 - x)**(b - 1) / beta(a, b).

    >>> random.beta(random.key(0), 2.0, 3.0, (2,)).shape
    (2,)
    """
    size, kind, (p, q) = broadcast_params(shape, dtype, a, b)
    one, two = split(key)
    x, y = loggamma(one, p, size, kind), loggamma(two, q, size, kind)
    max_log = jnp.maximum(x, y)
    x, y = jnp.exp(x - max_log), jnp.exp(y - max_log)
    return x / (x + y)


@_docstr(alpha="shape parameters, along the last axis.",
         shape="the result shape without its last axis; by default alpha's.")
def dirichlet(key: ArrayLike, alpha: ArrayLike, shape: ShapeLike | None = None,
              dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the Dirichlet distribution: density proportional to the product of p**(alpha - 1).

    >>> random.dirichlet(random.key(0), jnp.ones(3)).shape
    (3,)
    """
    shapes = asarray(alpha)
    if not shapes.ndim:
        raise ShapeError("expected alpha of rank >= 1, got a scalar")
    front = shapes.shape[:-1] if shape is None else axes.normalize_shape(shape)
    logs = loggamma(key, shapes, (*front, shapes.shape[-1]), dtype)
    parts = jnp.exp(logs - jnp.max(logs, -1, keepdims=True))
    return parts / jnp.sum(parts, -1, keepdims=True)


@_docstr()
def chisquare(key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None,
              dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the chi-square distribution: sums of squares of ``df`` normal numbers.

    >>> random.chisquare(random.key(0), 3.0, (2,)).shape
    (2,)
    """
    size, kind, (n,) = broadcast_params(shape, dtype, df)
    return jnp.exp(loggamma(key, n / 2, size, kind)) * 2


@_docstr(dfnum="degrees of freedom of the numerator.", dfden="those of the denominator.")
def f(key: ArrayLike, dfnum: ArrayLike, dfden: ArrayLike, shape: ShapeLike | None = None,
      dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from the F distribution: the ratio of two chi-square numbers over their degrees.

    >>> random.f(random.key(0), 3.0, 4.0, (2,)).shape
    (2,)
    """
    size, kind, (n, d) = broadcast_params(shape, dtype, dfnum, dfden)
    one, two = split(key)
    return chisquare(two, n, size, kind) / n / (chisquare(one, d, size, kind) / d)


@_docstr()
def t(key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None,
      dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw from Student's t distribution.

    >>> random.t(random.key(0), 3.0, (2,)).shape
    (2,)
    """
    size, kind, (n,) = broadcast_params(shape, dtype, df)
    one, two = split(key)
    return normal(one, size, kind) * jnp.sqrt(n / 2 / gamma(two, n / 2, size, kind))


@_docstr()
def generalized_normal(key: ArrayLike, p: ArrayLike, shape: ShapeLike = (),
                       dtype: DTypeLike | None = None, *,
                       out_sharding: ShardingLike = None) -> Array:
    """Draw from the generalized normal distribution: density proportional to exp(-abs(x)**p).

    >>> random.generalized_normal(random.key(0), 2.0, (2,)).shape
    (2,)
    """
    one, two = split(key)
    power = 1 / asarray(p)
    size = gamma(one, power, shape, dtype)
    return rademacher(two, shape, dtype) * size ** power


@_docstr(d="the dimension.", p="the norm's p.", shape="the result shape without its last axis.")
def ball(key: ArrayLike, d: int, p: float = 2, shape: ShapeLike = (),
         dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw uniform points of the unit ball in the p-norm.

    Source: Barthe, Guedon, Mendelson and Naor, A probabilistic approach to the geometry of the
    l_p^n-ball (2005).

    >>> random.ball(random.key(0), 3).shape
    (3,)
    """
    one, two = split(key)
    size = axes.normalize_shape(shape)
    g = generalized_normal(one, p, (*size, *axes.normalize_shape(d)), dtype)
    e = exponential(two, size, dtype)
    return g / ((jnp.sum(jnp.abs(g) ** p, -1) + e) ** (1 / asarray(p)))[..., None]


@_docstr(mean="a vector or a batch.", cov="a positive definite matrix or a batch.",
         shape="the result shape without its last axis.",
         method='the factorization of cov: "cholesky"; "svd" or "eigh", also if it is singular.',
         raises=("ShapeError: mean and covariance do not match.",
                 "ArgumentError: there is no such method."))
def multivariate_normal(key: ArrayLike, mean: ArrayLike, cov: ArrayLike,
                        shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
                        method: str = "cholesky", *, out_sharding: ShardingLike = None) -> Array:
    """Draw normal vectors with a mean and a covariance.

    >>> random.multivariate_normal(random.key(0), jnp.zeros(2), jnp.eye(2)).shape
    (2,)
    """
    if method not in ("cholesky", "svd", "eigh"):
        raise ArgumentError(f"expected method 'cholesky', 'svd' or 'eigh', got {method!r}")
    kind = float_dtype(dtype)
    m, c = asarray(mean).astype(kind.np), asarray(cov).astype(kind.np)
    if m.ndim < 1 or c.shape[-2:] != (m.shape[-1],) * 2:
        raise ShapeError(f"expected a vector and a square matrix, got shapes {m.shape} and "
                         f"{c.shape}")
    front = axes.broadcast_shapes(m.shape[:-1], c.shape[:-2])
    size = front if shape is None else axes.normalize_shape(shape)
    draws = normal(key, (*size, m.shape[-1]), kind)
    return m + jnp.matvec(_FACTORS[method](c), draws)


def cholesky_factor(c: Array) -> Array:
    """Return the lower Cholesky factor; of a few rows computed column by column."""
    n = c.shape[-1]
    if n > _MOST_UNROLLED:
        factor: Array = jnp.linalg.cholesky(c)
        return factor
    columns: list[Array] = []
    for j in range(n):
        residual = c[..., j]
        for previous in columns:
            residual = residual - previous * previous[..., j:j + 1]
        column = residual / jnp.sqrt(residual[..., j:j + 1])
        columns.append(jnp.where(jnp.arange(n) < j, 0, column))
    return jnp.stack(columns, -1)


def _svd_factor(c: Array) -> Array:
    u, s, _ = jnp.linalg.svd(c)
    factor: Array = u * jnp.sqrt(s[..., None, :])
    return factor


def _eigen_factor(c: Array) -> Array:
    w, v = jnp.linalg.eigh(c)
    return v * jnp.sqrt(w[..., None, :])


_FACTORS: dict[str, Callable[[Array], Array]] = {
    "cholesky": cholesky_factor, "svd": _svd_factor, "eigh": _eigen_factor}


@_docstr(n="the number of rows: an int.", shape="batch axes.",
         m="the number of columns; None: n. With n < m the rows are orthonormal.",
         raises=("ArgumentError: n or m is not an int >= 0.",))
def orthogonal(key: ArrayLike, n: int, shape: ShapeLike = (), dtype: DTypeLike | None = None,
               m: int | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw uniformly distributed orthogonal matrices.

    Source: Mezzadri, How to generate random matrices from the classical compact groups (2007).

    >>> random.orthogonal(random.key(0), 3, (2,)).shape
    (2, 3, 3)
    """
    rows = arguments.check_int("n", n)
    columns = rows if m is None else arguments.check_int("m", m)
    if min(rows, columns) < 0:
        raise ArgumentError(f"expected n >= 0 and m >= 0, got {n} and {m}")
    size = (*axes.normalize_shape(shape), max(rows, columns), min(rows, columns))
    q, r = jnp.linalg.qr(normal(key, size, dtype))
    out: Array = q * jnp.sign(jnp.diagonal(r, 0, -2, -1))[..., None, :]
    return jnp.swapaxes(out, -1, -2) if rows < columns else out
