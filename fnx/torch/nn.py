"""Ops of neural networks in ATen: products, convolutions, pooling, normalization, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import lax, nn
from fnx.core.array.array import Array
from fnx.torch.entry import Table, UnsupportedOpError, entries
from fnx.transforms.vjp import vjp


def _addmm(bias: Array, a: Array, b: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    product = jnp.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (bias if beta == 1 else bias * beta)


# ---- convolution


def _each(value: Sequence[int], n: int) -> list[int]:
    """Return a value for each of ``n`` axes; one value is for all of them."""
    return list(value) * (n // len(value))


def _swap_channels(weight: Array, groups: int) -> Array:
    """Return the weight of the convolution that a transposed one is: flipped, channels swapped."""
    inner, outer, *spatial = weight.shape
    split = weight.reshape(groups, inner // groups, outer, *spatial)
    swapped = jnp.swapaxes(split, 1, 2).reshape(groups * outer, inner // groups, *spatial)
    return jnp.flip(swapped, tuple(range(2, weight.ndim)))


def _convolution(x: Array, weight: Array, bias: Array | None, stride: Sequence[int],
                 padding: Sequence[int], dilation: Sequence[int], transposed: bool,
                 output_padding: Sequence[int], groups: int) -> Array:
    if x.ndim == weight.ndim - 1:
        return _convolution(x[None], weight, bias, stride, padding, dilation, transposed,
                            output_padding, groups)[0]
    n = x.ndim - 2
    stride, padding, dilation = _each(stride, n), _each(padding, n), _each(dilation, n)
    numbers = ("NCHW"[:2] + "DHW"[3 - n:], "OI" + "DHW"[3 - n:], "NC" + "DHW"[3 - n:])
    if transposed:
        extra = _each(output_padding, n)
        sizes = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
        result = lax.conv_general_dilated(
            x, _swap_channels(weight, groups), [1] * n,
            [(s - p, s - p + e) for s, p, e in zip(sizes, padding, extra)], lhs_dilation=stride,
            rhs_dilation=dilation, dimension_numbers=numbers, feature_group_count=groups)
    else:
        result = lax.conv_general_dilated(
            x, weight, stride, [(p, p) for p in padding], rhs_dilation=dilation,
            dimension_numbers=numbers, feature_group_count=groups)
    return result if bias is None else result + bias.reshape(-1, *[1] * n)


def _convolution_backward(gradient: Array, x: Array, weight: Array, bias_sizes: Any,
                          stride: Any, padding: Any, dilation: Any, transposed: bool,
                          output_padding: Any, groups: int, output_mask: Sequence[bool]
                          ) -> tuple[Array | None, ...]:
    def forward(x: Array, weight: Array) -> Any:
        return _convolution(x, weight, None, stride, padding, dilation, transposed,
                            output_padding, groups)

    to_x, to_weight = vjp(forward, x, weight)[1](gradient)
    axes = [d for d in range(gradient.ndim) if d != gradient.ndim - weight.ndim + 1]
    to_bias = jnp.sum(gradient, tuple(axes)) if output_mask[2] else None
    return to_x if output_mask[0] else None, to_weight if output_mask[1] else None, to_bias


# ---- pooling


def _window_count(n: int, kernel: int, stride: int, pad: int, dilation: int, ceil: bool) -> int:
    span = n + 2 * pad - dilation * (kernel - 1) - 1
    count = (-(-span // stride) if ceil else span // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= n + pad else count


def _window_index(shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
                  padding: Sequence[int], dilation: Sequence[int], ceil: bool
                  ) -> list[np.ndarray[Any, Any]]:
    """Return for each axis the positions of each window, [window, element]."""
    return [np.arange(_window_count(n, k, s, p, d, ceil))[:, None] * s - p + np.arange(k) * d
            for n, k, s, p, d in zip(shape, kernel, stride, padding, dilation)]


def _max_pool(n: int) -> Callable[..., Any]:
    def run(x: Array, kernel_size: Sequence[int], stride: Sequence[int] = (),
            padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,),
            ceil_mode: bool = False) -> tuple[Array, Array]:
        kernel, spatial = _each(kernel_size, n), x.shape[-n:]
        index = _window_index(spatial, kernel, _each(stride or kernel, n), _each(padding, n),
                              _each(dilation, n), ceil_mode)
        lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        pads = [(max(0, -int(i.min())), max(0, int(i.max()) - size + 1), 0)
                for i, size in zip(index, spatial)]
        windows = lax.pad(x, jnp.asarray(lowest, x.dtype), [(0, 0, 0)] * (x.ndim - n) + pads)
        for d, (i, (before, _, _)) in enumerate(zip(index, pads)):
            axis = x.ndim - n + 2 * d  # each axis becomes two: window and element
            windows = jnp.take(windows, i + before, axis)
        lead, outer = x.ndim - n, [len(i) for i in index]
        windows = windows.transpose(*range(lead), *range(lead, lead + 2 * n, 2),
                                    *range(lead + 1, lead + 2 * n, 2))
        windows = windows.reshape(*x.shape[:lead], *outer, math.prod(kernel))
        best = jnp.argmax(windows, -1)
        flat = np.zeros([*outer, *kernel], np.int64)
        for d, i in enumerate(index):
            shape = [1] * (2 * n)
            shape[d], shape[n + d] = i.shape
            flat = flat * spatial[d] + i.reshape(shape)
        places_of = jnp.asarray(flat.reshape(*outer, -1))
        position = jnp.take_along_axis(
            jnp.broadcast_to(places_of, windows.shape), best[..., None], -1)[..., 0]
        return jnp.max(windows, -1), position
    return run


def _max_pool_backward(n: int) -> Callable[..., Any]:
    def run(gradient: Array, x: Array, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
            ceil_mode: bool, indices: Array) -> Any:
        lead = x.shape[:-n]
        rows = math.prod(lead)
        base = jnp.zeros((rows, math.prod(x.shape[-n:])), x.dtype)
        at = base.at[jnp.arange(rows)[:, None], indices.reshape(rows, -1)]
        return at.add(gradient.reshape(rows, -1)).reshape(x.shape)
    return run


def _avg_pool(n: int) -> Callable[..., Any]:
    def run(x: Array, kernel_size: Sequence[int], stride: Sequence[int] = (),
            padding: Sequence[int] = (0,), ceil_mode: bool = False,
            count_include_pad: bool = True, divisor_override: int | None = None) -> Any:
        kernel, spatial, pad = _each(kernel_size, n), x.shape[-n:], _each(padding, n)
        steps = _each(stride or kernel, n)
        index = _window_index(spatial, kernel, steps, pad, [1] * n, ceil_mode)
        pads = [(p, max(0, int(i.max()) - size + 1)) for i, size, p in zip(index, spatial, pad)]
        lead = x.ndim - n
        wide = x.astype("float32") if x.dtype.name in ("bfloat16", "float16") else x
        total = lax.reduce_window(wide, jnp.zeros((), wide.dtype), lax.add,
                                  [1] * lead + kernel, [1] * lead + steps,
                                  [(0, 0)] * lead + pads)
        if divisor_override is not None:
            return total / divisor_override
        count = np.ones((), np.int64)
        for i, size, p in zip(index, spatial, pad):
            low, high = (-p, size + p) if count_include_pad else (0, size)
            count = count[..., None] * ((i >= low) & (i < high)).sum(1)
        return total / jnp.asarray(count, wide.dtype)
    return run


def _adaptive_avg_pool(n: int) -> Callable[..., Any]:
    def run(x: Array, output_size: Sequence[int]) -> Array:
        wide = x.astype("float32") if x.dtype.name in ("bfloat16", "float16") else x
        if all(s % o == 0 for s, o in zip(x.shape[-n:], output_size) if o):
            kernel = [s // o for s, o in zip(x.shape[-n:], output_size)]
            blocks = [m for o, k in zip(output_size, kernel) for m in (o, k)]
            axes = tuple([-2 * i - 1 for i in range(n)])
            return jnp.mean(wide.reshape(*x.shape[:-n], *blocks), axes)
        for d, out in enumerate(output_size):
            size = x.shape[d - n]
            weight = np.zeros((out, size))
            for i in range(out):
                first, last = i * size // out, -(-(i + 1) * size // out)
                weight[i, first:last] = 1 / (last - first)
            wide = jnp.moveaxis(jnp.tensordot(wide, jnp.asarray(weight, wide.dtype),
                                              ((d - n,), (1,))), -1, d - n)
        return wide
    return run


def _backward_of(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The backward op whose arguments are the gradient and those of the forward op."""
    def run(gradient: Array, x: Array, *args: Any) -> Any:
        return vjp(lambda v: forward(v, *args).astype(gradient.dtype), x)[1](gradient)[0]
    return run


