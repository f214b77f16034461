"""Gathers and scatters of ATen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.array import Array
from fnx.torch.entry import Range, Table, UnsupportedOpError, entries


def _index_tuple(indices: Sequence[Array | None]) -> tuple[Any, ...]:
    if any(i is not None and i.dtype.name in ("bool", "uint8") for i in indices):
        raise UnsupportedOpError("an index that is a mask: the shape of the result depends on data")
    return tuple([slice(None) if i is None else i for i in indices])


def _index(x: Array, indices: Sequence[Array | None]) -> Array:
    return x[_index_tuple(indices)]


def _index_put(x: Array, indices: Sequence[Array | None], values: Array,
               accumulate: bool = False, unsafe: bool = False) -> Array:
    first = indices[0]
    if len(indices) == 1 and first is not None and first.dtype.name == "bool" and \
            values.size == 1:
        mask = first.reshape(first.shape + (1,) * (x.ndim - first.ndim))
        new = values.reshape(()).astype(x.dtype)
        return jnp.where(mask, x + new if accumulate else new, x)
    at = x.at[_index_tuple(indices)]
    values = values.astype(x.dtype)
    return at.add(values) if accumulate else at.set(values)


def _as_row(x: Array) -> Array:
    return x.reshape(1) if x.ndim == 0 else x


def _index_select(x: Array, dim: int, index: Array) -> Array:
    return jnp.take(_as_row(x), _as_row(index), dim).reshape(
        x.shape if x.ndim == 0 else (*x.shape[:dim % x.ndim], index.size,
                                     *x.shape[dim % x.ndim + 1:]))


def _gather(x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    if index.size == 0:
        return jnp.zeros(index.shape, x.dtype)
    source, rows = _as_row(x), _as_row(index)
    dim %= source.ndim
    source = source[tuple([slice(None) if d == dim else slice(0, n)
                           for d, n in enumerate(rows.shape)])]
    return jnp.take_along_axis(source, rows, dim).reshape(index.shape)


def _grid(index: Array, dim: int) -> tuple[Any, ...]:
    """Return an index for each axis: ``index`` along ``dim``, positions along the others."""
    return tuple([index if d == dim else lax.broadcasted_iota("int32", index.shape, d)
                  for d in range(index.ndim)])


def _scatter(x: Array, dim: int, index: Array, source: Any, *, reduce: str | None = None) -> Array:
    how = {None: "set", "add": "add", "multiply": "prod"}[reduce]
    return _scatter_by(how, x, dim, index, source)


def _scatter_by(how: str, x: Array, dim: int, index: Array, source: Any) -> Array:
    """Combine elements of ``source`` into ``x`` where ``index`` says along an axis."""
    if index.size == 0:
        return x
    target, rows = _as_row(x), _as_row(index)
    values = jnp.asarray(source, x.dtype) if not isinstance(source, Array) else \
        source.astype(x.dtype)
    values = jnp.broadcast_to(values, rows.shape) if values.ndim == 0 else \
        values[tuple([slice(0, n) for n in rows.shape])]
    update = target.at[_grid(rows, dim % target.ndim)]
    combine = {"set": update.set, "add": update.add, "prod": update.multiply, "sum": update.add,
               "amax": update.max, "amin": update.min}[how]
    return combine(values).reshape(x.shape)


def _identity_of(how: str, dtype: Any) -> Any:
    if how == "prod":
        return 1
    if how in ("amax", "amin"):
        if jnp.issubdtype(dtype, jnp.floating):
            return -jnp.inf if how == "amax" else jnp.inf
        limits = jnp.iinfo(dtype)
        return limits.min if how == "amax" else limits.max
    return 0


def _scatter_reduce(x: Array, dim: int, index: Array, source: Array, reduce: str, *,
                    include_self: bool = True) -> Array:
    how = "sum" if reduce == "mean" else reduce
    base = x if include_self else _scatter_by("set", x, dim, index, _identity_of(how, x.dtype))
    total = _scatter_by(how, base, dim, index, source)
    if reduce != "mean":
        return total
    ones = jnp.ones(x.shape, x.dtype)
    count = ones if include_self else _scatter_by("set", ones, dim, index, 0)
    count = jnp.maximum(_scatter_by("sum", count, dim, index, 1), 1)
    return total // count if jnp.issubdtype(x.dtype, jnp.integer) else total / count


def _along(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    return (*[slice(None)] * (dim % x.ndim), index)


def _rows_at(x: Array, dim: int, index: Array, source: Array) -> tuple[Any, Array]:
    """Return the rows of an array to update, and the new rows."""
    target, rows = _as_row(x), _as_row(index)
    return target.at[_along(target, dim, rows)], source.reshape(
        *target.shape[:dim % target.ndim], rows.size, *target.shape[dim % target.ndim + 1:])


def _index_add(x: Array, dim: int, index: Array, source: Array, *, alpha: Any = 1) -> Any:
    rows, values = _rows_at(x, dim, index, source)
    return rows.add((values * alpha).astype(x.dtype)).reshape(x.shape)


def _index_fill(x: Array, dim: int, index: Array, value: Any) -> Array:
    value = jnp.asarray(value, x.dtype)
    return _as_row(x).at[_along(_as_row(x), dim, _as_row(index))].set(value).reshape(x.shape)


def _index_copy(x: Array, dim: int, index: Array, source: Array) -> Any:
    rows, values = _rows_at(x, dim, index, source)
    return rows.set(values).reshape(x.shape)


def _masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    x, mask = jnp.broadcast_to(x, shape), jnp.broadcast_to(mask, shape)
    if source.size == 0:
        return x
    position = jnp.cumsum(mask.reshape(-1).astype("int64")).reshape(shape) - 1
    return jnp.where(mask, source.reshape(-1)[jnp.clip(position, 0, source.size - 1)], x)


def _embedding(weight: Array, index: Array, padding_idx: int = -1, scale_grad: bool = False,
               sparse: bool = False) -> Array:
    return jnp.take(weight, index, 0)


# ---- ranges of indices


def _along_axis(x: Array, dim: int, index: Array, *args: Any, **named: Any) -> list[Range]:
    return [Range(index, 0, x.shape[dim] if x.ndim else 1, dim % max(1, x.ndim))]


def _of_fill(x: Array, dim: int, index: Array, value: Any) -> list[Range]:
    size = x.shape[dim] if x.ndim else 1
    return [Range(index, -size, size, dim % max(1, x.ndim))]


def _of_index(x: Array, indices: Sequence[Array | None], *args: Any) -> list[Range]:
    return [Range(i, -x.shape[d], x.shape[d], d) for d, i in enumerate(indices)
            if i is not None and i.dtype.name not in ("bool", "uint8")]


def _of_masked_scatter(x: Array, mask: Array, source: Array) -> list[Range]:
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    count = jnp.sum(jnp.broadcast_to(mask, shape), dtype="int64")
    return [Range(count, 0, source.size + 1,
                  message=f"the mask selects more than the {source.size} elements of the source")]


def _assertion(condition: Array, message: str = "assertion failed", *args: Any) -> list[Range]:
    return [Range(condition.astype("int64"), 1, 2, message=message)]


RANGES: dict[str, Any] = {
    "index": _of_index, "index_put": _of_index, "masked_scatter": _of_masked_scatter,
    "index_fill": _of_fill,
    "embedding": lambda weight, index, *args: [Range(index, 0, weight.shape[0], 0)],
    **dict.fromkeys(("index_select", "gather", "scatter", "scatter_add", "scatter_reduce",
                     "index_add", "index_copy"), _along_axis),
    "_assert_async": _assertion, "_functional_assert_async": _assertion,
}
ROWS: Table = entries({
    "index": _index, "_unsafe_index": _index,
    "index_put": _index_put, "_unsafe_index_put": _index_put,
    "index_select": _index_select, "gather": _gather, "scatter": _scatter,
    "scatter_add": lambda x, dim, index, source: _scatter_by("add", x, dim, index, source),
    "scatter_reduce": _scatter_reduce, "index_add": _index_add, "index_copy": _index_copy,
    "index_fill": _index_fill,
    "_assert_async": lambda condition, message="": None,
    "_functional_assert_async": lambda condition, message, token: token,
    "masked_scatter": _masked_scatter, "embedding": _embedding,
})
TABLE: Table = {name: row.replace(ranges=RANGES.get(name)) for name, row in ROWS.items()}
