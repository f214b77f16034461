"""Image resizing, as in ``jax.image``: weighted means of neighboring elements."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import fnx.numpy as jnp
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import as_float
from fnx.core.support.errors import ArgumentError, ShapeError, lazy_module

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """The interpolation method.

    >>> ResizeMethod.from_string("bilinear")
    <ResizeMethod.LINEAR: 1>
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """Return the method of a name.

        Raises:
            ArgumentError: an unknown name.
        """
        arguments.check_choice("method", s, tuple(_NAMES))
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3, "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


def _method(method: Any) -> ResizeMethod:
    return method if isinstance(method, ResizeMethod) else ResizeMethod.from_string(method)


# ---- weights by distance ------------------------------------------------------------------------


def _triangle(x: Array) -> Array:
    return jnp.maximum(0, 1 - x)


def _lanczos(radius: float) -> Callable[[Array], Array]:
    def weight(x: Array) -> Array:
        waves = radius * jnp.sin(math.pi * x) * jnp.sin(math.pi * x / radius)
        square = jnp.where(x != 0, math.pi ** 2 * x ** 2, 1)
        return jnp.where(x > radius, 0.0, jnp.where(x > 1e-3, waves / square, 1))
    return weight


def _cubic(a: float) -> Callable[[Array], Array]:
    """Return Keys's cubic kernel with slope a: -0.5 in his paper, -0.75 in some libraries."""
    def weight(x: Array) -> Array:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return jnp.where(x >= 2, 0.0, jnp.where(x >= 1, far, near))
    return weight


_WEIGHTS: dict[ResizeMethod, Callable[[Array], Array]] = {
    ResizeMethod.LINEAR: _triangle, ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0), ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.75)}
_MIN_WEIGHT_SUM = 1000 * 2.0 ** -23  # a smaller sum of weights counts as zero


def _overlap_weights(n: int, m: int, inverse: Array, shift: Array) -> Array:
    """Return how much of each of n elements each of m results covers: [n, m]."""
    low = jnp.arange(m, dtype=inverse.dtype) * inverse - shift * inverse
    positions = jnp.arange(n, dtype=inverse.dtype)[:, None]
    return jnp.maximum(0.0, jnp.minimum(low + inverse, positions + 1) - jnp.maximum(low, positions))


def _weight_matrix(n: int, m: int, scale: Array, shift: Array, method: ResizeMethod, antialias: bool
                   ) -> Array:
    """Return the weight of each of n elements in each of m results: [n, m]."""
    clamps_edges = method is ResizeMethod.CUBIC_PYTORCH and not antialias
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    inverse = 1.0 / scale
    width = jnp.maximum(inverse, 1.0) if antialias else 1.0
    centre = (jnp.arange(m, dtype=inverse.dtype) + 0.5) * inverse - shift * inverse - 0.5
    margin = 2 if clamps_edges else 0
    positions = jnp.arange(-margin, n + margin, dtype=inverse.dtype)
    if method is ResizeMethod.AREA:
        weights = _overlap_weights(n, m, inverse, shift)
    else:
        weights = _WEIGHTS[method](jnp.abs(centre - positions[:, None]) / width)
    if clamps_edges:  # positions outside the image add to its edge
        clamped = jnp.clip(positions.astype("int32"), 0, n - 1)
        weights = jnp.zeros((n, m), weights.dtype).at[clamped].add(weights)
    total = jnp.sum(weights, 0, keepdims=True)
    weights = jnp.where(jnp.abs(total) > _MIN_WEIGHT_SUM, weights / jnp.where(total != 0, total, 1),
                        0)
    if clamps_edges:
        return weights
    return jnp.where((centre >= -0.5) & (centre <= n - 0.5), weights, 0)


def _resample(x: Array, shape: tuple[int, ...], scaled_axes: Sequence[int], scale: Sequence[Array],
              shift: Sequence[Array], method: ResizeMethod, antialias: bool) -> Array:
    for axis, factor, offset in zip(scaled_axes, scale, shift):
        weights = _weight_matrix(x.shape[axis], shape[axis], factor, offset, method, antialias)
        x = jnp.moveaxis(jnp.tensordot(x, weights.astype(x.dtype), ((axis,), (0,))), -1, axis)
    return x


