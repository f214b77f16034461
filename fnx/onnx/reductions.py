"""Reductions, cumulative sums, arguments of extremes, and losses that average."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import lax, nn
from fnx.core.array.array import Array
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import Value, to_array, type_of


def _sum(x: Array, axes: Any, keep: bool) -> Array:
    return jnp.sum(x, axes, keepdims=keep, dtype=x.dtype)


def _mean(x: Array, axes: Any, keep: bool) -> Array:
    if type_of(x).is_float:
        return jnp.mean(x, axes, keepdims=keep)
    count = np.prod([x.shape[a] for a in (range(x.ndim) if axes is None else axes)], dtype=int)
    total = _sum(x, axes, keep)
    return lax.div(total, jnp.full(total.shape, count, total.dtype))


def _extreme(name: str) -> Callable[..., Array]:
    def reduce(x: Array, axes: Any, keep: bool) -> Array:
        whole = x.astype(jnp.uint8) if type_of(x).is_bool else x
        low, high = (-jnp.inf, jnp.inf) if type_of(whole).is_float else type_of(whole).limits
        result: Array = getattr(jnp, name)(whole, axes, keepdims=keep,
                                    initial=low if name == "max" else high)
        return result.astype(x.dtype)
    return reduce


_REDUCTIONS: dict[str, Callable[[Array, Any, bool], Array]] = {
    "ReduceSum": _sum, "ReduceMean": _mean,
    "ReduceMax": _extreme("max"), "ReduceMin": _extreme("min"),
    "ReduceProd": lambda x, axes, keep: jnp.prod(x, axes, keepdims=keep, dtype=x.dtype),
    "ReduceL1": lambda x, axes, keep: _sum(jnp.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: jnp.sqrt(_sum(x * x, axes, keep)).astype(x.dtype),
    "ReduceLogSum": lambda x, axes, keep: jnp.log(_sum(x, axes, keep)),
    "ReduceLogSumExp": lambda x, axes, keep: nn.logsumexp(x, axes, keepdims=keep),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep)}
_AXES_AS_INPUT = {"ReduceSum": 13}  # all others: opset 18


def _with_input(reduce: Callable[..., Array], name: str) -> Callable[..., Value]:
    def rule(n: Node, x: Value, axes: Value = None, *, keepdims: int = 1,
             noop_with_empty_axes: int = 0) -> Value:
        empty = axes is None or axes.size == 0
        if empty and noop_with_empty_axes:
            over: Any = ()
            return reduce(to_array(x), over, True) if name not in _PLAIN else x
        over = None if empty else tuple(int(a) for a in axes)
        return reduce(to_array(x), over, bool(keepdims))
    return rule


_PLAIN = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}


def _with_attribute(reduce: Callable[..., Array]) -> Callable[..., Value]:
    def rule(n: Node, x: Value, *, axes: Any = None, keepdims: int = 1) -> Value:
        return reduce(to_array(x), tuple(axes) if axes else None, bool(keepdims))
    return rule


for _op, _reduce in _REDUCTIONS.items():
    op(_op)(_with_attribute(_reduce))
    op(_op, since=_AXES_AS_INPUT.get(_op, 18), static=(1,))(_with_input(_reduce, _op))


def _arg_extreme(name: str) -> Callable[..., Value]:
    def rule(n: Node, x: Value, *, axis: int = 0, keepdims: int = 1,
             select_last_index: int = 0) -> Value:
        x = to_array(x)
        if select_last_index:
            at = x.shape[axis] - 1 - getattr(jnp, name)(jnp.flip(x, axis), axis,
                                                        keepdims=bool(keepdims))
        else:
            at = getattr(jnp, name)(x, axis, keepdims=bool(keepdims))
        return at.astype(np.int64)
    return rule


op("ArgMax")(_arg_extreme("argmax"))
op("ArgMin")(_arg_extreme("argmin"))


def _cumulative(name: str, start: int) -> Callable[..., Value]:
    def rule(n: Node, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
        x, at = to_array(x), int(axis) % max(x.ndim, 1)
        x = jnp.flip(x, at) if reverse else x
        if exclusive:
            first = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=at), start)
            x = jnp.concatenate([first, lax.slice_in_dim(x, 0, x.shape[at] - 1, axis=at)], at)
        y = getattr(jnp, name)(x, at, dtype=x.dtype)
        return jnp.flip(y, at) if reverse else y
    return rule


op("CumSum", static=(1,))(_cumulative("cumsum", 0))
op("CumProd", static=(1,))(_cumulative("cumprod", 1))


@op("NegativeLogLikelihoodLoss")
def _nll_loss(n: Node, x: Value, target: Value, weight: Value = None, *,
              ignore_index: int | None = None, reduction: str = "mean") -> Value:
    x, target = to_array(x), to_array(target)
    counts = jnp.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    at = jnp.where(counts, target, 0)
    chosen = jnp.take_along_axis(x, at[:, None], axis=1)[:, 0]
    weights = counts.astype(x.dtype) * (1 if weight is None else jnp.take(to_array(weight), at))
    loss = jnp.where(counts, -chosen * weights, 0)
    if reduction == "none":
        return loss
    return jnp.sum(loss) / (jnp.sum(weights) if reduction == "mean" else 1)


@op("SoftmaxCrossEntropyLoss")
def _cross_entropy(n: Node, x: Value, target: Value, weight: Value = None, *,
                   ignore_index: int | None = None, reduction: str = "mean") -> Value:
    logs = nn.log_softmax(to_array(x), axis=1)
    return _nll_loss(n, logs, target, weight, ignore_index=ignore_index,
                     reduction=reduction), logs
