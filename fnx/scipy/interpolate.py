"""Interpolation on rectangular grids, as in ``jax.scipy.interpolate``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments, pytree_registry
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.promotion import as_float
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    NotBuiltError,
    ShapeError,
    TracedValueError,
    lazy_module,
)

__all__ = ["RegularGridInterpolator"]

Method = Literal["linear", "nearest"]
_METHODS = ("linear", "nearest")


class RegularGridInterpolator:
    """A function that interpolates values on a rectangular grid. It is a pytree.

    Args:
        points: for each of the first axes of ``values``, its coordinates, strictly increasing.
        values: the values on the grid; further axes are components of a value.
        method: "linear" or "nearest".
        bounds_error: must be False: points outside cannot raise in a compiled function.
        fill_value: the value outside of the grid; None extrapolates.

    Raises:
        ShapeError: the coordinates do not fit the values.
        ArgumentError: coordinates do not increase (checked if they are not traced), or the method
            is unknown.
        NotBuiltError: ``bounds_error`` is True.
        DTypeError: ``fill_value`` is complex and the values are not.

    >>> import fnx.numpy as jnp
    >>> x, y = jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray([4.0, 5.0])
    >>> f = RegularGridInterpolator((x, y), x[:, None] * y)
    >>> print(f(jnp.asarray([[1.5, 4.5], [2.0, 5.0]])))
    [ 6.75 10.  ]
    """

    def __init__(self, points: Sequence[ArrayLike], values: ArrayLike, method: Method = "linear",
                 bounds_error: bool = False, fill_value: ArrayLike | None = np.nan) -> None:
        arguments.check_choice("method", method, _METHODS)
        arguments.check_bool("bounds_error", bounds_error)
        if bounds_error:
            raise NotBuiltError("points outside of the grid cannot raise",
                                hint="use fill_value=nan and look for NaN in the result")
        self.method: Method = method
        self.bounds_error: bool = bounds_error
        self.values = as_float(values)
        self.grid = tuple([asarray(p) for p in points])
        if len(self.grid) > self.values.ndim:
            raise ShapeError(f"expected coordinates for at most {self.values.ndim} axes, got "
                             f"{len(self.grid)}")
        for at, (axis, size) in enumerate(zip(self.grid, self.values.shape)):
            if axis.shape != (size,) or size < 2:
                raise ShapeError(f"expected coordinates of axis {at} of shape ({size},), at least "
                                 f"2, got shape {axis.shape}")
            if not _may_increase(axis):
                raise ArgumentError(f"expected strictly increasing coordinates of axis {at}",
                                    hint="sort them, and the values along this axis")
        self.fill_value = None if fill_value is None else asarray(fill_value)
        if self.fill_value is not None and \
                not np.can_cast(self.fill_value.dtype, self.values.dtype, "same_kind"):
            raise DTypeError(f"expected fill_value as {self.values.dtype}, got "
                             f"{self.fill_value.dtype}")

    @public_api
    def __call__(self, xi: Any, method: Method | None = None) -> Array:
        """Interpolate at points.

        Args:
            xi: points, with one coordinate for each axis of the grid in the last axis; or a tuple
                of arrays, one for each axis.
            method: "linear" or "nearest"; by default that of the interpolator.

        Returns:
            An Array of the shape of the points and of the components of a value.

        Raises:
            ShapeError: the points have not one coordinate for each axis.
            ArgumentError: the method is unknown.

        >>> f = RegularGridInterpolator((jnp.arange(3),), jnp.asarray([0.0, 1.0, 4.0]))
        >>> print(f(1.5))
        [2.5]
        """
        method = self.method if method is None else method
        arguments.check_choice("method", method, _METHODS)
        points = _stack_coordinates(xi, len(self.grid))
        flat = points.reshape(-1, len(self.grid))
        lower, fractions, outside = self._locate(flat)
        result = self._linear(lower, fractions) if method == "linear" else self.values[tuple(
            [jnp.where(t <= 0.5, i, i + 1) for i, t in zip(lower, fractions)])]
        if self.fill_value is not None:
            mask = outside.reshape(outside.shape + (1,) * (result.ndim - 1))
            result = jnp.where(mask, self.fill_value, result)
        return result.reshape(points.shape[:-1] + self.values.shape[len(self.grid):])

    def _locate(self, points: Array) -> tuple[list[Array], list[Array], Array]:
        """Return for each axis the lower neighbors and the fractions between neighbors, and which
        points are outside."""
        lower, fractions = [], []
        outside = jnp.zeros(points.shape[0], "bool")
        for at, axis in enumerate(self.grid):
            x = points[:, at]
            i = jnp.clip(jnp.searchsorted(axis, x) - 1, 0, axis.size - 2)
            lower.append(i)
            fractions.append((x - axis[i]) / (axis[i + 1] - axis[i]))
            outside = outside | (x < axis[0]) | (x > axis[-1])
        return lower, fractions, outside

    def _linear(self, lower: Sequence[Array], fractions: Sequence[Array]) -> Array:
        components = (1,) * (self.values.ndim - len(self.grid))
        total: Array | None = None
        for corner in itertools.product((0, 1), repeat=len(self.grid)):
            weight: Array | None = None
            for up, t in zip(corner, fractions):
                factor = t if up else 1 - t
                weight = factor if weight is None else weight * factor
            value = self.values[tuple([i + up for i, up in zip(lower, corner)])]
            if weight is not None:
                value = value * weight.reshape(weight.shape + components)
            total = value if total is None else total + value
        assert total is not None
        return total


def _may_increase(axis: Array) -> bool:
    """Whether coordinates increase strictly; True if they are traced."""
    try:
        values = np.asarray(axis)
    except TracedValueError:
        return True
    return bool((values[1:] > values[:-1]).all())


def _stack_coordinates(xi: Any, n: int) -> Array:
    """Return points with their n coordinates in the last axis."""
    if isinstance(xi, tuple) and len(xi) == 1:
        xi = xi[0]
    if isinstance(xi, tuple):
        points = jnp.stack(jnp.broadcast_arrays(*[as_float(x) for x in xi]), -1)
    else:
        points = asarray(xi)
        points = points.reshape(-1, n) if points.ndim < 2 and points.size % n == 0 else points
    if not points.ndim or points.shape[-1] != n:
        raise ShapeError(f"expected points with {n} coordinates in the last axis, got shape "
                         f"{points.shape}")
    return points


pytree_registry.register_pytree_node(
    RegularGridInterpolator,
    lambda f: ((f.grid, f.values, f.fill_value), (f.method, f.bounds_error)),
    lambda data, children: _restore(data, children))


def _restore(data: tuple[Method, bool], children: Sequence[Any]) -> RegularGridInterpolator:
    f = object.__new__(RegularGridInterpolator)  # without checks: leaves may be anything
    f.grid, f.values, f.fill_value = children
    f.method, f.bounds_error = data
    return f


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
