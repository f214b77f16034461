"""Reductions, scans and sorts of ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fnx.numpy as jnp
from fnx import lax, nn
from fnx.core.array.array import Array
from fnx.torch.entry import Table, dtype_of, entries


def _axes(dim: Any) -> Any:
    """Return the axes of ``dim``; none mean all of them."""
    if dim is None or isinstance(dim, int):
        return dim
    return tuple(dim) or None


def _wide(x: Array, dtype: str) -> Array:
    """Return the dtype in which values of a result's dtype are added up."""
    return x.astype("float32" if dtype in ("bfloat16", "float16") else dtype)


def _sum(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, node: Any
            ) -> Any:
        if x.ndim == 0:
            return _wide(x, dtype_of(node))
        return reduce(_wide(x, dtype_of(node)), _axes(dim), keepdims=keepdim)
    return run


def _extreme(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Array, dim: Any = (), keepdim: bool = False) -> Any:
        return reduce(x, _axes(dim), keepdims=keepdim) if x.ndim else x
    return run


def _any(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        return reduce(x != 0, _axes(dim), keepdims=keepdim) if x.ndim else x != 0
    return run


def _position(find: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Array, dim: int | None = None, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return jnp.zeros((), "int64")
        x = x.astype("uint8") if x.dtype.name == "bool" else x
        return find(x, dim, keepdims=keepdim)
    return run


def _extreme_with_position(reduce: Callable[..., Any], find: Callable[..., Any],
                           pair: Callable[..., Any]) -> Callable[..., Any]:
    """``max`` and ``min``: of all elements, along an axis with positions, or of two tensors."""
    def run(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Array):
            return pair(x, dim)
        if dim is None:
            return reduce(x)
        if x.ndim == 0:
            return x, jnp.zeros((), "int64")
        index = find(x.astype("uint8") if x.dtype.name == "bool" else x, dim, keepdims=True)
        value = jnp.take_along_axis(x, index, dim)
        return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))
    return run


def _variance(x: Array, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
              correction: Any = None) -> tuple[Array, Array]:
    """Return variance and mean, in the dtype of the accumulator."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    x = _wide(x, x.dtype.name)
    axes = _axes(dim) if x.ndim else None
    mean = jnp.mean(x, axes, keepdims=True)
    gap = x - mean
    squares = jnp.real(gap * jnp.conj(gap)) if jnp.iscomplexobj(x) else gap * gap
    total = jnp.sum(squares, axes, keepdims=keepdim)
    count = x.size // max(1, mean.size)
    variance = total / max(0, count - correction) if count > correction else \
        total * 0 / jnp.zeros((), total.dtype) if count <= correction else total
    return variance, mean if keepdim else mean.reshape(total.shape)


def _cumulate(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Array, dim: int, *, dtype: Any = None, node: Any) -> Any:
        x = _wide(x, dtype_of(node))
        return f(x, dim) if x.ndim else x
    return run


def _cumulative_extreme(f: Callable[..., Any]) -> Callable[..., Any]:
    """Extremes so far, and the last position of each."""
    def run(x: Array, dim: int) -> Any:
        if x.ndim == 0:
            return x, jnp.zeros((), "int64")
        wide = x.astype("uint8") if x.dtype.name == "bool" else x
        values = f(wide, dim % x.ndim)
        reached = (wide == values) | jnp.isnan(wide)
        position = lax.broadcasted_iota("int64", x.shape, dim % x.ndim)
        return values, lax.cummax(jnp.where(reached, position, 0), dim % x.ndim)
    return run


def _sort(x: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None
          ) -> tuple[Array, Array]:
    if x.ndim == 0:
        return x, jnp.zeros((), "int64")
    order = jnp.argsort(x, dim, descending=descending, stable=True)
    return jnp.take_along_axis(x, order, dim), order


def _topk(x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
          ) -> tuple[Array, Array]:
    if x.ndim == 0:
        return x, jnp.zeros((), "int64")
    values, order = _sort(x, dim, largest)
    first = (slice(None),) * (dim % x.ndim) + (slice(0, k),)
    return values[first], order[first]


def _vector_norm(x: Array, ord: float = 2, dim: Any = None, keepdim: bool = False, *,
                 dtype: Any = None, node: Any) -> Any:
    x = _wide(jnp.abs(x), dtype_of(node))
    axes = _axes(dim) if x.ndim else None
    if ord == 0:
        return jnp.sum((x != 0).astype(x.dtype), axes, keepdims=keepdim)
    if ord == float("inf"):
        return jnp.max(x, axes, keepdims=keepdim)
    if ord == -float("inf"):
        return jnp.min(x, axes, keepdims=keepdim)
    if ord == 1:
        return jnp.sum(x, axes, keepdims=keepdim)
    if ord == 2:
        return jnp.sqrt(jnp.sum(x * x, axes, keepdims=keepdim))
    return jnp.sum(x ** ord, axes, keepdims=keepdim) ** (1 / ord)


TABLE: Table = {
    **entries({
        "sum": _sum(jnp.sum), "mean": _sum(jnp.mean), "prod": _sum(jnp.prod),
        "nansum": _sum(jnp.nansum),
        "cumsum": _cumulate(jnp.cumsum), "cumprod": _cumulate(jnp.cumprod),
        "linalg_vector_norm": _vector_norm,
        "logcumsumexp": _cumulate(lambda x, dim: lax.cumlogsumexp(x, dim % x.ndim)),
    }, takes_node=True),
    **entries({
        "amax": _extreme(jnp.max), "amin": _extreme(jnp.min),
        "any": _any(jnp.any), "all": _any(jnp.all),
        "argmax": _position(jnp.argmax), "argmin": _position(jnp.argmin),
        "max": _extreme_with_position(jnp.max, jnp.argmax, jnp.maximum),
        "min": _extreme_with_position(jnp.min, jnp.argmin, jnp.minimum),
        "var": lambda *args, **named: _variance(*args, **named)[0],
        "var_mean": _variance,
        "cummax": _cumulative_extreme(lax.cummax), "cummin": _cumulative_extreme(lax.cummin),
        "sort": _sort, "topk": _topk,
        "logsumexp": lambda x, dim, keepdim=False: nn.logsumexp(x, _axes(dim), keepdims=keepdim),
    }),
}
