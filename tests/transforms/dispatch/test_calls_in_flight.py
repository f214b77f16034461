"""jit with calls in flight and from many threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.backends.cpu import device
from fnx.backends.device.base import get_device
from fnx.core.support.config import override

N = 600_000


@pytest.fixture(autouse=True)
def queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call returns before its work is done."""
    monkeypatch.setattr(device, "SHORT_NS", 0.0)


def numbers(seed: int, n: int = N) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, n).astype(np.float32)


@fnx.jit
def through_the_arena(x: Any, y: Any) -> Any:
    """The temporaries are in the arena, which two calls in flight must not share."""
    total = (x * y).sum()
    centred = x - total / x.size
    return centred * (centred * centred).sum(), total


def expected(x: Any, y: Any) -> Any:
    x, y = x.astype(float), y.astype(float)
    total = (x * y).sum()
    centred = x - total / x.size
    return centred * (centred ** 2).sum(), total


def right(got: Any, want: Any) -> bool:
    return all(np.allclose(g, w, rtol=1e-3, atol=1e-2) for g, w in zip(got, want))


@override(device="cpu")
def test_calls_in_flight_do_not_mix() -> None:
    inputs = [(numbers(i), numbers(i + 50)) for i in range(8)]
    arrays = [(jnp.asarray(x), jnp.asarray(y)) for x, y in inputs]
    through_the_arena(*arrays[0])
    before = get_device("cpu").stats()["submitted"]
    for _ in range(3):
        flying = [through_the_arena(x, y) for x, y in arrays]
        for got, (x, y) in reversed(list(zip(flying, inputs))):
            assert right(got, expected(x, y))
    assert get_device("cpu").stats()["submitted"] > before  # not all ran inline


def test_results_are_arguments_before_they_are_there() -> None:
    f = fnx.jit(lambda x: x * 0.5 + 1)
    x = jnp.asarray(numbers(1))
    chain = [x]
    for _ in range(30):
        chain.append(f(chain[-1]))
    want = numbers(1)
    for got in chain[1:]:
        want = want * np.float32(0.5) + np.float32(1)
        np.testing.assert_array_equal(got, want)


def test_arguments_may_be_dropped_while_their_call_is_in_flight() -> None:
    for i in range(20):
        out, total = through_the_arena(jnp.asarray(numbers(i)), jnp.asarray(numbers(i + 50)))
        jnp.asarray(np.zeros(N, np.float32))  # would reuse the memory of the arguments
        assert right((out, total), expected(numbers(i), numbers(i + 50)))


def test_threads_call_one_function() -> None:
    """First calls, replays and retraces of several shapes at once."""
    f = fnx.jit(lambda x, k: (jnp.tanh(x) * k).sum() + k)
    barrier = threading.Barrier(6)

    def work(seed: int) -> bool:
        barrier.wait()
        ok = True
        for i in range(40):
            x = numbers(seed, 100 + (i + seed) % 4)
            ok &= bool(np.isclose(f(x, float(i)), (np.tanh(x) * i).sum() + i, atol=1e-3))
        return ok

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))
    assert (f.cache_info().traces, f.cache_info().compiles) == (4, 4)


def test_threads_differentiate_and_nest() -> None:
    inner = fnx.jit(lambda x, w: jnp.sin(x * w))

    def work(k: int) -> bool:
        step = fnx.jit(fnx.grad(lambda w, x: inner(inner(x, w), w).sum()))
        x = numbers(k, 64)
        got = [np.asarray(step(np.float32(0.5), x)) for _ in range(5)]
        middle = np.sin(x / 2)
        want = (np.cos(middle / 2) * (middle + np.cos(x / 2) * x / 2)).sum()
        return all(np.isclose(g, want, rtol=1e-4, atol=1e-4) for g in got)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(12)))


def test_threads_compute_eagerly() -> None:
    def work(k: int) -> bool:
        x = jnp.asarray(numbers(k, 50 + k % 3))
        return all(np.array_equal((x * i + k) - k, (numbers(k, 50 + k % 3) * np.float32(i)
                                                   + np.float32(k)) - np.float32(k))
                   for i in range(30))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1,
                max_size=25))
def test_any_order_of_calls_and_reads(steps: list[tuple[int, int, bool]]) -> None:
    """Values in slots, computed from each other and read now or later, equal NumPy's."""
    f = fnx.jit(lambda x, y: x * 0.5 - y * 0.25)
    n = 40_000
    places = [jnp.asarray(numbers(i, n)) for i in range(4)]
    want = [numbers(i, n) for i in range(4)]
    for i, j, read in steps:
        places[i] = f(places[i], places[j])
        want[i] = want[i] * np.float32(0.5) - want[j] * np.float32(0.25)
        if read:
            np.testing.assert_array_equal(places[j], want[j])
    for got, value in zip(places, want):
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize("donate", [False, True])
def test_a_loop_that_carries_its_state(donate: bool) -> None:
    step = fnx.jit(lambda s, x: (s[0] + x, s[1] * x), donate_argnums=0 if donate else ())
    state: Any = (jnp.zeros(N), jnp.ones(N))
    want_sum, want_product = np.zeros(N, np.float32), np.ones(N, np.float32)
    for i in range(25):
        x = numbers(i)
        state = step(state, jnp.asarray(x))
        want_sum, want_product = want_sum + x, want_product * x
    np.testing.assert_array_equal(state[0], want_sum)
    np.testing.assert_array_equal(state[1], want_product)


# ---- no lock is held while user code runs


def finished(*works: Any) -> bool:
    """Return whether all of these return in time, each in a thread of its own."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    return not any(thread.is_alive() for thread in threads)


def test_two_functions_that_call_each_other_from_two_threads() -> None:
    """Each is being traced by one thread when the other thread calls it."""
    barrier = threading.Barrier(2)
    met = [False, False]
    results: list[float] = []

    def meet(i: int) -> None:
        if not met[i]:
            met[i] = True
            barrier.wait(100)

    @fnx.jit
    def even(x: Any, n: Any) -> Any:
        meet(0)
        return x if n.shape == (0,) else odd(x + 1, n[1:])

    @fnx.jit
    def odd(x: Any, n: Any) -> Any:
        meet(1)
        return x if n.shape == (0,) else even(x + 1, n[1:])

    steps = jnp.zeros(4)
    assert finished(lambda: results.append(float(even(jnp.asarray(0.0), steps))),
                    lambda: results.append(float(odd(jnp.asarray(0.0), steps))))
    assert results == [4, 4]


@pytest.mark.parametrize("transform", [fnx.jit, fnx.call])
def test_a_traced_body_may_wait_for_a_thread_that_calls_the_same_function(transform: Any) -> None:
    depth = threading.local()
    depth.first = True
    inside: list[float] = []

    @transform
    def f(x: Any) -> Any:
        if getattr(depth, "first", False):
            depth.first = False
            assert finished(lambda: inside.append(float(f(jnp.asarray(1.0)))))
        return x * 2

    assert finished(lambda: None)
    assert float(f(jnp.asarray(3.0))) == 6 and inside == [2]
    if transform is fnx.jit:
        assert (f.cache_info().traces, f.cache_info().compiles) == (1, 1)