def _adaptive_avg_pool_backward(n: int) -> Callable[..., Any]:
    return lambda gradient, x: _backward_of(_adaptive_avg_pool(n))(
        gradient, x, gradient.shape[-n:])


# ---- normalization


def _affine(x: Array, weight: Array | None, bias: Array | None, shape: Sequence[int]) -> Array:
    x = x if weight is None else x * weight.reshape(tuple(shape))
    return x if bias is None else x + bias.reshape(tuple(shape))


def _moments(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array, Array]:
    """Return normalized values, mean, variance, and the reciprocal of the deviation."""
    wide = x.astype("float32") if x.dtype.name in ("bfloat16", "float16") else x
    mean = jnp.mean(wide, axes, keepdims=True)
    gap = wide - mean
    variance = jnp.mean(gap * gap, axes, keepdims=True)
    scale = lax.rsqrt(variance + eps)
    return gap * scale, mean, variance, scale


def _layer_norm(x: Array, shape: Sequence[int], weight: Array | None, bias: Array | None,
                eps: float) -> tuple[Array, Array, Array]:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    y, mean, _, scale = _moments(x, axes, eps)
    return _affine(y, weight, bias, shape), mean, scale


def _group_norm(x: Array, weight: Array | None, bias: Array | None, n: int, channels: int,
                size: int, groups: int, eps: float) -> tuple[Array, Array, Array]:
    y, mean, _, scale = _moments(x.reshape(n, groups, -1), (2,), eps)
    shape = (1, channels, *[1] * (x.ndim - 2))
    return (_affine(y.reshape(x.shape), weight, bias, shape), mean.reshape(n, groups),
            scale.reshape(n, groups))


