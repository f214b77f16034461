"""Sequences of tensors, which are lists while tracing."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import Value, to_array


@op("SequenceConstruct")
def _construct(n: Node, *xs: Value) -> Value:
    return list(xs)


@op("SequenceEmpty")
def _empty(n: Node, *, dtype: int = 1) -> Value:
    return []


@op("SequenceLength")
def _length(n: Node, xs: Value) -> Value:
    return np.asarray(len(xs), np.int64)


@op("SequenceAt", static=(1,))
def _at(n: Node, xs: Value, position: Value) -> Value:
    return xs[position.item()]


@op("SequenceInsert", static=(2,))
def _insert(n: Node, xs: Value, x: Value, position: Value = None) -> Value:
    at = len(xs) if position is None else position.item()
    return [*xs[:at], x, *xs[at:]]


@op("SequenceErase", static=(1,))
def _erase(n: Node, xs: Value, position: Value = None) -> Value:
    at = (-1 if position is None else position.item()) % len(xs)
    return [*xs[:at], *xs[at + 1:]]


@op("ConcatFromSequence")
def _concat(n: Node, xs: Value, *, axis: int = 0, new_axis: int = 0) -> Value:
    arrays = [to_array(x) for x in xs]
    return jnp.stack(arrays, axis) if new_axis else jnp.concatenate(arrays, axis)


@op("SplitToSequence", static=(1,))
def _split(n: Node, x: Value, split: Value = None, *, axis: int = 0, keepdims: int = 1) -> Value:
    size = x.shape[axis]
    step = 1 if split is None else int(split) if split.ndim == 0 else 0
    ends = np.cumsum(split)[:-1].tolist() if not step else list(range(step, size, step))
    rows = n.xp.split(x, ends, axis)
    return [n.xp.squeeze(row, axis) for row in rows] if split is None and not keepdims else rows


@op("SequenceMap")
def _map(n: Node, xs: Value, *more: Value, body: Any = None) -> Value:
    rows = [n.subgraph(body, [x, *[m[i] if isinstance(m, list) else m for m in more]])
            for i, x in enumerate(xs)]
    return tuple([row[i] for row in rows] for i in range(len(body.outputs)))
