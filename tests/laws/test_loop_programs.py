"""Random programs of nested loops and branches equal the same programs in Python.

A program is drawn from a seed as closures over an object that has ``scan``, ``while_loop``,
``cond``, ``switch``, ``fori_loop`` and ``map``: those of ``lax``, or the plain Python of ``Plain``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.config import override
from tests.laws.device import MACHINE

Step = Callable[[Any, Any], Any]  # (loops, x) -> x, for a vector of three


class Plain:
    """Reference semantics of loops and branches, on NumPy."""

    def scan(self, f: Any, init: Any, xs: Any, length: int | None = None, reverse: bool = False
             ) -> Any:
        n = len(xs) if length is None else length
        ys: list[Any] = [None] * n
        for t in reversed(range(n)) if reverse else range(n):
            init, ys[t] = f(init, None if xs is None else xs[t])
        return init, np.stack(ys) if n and ys[0] is not None else np.zeros((n, 3), np.float32)

    def while_loop(self, condition: Any, f: Any, x: Any) -> Any:
        while condition(x):
            x = f(x)
        return x

    def cond(self, holds: Any, f: Any, g: Any, *xs: Any) -> Any:
        return f(*xs) if holds else g(*xs)

    def switch(self, i: Any, branches: Any, *xs: Any) -> Any:
        return branches[min(max(int(i), 0), len(branches) - 1)](*xs)

    def fori_loop(self, low: Any, high: Any, f: Any, x: Any) -> Any:
        for i in range(int(low), int(high)):
            x = f(i, x)
        return x

    def map(self, f: Any, xs: Any) -> Any:
        return np.stack([f(x) for x in xs])


def is_numpy(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic)


def count_of(x: Any) -> Any:
    """Return a number from 0 to 3 that depends on the data."""
    m = np if is_numpy(x) else jnp
    return m.floor(m.abs(x[0]) * 8).astype("int32") % 4


def elementwise(rng: random.Random) -> Step:
    a, b = rng.choice((0.5, -0.75, 1.0)), rng.choice((0.25, -0.5, 1.0))
    kind = rng.randrange(4)

    def step(loops: Any, x: Any) -> Any:
        m = np if is_numpy(x) else jnp
        y = x * a + b
        return (y, m.where(y > 0, y, y * 0.5), y[::-1] * 0.5,
                m.clip(y, -1, 1))[kind].astype(x.dtype)
    return step


def block(rng: random.Random, depth: int) -> Step:
    """Draw a sequence of steps; nested ones are bodies of loops and branches."""
    steps = [_construct(rng, depth) if depth and rng.random() < 0.8 else elementwise(rng)
             for _ in range(rng.randint(1, 2))]

    def run(loops: Any, x: Any) -> Any:
        for step in steps:
            x = step(loops, x)
        return x
    return run


def _construct(rng: random.Random, depth: int) -> Step:
    f, g, h = (block(rng, depth - 1) for _ in range(3))
    n, reverse = rng.choice((0, 1, 2, 5)), rng.random() < 0.5
    half = 0.5

    def scan(loops: Any, x: Any) -> Any:
        last, ys = loops.scan(lambda c, r: (f(loops, c) + x * half, g(loops, c)), x, None, n,
                              reverse)
        return last + (ys[:1].sum(0) if n else x) * half

    def scan_rows(loops: Any, x: Any) -> Any:
        rows = loops.map(lambda s: f(loops, x * s), x)
        return loops.scan(lambda c, r: (g(loops, c) * half + r, r), x, rows, None, reverse)[0]

    def loop(loops: Any, x: Any) -> Any:
        return loops.while_loop(lambda s: s[0] < count_of(x), lambda s: (s[0] + 1, f(loops, s[1])),
                                (0, x))[1]

    def choose(loops: Any, x: Any) -> Any:
        return loops.cond(x[1] > x[2], lambda y: f(loops, y), lambda y: g(loops, y + x), x)

    def several(loops: Any, x: Any) -> Any:
        return loops.switch(count_of(x) - 1, [lambda y: f(loops, y), lambda y: g(loops, x) - y,
                                              lambda y: h(loops, y)], x * half)

    def counted(loops: Any, x: Any) -> Any:
        return loops.fori_loop(1, n, lambda i, y: f(loops, y) + i * half, x)

    def counted_by_data(loops: Any, x: Any) -> Any:
        return loops.fori_loop(0, count_of(x), lambda i, y: f(loops, y) - i * half, x)

    return rng.choice((scan, scan_rows, loop, choose, several, counted, counted_by_data))


X = np.asarray([0.7, -0.3, 0.45], np.float32)


@pytest.mark.cases(8)
@pytest.mark.parametrize("seed", range(24))
def test_programs_are_the_python_programs(seed: int) -> None:
    program = block(random.Random(seed), 2)
    want = np.tanh(program(Plain(), X))
    for device in (MACHINE, "interp"):
        with override(device=device):
            got = np.tanh(np.asarray(fnx.jit(lambda x: program(lax, x))(X)))
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(100, 108))
def test_lanes_are_the_python_programs(seed: int) -> None:
    program = block(random.Random(seed), 2)
    xs = np.stack([X, -X, X[::-1] * np.float32(0.5)])
    got = np.tanh(np.asarray(fnx.vmap(lambda x: program(lax, x))(xs)))
    np.testing.assert_allclose(got, [np.tanh(program(Plain(), x)) for x in xs], rtol=1e-4,
                               atol=1e-4)


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(200, 212))
def test_gradients_are_differences(seed: int) -> None:
    """Along a direction, in float64, at points where no branch condition is near its threshold."""
    program = block(random.Random(seed), 2)

    def loss(x: Any) -> Any:
        return jnp.tanh(program(lax, x)).sum()
    x = jnp.asarray(X, np.float64)
    v = jnp.asarray([0.3, 0.5, -0.2], np.float64)
    got = float((fnx.grad(loss)(x) * v).sum())
    tangent = float(fnx.jvp(loss, (x,), (v,))[1])
    np.testing.assert_allclose(tangent, got, rtol=1e-9, atol=1e-9)
    ends = [float(loss(x + s * 1e-6 * v)) for s in (1, -1)]
    np.testing.assert_allclose(got, (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-7)
