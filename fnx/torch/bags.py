"""Bags of embeddings: sums, means or extremes of rows that a list of indices names."""

from __future__ import annotations

from typing import Any

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.torch.entry import Range, Table, UnsupportedOpError, entries, meta_of

SUM, MEAN, MAX = range(3)  # PyTorch's numbers of the modes


def _bag_of(index: Array, offsets: Array) -> Array:
    """Return for each index the bag that it belongs to: the last one that starts before it."""
    return jnp.searchsorted(offsets, jnp.arange(index.size, dtype=offsets.dtype), "right") - 1


def _weights(index: Array, dtype: Any, padding: int, weights: Array | None) -> Array:
    """Return the factor of each row: 0 for padding."""
    present = (index != padding).astype(dtype)
    return present if weights is None else present * weights


def _embedding_bag(weight: Array, index: Array, offsets: Array, scale_grad: bool = False,
                   mode: int = SUM, sparse: bool = False, weights: Array | None = None,
                   last_offset: bool = False, padding_idx: int = -1, *, node: Any
                   ) -> list[Array]:
    if sparse:
        raise UnsupportedOpError("sparse gradients of embedding_bag")
    bags = offsets.size - last_offset
    bag, rows = _bag_of(index, offsets), weight[index]
    present = index != padding_idx
    count = jnp.zeros(bags, offsets.dtype).at[bag].add(present.astype(offsets.dtype))
    empty = jnp.zeros((bags, weight.shape[1]), weight.dtype)
    place = jnp.zeros(empty.shape, offsets.dtype)
    if mode == MAX:
        rows = jnp.where(present[:, None], rows, -jnp.inf)
        result = jnp.full(empty.shape, -jnp.inf, weight.dtype).at[bag].max(rows)
        order = jnp.where(rows == result[bag], jnp.arange(index.size)[:, None], index.size - 1)
        first = jnp.full(empty.shape, max(0, index.size - 1)).at[bag].min(order)
        place = jnp.where(count[:, None] > 0, index[first], place) if index.size else place
        result = jnp.where(count[:, None] > 0, result, 0)
    else:
        factors = _weights(index, weight.dtype, padding_idx, weights)
        result = empty.at[bag].add(rows * factors[:, None])
        if mode == MEAN:
            result = result / jnp.maximum(count, 1).astype(weight.dtype)[:, None]
    results: list[Any] = [result, bag, count, place]
    shapes = [tuple(m.shape) for m in meta_of(node)]  # of what PyTorch's kernels leave out: empty
    return [x if x.shape == s else x[:, 0] if x.shape[:1] == s else jnp.zeros(s, x.dtype)
            for x, s in zip(results, shapes)]


def _embedding_bag_backward(gradient: Array, index: Array, offsets: Array, bag_of: Array,
                            count: Array, place: Array, rows: int, scale_grad: bool, mode: int,
                            sparse: bool, weights: Array | None, padding_idx: int = -1) -> Array:
    if sparse:
        raise UnsupportedOpError("sparse gradients of embedding_bag")
    total = jnp.zeros((rows, gradient.shape[1]), gradient.dtype)
    if mode == MAX:
        gradient = jnp.where(count[:, None] > 0, gradient, 0)
        return total.at[place, jnp.arange(gradient.shape[1])].add(gradient)
    if mode == MEAN:
        gradient = gradient / jnp.maximum(count, 1).astype(gradient.dtype)[:, None]
    factors = _weights(index, gradient.dtype, padding_idx, weights)
    if scale_grad:
        times = jnp.zeros(rows, gradient.dtype).at[index].add(1)
        factors = factors / times[index]
    return total.at[index].add(gradient[_bag_of(index, offsets)] * factors[:, None])


def _embedding_bag_weights_backward(gradient: Array, weight: Array, index: Array, offsets: Array,
                                    bag_of: Array, mode: int, padding_idx: int = -1) -> Array:
    products = jnp.sum(gradient[_bag_of(index, offsets)] * weight[index], 1)
    return jnp.where(index != padding_idx, products, 0)


ROWS: Table = {
    **entries({"_embedding_bag": _embedding_bag, "_embedding_bag_forward_only": _embedding_bag},
              takes_node=True),
    **entries({
        "_embedding_bag_backward": _embedding_bag_backward,
        "_embedding_bag_per_sample_weights_backward": _embedding_bag_weights_backward}),
}


def _ranges(weight: Array, index: Array, *args: Any, **named: Any) -> list[Range]:
    return [Range(index, 0, weight.shape[0], 0)]


TABLE: Table = {name: row.replace(ranges=_ranges if row.takes_node else None)
                for name, row in ROWS.items()}
