"""Collectives inside per-element branches and loops: all batch elements participate.

Random programs over a named axis, against the same computation in NumPy on the whole batch: a
branch is a select, a loop keeps the values of inactive elements.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from tests.laws.device import MACHINE

pytestmark = pytest.mark.usefixtures("float64")

LANES = 4
Lane = Callable[[Any], Any]  # of one batch element
All = Callable[[Any], Any]  # of the whole batch, in NumPy
SENT = [(0, 1), (1, 3), (3, 0), (2, 2)]
FROM = [3, 0, 2, 1]
KINDS = ["cond", "switch", "while", "fori"]


def leaf(rng: random.Random) -> tuple[Lane, All]:
    a = rng.uniform(0.3, 0.9)
    return rng.choice([
        (lambda x: jnp.sin(x) + a, lambda x: np.sin(x) + a),
        (lambda x: a * lax.psum(x * x, "i"), lambda x: a * (x * x).sum() + 0 * x),
        (lambda x: x * lax.pmean(jnp.cos(x), "i"), lambda x: x * np.cos(x).mean()),
        (lambda x: x + a * lax.ppermute(jnp.sin(x), "i", SENT), lambda x: x + a * np.sin(x)[FROM]),
        (lambda x: x - 0.1 * lax.axis_index("i"), lambda x: x - 0.1 * np.arange(LANES)),
    ])


def program(rng: random.Random, depth: int, kind: str = "") -> tuple[Lane, All]:
    """Draw a function of one batch element, and its meaning in NumPy."""
    kind = kind or rng.choice(["leaf", "then", *KINDS] if depth else ["leaf"])
    if kind == "leaf":
        return leaf(rng)
    (f, f_all), (g, g_all) = (program(rng, depth - 1) for _ in range(2))
    at = rng.uniform(0.2, 1.1)
    if kind == "then":
        return lambda x: g(f(x)), lambda x: g_all(f_all(x))
    if kind == "cond":
        return (lambda x: lax.cond(x > at, f, g, x),
                lambda x: np.where(x > at, f_all(x), g_all(x)))
    if kind == "switch":
        return (lambda x: lax.switch((x * 3).astype(np.int32), [f, lambda x: x, g], x),
                lambda x: np.select([(x * 3).astype(int) <= 0, (x * 3).astype(int) == 1],
                                    [f_all(x), x], g_all(x)))
    if kind == "fori":
        def counted(x: Any) -> Any:
            y = x
            for i in range(4):
                y = np.where(i < (x * 2).astype(int) % 4, f_all(y), y)
            return y
        return lambda x: lax.fori_loop(0, (x * 2).astype(np.int32) % 4, lambda i, y: f(y), x), \
            counted

    def waiting(x: Any) -> Any:
        """Each element counts its steps; one that stopped may resume, as all share a mean."""
        n = np.zeros(LANES, int)
        while (own := (n < 3) & (x.mean() * x < at * 3)).any():
            n, x = np.where(own, n + 1, n), np.where(own, f_all(x) + n, x)
        return x
    return lambda x: lax.while_loop(
        lambda s: (s[0] < 3) & (lax.pmean(s[1], "i") * s[1] < at * 3),
        lambda s: (s[0] + 1, f(s[1]) + s[0]), (0, x))[1], waiting


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-8, atol=1e-8)


@pytest.mark.cases(2)
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_derivatives(kind: str) -> None:
    check(3, 1, kind)


def check(seed: int, depth: int, kind: str = "") -> None:
    """Compare the program of a seed with NumPy."""
    rng = random.Random(seed)
    f, f_all = program(rng, depth, kind)
    x = np.linspace(0.15, 1.25, LANES) + rng.uniform(0, 0.1)
    w, t = np.cos(np.arange(LANES)), np.sin(1.0 + np.arange(LANES))
    lanes = fnx.vmap(f, axis_name="i")
    want = f_all(x)
    if np.abs(want).max() > 1e3:
        return
    close(fnx.jit(lanes)(x), want)
    inside = fnx.vmap(fnx.vmap(f), in_axes=1, out_axes=1, axis_name="i")
    for both in (fnx.vmap(lanes), inside):
        close(fnx.jit(both)(np.stack([x, x + 0.1])), np.stack([want, f_all(x + 0.1)]))
    slope = (f_all(x + 1e-6 * t) - f_all(x - 1e-6 * t)) / 2e-6
    _, along = fnx.jvp(lanes, (jnp.asarray(x),), (jnp.asarray(t),))
    np.testing.assert_allclose(np.asarray(along), slope, rtol=1e-4, atol=1e-5)
    outside = fnx.jit(fnx.grad(lambda x: (lanes(x) * w).sum()))(x)
    close((outside * t).sum(), float((np.asarray(along) * w).sum()))
    each = fnx.vmap(fnx.grad(lambda x, w: f(x) * w), axis_name="i")
    close(fnx.jit(each)(x, w), np.asarray(outside))


@pytest.mark.parametrize("device", ["interp", MACHINE])
def test_lanes_that_do_not_take_it_have_no_effects(device: str) -> None:
    seen: list[tuple[str, float]] = []

    def say(what: str, x: Any) -> None:
        fnx.debug.callback(lambda x: seen.append((what, float(x))), x, ordered=True)

    def one(x: Any) -> Any:
        say("one", x)
        return lax.psum(x, "i")

    def other(x: Any) -> Any:
        say("other", x)
        return x

    def body(x: Any) -> Any:
        say("step", x)
        return x + lax.psum(x, "i")

    x = np.asarray([1.0, 2.0, 3.0], np.float32)
    with fnx.default_device(device):
        got = fnx.jit(fnx.vmap(lambda x: lax.cond(x > 1.5, one, other, x), axis_name="i"))(x)
        np.testing.assert_array_equal(np.asarray(got), [1.0, 6.0, 6.0])
        fnx.effects_barrier()
        assert sorted(seen) == [("one", 2.0), ("one", 3.0), ("other", 1.0)]
        seen.clear()
        got = fnx.vmap(lambda x: lax.while_loop(lambda x: x < 3, body, x), axis_name="i")(x)
        np.testing.assert_array_equal(np.asarray(got), [7.0, 8.0, 3.0])
        fnx.effects_barrier()
        assert seen == [("step", 1.0), ("step", 2.0)]
