"""Initializers: functions of (key, shape, dtype), some scaled by fan-in or fan-out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args

import fnx.numpy as jnp
from fnx import lax, random
from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import ShapeError, lazy_module

__all__ = [
    "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
    "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones",
    "orthogonal", "truncated_normal", "uniform", "variance_scaling", "xavier_normal",
    "xavier_uniform", "zeros",
]

FanMode: TypeAlias = Literal["fan_in", "fan_out", "fan_avg"]
Distribution: TypeAlias = Literal["normal", "truncated_normal", "uniform"]
AxesLike: TypeAlias = int | Sequence[int]

_docstr = DocTemplate(
    key="unused.", shape="the shape of the result: an int or ints.",
    dtype="the default dtype of the results: a float dtype; by default the default float.",
    value="a number, or values that broadcast to the shape of each result.",
    scale="the upper bound.", stddev="the standard deviation.",
    lower="the lower bound, in standard deviations.",
    upper="the upper bound, in standard deviations.",
    returns="A function of (key, shape, dtype) that returns an Array.", imports="fnx")


class Initializer(Protocol):
    """A function of a key, a shape and a dtype that returns an Array."""

    def __call__(self, key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None
                 ) -> Array: ...


@_docstr("An Array of zeros.", dtype="the dtype of the result; by default the default float.")
def zeros(key: ArrayLike | None, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """Return zeros; the key is ignored.

    >>> fnx.nn.initializers.zeros(None, (2,))
    Array([0., 0.], dtype=float32)
    """
    return jnp.zeros(shape, dtype)


@_docstr("An Array of ones.", dtype="the dtype of the result; by default the default float.")
def ones(key: ArrayLike | None, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """Return ones; the key is ignored.

    >>> fnx.nn.initializers.ones(None, (2,))
    Array([1., 1.], dtype=float32)
    """
    return jnp.ones(shape, dtype)


def _make_initializer(draw: Callable[[ArrayLike, Shape, DTypeLike | None], Array],
                      default_dtype: DTypeLike | None) -> Initializer:
    """Make an initializer of ``draw``, with ``default_dtype`` as the default dtype."""
    if default_dtype is not None:
        convert.parse_dtype(default_dtype)

    @public_api
    def init(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
        return draw(key, axes.normalize_shape(shape), default_dtype if dtype is None else dtype)
    return init


@_docstr(dtype="the default dtype of the results; by default the default float.")
def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer that fills an array with one value.

    >>> fnx.nn.initializers.constant(7.0)(None, (2,))
    Array([7., 7.], dtype=float32)
    """
    jnp.asarray(value)  # raises if it is not array-like
    return _make_initializer(lambda key, shape, t: jnp.full(shape, value, t),
                             float if dtype is None else dtype)