_docstr = DocTemplate(
    image="an Array of any number of axes.", shape="of the result: ints.",
    method='a name, or a ResizeMethod: "nearest", "linear", "lanczos3", "lanczos5", "cubic", '
           '"cubic-pytorch" or "area".',
    antialias="whether elements are averaged where the result is smaller.",
    spatial_dims="the axes that are scaled.", scale="a factor for each of these axes.",
    translation="how far each of these axes is moved, in elements of the result.",
    returns="An Array of the shape; of a float dtype unless the method is \"nearest\".",
    imports="fnx.image", raises=("ShapeError: another number of axes.",
                                 "ArgumentError: another method."))


def _check_shape(x: Array, shape: ShapeLike) -> tuple[int, ...]:
    lengths = axes.normalize_shape(shape)
    if len(lengths) != x.ndim:
        raise ShapeError(f"expected a shape of {x.ndim} axes, got {lengths}",
                         hint="name every axis, those that stay included")
    return lengths


@_docstr()
def resize(image: ArrayLike, shape: ShapeLike, method: str | ResizeMethod,
           antialias: bool = True, precision: PrecisionLike = "highest") -> Array:
    """Resize an image.

    >>> import fnx.numpy as jnp
    >>> fnx.image.resize(jnp.asarray([0.0, 2.0]), (4,), "linear")
    Array([0. , 0.5, 1.5, 2. ], dtype=float32)
    """
    kind, x = _method(method), asarray(image)
    lengths = _check_shape(x, shape)
    scaled_axes = [i for i, (n, m) in enumerate(zip(x.shape, lengths)) if n != m]
    if kind is ResizeMethod.NEAREST:
        for axis in scaled_axes:
            n, m = x.shape[axis], lengths[axis]
            positions = (jnp.arange(m, dtype="float32") + 0.5) * n / m
            x = jnp.take(x, jnp.floor(positions).astype("int32"), axis, mode="clip")
        return x
    x = as_float(x)
    factors = [jnp.asarray(lengths[i] / x.shape[i] if lengths[i] else 1.0) for i in scaled_axes]
    return _resample(x, lengths, scaled_axes, factors, [jnp.asarray(0.0)] * len(scaled_axes), kind,
                     antialias)


@_docstr(raises=("ShapeError: another number of axes.",
                 "ArgumentError: another method, or \"nearest\"."))
def scale_and_translate(image: ArrayLike, shape: ShapeLike, spatial_dims: Sequence[int],
                        scale: ArrayLike, translation: ArrayLike, method: str | ResizeMethod,
                        antialias: bool = True, precision: PrecisionLike = "highest") -> Array:
    """Scale and translate an image; elements outside it are 0.

    >>> import fnx.numpy as jnp
    >>> one = jnp.ones(1)
    >>> fnx.image.scale_and_translate(jnp.asarray([0.0, 2.0]), (3,), (0,), one, one, "linear")
    Array([0., 0., 2.], dtype=float32)
    """
    kind = _method(method)
    if kind is ResizeMethod.NEAREST:
        raise ArgumentError('expected a method of weights, got "nearest"', hint='use "linear"')
    x = as_float(image)
    scaled_axes = tuple([axes.normalize_axis(i, x.ndim) for i in spatial_dims])
    factors, shifts = map(as_float, (scale, translation))
    if factors.shape != (len(scaled_axes),) or shifts.shape != (len(scaled_axes),):
        raise ShapeError(f"expected a scale and a translation for each of {len(scaled_axes)} "
                         "axes, got "
                         f"shapes {factors.shape} and {shifts.shape}")
    return _resample(x, _check_shape(x, shape), scaled_axes,
                     [factors[i] for i in range(len(scaled_axes))],
                     [shifts[i] for i in range(len(scaled_axes))], kind, antialias)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