def _softmax(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Array, dim: int, half_to_float: bool = False) -> Any:
        wide = x.astype("float32") if x.dtype.name in ("bfloat16", "float16") else x
        return f(wide, dim) if x.ndim else f(wide[None], 0)[0]
    return run


# ---- attention and distances


def _attention(q: Array, k: Array, v: Array, dropout_p: float = 0.0, is_causal: bool = False, *,
               attn_mask: Array | None = None, scale: float | None = None
               ) -> tuple[Array, Array]:
    """Return the result and the logarithm of the sum of the exponentials."""
    if dropout_p:
        raise UnsupportedOpError("attention with dropout")
    q, k, v = [jnp.swapaxes(x, 1, 2) for x in (q, k, v)]
    is_mask = attn_mask is not None and attn_mask.dtype.name == "bool"
    result, logsumexp = nn.dot_product_attention(
        q, k, v, bias=None if is_mask else attn_mask, mask=attn_mask if is_mask else None,
        scale=scale, is_causal=is_causal, return_residual=True)
    return jnp.swapaxes(result, 1, 2), jnp.swapaxes(logsumexp, 1, 2)


def _attention_backward(gradient: Array, q: Array, k: Array, v: Array, out: Array,
                        logsumexp: Array, dropout_p: float, is_causal: bool, *,
                        attn_mask: Array | None = None, scale: float | None = None) -> Any:
    def forward(q: Array, k: Array, v: Array) -> Array:
        return _attention(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]

    return vjp(forward, q, k, v)[1](gradient)


