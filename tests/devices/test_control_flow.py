"""Control flow on devices: how often the host submits and reads while a loop runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override
from tests.devices.conftest import on_device_or_recording
from tests.laws.test_loop_programs import Plain, X, block

W = np.random.default_rng(0).standard_normal((18, 18)).astype(np.float32) / 5
STEPS = np.linspace(-1, 1, 3000, dtype=np.float32)


@pytest.fixture(params=["opencl", "webgpu", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with on_device_or_recording(request.param, monkeypatch) as found:
        yield found


@pytest.fixture
def calls(device: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the host reads, and starts work: by ``launch``, or by ``submit`` if some is queued.
    """
    counts: Counter[str] = Counter()
    queued: set[str] = set()

    def count(name: str) -> None:
        operation = getattr(device.driver, name)

        def counted(*args: Any) -> Any:
            counts["read"] += name == "read"
            counts["submit"] += name == "launch" or name == "submit" and bool(queued)
            if name in ("launch", "submit"):
                queued.clear()
            elif name != "read":
                queued.add(name)
            return operation(*args)
        monkeypatch.setattr(device.driver, name, counted)
    for name in ("launch", "exec", "submit", "read"):
        count(name)
    return counts


def check(f: Callable[..., Any], calls: Counter[str], *args: Any) -> int:
    """Compare a first call and a second one with the processor's. Each submits twice and reads once
    at most; return how often the second one reads."""
    jitted = fnx.jit(f)
    on_device_args = [jnp.asarray(a) for a in args]
    with override(device="cpu"):
        want = fnx.tree.map(np.asarray, fnx.jit(f)(*args))
    for _ in range(2):
        result, reads = counted(jitted, calls, on_device_args)
        got = fnx.tree.map(np.asarray, result)
        fnx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, want)
    return reads


def counted(jitted: Callable[..., Any], calls: Counter[str], args: Any) -> tuple[Any, int]:
    """Return the result of a call, and how often it reads."""
    calls.clear()
    result = jitted(*args)
    assert 1 <= calls["submit"] <= 2 and calls["read"] <= 1, calls
    return result, calls["read"]


@pytest.mark.cases(2)
def test_a_scan_of_3000_is_one_submit(calls: Counter[str], device: Any,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    def f(c: Any, w: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = jnp.tanh(c @ w + x)
            return c, c[0, 0]
        return lax.scan(step, c, xs)
    args = np.ones((18, 18), np.float32), W, STEPS
    if device.name != "cuda":
        check(f, calls, *args)
        return
    with monkeypatch.context() as patch:  # recorded calls run in the interpreter: these don't
        patch.setattr(device.library, "_compute", lambda symbol, words: True)
        for _ in range(2):
            result, reads = counted(fnx.jit(f), calls, [jnp.asarray(a) for a in args])
            assert not reads
        fnx.tree.map(np.asarray, result)
    check(f, calls, *args[:2], STEPS[::30])


def newton(x: Any, w: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 50, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w)), (0, x))


@pytest.mark.cases(2)
def test_a_while_of_50_is_one_submit_and_one_read(calls: Counter[str]) -> None:
    check(newton, calls, np.ones((18, 18), np.float32), W)


@pytest.mark.cases(1)
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7, 200])
def test_a_while_ends_where_it_should(device: Any, steps: int) -> None:
    def f(n: Any, x: Any, w: Any) -> Any:
        def step(c: Any) -> Any:
            i, x, y = c
            return i + 1, jnp.tanh(x @ w) + y, x
        return lax.while_loop(lambda c: c[0] < n, step, (0, x, 2 * x))
    args = steps, np.ones((18, 18), np.float32), W
    jitted = fnx.jit(f)
    with override(device="interp"):
        want = fnx.tree.map(np.asarray, fnx.jit(f)(*args))
    for _ in range(3):  # strips adapt
        got = fnx.tree.map(np.asarray, jitted(*args))
        fnx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, want)


@pytest.mark.cases(1)
@pytest.mark.parametrize("which", [-1, 0, 1, 2, 3])
def test_a_switch_needs_no_read(calls: Counter[str], which: int) -> None:
    def f(i: Any, x: Any, w: Any) -> Any:
        return lax.switch(i, [lambda x: jnp.tanh(x @ w), lambda x: x[::-1], lambda x: x @ w.T], x)
    assert not check(f, calls, np.int32(which), W + 1, W)


@pytest.mark.cases(2)
def test_a_cond_in_a_scan_needs_no_read(calls: Counter[str]) -> None:
    def f(x: Any, w: Any) -> Any:
        def step(c: Any, i: Any) -> Any:
            c = lax.cond(c[0, 0] > 0, lambda: jnp.tanh(c @ w), lambda: -c + i)
            return c, c[0]
        return lax.scan(step, x, jnp.arange(20, dtype=np.float32))
    assert not check(f, calls, W, W)


@pytest.mark.cases(2)
def test_loops_in_loops(device: Any) -> None:
    def f(x: Any, w: Any) -> Any:
        def inner(c: Any) -> Any:
            j, x = c
            x = lax.switch(j % 3, [lambda: x @ w, lambda: jnp.sin(x), lambda: x + j])
            return j + 1, lax.scan(lambda x, y: (jnp.tanh(x @ w + y), None), x, w[:3, :1])[0]

        def outer(c: Any) -> Any:
            i, x = c
            return i + 1, lax.while_loop(lambda c: c[0] < i, inner, (0, x))[1]
        return lax.while_loop(lambda c: (c[0] < 3) & (c[1][0, 0] < 100), outer, (0, x))
    args = np.ones((18, 18), np.float32), W
    with override(device="interp"):
        want = fnx.tree.map(np.asarray, fnx.jit(f)(*args))
    got = fnx.tree.map(np.asarray, fnx.jit(f)(*args))
    fnx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, want)


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(300, 305))
def test_random_programs_are_the_python_programs(device: Any, seed: int) -> None:
    recorded = device.name == "cuda"  # its kernels run in the interpreter
    program = block(random.Random(seed), 1 if recorded else 2)
    jitted = fnx.jit(lambda x: program(lax, x))
    for x in (X, -X, X[::-1].copy())[:1 if recorded else 3]:
        np.testing.assert_allclose(np.tanh(np.asarray(jitted(x))), np.tanh(program(Plain(), x)),
                                   rtol=1e-4, atol=1e-4)
