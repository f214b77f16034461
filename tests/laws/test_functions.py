"""Gradients of whole functions, eager and under jit: finite differences in float64, symbolic
zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp

pytestmark = pytest.mark.usefixtures("float64")

Function = Callable[..., Any]
LABELS = np.array([2, 0, 3, 3], np.int32)
ROWS = np.array([1, 4, 1, 0, 1], np.int32)


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def cross_entropy(x: Any) -> Any:
    return -jnp.take_along_axis(nn.log_softmax(x), LABELS[:, None], 1).mean()


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.where(jnp.tri(4, dtype=bool), q @ k.T / 2, -jnp.inf)
    return nn.softmax(scores) @ v


def perceptron(w: Any, b: Any, x: Any) -> Any:
    return jnp.tanh(nn.gelu(x @ w + b) @ w.T)


@fnx.jit
def inner(x: Any, y: Any) -> Any:
    return jnp.exp(-x * y) + jnp.sin(x @ y.T).sum(), y / (1 + x ** 2)


def nested(x: Any, y: Any) -> Any:
    a, b = inner(x, y)
    return inner(a * 0.1, b)[0] + b


# name: (function of float64 arrays, shapes of its arguments)
FUNCTIONS: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "softmax": (nn.softmax, [(4, 5)]),
    "softmax over columns": (lambda x: nn.softmax(x, axis=0), [(4, 5)]),
    "log_softmax": (nn.log_softmax, [(4, 5)]),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=(0, 1)), [(4, 5)]),
    "cross entropy": (cross_entropy, [(4, 5)]),
    "smooth labels": (lambda x: (nn.one_hot(LABELS, 5) * nn.log_softmax(x)).sum(), [(4, 5)]),
    "layer norm": (layer_norm, [(4, 6), (6,), (6,)]),
    "standardize": (nn.standardize, [(4, 6)]),
    "norm": (jnp.linalg.norm, [(4, 3)]),
    "std and var": (lambda x: x.std(0) * x.var(), [(4, 3)]),
    "attention": (attention, [(4, 3), (4, 3), (4, 2)]),
    "perceptron": (perceptron, [(3, 5), (5,), (4, 3)]),
    "nested jit": (nested, [(4, 3), (4, 3)]),
    "embedding": (lambda e: jnp.tanh(e[ROWS]) * e[ROWS[::-1]], [(5, 3)]),
    "scatter add": (lambda x, u: jnp.sin(x.at[ROWS].add(u)) ** 2, [(5, 3), (5, 3)]),
    "scatter mul": (lambda x, u: x.at[ROWS].mul(u).sum(0), [(5, 3), (5, 3)]),
    "scatter set": (lambda x, u: (x.at[ROWS, 1].set(u) ** 3).sum(1), [(5, 3), (5,)]),
    "slices": (lambda x: x[1:, ::2] * x[:-1, -1:] + x[2, 0], [(4, 5)]),
    "pad, roll, concatenate": (
        lambda x, y: jnp.roll(jnp.pad(jnp.concatenate([x, y * y], 1), 1), 2, 1) ** 2,
        [(2, 3), (2, 2)]),
    "einsum": (lambda x, y: jnp.einsum("bij,bkj->bik", x, jnp.sin(y)), [(2, 3, 4), (2, 5, 4)]),
    "batches of products": (lambda x, y: jnp.tanh(x @ y), [(2, 3, 4), (4, 2)]),
    "max and min": (lambda x: x.max(0) * x.min(1)[:3], [(4, 3)]),
    "product": (lambda x: x.prod(1), [(3, 4)]),
    "cumsum": (lambda x: jnp.cumsum(x ** 2, 1), [(3, 4)]),
    "activations": (lambda x: nn.silu(x) * nn.softplus(x) + nn.elu(x) - nn.sigmoid(x), [(7,)]),
    "powers": (lambda x, y: jnp.exp(x) ** y + x ** 3 + jnp.sqrt(x * x + 1) ** -0.5, [(5,), (5,)]),
    "special functions": (lambda x: lax.erf(x) * lax.erfc(x / 2) + jnp.log1p(x ** 2), [(6,)]),
    "two arguments": (lambda x, y: jnp.logaddexp(x, y) * jnp.hypot(x, y), [(5,), (5,)]),
    "where": (lambda x: jnp.where(x > 0, jnp.log1p(jnp.abs(x)), x * jnp.exp(x)), [(8,)]),
}


def weighted(f: Function, shapes: list[tuple[int, ...]], seed: int) -> Function:
    """Return the sum of f's results with random weights, so that errors do not cancel."""
    rng = np.random.default_rng(seed)
    weights: dict[int, Any] = {}

    def loss(*xs: Any) -> Any:
        total = jnp.asarray(0.0, "float64")
        for i, out in enumerate(fnx.tree.leaves(f(*xs))):
            if i not in weights:
                weights[i] = rng.normal(size=out.shape)
            total = total + (out * weights[i]).sum()
        return total

    return loss


