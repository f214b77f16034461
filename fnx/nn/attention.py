"""Scaled dot-product attention, as in ``jax.nn``."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.support.errors import DTypeError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.nn.normalization import logsumexp, softmax

lax = lazy_import("fnx.lax")

__all__ = ["dot_product_attention"]

_docstr = DocTemplate(
    query="(batch, queries, heads, features), or without the batch.",
    key="(batch, keys, groups, features): as many groups as heads, or fewer that heads share.",
    value="values, like the keys.",
    bias="added to scores; broadcast to (batch, heads, queries, keys).",
    mask="bools, True to attend; broadcast to (batch, heads, queries, keys).",
    scale="the factor of the scores; by default 1 / sqrt(features).",
    is_causal="whether queries attend only to keys up to their own index.",
    query_seq_lengths="the valid queries of each batch row, int32.",
    key_value_seq_lengths="the valid keys of each batch row, int32.",
    local_window_size="keys before and after a query to attend to.",
    implementation='None or "xla", which are the same here.',
    return_residual="also return the logsumexp of the scores.",
    returns="An Array of the shape of the queries, or (it, logsumexp).",
    imports="fnx.nn as nn",
    raises=("ShapeError: the shapes do not match.",
            "DTypeError: the dtypes differ, or the mask is not bool.",
            "ArgumentError: unknown implementation."))


def _to_rank4(x: ArrayLike) -> Array:
    array = asarray(x)
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def _check_operand(name: str, x: Array, shape: tuple[int | None, ...], dtype: Any) -> None:
    if x.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, x.shape)):
        expected = tuple(["any" if n is None else n for n in shape])
        raise ShapeError(f"expected {name} of shape {expected}, got {x.shape}",
                         hint="axes are batch, length, heads, features; keys and values have the "
                              "same shape, and the features of the queries" if x.ndim == 4 else
                              "it has one number for each row of the batch")
    if x.dtype != dtype:
        raise DTypeError(f"expected {name} of {np.dtype(dtype)}, got {x.dtype}",
                         hint="convert it with .astype(...)")


def _check_lengths(name: str, lengths: ArrayLike | None, batch: int) -> Array | None:
    if lengths is None:
        return None
    x = asarray(lengths)
    _check_operand(name, x, (batch,), np.int32)
    return x.reshape(batch, 1, 1, 1)


def _resolve_window(window: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if window is None:
        return None
    before, after = (window, window) if not isinstance(window, tuple) else window
    return arguments.check_int("local_window_size", before), \
        arguments.check_int("local_window_size", after)


def _attention_mask(t: int, s: int, causal: bool, window: tuple[int, int] | None,
                    query_lengths: Array | None, key_lengths: Array | None) -> Array | None:
    """Return the mask of queries that attend to keys, broadcastable to (batch, 1, t, s)."""
    i, j = (jnp.arange(n, dtype="int32").reshape(shape) for n, shape in (
        (t, (1, 1, t, 1)), (s, (1, 1, 1, s))))
    tests = []
    if causal:
        tests.append(j <= i)
    if window is not None:
        tests += [i <= j + window[0], i >= j - window[1]]
    if query_lengths is not None:
        tests.append(i < query_lengths)
    if key_lengths is not None:
        tests.append(j < key_lengths)
    mask = None
    for test in tests:
        mask = test if mask is None else jnp.logical_and(mask, test)
    return mask


@_docstr()
def dot_product_attention(
        query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None,
        mask: ArrayLike | None = None, *, scale: float | None = None, is_causal: bool = False,
        query_seq_lengths: ArrayLike | None = None,
        key_value_seq_lengths: ArrayLike | None = None,
        local_window_size: int | tuple[int, int] | None = None,
        implementation: Literal["xla"] | None = None, return_residual: bool = False) -> Any:
    """Average values with weights softmax(query @ key.T * scale + bias): attention.

    Scores are computed in float32 or wider. A query whose keys are all masked weighs them equally.

    >>> import fnx.numpy as jnp
    >>> x = jnp.ones((1, 2, 1, 4))
    >>> nn.dot_product_attention(x, x, x * 3, is_causal=True)[0, :, 0, 0]
    Array([3., 3.], dtype=float32)
    """
    arguments.check_choice("implementation", implementation, ("xla", None))
    shape = asarray(query).shape
    q, k, v = _to_rank4(query), _to_rank4(key), _to_rank4(value)
    batch, s, groups, features = k.shape if k.ndim == 4 else (0, 0, 0, 0)
    _check_operand("keys", k, (None,) * 4, k.dtype)
    _check_operand("values", v, k.shape, k.dtype)
    _check_operand("queries", q, (batch, None, None, features), k.dtype)
    t, heads = q.shape[1:3]
    if heads % max(groups, 1):
        raise ShapeError(f"expected a multiple of {groups} query heads, the number of key heads, "
                         f"got {heads}")
    lengths = (_check_lengths("query_seq_lengths", query_seq_lengths, batch),
               _check_lengths("key_value_seq_lengths", key_value_seq_lengths, batch))
    factor = 1 / math.sqrt(features) if scale is None else arguments.check_number("scale", scale)
    score_dtype = jnp.promote_types(q.dtype, "float32")
    scores = jnp.einsum("btghd,bsgd->bghts", q.reshape(batch, t, groups, -1, features), k,
                        preferred_element_type=score_dtype)
    scores = scores.reshape(batch, heads, t, s) * jnp.asarray(factor, score_dtype)
    if bias is not None:
        scores = (scores + _check_broadcast("bias", bias, scores.shape)).astype(score_dtype)
    tests = [_attention_mask(t, s, is_causal, _resolve_window(local_window_size), *lengths)]
    if mask is not None:
        allowed = _check_broadcast("mask", mask, scores.shape)
        if not allowed._dtype.is_bool:
            raise DTypeError(f"expected a boolean mask, got {allowed._dtype}",
                             hint="pass additive values as bias=")
        tests.append(allowed)
    masked_score = -0.7 * float(np.finfo(np.float32).max)
    for test in tests:
        if test is not None:
            scores = jnp.where(test, scores, masked_score)
    weights = softmax(scores, -1).astype(k.dtype).reshape(batch, groups, -1, t, s)
    out = jnp.einsum("bghts,bsgd->btghd", weights, v).reshape(batch, t, heads, features)
    if lengths[0] is not None:
        in_length = jnp.arange(t, dtype="int32").reshape(1, t, 1, 1) < lengths[0]
        out = out * in_length.astype(out.dtype)
    out = out.reshape(shape)
    if not return_residual:
        return out
    sums = jnp.transpose(logsumexp(scores, -1).astype(k.dtype), (0, 2, 1))
    return out, lax.stop_gradient(sums.reshape(shape[:-1]))


def _check_broadcast(name: str, array: ArrayLike, shape: tuple[int, ...]) -> Array:
    x = _to_rank4(array)
    if x.ndim != 4 or any(n not in (1, m) for n, m in zip(x.shape, shape)):
        raise ShapeError(f"expected {name} that broadcasts to {shape}, got {x.shape}",
                         hint="its axes are batch, heads, queries, keys")
    return x

