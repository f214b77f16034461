"""Control flow on devices: how often the host submits and reads while a loop runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override
from tests.devices.conftest import on_device
from tests.devices.recording_cuda import recording

SUBMITS, READS = ("replay", "launch", "exec"), ("read", "fetch")
W = np.random.default_rng(0).standard_normal((18, 18)).astype(np.float32) / 5
STEPS = np.linspace(-1, 1, 3000, dtype=np.float32)


@pytest.fixture(params=["opencl", "webgpu", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param == "cuda":
        with recording(monkeypatch) as made, override(device="cuda"):
            yield made
        return
    with on_device(request.param) as found:
        yield found


@pytest.fixture
def calls(device: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each operation of the driver is called."""
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        operation = getattr(device.driver, name)

        def counted(*args: Any) -> Any:
            counts[name] += 1
            return operation(*args)
        monkeypatch.setattr(device.driver, name, counted)
    for name in (*SUBMITS, *READS):
        count(name)
    return counts


def check(f: Callable[..., Any], calls: Counter[str], *args: Any) -> None:
    """Compare a second call with the processor's; it submits twice and reads once at most."""
    jitted = fnx.jit(f)
    on_device_args = [jnp.asarray(a) for a in args]
    jitted(*on_device_args)
    calls.clear()
    result = jitted(*on_device_args)
    assert sum(calls[name] for name in SUBMITS) <= 2, calls
    assert calls["read"] <= 1, calls
    got = fnx.tree.map(np.asarray, result)
    with override(device="cpu"):
        want = fnx.tree.map(np.asarray, fnx.jit(f)(*args))
    fnx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, want)


def test_a_scan_of_3000_is_one_submit(calls: Counter[str]) -> None:
    def f(c: Any, w: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = jnp.tanh(c @ w + x)
            return c, c[0, 0]
        return lax.scan(step, c, xs)
    check(f, calls, np.ones((18, 18), np.float32), W, STEPS)
