"""Loops with carried values and skipped work in user-written kernels, on both devices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.kernel as k
from fnx.core.support.config import override
from fnx.core.support.errors import OutOfBoundsError
from tests.transforms.kernel_arguments import normal, spec

# ---- loops ------------------------------------------------------------------------------------


def test_several_values_and_a_store_in_each_iteration(device: str) -> None:
    """Welford's mean and variance of a row, and the intermediate means."""
    @fnx.call(out=lambda x: (spec(x.shape[0]), spec(x.shape[0]), x))
    def welford(x: Any, mean: Any, variance: Any, path: Any) -> None:
        row = k.range(x.shape[0])

        def step(i: Any, m: Any, s: Any) -> Any:
            delta = x[row, i] - m
            m = m + delta / (i + 1.0)
            path[row, i] = m
            return m, s + delta * (x[row, i] - m)

        mean[row], s = k.loop(x.shape[1], step, 0, 0)
        variance[row] = s / x.shape[1]

    x = normal(37, 20)
    mean, variance, path = welford(x)
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variance, x.var(1), rtol=1e-4)
    np.testing.assert_allclose(path, np.cumsum(x, 1) / np.arange(1, 21), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_any_number_of_iterations(device: str, n: int) -> None:
    @fnx.call(out=lambda x: x)
    def powers(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[i] = k.loop(n, lambda t, y: y * x[i], 1)

    x = normal(20)
    want = np.ones(20, "f4")
    for _ in range(n):
        want = want * x
    np.testing.assert_array_equal(powers(x), want)


def test_a_carried_pair(device: str) -> None:
    """argmax: the first of the largest."""
    @fnx.call(out=lambda x: spec(x.shape[1], dtype="int32"))
    def argmax(x: Any, o: Any) -> None:
        j = k.range(x.shape[1])

        def step(i: Any, best: Any, at: Any) -> Any:
            better = x[i, j] > best
            return k.where(better, x[i, j], best), k.where(better, i, at)

        _, o[j] = k.loop(x.shape[0], step, -math.inf, 0)

    x = np.round(normal(50, 33))
    np.testing.assert_array_equal(argmax(x), x.argmax(0))


def test_a_loop_in_a_loop_with_a_place_that_is_data(device: str) -> None:
    """Count how often each element of x occurs in a sorted y, by bisection from both sides."""
    @fnx.call(out=lambda x, y: spec(x.shape[0], dtype="int32"))
    def count(x: Any, y: Any, o: Any) -> None:
        i, n = k.range(x.shape[0]), y.shape[0]

        def bisect(before: Any) -> Any:
            def step(t: Any, low: Any, high: Any) -> Any:
                middle = (low + high) // 2
                right = before(y[middle], x[i])
                return k.where(right, middle + 1, low), k.where(right, high, middle)
            return k.loop(n, step, 0, n, until=lambda t, low, high: low >= high)[0]

        o[i] = bisect(lambda a, b: a <= b) - bisect(lambda a, b: a < b)

    x = np.round(normal(41) * 3)
    y = np.sort(np.round(normal(100) * 3))
    np.testing.assert_array_equal(count(x, y), [(y == v).sum() for v in x])


def test_a_loop_inside_a_loop(device: str) -> None:
    @fnx.call(out=lambda x: x)
    def nested(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])

        def outer(a: Any, total: Any) -> Any:
            inner = k.loop(a_length, lambda b, s: s * 0.5 + x[i] + b, total,
                           until=lambda b, s: (b > a) | (s > 10))
            o[i] = inner
            return inner + 1

        a_length = 6
        k.loop(1, outer, 0.0)

    x = normal(19)
    want = np.zeros(19, "f4")
    for b in range(1):
        want = np.where(want > 10, want, want * np.float32(0.5) + x + b)
    np.testing.assert_array_equal(nested(x), want)


def test_lanes_that_end_at_different_steps_store_what_they_run(device: str) -> None:
    """Collatz: the path of each number, padded with zeros."""
    @fnx.call(out=lambda x: (spec(x.shape[0], dtype="int32"), spec(60, x.shape[0], dtype="int32")))
    def collatz(x: Any, steps: Any, path: Any) -> None:
        i = k.range(x.shape[0])

        def step(t: Any, v: Any, count: Any) -> Any:
            path[t, i] = v
            return k.where(v % 2 == 0, v // 2, 3 * v + 1), count + 1

        _, steps[i] = k.loop(60, step, x[i], 0, until=lambda t, v, count: v == 1)

    numbers = np.arange(1, 24, dtype="int32")
    steps, path = map(np.asarray, collatz(numbers))
    for at, v in enumerate(numbers):
        seen = []
        while v != 1 and len(seen) < 60:
            seen.append(v)
            v = v // 2 if v % 2 == 0 else 3 * v + 1
        assert steps[at] == len(seen)
        np.testing.assert_array_equal(path[:, at], np.pad(seen, (0, 60 - len(seen))))


def test_a_fold_inside_a_loop(device: str) -> None:
    """Power iteration: a matrix times a vector held in a local array."""
    @fnx.call(out=lambda m: spec())
    def norm(m: Any, o: Any) -> None:
        n = m.shape[0]
        p, q = k.range(n), k.range(n)

        def step(t: Any, scale: Any) -> Any:
            row = k.local(k.sum(m[p, q] * scale, over=q), over=p)
            r = k.range(n)
            return k.sum(row[r] * row[r], over=r)

        o[()] = k.loop(3, step, 1.0)

    m = normal(5, 5)
    scale = np.float32(1)
    for _ in range(3):
        scale = ((m * scale).sum(1) ** 2).sum()
    np.testing.assert_allclose(norm(m), scale, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 12))
def test_random_steps_give_the_same_bits(seed: int, lanes: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [int(i) for i in rng.integers(0, 8, 5)]
    ends, stores = rng.random() < 0.5, rng.random() < 0.5

    @fnx.call(out=lambda x, y: (spec(lanes), spec(lanes, dtype="int32"), spec(lanes, 13)))
    def kernel(x: Any, y: Any, o: Any, count: Any, path: Any) -> None:
        i = k.range(lanes)

        def step(t: Any, a: Any, b: Any, n: Any) -> Any:
            for kind in kinds:
                a, b = (lambda: (a + b, b), lambda: (a * 0.5, a), lambda: (k.maximum(a, y[t]), b),
                        lambda: (b, a - y[t]), lambda: (k.where(a > b, a, b), b * 0.25),
                        lambda: (k.when(a > 0, lambda: k.sqrt(a), b), b),
                        lambda: (a, b + t), lambda: (k.abs(a), k.floor(b)))[kind]()
            if stores:
                path[i, t] = a
            return a, b, n + 1

        until = (lambda t, a, b, n: (a > 4) | (n > 9)) if ends else None
        o[i], b, count[i] = k.loop(length, step, x[i], 1.0, 0, until=until)
        if not stores:
            path[i, k.range(13)] = b

    x, y = rng.standard_normal((2, max(lanes, 13))).astype("float32")
    found = []
    for name in ("interp", "cpu"):
        with override(device=name, check_spec=True):
            found.append([np.asarray(a) for a in kernel(x[:lanes], y[:13])])
    for a, b in zip(*found):
        np.testing.assert_array_equal(a, b)


@pytest.mark.cases(1)
def test_under_vmap(device: str) -> None:
    """The batch loop may be vectorized: what is carried differs along it."""
    @fnx.call(out=lambda a: spec())
    def root(a: Any, o: Any) -> None:
        def step(t: Any, y: Any, change: Any) -> Any:
            new = 0.5 * (y + a[()] / y)
            return new, k.abs(new - y)
        o[()], _ = k.loop(50, step, 1.0, 1.0, until=lambda t, y, change: change < 1e-5)

    a = np.abs(normal(100)) * 50 + 0.1
    roots = fnx.vmap(root)(a)
    np.testing.assert_array_equal(roots, [np.asarray(root(x)) for x in a])
    np.testing.assert_allclose(roots, np.sqrt(a), rtol=1e-5)


def test_check_index_sees_what_loops_read(device: str) -> None:
    @fnx.call(out=lambda x, at: x)
    def walk(x: Any, at: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[i] = k.loop(3, lambda t, p: at[p], at[i]) * 0 + x[i]

    x, at = normal(4), np.array([1, 2, 3, 0], "int32")
    np.testing.assert_array_equal(walk(x, at), x)
    with override(check_index=True):
        np.testing.assert_array_equal(walk(x, at), x)
        with pytest.raises(OutOfBoundsError, match="at: .*got 7"):
            np.asarray(walk(x, np.array([1, 7, 3, 0], "int32")))


# ---- skipped work -------------------------------------------------------------------------------


def test_when_computes_and_stores_only_where_it_holds(device: str) -> None:
    @fnx.call(out=lambda x: (x, x))
    def kernel(x: Any, o: Any, p: Any) -> None:
        i = k.range(x.shape[0])

        def then() -> Any:
            p[i] = x[i - 1]  # in bounds, as i > 0 here
            return k.log(x[i]) + x[i - 1]

        o[i] = k.when((i > 0) & (x[i] > 0), then, -1)

    x = normal(37)
    holds = (np.arange(37) > 0) & (x > 0)
    o, p = kernel(x)
    with np.errstate(all="ignore"):
        want = np.where(holds, np.log(x) + np.roll(x, 1), -1)
    np.testing.assert_allclose(o, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(p, np.where(holds, np.roll(x, 1), 0))


def test_when_in_a_loop(device: str) -> None:
    """Blocks above the diagonal are skipped; several values."""
    @fnx.call(out=lambda x: (spec(x.shape[0]), spec(x.shape[0], dtype="int32")))
    def lower_sums(x: Any, o: Any, count: Any) -> None:
        i, n = k.range(x.shape[0]), x.shape[0]

        def step(j: Any, s: Any, c: Any) -> Any:
            return k.when(j <= i, lambda: (s + k.exp(x[i, j]), c + 1), s, c)

        o[i], count[i] = k.loop(n, step, 0.0, 0)

    x = normal(21, 21)
    o, count = lower_sums(x)
    np.testing.assert_allclose(o, np.tril(np.exp(x)).sum(1), rtol=1e-5)
    np.testing.assert_array_equal(count, np.arange(1, 22))


@pytest.mark.parametrize("device", ["cpu", "interp"])
@pytest.mark.parametrize("schedule", [None, [k.vectorize("i")], [k.unroll("i")], [k.parallel("i")]])
@pytest.mark.parametrize("depth", [1, 2])
def test_what_is_skipped_inside_a_loop_is_not_stored(device: str, schedule: Any, depth: int
                                                     ) -> None:
    @fnx.call(out=lambda x: x, schedule=schedule)
    def kernel(x: Any, o: Any) -> None:
        i = k.range(x.shape[0], "i")

        def step(t: Any, s: Any) -> Any:
            def positive() -> None:
                o[i, t] = s

            def below_1() -> None:
                k.when(x[i, t] < 1, positive)
            k.when(x[i, t] > 0, positive if depth == 1 else below_1)
            return s + x[i, t]

        k.loop(x.shape[1], step, 0.0)

    x = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
    before = np.cumsum(x, 1) - x
    stored = (x > 0) & ((depth == 1) | (x < 1))
    with override(device=device):
        np.testing.assert_allclose(kernel(x), np.where(stored, before, 0), rtol=1e-5, atol=1e-6)
