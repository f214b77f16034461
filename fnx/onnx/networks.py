"""Products, convolutions, normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.array import Array
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import DTYPES, Value, to_array


@op("MatMul")
def _matmul(n: Node, a: Value, b: Value) -> Value:
    return jnp.matmul(to_array(a), to_array(b))


@op("Gemm")
def _gemm(n: Node, a: Value, b: Value, c: Value = None, *, alpha: float = 1.0, beta: float = 1.0,
          transA: int = 0, transB: int = 0) -> Value:
    a, b = to_array(a), to_array(b)
    y = jnp.matmul(a.T if transA else a, b.T if transB else b)
    y = y if alpha == 1.0 else (alpha * y).astype(a.dtype)
    return y if c is None else y + (c if beta == 1.0 else beta * to_array(c)).astype(y.dtype)


@op("Einsum")
def _einsum(n: Node, *xs: Value, equation: str = "") -> Value:
    return jnp.einsum(equation, *[to_array(x) for x in xs])


@op("Det")
def _det(n: Node, x: Value) -> Value:
    return jnp.linalg.det(to_array(x))


# ---- convolutions -------------------------------------------------------------------------------


def padding(sizes: Sequence[int], window: Sequence[int], strides: Sequence[int],
            auto_pad: str, pads: Sequence[int] | None) -> list[tuple[int, int]]:
    """Return the padding before and after each dimension; ``window``: sizes with dilations."""
    rank = len(sizes)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max((-(-d // s) - 1) * s + w - d, 0) for d, w, s in zip(sizes, window, strides)]
        small = [(t // 2, t - t // 2) for t in totals]
        return small if auto_pad == "SAME_UPPER" else [(b, a) for a, b in small]
    if pads is None or auto_pad == "VALID":
        return [(0, 0)] * rank
    return list(zip(pads[:rank], pads[rank:]))


def dilated(window: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Return how many elements windows with dilations span.

    >>> dilated([3, 2], [2, 1])
    [5, 2]
    """
    return [(w - 1) * d + 1 for w, d in zip(window, dilations)]


def convolve(x: Array, w: Array, auto_pad: str, dilations: Any, group: int, pads: Any,
             strides: Any) -> Array:
    """Return a convolution by the attributes of Conv."""
    rank = x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    widths = padding(x.shape[2:], dilated(w.shape[2:], dilations), strides, auto_pad, pads)
    return lax.conv_general_dilated(x, w, strides, widths, rhs_dilation=dilations,
                                    feature_group_count=group)


def by_channel(v: Value, rank: int) -> Array:
    """Return a vector of channels as a tensor that broadcasts to batch, channels, space."""
    return to_array(v).reshape((-1,) + (1,) * (rank - 2))


@op("Conv")
def _conv(n: Node, x: Value, w: Value, b: Value = None, *, auto_pad: str = "NOTSET",
          dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Any = None,
          strides: Any = None) -> Value:
    y = convolve(to_array(x), to_array(w), auto_pad, dilations, group, pads, strides)
    return y if b is None else y + by_channel(b, y.ndim)


