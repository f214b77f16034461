"""Pooling: reduce each window to one element. Axes are (batch, spatial..., channels)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import fnx.numpy as jnp
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build
from fnx.core.ir.op import max_value, min_value
from fnx.core.support.errors import DTypeError, ShapeError
from fnx.lax.generic_reductions import Padding, ints_per_axis, reduce_window

__all__ = ["avg_pool", "max_pool", "min_pool"]

PoolWindows = tuple[tuple[int, ...], tuple[int, ...], Padding]


_docstr = DocTemplate(
    inputs="an Array (batch, spatial..., channels), or without batch.",
    window_shape="the window size of each axis.",
    strides="the stride of each axis; by default 1.",
    padding='"VALID", "SAME", or (before, after) for each spatial axis.',
    returns="An Array of the dtype of the inputs.",
    raises=("ShapeError: the rank does not match.",
            "ArgumentError: a number is missing or below 1; unknown padding."),
    imports="fnx.nn as nn, fnx.numpy as jnp")


def _pool(x: Array, init: Array, f: Callable[[Array, Array], Array],
          window_args: PoolWindows) -> Array:
    out: Array = reduce_window(x, init, f, *window_args)
    return out


def _window_args(x: Array, window: Sequence[int], strides: Sequence[int] | None, padding: Padding
                 ) -> PoolWindows:
    """Extend window, strides and padding to all axes."""
    n = len(window) if isinstance(window, tuple | list) else 1
    size = ints_per_axis("window_shape", window, n)
    if x.ndim not in (n + 1, n + 2):
        raise ShapeError(f"expected (batch, {n} spatial axes, channels), with or without batch, "
                         f"got shape {x.shape}",
                         hint="pass one window length per spatial axis")
    lead = (1,) * (x.ndim - n - 1)
    steps = (*lead, *ints_per_axis("strides", strides, n), 1)
    pairs = isinstance(padding, tuple | list)
    full_padding = [*((0, 0) for _ in lead), *padding, (0, 0)] if pairs else padding
    return (*lead, *size, 1), steps, full_padding


@_docstr()
def max_pool(inputs: ArrayLike, window_shape: Sequence[int], strides: Sequence[int] | None = None,
             padding: Padding = "VALID") -> Array:
    """Return the maximum of each window.

    >>> nn.max_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (4,)).ravel()
    Array([1., 5.], dtype=float32)
    """
    x = asarray(inputs)
    init = Array(build.const(min_value(x._dtype), x._dtype))
    return _pool(x, init, jnp.maximum, _window_args(x, window_shape, strides, padding))


@_docstr()
def min_pool(inputs: ArrayLike, window_shape: Sequence[int], strides: Sequence[int] | None = None,
             padding: Padding = "VALID") -> Array:
    """Return the minimum of each window.

    >>> nn.min_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (4,)).ravel()
    Array([0., 4.], dtype=float32)
    """
    x = asarray(inputs)
    init = Array(build.const(max_value(x._dtype), x._dtype))
    return _pool(x, init, jnp.minimum, _window_args(x, window_shape, strides, padding))


@public_api
def avg_pool(inputs: ArrayLike, window_shape: Sequence[int], strides: Sequence[int] | None = None,
             padding: Padding = "VALID", count_include_pad: bool = True) -> Array:
    """Return the mean of each window.

    Args:
        inputs: floats of shape (batch, spatial..., channels), or without batch.
        window_shape: the size of a window along each spatial axis.
        strides: the stride of the windows along each spatial axis; by default 1.
        padding: "VALID", "SAME", or pairs (before, after) of zeros for each spatial axis.
        count_include_pad: True divides by the size of the window, False by the number of its
            elements that are not padding.

    Returns:
        An Array of the dtype of the inputs.

    Raises:
        DTypeError: the inputs are not floats.
        ShapeError: the number of axes does not match.
        ArgumentError: a number is missing or below 1, or the padding is unknown.

    >>> import fnx.nn as nn, fnx.numpy as jnp
    >>> nn.avg_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (4,)).ravel()
    Array([0.5, 4.5], dtype=float32)
    """
    x = asarray(inputs)
    if not x._dtype.is_float:
        raise DTypeError(f"expected an array of floats, got {x._aval}",
                         hint="convert it with .astype(float)")
    window_args = _window_args(x, window_shape, strides, padding)
    zero = Array(build.const(0, x._dtype))
    total = _pool(x, zero, jnp.add, window_args)
    if count_include_pad:
        return total / math.prod(window_shape)
    ones = Array(build.const(1, x._dtype, x.shape))
    return total / _pool(ones, zero, jnp.add, window_args)
