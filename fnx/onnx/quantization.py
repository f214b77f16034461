"""Quantized tensors: conversions, and products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.array import Array
from fnx.onnx.evaluate import Node
from fnx.onnx.networks import by_channel, convolve
from fnx.onnx.registry import op
from fnx.onnx.types import (
    DTYPES,
    FORMATS,
    UINT8,
    Value,
    convert,
    dtype_of,
    elem_type_of,
    to_array,
    type_of,
)


def _along(v: Value, x: Value, axis: int, block_size: int) -> Array:
    """Return a scale or zero point for each element: one, one per slice of axis, or per block."""
    v = to_array(v)
    if v.ndim == 0 or v.size == 1 and not block_size:
        return jnp.reshape(v, ())
    if not block_size:
        return jnp.reshape(v, (-1,) + (1,) * (x.ndim - 1 - axis % x.ndim))
    at = np.arange(x.shape[axis]) // block_size
    return jnp.take(v, at, axis)


@op("QuantizeLinear")
def _quantize(n: Node, x: Value, scale: Value, zero: Value = None, *, axis: int = 1,
              block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1
              ) -> Value:
    to = output_dtype or (UINT8 if zero is None else n.formats[2] or elem_type_of(zero))
    n.result_format = to
    wide = jnp.float64 if type_of(x).bits == 64 and type_of(x).is_float else jnp.float32
    by = DTYPES[precision] if precision else wide
    y = to_array(x).astype(by) / _along(scale, x, axis, block_size).astype(by)
    y = y.astype(wide)
    if dtype_of(to).is_float:
        return convert(y, to, bool(saturate))
    low, high = (FORMATS[to].smallest, FORMATS[to].largest) if to in FORMATS else \
        dtype_of(to).limits
    shift = 0 if zero is None else _along(zero, x, axis, block_size).astype(wide)
    return convert(jnp.clip(jnp.round(y) + shift, low, high).astype(jnp.int32), to)


@op("DequantizeLinear")
def _dequantize(n: Node, x: Value, scale: Value, zero: Value = None, *, axis: int = 1,
                block_size: int = 0, output_dtype: int = 0) -> Value:
    t = dtype_of(output_dtype) if output_dtype else type_of(scale)
    wide = jnp.int32 if type_of(x).is_integer else jnp.float32
    y = to_array(x).astype(wide)
    if zero is not None:
        y = y - _along(zero, x, axis, block_size).astype(wide)
    by = _along(scale, x, axis, block_size).astype(jnp.float32)
    return (y.astype(jnp.float32) * by).astype(t)


@op("DynamicQuantizeLinear")
def _dynamic_quantize(n: Node, x: Value) -> Value:
    x = to_array(x)
    low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    scale = (high - low) / 255
    zero = jnp.clip(jnp.round(-low / scale), 0, 255)
    y = jnp.clip(jnp.round(x / scale) + zero, 0, 255)
    return y.astype(jnp.uint8), scale, zero.astype(jnp.uint8)


def _centered(x: Value, zero: Value, shape: Any = None) -> Array:
    whole: Array = to_array(x).astype(jnp.int32)
    if zero is None:
        return whole
    zero = to_array(zero).astype(jnp.int32)
    return jnp.subtract(whole, zero if shape is None or zero.ndim != 1 or zero.size == 1
                        else zero.reshape(shape))


@op("MatMulInteger")
def _matmul_integer(n: Node, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None
                    ) -> Value:
    return jnp.matmul(_centered(a, a_zero, (-1, 1)), _centered(b, b_zero))


@op("ConvInteger")
def _conv_integer(n: Node, x: Value, w: Value, x_zero: Value = None, w_zero: Value = None, *,
                  auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
                  kernel_shape: Any = None, pads: Any = None, strides: Any = None) -> Value:
    by_filter = (-1,) + (1,) * (w.ndim - 1)
    return convolve(_centered(x, x_zero), _centered(w, w_zero, by_filter), auto_pad, dilations,
                    group, pads, strides)


def _requantize(n: Node, total: Array, factor: Array, zero: Value) -> Array:
    n.result_format = elem_type_of(zero)
    t = type_of(zero)
    if t.is_float:
        return jnp.multiply(total, factor).astype(t)
    y = jnp.round(total.astype(jnp.float32) * factor) + to_array(zero).astype(jnp.float32)
    return jnp.clip(y, *t.limits).astype(t)


@op("QLinearMatMul")
def _qlinear_matmul(n: Node, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value,
                    b_zero: Value, y_scale: Value, y_zero: Value) -> Value:
    total = jnp.matmul(_centered(a, a_zero, (-1, 1)), _centered(b, b_zero))
    rows = to_array(a_scale).astype(jnp.float32)
    rows = rows.reshape((-1, 1)) if rows.ndim == 1 and rows.size > 1 else rows
    factor = rows * b_scale / y_scale
    return _requantize(n, total, factor.astype(jnp.float32), y_zero)


@op("QLinearConv")
def _qlinear_conv(n: Node, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value,
                  w_zero: Value, y_scale: Value, y_zero: Value, b: Value = None, *,
                  auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
                  kernel_shape: Any = None, pads: Any = None, strides: Any = None) -> Value:
    total: Array = _conv_integer(n, x, w, x_zero, w_zero, auto_pad=auto_pad, dilations=dilations,
                          group=group, pads=pads, strides=strides)
    if b is not None:
        total = total + by_channel(b, total.ndim)
    scale = to_array(w_scale)
    scale = by_channel(scale, total.ndim) if scale.size > 1 else scale.reshape(())
    return _requantize(n, lax.convert_element_type(total, jnp.int32),
                       to_array(x_scale) * scale / y_scale, y_zero)