@op("ConvTranspose")
def _conv_transpose(n: Node, x: Value, w: Value, b: Value = None, *, auto_pad: str = "NOTSET",
                    dilations: Any = None, group: int = 1, kernel_shape: Any = None,
                    output_padding: Any = None, output_shape: Any = None, pads: Any = None,
                    strides: Any = None) -> Value:
    x, w = to_array(x), to_array(w)
    rank = x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    more = output_padding or [0] * rank
    span = dilated(w.shape[2:], dilations)
    full = [(d - 1) * s + k + o for d, s, k, o in zip(x.shape[2:], strides, span, more)]
    if output_shape is None and auto_pad.startswith("SAME"):
        output_shape = [d * s for d, s in zip(x.shape[2:], strides)]
    if output_shape is not None:
        totals = [f - o for f, o in zip(full, output_shape[-rank:])]
        cut = [(t // 2, t - t // 2) if auto_pad == "SAME_UPPER" else (t - t // 2, t // 2)
               for t in totals]
    else:
        cut = padding(x.shape[2:], span, strides, auto_pad, pads)
    c, m = w.shape[:2]
    kernel = w.reshape((group, c // group, m, *w.shape[2:])).swapaxes(1, 2)
    kernel = jnp.flip(kernel.reshape((group * m, c // group, *w.shape[2:])),
                      tuple(range(2, 2 + rank)))
    widths = [(k - 1 - a, k - 1 - z + o) for k, (a, z), o in zip(span, cut, more)]
    y = lax.conv_general_dilated(x, kernel, [1] * rank, widths, lhs_dilation=strides,
                                 rhs_dilation=dilations, feature_group_count=group)
    return y if b is None else y + by_channel(b, y.ndim)


# ---- normalizations -----------------------------------------------------------------------------


@op("BatchNormalization", since=14)
def _batch_norm(n: Node, x: Value, scale: Value, b: Value, mean: Value, var: Value, *,
                epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0) -> Value:
    x = to_array(x)
    if not training_mode:
        factor = to_array(scale) / jnp.sqrt(to_array(var) + epsilon)
        y = (x - by_channel(mean, x.ndim)) * by_channel(factor, x.ndim) + by_channel(b, x.ndim)
        return y.astype(x.dtype)
    over = (0, *range(2, x.ndim))
    now, spread = jnp.mean(x, over), jnp.var(x, over)
    y = (x - by_channel(now, x.ndim)) * by_channel(scale / jnp.sqrt(spread + epsilon), x.ndim)
    rest = 1 - momentum
    return (y + by_channel(b, x.ndim)).astype(x.dtype), \
        mean * momentum + now * rest, var * momentum + spread * rest


@op("BatchNormalization", since=7)
def _batch_norm_7(n: Node, x: Value, scale: Value, b: Value, mean: Value, var: Value, *,
                  epsilon: float = 1e-5, momentum: float = 0.9) -> Value:
    if sum(n.outputs) > 1:
        raise n.refuse("fnx trains by BatchNormalization of opset 14 and later only")
    return _batch_norm(n, x, scale, b, mean, var, epsilon=epsilon)


@op("InstanceNormalization")
def _instance_norm(n: Node, x: Value, scale: Value, b: Value, *, epsilon: float = 1e-5) -> Value:
    x = to_array(x)
    over = tuple(range(2, x.ndim))
    centered = x - jnp.mean(x, over, keepdims=True)
    y = centered / jnp.sqrt(jnp.mean(centered ** 2, over, keepdims=True) + epsilon)
    return y * by_channel(scale, x.ndim) + by_channel(b, x.ndim)


@op("LayerNormalization")
def _layer_norm(n: Node, x: Value, scale: Value, b: Value = None, *, axis: int = -1,
                epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    x = to_array(x)
    over, wide = tuple(range(axis % x.ndim, x.ndim)), x.astype(DTYPES[stash_type])
    mean = jnp.mean(wide, over, keepdims=True)
    inverse = lax.rsqrt(jnp.mean((wide - mean) ** 2, over, keepdims=True) + epsilon)
    y = ((wide - mean) * inverse).astype(x.dtype) * scale
    return (y if b is None else y + b), mean, inverse


@op("RMSNormalization")
def _rms_norm(n: Node, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5,
              stash_type: int = 1) -> Value:
    x = to_array(x)
    over, wide = tuple(range(axis % x.ndim, x.ndim)), x.astype(DTYPES[stash_type])
    inverse = lax.rsqrt(jnp.mean(wide ** 2, over, keepdims=True) + epsilon)
    return (wide * inverse).astype(x.dtype) * scale


@op("LRN")
def _lrn(n: Node, x: Value, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0,
         size: int = 1) -> Value:
    x = to_array(x)
    before = (size - 1) // 2
    widths = [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (x.ndim - 2)
    window = (1, size) + (1,) * (x.ndim - 2)
    squares = lax.reduce_window(x * x, 0.0, lax.add, window, (1,) * x.ndim, widths)
    return x / (bias + alpha / size * squares) ** beta


@op("LpNormalization")
def _lp_norm(n: Node, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    x = to_array(x)
    size = jnp.sum(jnp.abs(x), axis, keepdims=True) if p == 1 else \
        jnp.sqrt(jnp.sum(x * x, axis, keepdims=True))
    return jnp.where(size == 0, 0, x / jnp.where(size == 0, 1, size)).astype(x.dtype)
