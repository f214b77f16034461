"""Interpolation of images at any coordinates, as in ``jax.scipy.ndimage``."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.float32_compute import compute_in_float32
from fnx.core.support.errors import ArgumentError, NotBuiltError, ShapeError, lazy_module

__all__ = ["map_coordinates"]

Mode = Literal["constant", "nearest", "wrap", "mirror", "reflect"]


def _reflect_at_samples(index: Array, size: int) -> Array:
    """Return the index in a signal that is mirrored at its first and last sample: 2 1 0 1 2 1."""
    last = size - 1
    return jnp.abs((index + last) % max(2 * last, 1) - last)


def _reflect_at_edges(index: Array, size: int) -> Array:
    """Return the index in a signal that is mirrored half a sample outside: 1 0 0 1 2 2 1."""
    return (_reflect_at_samples(2 * index + 1, 2 * size + 1) - 1) // 2


_INDEX_MAPS: dict[str, Callable[[Array, int], Array]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _reflect_at_samples,
    "reflect": _reflect_at_edges,
}


def _neighbors(coordinate: Array, order: int) -> list[tuple[Array, Array]]:
    """Return (index, weight) of the samples that a coordinate along one axis reads."""
    if order == 0:
        return [(_round_half_away(coordinate).astype("int32"), jnp.ones_like(coordinate))]
    lower = jnp.floor(coordinate)
    upper_weight = coordinate - lower
    index = lower.astype("int32")
    return [(index, 1 - upper_weight), (index + 1, upper_weight)]


def _round_half_away(x: Array) -> Array:
    return x if x._dtype.is_integer else jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


@compute_in_float32
def map_coordinates(input: ArrayLike, coordinates: Sequence[ArrayLike], order: int,
                    mode: Mode = "constant", cval: ArrayLike = 0.0) -> Array:
    """Interpolate an array at coordinates.

    Args:
        input: an Array or array-like.
        coordinates: for each axis of ``input`` an array of positions, in samples; their shapes
            broadcast.
        order: 0 for the nearest sample, 1 for linear interpolation.
        mode: what is outside: "constant" (``cval``), "nearest" (the last sample), "wrap", "mirror"
            (at the last sample) or "reflect" (half a sample after it).
        cval: the value outside for mode "constant".

    Returns:
        An Array of the shape of the coordinates and the dtype of ``input``; integers are rounded.

    Raises:
        ShapeError: not as many coordinates as axes, or ``input`` is empty.
        NotBuiltError: the order is above 1.
        ArgumentError: the order is negative, or the mode is unknown.

    >>> import fnx.numpy as jnp
    >>> image = jnp.arange(12.0).reshape(3, 4)
    >>> print(map_coordinates(image, [jnp.asarray([0.5, 1.5]), jnp.asarray([1.5, 2.5])], order=1))
    [3.5 8.5]
    """
    arguments.check_choice("mode", mode, tuple(_INDEX_MAPS))
    degree = arguments.check_int("order", order)
    if degree < 0:
        raise ArgumentError(f"expected order 0 or 1, got {degree}")
    if degree > 1:
        raise NotBuiltError(f"splines of order {degree} are not implemented",
                            hint="use order=1")
    image = asarray(input)
    points = [asarray(c) for c in coordinates]
    if len(points) != image.ndim:
        raise ShapeError(f"expected coordinates for {image.ndim} axes, got {len(points)}",
                         hint="give one array for each axis of the input")
    if not image.size:
        raise ShapeError(f"expected an input with elements, got shape {image.shape}")
    outside = asarray(cval).astype(image.dtype)
    axes = [[(_INDEX_MAPS[mode](index, size), (index >= 0) & (index < size), weight)
             for index, weight in _neighbors(point, degree)]
            for point, size in zip(points, image.shape)]
    total: Array | None = None
    for corner in itertools.product(*axes):
        value = image.at[tuple([index for index, _, _ in corner])].get(mode="clip")
        if mode == "constant":
            inside = functools.reduce(operator.and_, [is_inside for _, is_inside, _ in corner])
            value = jnp.where(inside, value, outside)
        term = functools.reduce(operator.mul, [weight for _, _, weight in corner]) * value
        total = term if total is None else total + term
    result = image if total is None else total
    return (_round_half_away(result) if image._dtype.is_integer else result).astype(image.dtype)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
