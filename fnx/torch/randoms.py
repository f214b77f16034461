"""Random ops of ATen: by Threefry, from a key that PyTorch's generator seeds at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as jnp
from fnx import random
from fnx.core.array.array import Array
from fnx.torch.entry import Table, dtype_of, entries, meta_of


def _draw(distribution: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers of the shape and dtype that PyTorch recorded."""
    def run(*args: Any, node: Any, key: Any, **named: Any) -> Any:
        dtype = dtype_of(node)
        wide = "float32" if dtype in ("bfloat16", "float16") else dtype
        return distribution(key, tuple(map(int, meta_of(node).shape)), wide).astype(dtype)
    return run


def _integers(*args: Any, node: Any, key: Any, **layout: Any) -> Array:
    """``randint`` and ``randint_like``: the bounds come before and after a size or tensor."""
    bounds = [a for a in args if isinstance(a, int)]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    dtype = dtype_of(node)
    shape = tuple(map(int, meta_of(node).shape))
    return random.randint(key, shape, low, high, "int64").astype(dtype)


def _bernoulli(x: Array, p: Any = None, *, node: Any, key: Any, **generator: Any) -> Array:
    chance = x if p is None else p
    return random.bernoulli(key, chance, x.shape).astype(dtype_of(node))


def _dropout(x: Array, p: float, train: bool | None, *, key: Any) -> tuple[Array, Array]:
    if train is False or p == 0:
        return x, jnp.ones(x.shape, bool)
    if p == 1:
        return jnp.zeros_like(x), jnp.zeros(x.shape, bool)
    mask = random.bernoulli(key, 1 - p, x.shape)
    return jnp.where(mask, x / (1 - p), 0), mask


def _permutation(n: int, *, node: Any, key: Any, **layout: Any) -> Array:
    return random.permutation(key, n).astype(dtype_of(node))


def _normal(mean: Any, std: Any = 1.0, size: Sequence[int] | None = None, *, node: Any, key: Any,
            **layout: Any) -> Any:
    return _draw(random.normal)(node=node, key=key) * std + mean


def _uniform(x: Array, low: float = 0.0, high: float = 1.0, *, node: Any, key: Any,
             **generator: Any) -> Any:
    return _draw(random.uniform)(node=node, key=key) * (high - low) + low


TABLE: Table = {
    **entries({
        "rand": _draw(random.uniform), "rand_like": _draw(random.uniform),
        "randn": _draw(random.normal), "randn_like": _draw(random.normal),
        "randint": _integers, "randint_like": _integers, "bernoulli": _bernoulli,
        "randperm": _permutation, "normal": _normal, "uniform": _uniform,
        "normal_functional": lambda x, mean=0.0, std=1.0, node=None, key=None, **generator:
            _normal(mean, std, node=node, key=key),
        "exponential": lambda x, rate=1.0, node=None, key=None, **generator:
            _draw(random.exponential)(node=node, key=key) / rate,
    }, takes_node=True, is_random=True),
    **entries({"native_dropout": _dropout}, is_random=True),
}
