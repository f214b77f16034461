"""Kernel density estimation, as in ``jax.scipy.stats.gaussian_kde``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fnx.nn as nn
import fnx.numpy as jnp
import fnx.random as random
from fnx.core.array import axes, pytree_registry
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.promotion import as_float, promote_arrays
from fnx.core.support.errors import ArgumentError, MutationError, NotBuiltError, ShapeError
from fnx.lax.special_functions import ndtr

__all__ = ["gaussian_kde"]

_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


class gaussian_kde:
    """An estimate of a density: normal densities of one covariance around the data. It is a pytree.

    Args:
        dataset: the data, of shape (n,) or (dimensions, n).
        bw_method: the factor of the covariance's root: "scott" (the default), "silverman", a
            number, or a function of the estimate.
        weights: of the n data; by default equal.

    Raises:
        ShapeError: there are fewer than two elements, or not n weights.
        ArgumentError: unknown ``bw_method``.

    >>> import fnx.numpy as jnp
    >>> from fnx.scipy.stats import gaussian_kde
    >>> kde = gaussian_kde(jnp.asarray([-1.0, 0.0, 1.0]))
    >>> print(kde(0.0).round(4))
    [0.3182]
    """

    neff: Array
    dataset: Array
    weights: Array
    covariance: Array
    inv_cov: Array

    def __init__(self, dataset: ArrayLike,
                 bw_method: str | ArrayLike | Callable[[Any], Any] | None = None,
                 weights: ArrayLike | None = None) -> None:
        data = _as_columns(dataset)
        if data.size < 2:
            raise ShapeError(f"expected at least two elements, got shape {data.shape}")
        n = data.shape[1]
        if weights is None:
            w = jnp.full(n, 1 / n, data.dtype)
        else:
            data, w = promote_arrays("gaussian_kde", data, asarray(weights))
            if w.shape != (n,):
                raise ShapeError(f"expected {n} weights, got shape {w.shape}")
            w = w / w.sum()
        self._set(dataset=data, weights=w, neff=1 / (w * w).sum())
        factor = self._bandwidth(bw_method)
        covariance = jnp.cov(data, rowvar=True, bias=False, aweights=w).reshape(self.d, self.d)
        self._set(covariance=covariance * factor ** 2,
                  inv_cov=jnp.linalg.inv(covariance) / factor ** 2)

    def _set(self, **fields: Any) -> None:
        vars(self).update(fields)

    def __setattr__(self, name: str, value: Any) -> None:
        raise MutationError(f"expected no assignment to {name}: the estimate is immutable",
                            hint="make another gaussian_kde")

    def _bandwidth(self, method: Any) -> Any:
        power = -1 / (self.d + 4)
        if method is None or isinstance(method, str) and method == "scott":
            return self.neff ** power
        if isinstance(method, str) and method == "silverman":
            return (self.neff * (self.d + 2) / 4) ** power
        if isinstance(method, str):
            raise ArgumentError("expected bw_method 'scott', 'silverman', a number or a function, "
                                f"got {method!r}")
        return method(self) if callable(method) else asarray(method)

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of data."""
        return self.dataset.shape[1]

    @public_api
    def evaluate(self, points: ArrayLike) -> Array:
        """Return the density at points.

        Args:
            points: of shape (m,) or (dimensions, m).

        Raises:
            ShapeError: the dimensions differ.
        """
        return jnp.exp(self._log_kernels(points)) @ self.weights

    __call__ = evaluate
    pdf = evaluate

    @public_api
    def logpdf(self, x: ArrayLike) -> Array:
        """Return the logarithm of the density at points.

        Args:
            x: of shape (m,) or (dimensions, m).

        Raises:
            ShapeError: the dimensions differ.
        """
        total: Array = nn.logsumexp(self._log_kernels(x) + jnp.log(self.weights), axis=1)
        return total

    def _log_kernels(self, points: ArrayLike) -> Array:
        """Return the logarithms of the normal densities, of shape (points, data)."""
        x = self._check_points(points)
        factor = jnp.linalg.cholesky(self.inv_cov)
        deviation = (x.T @ factor)[:, None] - self.dataset.T @ factor
        log_norm = jnp.log(jnp.diagonal(factor)).sum() - 0.5 * self.d * math.log(2 * math.pi)
        return log_norm - 0.5 * (deviation * deviation).sum(-1)

    def _check_points(self, points: ArrayLike) -> Array:
        x = _as_columns(points)
        if x.shape[0] != self.d:
            if x.shape != (1, self.d):
                raise ShapeError(f"expected points of {self.d} dimensions, got shape {x.shape}",
                                 hint="the first axis has the dimensions")
            x = x.T
        return x

    @public_api
    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """Return the integral of the density times a normal density.

        Args:
            mean: the mean of the normal density.
            cov: its covariance.

        Raises:
            ShapeError: the dimensions differ.
        """
        center, spread = as_float(mean), as_float(cov)
        if center.size != self.d or spread.size != self.d ** 2:
            raise ShapeError(f"expected a mean and a covariance of {self.d} dimensions, got "
                             f"shapes {center.shape} and {spread.shape}")
        total = self.covariance + spread.reshape(self.d, self.d)
        return _normal_products(total, self.dataset, center.reshape(self.d, 1)) @ self.weights

    @public_api
    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """Return the integral of a density of one dimension between two numbers.

        Args:
            low: the lower limit.
            high: the upper limit.

        Raises:
            ShapeError: there are several dimensions, or the limits are no numbers.
        """
        a, b = as_float(low), as_float(high)
        if self.d != 1 or a.ndim or b.ndim:
            raise ShapeError(f"expected one dimension and two numbers, got {self.d} and shapes "
                             f"{a.shape} and {b.shape}")
        deviation, data = jnp.sqrt(self.covariance[0, 0]), self.dataset[0]
        return (self.weights * (ndtr((b - data) / deviation) - ndtr((a - data) / deviation))).sum()

    @public_api
    def integrate_kde(self, other: gaussian_kde) -> Array:
        """Return the integral of the product of two densities.

        Args:
            other: the other estimate.

        Raises:
            ShapeError: the dimensions differ.
        """
        if other.d != self.d:
            raise ShapeError(f"expected an estimate of {self.d} dimensions, got {other.d}")
        total = self.covariance + other.covariance
        products = _normal_products(total, self.dataset[:, None, :], other.dataset[:, :, None])
        return other.weights @ (products @ self.weights)

    @public_api
    def resample(self, key: ArrayLike, shape: ShapeLike = ()) -> Array:
        """Draw from the density.

        Args:
            key: a key of ``fnx.random``.
            shape: of the draws.

        Returns:
            An Array of shape (dimensions, *shape).
        """
        size = axes.normalize_shape(shape)
        one, two = random.split(key)
        index = random.choice(one, self.n, size, p=self.weights)
        noise = random.multivariate_normal(two, jnp.zeros(self.d, self.covariance.dtype),
                                           self.covariance, size, self.dataset.dtype)
        return self.dataset[:, index] + jnp.moveaxis(noise, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Array:
        """Not implemented: use ``integrate_box_1d``."""
        raise NotBuiltError("integrals over boxes are not implemented",
                            hint="use integrate_box_1d for one dimension")

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not implemented: the estimate is immutable."""
        raise NotBuiltError("the bandwidth cannot be set later",
                            hint="make a gaussian_kde with bw_method=")


def _as_columns(x: ArrayLike) -> Array:
    """Return data as floats of shape (dimensions, n)."""
    data = as_float(x)
    if data.ndim > 2:
        raise ShapeError(f"expected data of shape (n,) or (dimensions, n), got {data.shape}")
    return data if data.ndim == 2 else data.reshape(1, -1)


def _normal_products(covariance: Array, a: Array, b: Array) -> Array:
    """Return normal densities of a - b; the first axis has the dimensions."""
    deviation = a - b
    d = deviation.shape[0]
    factor = jnp.linalg.cholesky(covariance)
    flat = deviation.reshape(d, -1)
    energy = (flat * jnp.linalg.solve(covariance, flat)).sum(0)
    log_norm = -jnp.log(jnp.diagonal(factor)).sum() - 0.5 * d * math.log(2 * math.pi)
    return jnp.exp(log_norm - 0.5 * energy).reshape(deviation.shape[1:])


def _restore(_: None, fields: Any) -> gaussian_kde:
    new = object.__new__(gaussian_kde)
    vars(new).update(zip(_FIELDS, fields))
    return new


pytree_registry.register_pytree_node(
    gaussian_kde, lambda kde: ([getattr(kde, name) for name in _FIELDS], None), _restore)