def slope(f: Function, xs: list[Any], direction: list[Any]) -> float:
    """Return the derivative of f along a direction: central differences, extrapolated once."""
    def at(h: float) -> float:
        return float(f(*[x + h * d for x, d in zip(xs, direction)]))

    def central(h: float) -> float:
        return (at(h) - at(-h)) / (2 * h)

    return (4 * central(5e-4) - central(1e-3)) / 3


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_slopes_to_second_order(name: str) -> None:
    f, shapes = FUNCTIONS[name]
    rng = np.random.default_rng(len(name))
    xs = [rng.normal(size=s) for s in shapes]
    everything = tuple(range(len(xs)))
    loss = weighted(f, shapes, 1)
    for order in (1, 2):
        gradient = fnx.grad(loss, argnums=everything)
        direction = [rng.normal(size=s) for s in shapes]
        by_jit, by_eager = fnx.jit(gradient)(*xs), gradient(*xs)
        for a, b in zip(by_jit, by_eager):
            assert a.dtype == b.dtype == np.float64
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        got = sum(float((np.asarray(g) * d).sum()) for g, d in zip(by_jit, direction))
        want = slope(fnx.jit(loss), xs, direction)
        assert got == pytest.approx(want, rel=3e-6, abs=3e-6), f"order {order}"
        loss = weighted(gradient, shapes, 2)


# ---- symbolic zeros -----------------------------------------------------------------------------

GUARDED: dict[str, Function] = {
    "sqrt": lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0),
    "log": lambda x: jnp.where(x > 0, jnp.log(x), 0.0),
    "division": lambda x: jnp.where(x > 0, 1 / x, 0.0),
    "zero by zero": lambda x: jnp.where(x > 0, x / x, 0.0),
    "power": lambda x: jnp.where(x > 0, x ** 0.5, 0.0),
    "power of arrays": lambda x: jnp.where(x > 0, x ** (x + 0.5), 0.0),
    "log and sqrt, in a call": fnx.jit(lambda x: jnp.where(x > 0, jnp.log(jnp.sqrt(x)), 0.0)),
    "norm": lambda x: jnp.where(x > 0, jnp.sqrt((x * x).sum()), 0.0),
    "a list of rows": lambda x: jnp.stack([jnp.where(x > 0, jnp.sqrt(x), x * 3)])[0],
}
WAYS: dict[str, Callable[[Function], Function]] = {
    "eager": lambda g: g, "jit": fnx.jit, "jit inside": lambda g: lambda x: fnx.jit(g)(x)}


@pytest.mark.cases(12)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", GUARDED)
def test_a_branch_not_taken_hands_on_zero(name: str, way: str) -> None:
    gradient = WAYS[way](fnx.grad(GUARDED[name]))
    at_zero = 3.0 if name == "a list of rows" else 0.0
    assert float(gradient(jnp.asarray(0.0))) == at_zero
    assert np.isfinite(float(gradient(jnp.asarray(2.0)))) and \
        (float(gradient(jnp.asarray(2.0))) != 0 or name == "zero by zero")
    rows = WAYS[way](fnx.grad(lambda x: fnx.vjp(GUARDED[name], x)[0].sum()))
    mixed = np.asarray(rows(jnp.asarray([0.0, 2.0, -1.0])))
    assert np.isfinite(mixed).all()


@pytest.mark.parametrize("way", WAYS)
def test_a_zero_that_is_a_number_hides_nothing(way: str) -> None:
    wrap = WAYS[way]
    half_square = lambda x: jnp.log(x) ** 2 / 2
    assert float(wrap(fnx.grad(fnx.grad(half_square)))(1.0)) == pytest.approx(1)
    assert np.isnan(float(wrap(fnx.grad(lambda x: jnp.sqrt(x) ** 2))(0.0)))
    assert np.isnan(float(wrap(fnx.grad(lambda x: 0.0 * jnp.sqrt(x)))(0.0)))