def _encoder_layer(x: Array, size: int, heads: int, qkv_weight: Array, qkv_bias: Array,
                   out_weight: Array, out_bias: Array, is_gelu: bool, norm_first: bool, eps: float,
                   weight1: Array, bias1: Array, weight2: Array, bias2: Array, inner: Array,
                   inner_bias: Array, outer: Array, outer_bias: Array, mask: Array | None = None,
                   mask_kind: int | None = None) -> Array:
    """The fused layer that PyTorch's TransformerEncoderLayer calls in inference."""
    if mask is not None:  # of [query, key], of [batch, key], or of all four axes
        mask = (mask == 0) if mask_kind == 2 else (mask == 0)[None, None] if mask_kind == 0 else \
            (mask == 0)[:, None, None]

    def attend(x: Array) -> Any:
        qkv = (x @ qkv_weight.T + qkv_bias).reshape(*x.shape[:2], 3, heads, -1)
        y = nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], mask=mask)
        return y.reshape(x.shape) @ out_weight.T + out_bias

    def feed(x: Array) -> Any:
        h = x @ inner.T + inner_bias
        h = nn.gelu(h, approximate=False) if is_gelu else nn.relu(h)
        return h @ outer.T + outer_bias

    def norm1(x: Array) -> Array:
        return _layer_norm(x, (size,), weight1, bias1, eps)[0]

    def norm2(x: Array) -> Array:
        return _layer_norm(x, (size,), weight2, bias2, eps)[0]

    x = x + attend(norm1(x)) if norm_first else norm1(x + attend(x))
    y: Array = x + feed(norm2(x)) if norm_first else norm2(x + feed(x))
    return y


def _distances(a: Array, b: Array, p: float, mode: int | None = None) -> Array:
    gap = jnp.abs(a[..., :, None, :] - b[..., None, :, :])
    if p == 0:
        return jnp.sum((gap != 0).astype(a.dtype), -1)
    if math.isinf(p):
        return jnp.max(gap, -1, initial=0)
    if p == 2:
        return jnp.sqrt(jnp.sum(gap * gap, -1))
    return jnp.sum(gap, -1) if p == 1 else jnp.sum(gap ** p, -1) ** (1 / p)


def _pairwise_distances(x: Array, p: float = 2) -> Array:
    rows, columns = np.triu_indices(x.shape[0], 1)
    return _distances(x, x, p)[rows, columns]


TABLE: Table = entries({
    "mm": jnp.matmul, "bmm": jnp.matmul, "mv": jnp.matmul,
    "dot": jnp.dot, "addmm": _addmm,
    "convolution": _convolution, "convolution_backward": _convolution_backward,
    "max_pool2d_with_indices": _max_pool(2), "max_pool3d_with_indices": _max_pool(3),
    "max_pool2d_with_indices_backward": _max_pool_backward(2),
    "max_pool3d_with_indices_backward": _max_pool_backward(3),
    "avg_pool2d": _avg_pool(2), "avg_pool3d": _avg_pool(3),
    "avg_pool2d_backward": _backward_of(_avg_pool(2)),
    "avg_pool3d_backward": _backward_of(_avg_pool(3)),
    "_adaptive_avg_pool2d": _adaptive_avg_pool(2), "_adaptive_avg_pool3d": _adaptive_avg_pool(3),
    "_adaptive_avg_pool2d_backward": _adaptive_avg_pool_backward(2),
    "_adaptive_avg_pool3d_backward": _adaptive_avg_pool_backward(3),
    "native_layer_norm": _layer_norm, "native_group_norm": _group_norm,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "_softmax": _softmax(nn.softmax), "_log_softmax": _softmax(nn.log_softmax),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_cdist_forward": _distances, "_pdist_forward": _pairwise_distances,
})
