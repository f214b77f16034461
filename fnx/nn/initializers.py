"""Initializers: functions of (key, shape, dtype), scaled by how many inputs or outputs meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as jnp
from fnx import random
from fnx.core.array.array import Array, public
from fnx.core.errors import ArgumentError, ShapeError

__all__ = [
    "constant", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal",
    "lecun_uniform", "normal", "ones", "truncated_normal", "uniform", "variance_scaling", "zeros",
]

Initializer = Callable[..., Array]


def zeros(key: Any, shape: Any, dtype: Any = None) -> Array:
    """Zeros, whatever the key.

    >>> zeros(None, (2,))
    Array([0., 0.], dtype=float32)
    """
    return jnp.zeros(shape, dtype)


def ones(key: Any, shape: Any, dtype: Any = None) -> Array:
    """Ones, whatever the key.

    >>> ones(None, (2,))
    Array([1., 1.], dtype=float32)
    """
    return jnp.ones(shape, dtype)


def constant(value: Any, dtype: Any = None) -> Initializer:
    """One value everywhere.

    >>> constant(7.0)(None, (2,))
    Array([7., 7.], dtype=float32)
    """
    default = dtype

    def init(key: Any, shape: Any, dtype: Any = None) -> Array:
        t = default if dtype is None else dtype
        return jnp.full(shape, value, float if t is None else t)
    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform in [0, scale)."""
    default = dtype

    @public
    def init(key: Any, shape: Any, dtype: Any = None) -> Array:
        return jnp.multiply(random.uniform(key, shape, default if dtype is None else dtype),
                            scale)
    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal with mean 0.

    >>> import fnx
    >>> normal(0.1)(fnx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    default = dtype

    @public
    def init(key: Any, shape: Any, dtype: Any = None) -> Array:
        return jnp.multiply(random.normal(key, shape, default if dtype is None else dtype),
                            stddev)
    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0,
                     upper: Any = 2.0) -> Initializer:
    """Normal, cut at lower and upper standard deviations."""
    default = dtype

    @public
    def init(key: Any, shape: Any, dtype: Any = None) -> Array:
        t = default if dtype is None else dtype
        return jnp.multiply(random.truncated_normal(key, lower, upper, shape, t), stddev)
    return init


def _fans(shape: Sequence[int], in_axis: Any, out_axis: Any) -> tuple[float, float]:
    """How many inputs an output has, and how many outputs an input."""
    if len(shape) < 2:
        raise ShapeError(f"expected a shape of at least 2 axes, got {tuple(shape)}",
                         hint="use normal or zeros for vectors")
    inputs, outputs = (math.prod(shape[a] for a in ((x,) if isinstance(x, int) else x))
                       for x in (in_axis, out_axis))
    field = math.prod(shape) / max(1, inputs * outputs)
    return inputs * field, outputs * field


def variance_scaling(scale: float, mode: str, distribution: str, in_axis: Any = -2,
                     out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Random with variance scale / n.

    Args:
        mode: n is "fan_in" (inputs), "fan_out" (outputs) or "fan_avg" (their mean).
        distribution: "normal", "truncated_normal" or "uniform".

    >>> import fnx
    >>> init = variance_scaling(1.0, "fan_in", "normal")
    >>> init(fnx.random.key(0), (4, 5)).shape
    (4, 5)
    """
    default = dtype
    if mode not in ("fan_in", "fan_out", "fan_avg"):
        raise ArgumentError(f"expected mode fan_in, fan_out or fan_avg; got {mode!r}")
    if distribution not in ("normal", "truncated_normal", "uniform"):
        raise ArgumentError("expected distribution normal, truncated_normal or uniform; got "
                            f"{distribution!r}")

    @public
    def init(key: Any, shape: Any, dtype: Any = None) -> Array:
        t = default if dtype is None else dtype
        inputs, outputs = _fans(shape, in_axis, out_axis)
        n = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[mode]
        deviation = math.sqrt(scale / max(1.0, n))
        if distribution == "normal":
            return random.normal(key, shape, t) * deviation
        if distribution == "uniform":
            return random.uniform(key, shape, t, -1) * (math.sqrt(3.0) * deviation)
        cut = 0.87962566103423978  # standard deviation of the normal cut at -2 and 2
        return random.truncated_normal(key, -2.0, 2.0, shape, t) * (deviation / cut)
    return init


def _scaled(scale: float, mode: str, distribution: str) -> Callable[..., Initializer]:
    def make(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (),
             dtype: Any = None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)
    make.__doc__ = f"variance_scaling({scale}, {mode!r}, {distribution!r})."
    return make


glorot_normal = _scaled(1.0, "fan_avg", "truncated_normal")
glorot_uniform = _scaled(1.0, "fan_avg", "uniform")
he_normal = _scaled(2.0, "fan_in", "truncated_normal")
he_uniform = _scaled(2.0, "fan_in", "uniform")
lecun_normal = _scaled(1.0, "fan_in", "truncated_normal")
lecun_uniform = _scaled(1.0, "fan_in", "uniform")
