"""Fourier transforms of signals, and counts of n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.array import Array
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import Value, dtype_of, to_array, type_of


def _complex(x: Value) -> Array:
    """Return the numbers whose real (and imaginary) parts are along the last axis."""
    x = to_array(x)
    x = x if type_of(x).bits >= 32 else x.astype(jnp.float32)
    return x[..., 0] if x.shape[-1] == 1 else lax.complex(x[..., 0], x[..., 1])


def _parts(z: Array, t: Any) -> Array:
    return jnp.stack([jnp.real(z), jnp.imag(z)], -1).astype(t)


@op("DFT", since=20, static=(1, 2))
def _dft(n: Node, x: Value, length: Value = None, axis: Value = None, *, inverse: int = 0,
         onesided: int = 0) -> Value:
    over = -2 if axis is None else int(axis.item())
    z, over = _complex(x), over % x.ndim
    count = None if length is None else int(length.item())
    if inverse and onesided:
        return jnp.fft.irfft(z, count, over)[..., None].astype(x.dtype)
    if onesided:
        return _parts(jnp.fft.rfft(jnp.real(z), count, over), x.dtype)
    return _parts((jnp.fft.ifft if inverse else jnp.fft.fft)(z, count, over), x.dtype)


@op("DFT", since=17, static=(1,))
def _dft_17(n: Node, x: Value, length: Value = None, *, axis: int = 1, inverse: int = 0,
            onesided: int = 0) -> Value:
    return _dft(n, x, length, np.asarray(axis), inverse=inverse, onesided=onesided)


@op("STFT", static=(1, 3))
def _stft(n: Node, signal: Value, step: Value, window: Value = None, length: Value = None, *,
          onesided: int = 1) -> Value:
    size = int(length.item()) if length is not None else \
        signal.shape[1] if window is None else window.shape[0]
    stride = int(step.item())
    if stride < 1 or not 1 <= size <= signal.shape[1]:
        raise n.refuse(f"expected frames of 1 to {signal.shape[1]} elements and a positive step, "
                       f"got {size} and {stride}")
    starts = np.arange((signal.shape[1] - size) // stride + 1) * stride
    frames = to_array(signal)[:, starts[:, None] + np.arange(size)]
    if window is not None:
        frames = frames * to_array(window)[:, None]
    return _dft(n, frames, axis=np.asarray(2), onesided=int(onesided and signal.shape[-1] == 1))


@op("MelWeightMatrix", static=(0, 1, 2, 3, 4))
def _mel_weights(n: Node, bins: Value, length: Value, rate: Value, low: Value, high: Value, *,
                 output_datatype: int = 1) -> Value:
    count, size = int(bins.item()), int(length.item())
    ends = [2595 * np.log10(1 + f.item() / 700) for f in (low, high)]
    steps = np.arange(count + 2) / (count + 2)  # as ONNX has it: the last is below the edge
    mel = ends[0] + steps * (ends[1] - ends[0])
    edges = np.floor((size + 1) * 700 * (10 ** (mel / 2595) - 1) / rate.item())
    left, center, right = edges[:-2], edges[1:-1], edges[2:]
    k = np.arange(size // 2 + 1)[:, None]
    up = np.where(center > left, (k - left) / np.maximum(center - left, 1), k >= center)
    down = (right - k) / np.maximum(right - center, 1)
    weights = np.where(k <= center, up, down) * ((k >= left) & ((k <= center) | (k < right)))
    return weights.astype(dtype_of(output_datatype).np)


@op("TfIdfVectorizer")
def _tf_idf(n: Node, x: Value, *, max_gram_length: int = 1, max_skip_count: int = 0,
            min_gram_length: int = 1, mode: str = "TF", ngram_counts: Any = (),
            ngram_indexes: Any = (), pool_int64s: Any = (), weights: Any = None) -> Value:
    x = to_array(x)
    counts = jnp.zeros((*x.shape[:-1], max(ngram_indexes) + 1), jnp.float32)
    scale = jnp.ones(counts.shape[-1], jnp.float32)
    at, ends = 0, [*ngram_counts[1:], len(pool_int64s)]
    for length, (start, end) in enumerate(zip(ngram_counts, ends), 1):
        grams = np.asarray(pool_int64s[start:end], np.int64).reshape(-1, length)
        numbers = np.asarray(ngram_indexes[at:at + len(grams)])
        if weights is not None and len(grams):
            scale = scale.at[numbers].set(np.asarray(weights[at:at + len(grams)], np.float32))
        at += len(grams)
        if not min_gram_length <= length <= max_gram_length or not len(grams):
            continue
        for stride in range(1, 2 + (max_skip_count if length > 1 else 0)):
            starts = np.arange(max(x.shape[-1] - (length - 1) * stride, 0))
            windows = x[..., starts[:, None] + stride * np.arange(length)]
            equal = jnp.all(windows[..., None, :] == jnp.asarray(grams.astype(x.dtype)), -1)
            counts = counts.at[..., numbers].add(jnp.sum(equal, -2).astype(jnp.float32))
    if mode == "TF":
        return counts
    return (counts if mode == "TFIDF" else (counts > 0).astype(jnp.float32)) * scale
