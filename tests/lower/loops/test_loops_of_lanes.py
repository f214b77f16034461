"""A batched WHILE is a loop of each lane, which ends by its own condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp

RNG = np.random.default_rng(0)


def halvings(x: Any) -> Any:
    """Return how often x is halved until it is below 1, and what is left."""
    return lax.while_loop(lambda s: s[1] >= 1, lambda s: (s[0] + 1, s[1] / 2), (0, x))


def roots(c: Any) -> Any:
    """Return a root by Newton's method; its state is a pair in one array."""
    def step(state: Any) -> Any:
        x, last = state
        return jnp.stack([x - (x * x - c) / (2 * x), x])
    return lax.while_loop(lambda s: jnp.abs(s[0] - s[1]) > 1e-5, step, jnp.stack([c, 0 * c]))[0]


def bisected(c: Any) -> Any:
    """Return a cubic root by bisection with a branch."""
    def step(s: Any) -> Any:
        mid = (s[0] + s[1]) / 2
        return lax.cond(mid ** 3 > c, lambda: (s[0], mid), lambda: (mid, s[1]))
    return lax.while_loop(lambda s: s[1] - s[0] > 1e-3, step, (c * 0, c * 0 + 10))


PROGRAMS = {"halvings": halvings, "roots": roots, "bisected": bisected}


@pytest.mark.cases(3)
@pytest.mark.parametrize("lanes", [1, 3, 16, 100, 1001])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_lane_is_the_loop_of_one(name: str, lanes: int) -> None:
    f, x = PROGRAMS[name], jnp.asarray(RNG.uniform(0.1, 1e3, lanes).astype("float32"))
    got = fnx.jit(fnx.vmap(f))(x)
    one = fnx.jit(f)
    want = [one(v) for v in x]
    for a, b in zip(fnx.tree.leaves(got), zip(*[fnx.tree.leaves(w) for w in want])):
        np.testing.assert_array_equal(a, np.stack(b))
    for a, b in zip(fnx.tree.leaves(got),
                    fnx.tree.leaves(fnx.jit(fnx.vmap(f), device="interp")(x))):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_one_kernel(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    fnx.jit(fnx.vmap(PROGRAMS[name])).lower(jnp.ones(1000)).show("schedules")
    assert "one kernel: " in (text := capsys.readouterr().out) and "launched in each" not in text
    assert "in each of 1000 lanes" in text


def test_lanes_that_never_start_and_lanes_of_many_strips() -> None:
    def counted(n: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 3 + 1), (0, n))
    n = np.array([0, -5, 1, 20000, 3, 9000] * 20, np.int32)
    steps, values = fnx.jit(fnx.vmap(counted))(jnp.asarray(n))
    np.testing.assert_array_equal(steps, np.maximum(n, 0))
    value = n.copy()
    for t in range(n.max()):
        value = np.where(t < n, value * np.int32(3) + np.int32(1), value)
    np.testing.assert_array_equal(values, value)


def test_batches_of_batches() -> None:
    x = jnp.asarray(RNG.uniform(0.1, 1e3, (9, 33)).astype("float32"))
    got = fnx.jit(fnx.vmap(fnx.vmap(halvings)))(x)
    for a, b in zip(got, fnx.vmap(halvings)(x.reshape(-1))):
        np.testing.assert_array_equal(a, b.reshape(9, 33))


@pytest.mark.parametrize("lanes", [3, 40])
def test_lanes_that_read_others_end_together(lanes: int) -> None:
    def step(s: Any) -> Any:
        active, x = s
        y = jnp.where(active, (x + jnp.roll(x, 1)) / 2, x)
        return active & (y > 1), y

    @fnx.jit
    def run(x: Any) -> Any:
        return lax.while_loop(lambda s: s[0].any(), step, (x > 1, x))[1]
    x = RNG.uniform(0, 2, lanes).astype("float32")
    x[1] = 0.1  # where all are above 1, so are their means, for ever
    active, want = x > 1, x
    while active.any():
        want = np.where(active, (want + np.roll(want, 1)) / 2, want)
        active = active & (want > 1)
    np.testing.assert_array_equal(run(jnp.asarray(x)), want)


def test_derivatives_of_lanes() -> None:
    x = jnp.asarray(RNG.uniform(1, 9, 50).astype("float32"))
    slopes = fnx.jit(fnx.vmap(lambda v: fnx.jvp(roots, (v,), (jnp.ones_like(v),))[1]))(x)
    np.testing.assert_allclose(slopes, 0.5 / np.sqrt(np.asarray(x)), rtol=1e-3)
