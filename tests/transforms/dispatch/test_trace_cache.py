"""jit of functions with equal code and closure shares a cache entry; any difference separates
them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.transforms.dispatch import trace_cache

traced: list[str] = []
scale = 2.0
X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    traced.clear()
    trace_cache.clear_shared()
    yield
    trace_cache.clear_shared()


def doubled(x: Any) -> Any:
    traced.append("doubled")
    return x * 2


def test_a_function_that_is_jitted_again_is_traced_once() -> None:
    for _ in range(3):
        f = fnx.jit(doubled)
        np.testing.assert_array_equal(f(X), X * 2)
        np.testing.assert_array_equal(f(X), X * 2)
        np.testing.assert_array_equal(f(X), X * 2)
        info = f.cache_info()
        assert (info.traces, info.compiles, info.hits) == (1, 1, 2)
    assert traced == ["doubled"]
    fnx.jit(doubled)(X[:2])
    assert len(traced) == 2


def test_functions_of_one_code_are_one_where_they_close_over_the_same() -> None:
    def times(n: float) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            traced.append("f")
            return x * n
        return fnx.jit(f)

    for n in (2, 3, 2, 3.0, True, -0.0, 0.0, 2):
        out = times(n)(np.int32(3))
        want = jnp.int32(3) * n
        assert (out.dtype, np.signbit(out)) == (want.dtype, np.signbit(want))
        assert float(out) == 3 * n
    assert len(traced) == 6


def test_the_third_of_equal_functions_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(n: float) -> Any:
        return fnx.jit(lambda x: x * n * scale)

    x = jnp.asarray(X)
    for _ in range(2):
        assert times(3)(x).tolist() == (X * 6).tolist()
    with monkeypatch.context() as m:
        m.setattr(fnx.jit(doubled).__class__, "_slow_path", None)
        assert times(3)(x).tolist() == (X * 6).tolist()
    assert times(4)(x).tolist() == (X * 8).tolist()
    monkeypatch.setitem(globals(), "scale", 5.0)
    assert times(3)(x).tolist() == (X * 15).tolist()
    assert times(3)(x[:2]).tolist() == (X[:2] * 15).tolist()


def test_what_is_rebound_afterwards_is_seen() -> None:
    def pair(n: int) -> tuple[Callable[[Any], Any], Callable[[int], None]]:
        def f(x: Any) -> Any:
            return x + n

        def rebind(to: int) -> None:
            nonlocal n
            n = to
        return fnx.jit(f), rebind

    (f, rebind_f), (g, rebind_g) = pair(1), pair(1)
    assert [float(h(1.0)) for h in (f, g, f, g)] == [2, 2, 2, 2]
    rebind_g(10)
    assert [float(h(1.0)) for h in (f, g, f, g)] == [2, 11, 2, 11]
    rebind_f(20)
    assert [float(h(1.0)) for h in (f, g, f, g)] == [21, 11, 21, 11]
    again, _ = pair(1)
    assert float(again(1.0)) == 2


def test_globals_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        traced.append("f")
        return x * scale

    assert float(fnx.jit(f)(3.0)) == 6
    monkeypatch.setitem(globals(), "scale", 5.0)
    assert float(fnx.jit(f)(3.0)) == 15
    monkeypatch.setitem(globals(), "scale", 2.0)
    assert float(fnx.jit(f)(3.0)) == 6


def test_options_and_defaults_are_part_of_it() -> None:
    def f(x: Any, n: Any = 2, *, m: Any = 1) -> Any:
        return x * n + m

    assert float(fnx.jit(f)(3.0)) == 7
    f.__defaults__ = (3,)
    assert float(fnx.jit(f)(3.0)) == 10
    f.__kwdefaults__ = {"m": 5}
    assert float(fnx.jit(f)(3.0)) == 14
    assert float(fnx.jit(f, static_argnames="n")(3.0, n=4)) == 17
    x = jnp.ones(100_000)
    fnx.jit(f)(x)
    assert not x.is_deleted()
    fnx.jit(f, donate_argnums=0)(x)
    assert x.is_deleted()


def test_arrays_that_are_closed_over_are_not_kept() -> None:
    big = jnp.ones(1000)
    fnx.jit(lambda x: x + big)(1.0)
    fnx.jit(lambda x: x + jnp.sin(fnx.pure_callback(lambda: np.float32(1), np.float32(0))))(1.0)
    assert len(trace_cache._shared) == 0


def test_another_configuration_is_another_trace() -> None:
    assert fnx.jit(doubled)(1.0).dtype == np.float32
    with fnx.enable_x64(True):
        assert fnx.jit(doubled)(1.0).dtype == np.float64
    assert fnx.jit(doubled)(1.0).dtype == np.float32


def test_inside_a_transform_each_is_traced_there() -> None:
    f = fnx.grad(lambda x: fnx.jit(lambda y: y * y * x)(x))
    assert [float(f(2.0)), float(f(3.0))] == [12, 27]
    assert float(fnx.jit(lambda y: y * y)(3.0)) == 9


def test_random_functions_that_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closures, defaults and globals with few distinct values, in any order: each gives its own
    result."""
    rng = random.Random(7)
    values: list[Any] = [0, 1, 2, True, False, 1.0, 2.0, -0.0, 0.0, None]

    def make(a: Any, b: Any) -> Callable[..., Any]:
        def f(x: Any, c: Any = b) -> Any:
            y = x if a is None else x * a
            return (y if c is None else y + c) * scale
        return f

    for _ in range(60):
        a, b, s = rng.choice(values), rng.choice(values), rng.choice((1.0, 2.0, -1.0))
        monkeypatch.setitem(globals(), "scale", s)
        f, x = make(a, b), rng.choice((jnp.float32(3), jnp.int32(2)))
        got, want = fnx.jit(f)(x), f(x)
        assert (got.dtype, got.weak_type) == (want.dtype, want.weak_type)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
        np.testing.assert_array_equal(got, want)
