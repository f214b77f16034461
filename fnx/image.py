"""Image resizing, as in ``jax.image``: weighted means of neighboring elements.

    resize                one axis after the other: for each result a window of elements
    scale_and_translate   the scale may be traced: products with a matrix of weights
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import as_float
from fnx.core.support.errors import ArgumentError, ShapeError, lazy_module
from fnx.numpy.weighted_windows import Windows, cubic_far, cubic_near, weigh_windows

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


# ---- weights by distance: of Arrays, or of NumPy arrays -----------------------------------------

Numbers = Any
Weight = Callable[[Any, Numbers], Numbers]


def _triangle(np_: Any, x: Numbers) -> Numbers:
    return np_.maximum(0, 1 - x)


def _lanczos(radius: float) -> Weight:
    def weight(np_: Any, x: Numbers) -> Numbers:
        waves = radius * np_.sin(math.pi * x) * np_.sin(math.pi * x / radius)
        square = np_.where(x != 0, math.pi ** 2 * x ** 2, 1)
        return np_.where(x > radius, 0.0, np_.where(x > 1e-3, waves / square, 1))
    return weight


def _cubic(a: float) -> Weight:
    """Return Keys's cubic kernel of slope ``a``."""
    def weight(np_: Any, x: Numbers) -> Numbers:
        return np_.where(x >= 2, 0.0, np_.where(x >= 1, cubic_far(x, a), cubic_near(x, a)))
    return weight


_WEIGHTS: dict[ResizeMethod, tuple[int, Weight]] = {  # with the distance from which they are 0
    ResizeMethod.LINEAR: (1, _triangle), ResizeMethod.LANCZOS3: (3, _lanczos(3.0)),
    ResizeMethod.LANCZOS5: (5, _lanczos(5.0)), ResizeMethod.CUBIC: (2, _cubic(-0.5)),
    ResizeMethod.CUBIC_PYTORCH: (2, _cubic(-0.75))}
_MIN_WEIGHT_SUM = 1000 * 2.0 ** -23  # a smaller sum of weights counts as zero


def _normalized(np_: Any, weights: Numbers, axis: int) -> Numbers:
    """Divide weights by their sums along an axis; weights whose sum is 0 become 0."""
    total = np_.sum(weights, axis, keepdims=True)
    return np_.where(np_.abs(total) > _MIN_WEIGHT_SUM, weights / np_.where(total != 0, total, 1), 0)


def _overlap(np_: Any, positions: Numbers, low: Numbers, width: Numbers) -> Numbers:
    """Return how much of the elements at ``positions`` lies between low and low + width."""
    return np_.maximum(0.0, np_.minimum(low + width, positions + 1) - np_.maximum(low, positions))


def _edge_rule(method: ResizeMethod, antialias: bool) -> tuple[ResizeMethod, bool]:
    """Return the method of the weights, and whether positions are clamped to the image."""
    if method is not ResizeMethod.CUBIC_PYTORCH:
        return method, False
    return (ResizeMethod.CUBIC, False) if antialias else (method, True)


def _weight_matrix(n: int, m: int, scale: Array, shift: Array, method: ResizeMethod, antialias: bool
                   ) -> Array:
    """Return the weight of each of n elements in each of m results: [n, m]."""
    method, clamps_edges = _edge_rule(method, antialias)
    inverse = 1.0 / scale
    width = jnp.maximum(inverse, 1.0) if antialias else 1.0
    low = jnp.arange(m, dtype=inverse.dtype) * inverse - shift * inverse
    centre = low + 0.5 * inverse - 0.5
    margin = 2 if clamps_edges else 0
    positions = jnp.arange(-margin, n + margin, dtype=inverse.dtype)[:, None]
    if method is ResizeMethod.AREA:
        weights = _overlap(jnp, positions, low, inverse)
    else:
        weights = _WEIGHTS[method][1](jnp, jnp.abs(centre - positions) / width)
    if clamps_edges:  # positions outside the image add to its edge
        clamped = jnp.clip(positions[:, 0].astype("int32"), 0, n - 1)
        weights = jnp.zeros((n, m), weights.dtype).at[clamped].add(weights)
        clamped_weights: Array = _normalized(jnp, weights, 0)
        return clamped_weights
    is_inside = (centre >= -0.5) & (centre <= n - 0.5)
    matrix: Array = jnp.where(is_inside, _normalized(jnp, weights, 0), 0)
    return matrix


# ---- windows: the elements that have a weight ---------------------------------------------------


def _windows(n: int, m: int, method: ResizeMethod, antialias: bool) -> Windows:
    """Return the windows of n elements in m results."""
    method, clamps_edges = _edge_rule(method, antialias)
    inverse = n / m
    low = np.arange(m) * inverse
    if method is ResizeMethod.NEAREST:
        index = (2 * np.arange(m) + 1) * n // (2 * m)  # of (i + 0.5) * n / m, without rounding
        return Windows.of(index[:, None], np.ones((m, 1)), n)
    if method is ResizeMethod.AREA:
        index = np.floor(low).astype(np.int64)[:, None] + np.arange(math.ceil(inverse) + 1)
        weights = _overlap(np, index, low[:, None], inverse)
    else:
        radius, weight = _WEIGHTS[method]
        width = max(inverse, 1.0) if antialias else 1.0
        centre = (low + 0.5 * inverse - 0.5)[:, None]
        index = np.floor(centre - radius * width).astype(np.int64) \
            + np.arange(math.ceil(2 * radius * width) + 2)
        weights = weight(np, np.abs(centre - index) / width)
    if not clamps_edges:
        weights = np.where((index >= 0) & (index < n), weights, 0.0)
    return Windows.of(index, _normalized(np, weights, 1), n)


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
    x = x if kind is ResizeMethod.NEAREST else as_float(x)
    scaled_axes = [i for i, (n, m) in enumerate(zip(x.shape, lengths)) if n != m]
    # outer axes have longer rows below them: they are the first to shrink and the last to grow
    shrinking = [i for i in scaled_axes if lengths[i] < x.shape[i]]
    for axis in [*shrinking, *sorted(set(scaled_axes).difference(shrinking), reverse=True)]:
        x = _resize_axis(x, axis, lengths[axis], kind, antialias)
    return x


def _resize_axis(x: Array, axis: int, m: int, method: ResizeMethod, antialias: bool) -> Array:
    n = x.shape[axis]
    if isinstance(n, int) and isinstance(m, int) and n and m:
        windows = _windows(n, m, method, antialias)
        return weigh_windows(x, axis, windows)
    if method is ResizeMethod.NEAREST:
        positions = (jnp.arange(m, dtype="float32") + 0.5) * n / m
        return jnp.take(x, jnp.floor(positions).astype("int32"), axis, mode="clip")
    return _resample(x, tuple([m if i == axis else k for i, k in enumerate(x.shape)]), [axis],
                     [jnp.asarray(m / n if m else 1.0)], [jnp.asarray(0.0)], method, antialias)


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
