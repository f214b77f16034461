"""Random numbers, by Threefry: the key of a node is its seed, else the key of the call."""

from __future__ import annotations

from typing import Any

import fnx.numpy as jnp
from fnx import random
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import Value, dtype_of, to_array, type_of


@op("RandomNormal")
def _normal(n: Node, *, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: Any = None,
            shape: Any = ()) -> Value:
    draws = random.normal(n.key(seed), tuple(shape))
    return (mean + scale * draws).astype(dtype_of(dtype))


@op("RandomUniform")
def _uniform(n: Node, *, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: Any = None,
             shape: Any = ()) -> Value:
    draws = random.uniform(n.key(seed), tuple(shape))
    return (low + (high - low) * draws).astype(dtype_of(dtype))


@op("RandomNormalLike")
def _normal_like(n: Node, x: Value, *, dtype: int | None = None, mean: float = 0.0,
                 scale: float = 1.0, seed: Any = None) -> Value:
    draws = random.normal(n.key(seed), x.shape)
    return (mean + scale * draws).astype(dtype_of(dtype) if dtype else type_of(x))


@op("RandomUniformLike")
def _uniform_like(n: Node, x: Value, *, dtype: int | None = None, high: float = 1.0,
                  low: float = 0.0, seed: Any = None) -> Value:
    draws = random.uniform(n.key(seed), x.shape)
    return (low + (high - low) * draws).astype(dtype_of(dtype) if dtype else type_of(x))


@op("Bernoulli")
def _bernoulli(n: Node, x: Value, *, dtype: int | None = None, seed: Any = None) -> Value:
    draws = random.uniform(n.key(seed), x.shape) < to_array(x)
    return draws.astype(dtype_of(dtype) if dtype else type_of(x))


@op("Multinomial")
def _multinomial(n: Node, x: Value, *, dtype: int = 6, sample_size: int = 1, seed: Any = None
                 ) -> Value:
    draws = random.categorical(n.key(seed), to_array(x)[:, None, :], axis=-1,
                               shape=(x.shape[0], sample_size))
    return jnp.asarray(draws).astype(dtype_of(dtype))
