"""Gathers, scatters, sorting, and results whose size depends on data."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import Value, to_array


def _positive(indices: Value, size: int) -> Array:
    indices = to_array(indices)
    return jnp.where(jnp.less(indices, 0), jnp.add(indices, size), indices)


@op("Gather")
def _gather(n: Node, x: Value, indices: Value, *, axis: int = 0) -> Value:
    if n.known:
        return np.take(x, indices, axis)
    return jnp.take(to_array(x), _positive(indices, x.shape[axis]), axis, mode="clip")


@op("GatherElements")
def _gather_elements(n: Node, x: Value, indices: Value, *, axis: int = 0) -> Value:
    at = list(jnp.indices(indices.shape, sparse=True))
    at[axis] = _positive(indices, x.shape[axis])
    return to_array(x)[tuple(at)]


@op("GatherND")
def _gather_nd(n: Node, x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    x, indices = to_array(x), to_array(indices)
    lead = indices.ndim - 1
    at: list[Any] = [jnp.arange(x.shape[d]).reshape((-1,) + (1,) * (lead - 1 - d))
                     for d in range(batch_dims)]
    at += [_positive(indices[..., i], x.shape[batch_dims + i]) for i in range(indices.shape[-1])]
    return x[tuple(at)]


_COMBINE = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


@op("ScatterElements", "Scatter")
def _scatter_elements(n: Node, x: Value, indices: Value, updates: Value, *, axis: int = 0,
                      reduction: str = "none") -> Value:
    at = list(jnp.indices(indices.shape, sparse=True))
    at[axis] = _positive(indices, x.shape[axis])
    return getattr(to_array(x).at[tuple(at)], _COMBINE[reduction])(to_array(updates))


@op("ScatterND")
def _scatter_nd(n: Node, x: Value, indices: Value, updates: Value, *, reduction: str = "none"
                ) -> Value:
    indices = to_array(indices)
    at = tuple([_positive(indices[..., i], x.shape[i]) for i in range(indices.shape[-1])])
    return getattr(to_array(x).at[at], _COMBINE[reduction])(to_array(updates))


@op("TensorScatter")
def _tensor_scatter(n: Node, cache: Value, update: Value, write_indices: Value = None, *,
                    axis: int = -2, mode: str = "linear") -> Value:
    cache, update = to_array(cache), to_array(update)
    axis %= cache.ndim
    start = 0 if write_indices is None else \
        to_array(write_indices).reshape((-1,) + (1,) * (cache.ndim - 1))
    at: list[Any] = list(jnp.indices(update.shape, sparse=True))
    at[axis] = at[axis] + start
    at[axis] = at[axis] % cache.shape[axis] if mode == "circular" else at[axis]
    return cache.at[tuple(at)].set(update)


@op("TopK", since=10, static=(1,))
def _top_k(n: Node, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
           ) -> Value:
    x, count = to_array(x), int(np.ravel(k)[0])
    order = jnp.argsort(x, axis, stable=True, descending=bool(largest))
    at = jnp.take(order, np.arange(count), axis)
    return jnp.take_along_axis(x, at, axis), at.astype(np.int64)


@op("NonZero")
def _non_zero(n: Node, x: Value) -> Value:
    return np.asarray(np.nonzero(n.read(x, "its input")), np.int64).reshape(x.ndim, -1)


@op("Unique")
def _unique(n: Node, x: Value, *, axis: int | None = None, sorted: int = 1) -> Value:
    values, first, inverse, counts = np.unique(
        n.read(x, "its input"), return_index=True, return_inverse=True, return_counts=True,
        axis=axis)
    inverse = np.ravel(inverse)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.argsort(order, kind="stable")
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return values, *[i.astype(np.int64) for i in (first, inverse, counts)]


def _overlaps(box: np.ndarray[Any, Any], others: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return intersection over union of a box with others; rows are (y1, x1, y2, x2)."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - common
    return np.where(union > 0, common / np.where(union > 0, union, 1), 0)


@op("NonMaxSuppression", static=(2, 3, 4))
def _non_max_suppression(n: Node, boxes: Value, scores: Value, most: Value = None,
                         overlap: Value = None, least: Value = None, *, center_point_box: int = 0
                         ) -> Value:
    boxes, scores = n.read(boxes, "its boxes"), n.read(scores, "its scores")
    limit = 0 if most is None else int(np.ravel(most)[0])
    threshold = 0.0 if overlap is None else np.ravel(overlap)[0]
    if center_point_box:
        centers, half = boxes[..., [1, 0]], boxes[..., [3, 2]] / 2
        corners = np.concatenate([centers - half, centers + half], -1)
    else:
        pairs = boxes.reshape((*boxes.shape[:-1], 2, 2))
        corners = np.concatenate([pairs.min(-2), pairs.max(-2)], -1)
    chosen: list[tuple[int, int, int]] = []
    for b in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            order = np.argsort(-scores[b, c], kind="stable")
            if least is not None:
                order = order[scores[b, c][order] > np.ravel(least)[0]]
            taken = 0
            while len(order) and taken < limit:
                chosen.append((b, c, int(order[0])))
                taken += 1
                rest = order[1:]
                order = rest[_overlaps(corners[b, order[0]], corners[b, rest]) <= threshold]
    return np.asarray(chosen, np.int64).reshape(-1, 3)
