"""OpenCL's command buffers whose arguments are updated, on a layer that stands in for a driver that
has them.
"""

from __future__ import annotations

import ctypes
import gc
import warnings
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.backends import libopencl
from fnx.core.support.config import override
from tests.devices.conftest import found
from tests.devices.opencl_layer import mutable_dispatch
from tests.devices.test_opencl import FUNCTIONS, W, X, train


@pytest.fixture(autouse=True)
def _needs_a_driver() -> None:
    found("opencl")


def chain(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = jnp.cumsum(jnp.tanh(x @ w)[::-1], 0) * 0.1
    return x


def on_cpu(f: Any, *args: Any) -> Any:
    with override(device="cpu"):
        return fnx.tree.map(np.asarray, fnx.jit(f)(*args))


def assert_close(got: Any, want: Any) -> None:
    for a, b in zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-4)


def test_a_call_updates_what_changed_and_enqueues_once(monkeypatch: pytest.MonkeyPatch) -> None:
    w = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32) / 6
    xs = [np.full((40, 40), i, np.float32) for i in range(4)]
    with mutable_dispatch(monkeypatch) as (device, layer):
        f, held = fnx.jit(chain), [jnp.asarray(x) for x in xs]
        on_device_w = jnp.asarray(w)
        first = f(held[0], on_device_w)
        names = [name for name, _ in layer.calls]
        assert names == ["create", "finalize", "update", "enqueue"]  # the first call uses it
        kernels = dict(layer.calls)["finalize"]
        assert kernels >= 3 and dict(layer.calls)["update"] == kernels
        results = [first]
        layer.calls.clear()
        for x in held[1:]:  # other memory
            results.append(f(x, on_device_w))
        assert layer.calls == [("update", kernels), ("enqueue", kernels)] * 3
        del x
        for _ in range(3):  # results come in the same memory again
            y = f(held[0], on_device_w)
            del y
        layer.calls.clear()
        called: list[str] = []
        for name, call in device.driver.cl.calls.items():
            monkeypatch.setitem(device.driver.cl.calls, name, lambda *a, name=name, call=call: (
                called.append(name), call(*a))[1])
        for _ in range(3):
            y = f(held[0], on_device_w)
            del y
        assert layer.calls == [("enqueue", kernels)] * 3 and not called
        for x, y in zip(xs, results):
            assert_close(y, on_cpu(chain, x, w))


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_jitted_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = FUNCTIONS[name]
    with mutable_dispatch(monkeypatch) as (_, layer):
        jitted = fnx.jit(f)
        for x in (X, X[::-1].copy(), X):
            assert_close(jitted(jnp.asarray(x), jnp.asarray(W)), on_cpu(f, x, W))
        assert ("create", 0) in layer.calls or not layer.calls


def test_training_loops_and_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    def loops(x: Any) -> Any:
        y = lax.while_loop(lambda c: c[0] < 50, lambda c: (c[0] + 1, jnp.sin(c[1]) + 1), (0, x))[1]
        z = lax.scan(lambda c, v: (jnp.tanh(c @ c.T @ c * 0.1 + v), c.sum()), x,
                     jnp.arange(30.0))
        return y, z, lax.cond(x[0, 0] > 0, lambda: jnp.sort(x, 1), lambda: x @ x.T @ x)
    x = np.random.default_rng(1).normal(size=(20, 20)).astype(np.float32)
    with mutable_dispatch(monkeypatch) as (_, layer):
        jitted = fnx.jit(loops)
        for value in (x, -x):
            assert_close(jitted(jnp.asarray(value)), on_cpu(loops, value))
        losses = train(6)
        assert [name for name, _ in layer.calls].count("enqueue") >= 8
    with override(device="cpu"):
        np.testing.assert_allclose(losses, train(6), rtol=2e-5)


@pytest.mark.parametrize("fails", [
    "clCreateCommandBufferKHR", "clCommandNDRangeKernelKHR", "clFinalizeCommandBufferKHR",
    "clUpdateMutableCommandsKHR", "clEnqueueCommandBufferKHR"])
def test_a_driver_that_reports_it_and_fails(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are enqueued one by one; it is said once."""
    x = np.random.default_rng(2).normal(size=(40, 40)).astype(np.float32)
    with mutable_dispatch(monkeypatch, fails=fails) as (_, layer):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            f = fnx.jit(chain)
            for value in (x, 2 * x, x):
                assert_close(f(jnp.asarray(value), jnp.asarray(x)), on_cpu(chain, value, x))
            assert_close(fnx.jit(jnp.sort)(jnp.asarray(x)), np.sort(x))
        texts = [str(w.message) for w in said]
        assert len(texts) == 1 and f"{fails} failed with" in texts[0], texts
        assert "enqueued one by one" in texts[0]
        assert not layer.buffers and ("enqueue", 1) not in layer.calls


def test_a_driver_that_fails_later(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(2).normal(size=(40, 40)).astype(np.float32)
    with mutable_dispatch(monkeypatch) as (_, layer):
        f, g = fnx.jit(chain), fnx.jit(lambda x: jnp.cumsum(x) * 2)
        held, want = jnp.asarray(x), on_cpu(chain, x, x)
        for _ in range(2):
            assert_close(f(held, held), want)
            assert_close(g(held), np.cumsum(x) * 2)
        layer.fails = "clEnqueueCommandBufferKHR"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                assert_close(f(held, held), want)
                assert_close(g(held), np.cumsum(x) * 2)
        assert len(said) == 1 and not layer.buffers


@pytest.mark.parametrize("reported", [
    {"version": (0, 9, 1)}, {"capabilities": 0}, {"fields": 1 << 1}])
def test_a_driver_that_lacks_a_part_of_it(reported: dict[str, Any],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    with mutable_dispatch(monkeypatch, **reported) as (device, layer):
        assert device.driver.recording is None
        assert_close(fnx.jit(chain)(jnp.asarray(np.eye(40, dtype=np.float32)),
                                    jnp.asarray(np.eye(40, dtype=np.float32))),
                     on_cpu(chain, np.eye(40, dtype=np.float32), np.eye(40, dtype=np.float32)))
        assert not layer.calls


def test_command_buffers_go_with_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    with mutable_dispatch(monkeypatch) as (device, layer):
        for k in range(6):
            f = fnx.jit(lambda x, k=k: jnp.cumsum(x) * float(k))
            np.asarray(f(jnp.arange(300.0)))
            del f
            fnx.clear_caches()
        gc.collect()
        np.asarray(fnx.jit(lambda x: jnp.cumsum(x) - 9)(jnp.arange(300.0)))
        assert [name for name, _ in layer.calls].count("create") >= 7 and len(layer.buffers) <= 3


def test_structures_have_the_layout_of_the_header() -> None:
    """CL/cl_ext.h, cl_khr_command_buffer_mutable_dispatch 0.9.5."""
    config, argument = libopencl._Config, libopencl._Argument
    assert [getattr(config, name).offset for name, _ in config._fields_] == [
        0, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64]
    assert [getattr(argument, name).offset for name, _ in argument._fields_] == [0, 8, 16]
    assert (ctypes.sizeof(config), ctypes.sizeof(argument)) == (72, 24)
    assert ctypes.sizeof(libopencl._Extension) == 68
