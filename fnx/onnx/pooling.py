"""Pooling over windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.array import Array
from fnx.core.support.record import Record
from fnx.onnx.evaluate import Node
from fnx.onnx.networks import dilated, padding
from fnx.onnx.registry import op
from fnx.onnx.types import Value, to_array, type_of


class Windows(Record):
    """Windows over the spatial dimensions. ``extra``: what ceil_mode adds after the padding."""

    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    extra: tuple[int, ...]

    def reduce(self, x: Array, start: Any, combine: Any) -> Array:
        """Return the reductions over the windows; padding counts as ``start``."""
        widths = [(a, z + e) for (a, z), e in zip(self.pads, self.extra)]
        reduced: Array = lax.reduce_window(
            x, np.asarray(start, x.dtype), combine, (1, 1, *self.window), (1, 1, *self.strides),
            [(0, 0), (0, 0), *widths], window_dilation=(1, 1, *self.dilations))
        return reduced

    def positions(self, offset: Sequence[int], counts: Sequence[int]) -> tuple[slice, ...]:
        """Return where the elements at an offset of all windows are."""
        return tuple([slice(o * d, o * d + (c - 1) * s + 1, s) for o, d, c, s in zip(
            offset, self.dilations, counts, self.strides)])


def windows(sizes: Sequence[int], kernel: Any, strides: Any, dilations: Any, auto_pad: str,
            pads: Any, ceil_mode: int) -> Windows:
    """Return the windows by the attributes of a pooling operator.

    With ceil_mode, the last window may reach beyond the padding, but must begin inside of it.
    """
    rank = len(sizes)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    span = dilated(kernel, dilations)
    widths = padding(sizes, span, strides, auto_pad, pads)
    extra = []
    for d, k, s, (a, z) in zip(sizes, span, strides, widths):
        count = -(-(d + a + z - k) // s) if ceil_mode else (d + a + z - k) // s
        count -= count * s >= d + a and ceil_mode
        extra.append(max(count * s + k - (d + a + z), 0))
    return Windows(tuple(kernel), tuple(strides), tuple(dilations), tuple(widths), tuple(extra))


@op("MaxPool")
def _max_pool(n: Node, x: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
              dilations: Any = None, kernel_shape: Any = (), pads: Any = None,
              storage_order: int = 0, strides: Any = None) -> Value:
    x = to_array(x)
    over = windows(x.shape[2:], kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    low = -np.inf if type_of(x).is_float else type_of(x).limits[0]
    y = over.reduce(x, low, lax.max)
    if sum(n.outputs) == 1:
        return y
    return y, _positions(x, over, low, storage_order)


def _positions(x: Array, over: Windows, low: Any, storage_order: int) -> Array:
    """Return where the first maximum of each window is, in the flattened tensor."""
    space = x.shape[2:]
    widths = [(0, 0), (0, 0), *[(a, z + e) for (a, z), e in zip(over.pads, over.extra)]]
    padded = jnp.pad(x, widths, constant_values=low)
    order = np.arange(math.prod(space)).reshape(space, order="F" if storage_order else "C")
    numbers = np.pad(order, widths[2:], constant_values=-1)
    starts = [(p - k) // s + 1 for p, k, s in zip(
        padded.shape[2:], dilated(over.window, over.dilations), over.strides)]
    values, at = [], []
    for offset in np.ndindex(*over.window):
        index = over.positions(offset, starts)
        values.append(jnp.where(jnp.asarray(numbers[index] < 0), low, padded[(..., *index)]))
        at.append(numbers[index])
    first = jnp.argmax(jnp.stack(values), 0)
    chosen = jnp.take_along_axis(jnp.asarray(np.stack(at))[:, None, None], first[None], 0)[0]
    planes = np.arange(math.prod(x.shape[:2])).reshape((*x.shape[:2], *[1] * len(space)))
    return (chosen + planes * math.prod(space)).astype(np.int64)


@op("AveragePool")
def _average_pool(n: Node, x: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
                  count_include_pad: int = 0, dilations: Any = None, kernel_shape: Any = (),
                  pads: Any = None, strides: Any = None) -> Value:
    x = to_array(x)
    over = windows(x.shape[2:], kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    ones = jnp.ones((1, 1, *x.shape[2:]), x.dtype)
    if count_include_pad:  # what ceil_mode adds never counts
        ones = jnp.pad(ones, [(0, 0), (0, 0), *over.pads], constant_values=1)
        counted = over.replace(pads=((0, 0),) * len(over.pads))
    else:
        counted = over
    return over.reduce(x, 0, lax.add) / counted.reduce(ones, 0, lax.add)


@op("LpPool")
def _lp_pool(n: Node, x: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
             dilations: Any = None, kernel_shape: Any = (), p: int = 2, pads: Any = None,
             strides: Any = None) -> Value:
    x = jnp.abs(to_array(x))
    over = windows(x.shape[2:], kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    return over.reduce(x ** p, 0, lax.add) ** (1 / p)


def _spatial(x: Value) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool")
def _global_average(n: Node, x: Value) -> Value:
    return jnp.mean(to_array(x), _spatial(x), keepdims=True)


@op("GlobalMaxPool")
def _global_max(n: Node, x: Value) -> Value:
    return jnp.max(to_array(x), _spatial(x), keepdims=True)


@op("GlobalLpPool")
def _global_lp(n: Node, x: Value, *, p: int = 2) -> Value:
    return jnp.sum(jnp.abs(to_array(x)) ** p, _spatial(x), keepdims=True) ** (1 / p)


@op("MaxUnpool", static=(2,))
def _max_unpool(n: Node, x: Value, indices: Value, shape: Value = None, *, kernel_shape: Any = (),
                pads: Any = None, strides: Any = None) -> Value:
    x, rank = to_array(x), x.ndim - 2
    strides, pads = strides or [1] * rank, pads or [0] * 2 * rank
    space = [(d - 1) * s + k - a - z for d, s, k, a, z in zip(
        x.shape[2:], strides, kernel_shape, pads[:rank], pads[rank:])]
    whole = (*x.shape[:2], *space)
    y = jnp.zeros(math.prod(whole), x.dtype).at[jnp.ravel(to_array(indices))].set(jnp.ravel(x))
    y = y.reshape(whole)
    return y if shape is None else jnp.pad(y, [(0, int(a) - b) for a, b in zip(shape, whole)])


@op("Col2Im", static=(1, 2))
def _col2im(n: Node, x: Value, image: Value, block: Value, *, dilations: Any = None,
            pads: Any = None, strides: Any = None) -> Value:
    sizes, kernel = [int(d) for d in image], [int(d) for d in block]
    over = windows(sizes, kernel, strides, dilations, "NOTSET", pads, 0)
    counts = [(d + a + z - k) // s + 1 for d, (a, z), k, s in zip(
        sizes, over.pads, dilated(kernel, over.dilations), over.strides)]
    columns = to_array(x).reshape((x.shape[0], -1, *kernel, *counts))
    y = jnp.zeros((*columns.shape[:2], *[d + a + z for d, (a, z) in zip(sizes, over.pads)]),
                  x.dtype)
    for offset in np.ndindex(*kernel):
        at = (..., *over.positions(offset, counts))
        y = y.at[at].add(columns[(slice(None), slice(None), *offset)])
    return y[(..., *[slice(a, a + d) for d, (a, _) in zip(sizes, over.pads)])]
