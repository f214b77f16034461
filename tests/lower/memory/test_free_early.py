"""Launches that free memory run early, in an order that keeps dependences; it is chosen if the
arena is smaller."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fnx
from fnx import numpy as jnp
from fnx.core.ir import build, dtypes
from fnx.core.ir.uop import UOp
from fnx.lower.memory.dependences import dependences
from fnx.lower.memory.free_early import _order

NODES = [build.param(i, dtypes.float32, (2,)) for i in range(6)]
step = st.tuples(st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES), max_size=2),
                 st.booleans())


@given(st.lists(step, max_size=12), st.sets(st.sampled_from(NODES)), st.booleans())
def test_the_order_keeps_dependences(drawn: list[tuple[set[UOp], set[UOp], bool]],
                                     temporary: set[UOp], least_first: bool) -> None:
    steps = [(uses | writes, writes, effect) for uses, writes, effect in drawn]
    before = dependences(steps)
    order = _order([s[0] for s in steps], [s[1] for s in steps], before,
                   {n: 64 * (i + 1) for i, n in enumerate(temporary)}, least_first)
    assert sorted(order) == [*range(len(steps))]
    at = {i: position for position, i in enumerate(order)}
    for i, earlier in enumerate(before):
        assert all(at[k] < at[i] for k in earlier)


def train(layers: list[Any], x: Any, t: Any) -> list[Any]:
    def loss(layers: list[Any]) -> Any:
        h = x
        for w, b in layers:
            h = jnp.tanh(h @ w + b)
        return jnp.mean(h ** 2)
    rate = 1 / (1 - 0.9 ** t)  # computed with the gradient of a bias, which all others wait for
    return fnx.tree.map(lambda p, g: p - rate * g, layers, fnx.grad(loss)(layers))


def test_activations_are_not_kept_for_the_gradients_of_all_weights() -> None:
    rng, depth, rows, width = np.random.default_rng(0), 8, 512, 128
    layers = [(rng.standard_normal((width, width)).astype("float32") / 11,
               np.zeros(width, "float32")) for _ in range(depth)]
    x, t = rng.standard_normal((rows, width)).astype("float32"), np.float32(3)
    step = fnx.jit(train)
    assert step.lower(layers, x, t).arena < (depth + 3) * x.nbytes  # of 2 * depth otherwise
    for got, expected in zip(fnx.tree.leaves(step(layers, x, t)),
                             fnx.tree.leaves(train(layers, x, t))):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_what_calls_the_host_stays_in_order() -> None:
    """Processes start their collectives in one order."""
    def step(layers: list[Any], x: Any, t: Any) -> list[Any]:
        shape = fnx.ShapeDtypeStruct(x.shape, x.dtype)
        return train(layers, fnx.pure_callback(lambda x: x, shape, x), t)
    x = np.ones((512, 128), np.float32)
    layers = [(np.ones((128, 128), np.float32), np.zeros(128, np.float32)) for _ in range(8)]
    t = np.float32(3)
    assert fnx.jit(step).lower(layers, x, t).arena > fnx.jit(train).lower(layers, x, t).arena + \
        2 * x.nbytes


def test_carried_results_are_written_in_place() -> None:
    """A result that takes the memory of a parameter is written after what reads that."""
    n = 1 << 16

    def body(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Any]:
        x, y = carry
        z = jnp.cumsum(x)
        return (jnp.sin(x) + y, y + z[::-1]), jnp.sum(x * z)

    def run(x: Any, y: Any) -> Any:
        return fnx.lax.scan(body, (x, y), None, length=3)
    x, y = (np.random.default_rng(i).standard_normal(n).astype("float32") for i in range(2))
    lowered = fnx.jit(run).lower(x, y)
    assert lowered.arena <= 4 * x.nbytes
    (a, b), sums = fnx.jit(run)(x, y)
    for _ in range(3):
        z = np.cumsum(x)
        x, y = np.sin(x) + y, y + z[::-1]
    np.testing.assert_allclose(a, x, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(b, y, rtol=1e-3, atol=1e-2)


def test_what_is_read_late_is_not_kept_during_what_comes_before() -> None:
    """Of a Gaussian process by conjugate gradients: the covariances of the new points come last."""
    def covariance(a: Any, b: Any) -> Any:
        return jnp.exp(-jnp.sum((a[:, None] - b[None]) ** 2, -1))

    @fnx.jit
    def mean(x: Any, y: Any, new: Any) -> Any:
        k = covariance(x, x) + 5 * jnp.eye(len(x))

        def step(_: int, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            s, r, p = state
            kp = k @ p
            a = (r @ r) / (p @ kp)
            r2 = r - a * kp
            return s + a * p, r2, r2 + (r2 @ r2) / (r @ r) * p
        return covariance(new, x) @ fnx.lax.fori_loop(0, 15, step, (jnp.zeros_like(y), y, y))[0]
    rng = np.random.default_rng(0)
    x, new = (rng.standard_normal((n, 3)).astype("float32") for n in (600, 200))
    y = rng.standard_normal(600).astype("float32")
    assert mean.lower(x, y, new).arena < (600 + 100) * 600 * 4

    def exact(a: Any, b: Any) -> Any:
        return np.exp(-np.sum((a[:, None] - b[None]) ** 2.0, -1))
    expected = exact(new, x) @ np.linalg.solve(exact(x, x) + 5 * np.eye(600), y)
    np.testing.assert_allclose(mean(x, y, new), expected, rtol=1e-3, atol=1e-4)


def test_a_long_branch_is_completed_before_the_next_one() -> None:
    """Two networks and their derivatives, in any order of both: one keeps its activations at a
    time."""
    depth, size = 6, (10, 11)
    nodes = [[build.param(10 * k + i, dtypes.float32, (2,)) for i in range(depth)]
             for k in range(2)]
    slopes = [build.param(100 + k, dtypes.float32, (2,)) for k in range(2)]
    forward = [({*a[max(i - 1, 0):i + 1]}, {a[i]}, False) for a in nodes for i in range(depth)]
    backward = [({a[i], slope}, {slope}, False) for a, slope in zip(nodes, slopes)
                for i in reversed(range(depth))]
    steps = [*forward, *backward]
    uses, writes = [s[0] for s in steps], [s[1] for s in steps]
    sizes = {n: size[k] for k, a in enumerate(nodes) for n in a}
    order = _order(uses, writes, dependences(steps), sizes, least_first=True)
    first = [*range(depth), *range(2 * depth, 3 * depth)]
    assert order == [*first, *[i for i in range(4 * depth) if i not in first]]