@_docstr()
def uniform(scale: ArrayLike = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer with uniform values in [0, scale).

    >>> fnx.nn.initializers.uniform(0.1)(fnx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    factor = jnp.asarray(scale)
    return _make_initializer(lambda key, shape, t: random.uniform(key, shape, t) * factor, dtype)


@_docstr()
def normal(stddev: ArrayLike = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer with normal values of mean 0.

    >>> fnx.nn.initializers.normal(0.1)(fnx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    factor = jnp.asarray(stddev)
    return _make_initializer(lambda key, shape, t: random.normal(key, shape, t) * factor, dtype)


@_docstr(stddev="the standard deviation before truncation.")
def truncated_normal(stddev: ArrayLike = 1e-2, dtype: DTypeLike | None = None,
                     lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """Make an initializer with values of a truncated normal distribution of mean 0.

    >>> fnx.nn.initializers.truncated_normal(0.1)(fnx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    arguments.check_number("lower", lower)
    arguments.check_number("upper", upper)
    factor = jnp.asarray(stddev)

    def draw(key: ArrayLike, shape: Shape, t: DTypeLike | None) -> Array:
        samples = random.truncated_normal(key, lower, upper, shape, t)
        return samples * factor
    return _make_initializer(draw, dtype)


def _complex_draw(key: ArrayLike, shape: Shape, t: DType, distribution: Distribution) -> Array:
    """Return complex numbers with a standard deviation of 1: uniform in a disc, or normal and
    truncated at an absolute value of 2."""
    radius_key, angle_key = random.split(key)
    u = random.uniform(radius_key, shape, t.real.np)
    angle = random.uniform(angle_key, shape, t.real.np) * (2 * math.pi)
    truncated_std = 0.95311164380491208  # of the complex normal truncated at 2
    radius = jnp.sqrt(2 * u) if distribution == "uniform" else \
        jnp.sqrt(-jnp.log1p(u * math.expm1(-4.0))) / truncated_std
    return lax.complex(radius * jnp.cos(angle), radius * jnp.sin(angle))


def _check_axes(**axis_args: AxesLike) -> None:
    for name, axis in axis_args.items():
        for entry in axis if isinstance(axis, tuple | list) else (axis,):
            arguments.check_int(name, entry)


def _compute_fans(shape: Shape, in_axis: AxesLike, out_axis: AxesLike, batch_axis: AxesLike
                  ) -> tuple[float, float]:
    """Return fan-in and fan-out: the inputs of an output, and the outputs of an input."""
    if len(shape) < 2:
        raise ShapeError(f"expected a shape of rank >= 2, got {shape}",
                         hint="use normal or zeros for vectors")
    def size(axes: AxesLike) -> int:
        return math.prod(shape[a] for a in ((axes,) if isinstance(axes, int) else axes))

    inputs, outputs, batch = size(in_axis), size(out_axis), size(batch_axis)
    field = math.prod(shape) / max(1, inputs * outputs * batch)
    return inputs * field, outputs * field


@public_api
def variance_scaling(scale: float, mode: FanMode, distribution: Distribution,
                     in_axis: AxesLike = -2, out_axis: AxesLike = -1, batch_axis: AxesLike = (),
                     dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer with random values of mean 0 and variance scale / n.

    Args:
        scale: the factor of the variance.
        mode: n is "fan_in" (inputs), "fan_out" (outputs) or "fan_avg" (their mean).
        distribution: "normal", "truncated_normal" (at 2 standard deviations) or "uniform".
        in_axis, out_axis: the input and output axes of the shape.
        batch_axis: axes that are neither inputs nor outputs.
        dtype: the default dtype of the results: a float dtype; by default the default float.

    Returns:
        A function of (key, shape, dtype) that returns an Array of at least two axes.

    Raises:
        ArgumentError: the mode or distribution is unknown.

    Source: Glorot and Bengio, Understanding the Difficulty of Training Deep Feedforward Neural
    Networks, 2010; He et al., Delving Deep into Rectifiers, 2015.

    >>> import fnx
    >>> init = fnx.nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    >>> init(fnx.random.key(0), (4, 5)).shape
    (4, 5)
    """
    arguments.check_number("scale", scale)
    arguments.check_choice("mode", mode, get_args(FanMode))
    arguments.check_choice("distribution", distribution, get_args(Distribution))
    _check_axes(in_axis=in_axis, out_axis=out_axis, batch_axis=batch_axis)

    def draw(key: ArrayLike, shape: Shape, t: DTypeLike | None) -> Array:
        inputs, outputs = _compute_fans(shape, in_axis, out_axis, batch_axis)
        if mode == "fan_avg":
            fan = (inputs + outputs) / 2
        else:
            fan = inputs if mode == "fan_in" else outputs
        deviation = math.sqrt(scale / max(1.0, fan))
        if distribution == "normal":
            return random.normal(key, shape, t) * deviation
        complex_type = None if t is None else convert.parse_dtype(t)
        if complex_type is not None and complex_type.is_complex:
            return _complex_draw(key, shape, complex_type, distribution) * deviation
        if distribution == "uniform":
            return random.uniform(key, shape, t, -1) * (math.sqrt(3.0) * deviation)
        # standard deviation of the normal truncated at -2 and 2
        truncated_std = 0.87962566103423978
        return random.truncated_normal(key, -2.0, 2.0, shape, t) * (deviation / truncated_std)
    return _make_initializer(draw, dtype)


class _ScalingFactory(Protocol):
    def __call__(self, in_axis: AxesLike = -2, out_axis: AxesLike = -1,
                 batch_axis: AxesLike = (), dtype: DTypeLike | None = None) -> Initializer: ...


def _scaling_factory(name: str, scale: float, mode: FanMode, distribution: Distribution, source: str
                     ) -> _ScalingFactory:
    def make(in_axis: AxesLike = -2, out_axis: AxesLike = -1, batch_axis: AxesLike = (),
             dtype: DTypeLike | None = None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)
    make.__doc__ = f"""``variance_scaling({scale}, {mode!r}, {distribution!r})``.

    Args:
        in_axis, out_axis: axes of the shape along which inputs and outputs are counted.
        batch_axis: axes that count as neither.
        dtype: of the results that name none: a float dtype; by default the default float.

    Returns:
        A function of (key, shape, dtype), which makes an Array of at least two axes.

    Source: {source}.

    >>> import fnx
    >>> fnx.nn.initializers.{name}()(fnx.random.key(0), (4, 5)).shape
    (4, 5)
    """
    return public_api(make, name)


_GLOROT = "Glorot and Bengio, Understanding the Difficulty of Training, 2010"
_HE = "He et al., Delving Deep into Rectifiers, 2015"
_LECUN = "LeCun et al., Efficient BackProp, 1998"
glorot_normal = _scaling_factory("glorot_normal", 1.0, "fan_avg", "truncated_normal", _GLOROT)
glorot_uniform = _scaling_factory("glorot_uniform", 1.0, "fan_avg", "uniform", _GLOROT)
he_normal = _scaling_factory("he_normal", 2.0, "fan_in", "truncated_normal", _HE)
he_uniform = _scaling_factory("he_uniform", 2.0, "fan_in", "uniform", _HE)
kaiming_normal, kaiming_uniform = he_normal, he_uniform
xavier_normal, xavier_uniform = glorot_normal, glorot_uniform
lecun_normal = _scaling_factory("lecun_normal", 1.0, "fan_in", "truncated_normal", _LECUN)
lecun_uniform = _scaling_factory("lecun_uniform", 1.0, "fan_in", "uniform", _LECUN)


@_docstr(scale="a factor.", column_axis="the axis whose vectors are orthonormal columns.",
         raises=("ShapeError: the function gets a shape of fewer than two axes.",))
def orthogonal(scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
               ) -> Initializer:
    """Make an initializer of uniformly distributed orthogonal matrices.

    If the shape is not square, the rows or the columns are orthonormal, whichever are fewer.
    Source: Saxe et al., Exact solutions to the nonlinear dynamics of learning (2014).

    >>> fnx.nn.initializers.orthogonal()(fnx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    arguments.check_int("column_axis", column_axis)
    factor = jnp.asarray(scale)

    def draw(key: ArrayLike, shape: Shape, t: DTypeLike | None) -> Array:
        if len(shape) < 2:
            raise ShapeError(f"expected at least two axes, got shape {shape}")
        at = axes.normalize_axis(column_axis, len(shape))
        columns = shape[at]
        rest = tuple([n for i, n in enumerate(shape) if i != at])
        q = random.orthogonal(key, math.prod(rest), (), t, columns)
        return jnp.moveaxis(q.reshape(*rest, columns), -1, at) * jnp.asarray(factor, t)
    return _make_initializer(draw, float if dtype is None else dtype)


@_docstr(scale="a factor.", column_axis="the axis whose vectors are orthonormal columns.",
         raises=("ShapeError: the function gets a shape that does not have 3 to 5 axes, or whose "
                 "last axis is shorter than the one before it.",))
def delta_orthogonal(scale: ArrayLike = 1.0, column_axis: int = -1,
                     dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer of convolutions: an orthogonal matrix in the middle, zeros elsewhere.

    Source: Xiao et al., Dynamical isometry and a mean field theory of CNNs (2018).

    >>> fnx.nn.initializers.delta_orthogonal()(fnx.random.key(0), (3, 2, 2)).shape
    (3, 2, 2)
    """
    arguments.check_int("column_axis", column_axis)
    scale = jnp.asarray(scale)

    def draw(key: ArrayLike, shape: Shape, t: DTypeLike | None) -> Array:
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise ShapeError("expected 3 to 5 axes, the last at least as long as the one before "
                             f"it, got shape {shape}")
        matrix = orthogonal(scale, column_axis, t)(key, shape[-2:])
        widths = [((k - 1) // 2, k - 1 - (k - 1) // 2) for k in shape[:-2]]
        lifted = matrix.reshape((1,) * len(widths) + matrix.shape)
        return jnp.pad(lifted, [*widths, (0, 0), (0, 0)])
    return _make_initializer(draw, float if dtype is None else dtype)


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)
