"""Scaled dot-product attention, as in ``jax.nn``."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.documented import Family
from fnx.core.array.public import asarray
from fnx.core.errors import DTypeError, ShapeError
from fnx.core.process import load
from fnx.nn.normalize import logsumexp, softmax

__all__ = ["dot_product_attention"]

_family = Family(
    query="(batch, queries, heads, features), or without the batch.",
    key="(batch, keys, groups, features): as many groups as heads, or fewer that heads share.",
    value="of the shape and dtype of the keys.",
    bias="added to the scores: what broadcasts to (batch, heads, queries, keys).",
    mask="bools, where a query sees a key: what broadcasts to (batch, heads, queries, keys).",
    scale="of the scores; by default 1 / sqrt(features).",
    is_causal="whether a query sees only keys that do not stand behind it.",
    query_seq_lengths="how many queries of each row of the batch count, int32.",
    key_value_seq_lengths="how many keys of each row of the batch count, int32.",
    local_window_size="how far before and behind it a query sees: an int or two.",
    implementation='None or "xla"; both are the same here.',
    return_residual="also return the logarithms of the sums of exponentials.",
    returns="An Array of the shape of the queries; or a tuple of it and the logarithms.",
    at="fnx.nn as nn",
    raises=("ShapeError: shapes that do not belong together.",
            "DTypeError: different dtypes, or a mask that is not of bools.",
            "ArgumentError: another implementation."))


def _rank4(x: ArrayLike) -> Array:
    array = asarray(x)
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def _checked(name: str, x: Array, shape: tuple[int | None, ...], dtype: Any) -> None:
    if x.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, x.shape)):
        wanted = tuple(["any" if n is None else n for n in shape])
        raise ShapeError(f"expected {name} of shape {wanted}, got {x.shape}")
    if x.dtype != dtype:
        raise DTypeError(f"expected {name} of {np.dtype(dtype)}, got {x.dtype}",
                         hint="convert it with .astype(...)")


def _lengths(name: str, given: ArrayLike | None, batch: int) -> Array | None:
    if given is None:
        return None
    x = asarray(given)
    _checked(name, x, (batch,), np.int32)
    return x.reshape(batch, 1, 1, 1)


def _window(given: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if given is None:
        return None
    before, behind = (given, given) if not isinstance(given, tuple) else given
    return arguments.integer("local_window_size", before), \
        arguments.integer("local_window_size", behind)


def _seen(t: int, s: int, causal: bool, window: tuple[int, int] | None, queries: Array | None,
          keys: Array | None) -> Array | None:
    """Return the mask of queries that attend to keys, broadcastable to (batch, 1, t, s)."""
    i, j = (jnp.arange(n, dtype="int32").reshape(shape) for n, shape in (
        (t, (1, 1, t, 1)), (s, (1, 1, 1, s))))
    tests = []
    if causal:
        tests.append(j <= i)
    if window is not None:
        tests += [i <= j + window[0], i >= j - window[1]]
    if queries is not None:
        tests.append(i < queries)
    if keys is not None:
        tests.append(j < keys)
    found = None
    for test in tests:
        found = test if found is None else jnp.logical_and(found, test)
    return found


@_family()
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
    arguments.one_of("implementation", implementation, ("xla", None))
    arguments.flag("is_causal", is_causal)
    arguments.flag("return_residual", return_residual)
    shape = asarray(query).shape
    q, k, v = _rank4(query), _rank4(key), _rank4(value)
    batch, s, groups, features = k.shape if k.ndim == 4 else (0, 0, 0, 0)
    _checked("keys", k, (None,) * 4, k.dtype)
    _checked("values", v, k.shape, k.dtype)
    _checked("queries", q, (batch, None, None, features), k.dtype)
    t, heads = q.shape[1:3]
    if heads % max(groups, 1):
        raise ShapeError(f"expected a multiple of {groups} heads, the groups of the keys, got "
                         f"{heads}")
    lengths = (_lengths("query_seq_lengths", query_seq_lengths, batch),
               _lengths("key_value_seq_lengths", key_value_seq_lengths, batch))
    factor = 1 / math.sqrt(features) if scale is None else arguments.number("scale", scale)
    wide = jnp.promote_types(q.dtype, "float32")
    scores = jnp.einsum("btghd,bsgd->bghts", q.reshape(batch, t, groups, -1, features), k,
                        preferred_element_type=wide)
    scores = scores.reshape(batch, heads, t, s) * jnp.asarray(factor, wide)
    if bias is not None:
        scores = (scores + _broadcastable("bias", bias, scores.shape)).astype(wide)
    tests = [_seen(t, s, is_causal, _window(local_window_size), *lengths)]
    if mask is not None:
        allowed = _broadcastable("mask", mask, scores.shape)
        if not allowed._dtype.is_bool:
            raise DTypeError(f"expected a mask of bools, got {allowed._dtype}",
                             hint="add numbers with bias=")
        tests.append(allowed)
    least = -0.7 * float(np.finfo(np.float32).max)
    for test in tests:
        if test is not None:
            scores = jnp.where(test, scores, least)
    scores = scores.astype("float32")
    weights = softmax(scores, -1).astype(k.dtype).reshape(batch, groups, -1, t, s)
    out = jnp.einsum("bghts,bsgd->btghd", weights, v).reshape(batch, t, heads, features)
    if lengths[0] is not None:
        inside = jnp.arange(t, dtype="int32").reshape(1, t, 1, 1) < lengths[0]
        out = out * inside.astype(out.dtype)
    out = out.reshape(shape)
    if not return_residual:
        return out
    sums = jnp.transpose(logsumexp(scores, -1).astype(k.dtype), (0, 2, 1))
    return out, load("fnx.lax").stop_gradient(sums.reshape(shape[:-1]))


def _broadcastable(name: str, given: ArrayLike, shape: tuple[int, ...]) -> Array:
    x = _rank4(given)
    if x.ndim != 4 or any(n not in (1, m) for n, m in zip(x.shape, shape)):
        raise ShapeError(f"expected {name} that broadcasts to {shape}, got {x.shape}",
                         hint="its axes are batch, heads, queries, keys")
    return x

