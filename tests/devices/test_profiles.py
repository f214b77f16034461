"""``fnx.profile`` on devices with a queue of their own: each command that ran is a row."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.device.base import get_device
from fnx.backends.gpu import device as gpu_device
from fnx.core.support.errors import DeviceError
from tests.devices.conftest import on_device, on_device_or_recording

N = 40


@pytest.fixture(params=["opencl", "webgpu", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    with on_device_or_recording(request.param, monkeypatch) as device:
        yield device


@pytest.mark.cases(1)
def test_a_call_on_a_device_gives_its_kernels(device: Any) -> None:
    f = fnx.jit(lambda x: jnp.exp(x @ x))
    x = jnp.ones((N, N)) / N
    for _ in range(3):  # also once the driver has recorded its launches
        seen = fnx.profile(f)(x)
        np.testing.assert_allclose(np.asarray(seen.result), np.full((N, N), np.exp(1 / N)), 1e-5)
        product = max(seen.kernels, key=lambda row: row.flops)
        assert product.flops >= 2 * N ** 3 and product.count == 1
        assert product.device == device.name
        assert product.line.startswith("test_profiles.py:")
        assert 0 < seen.nanoseconds <= seen.seconds * 1e9
    assert device.name in seen.table() and not device.is_recording
    f(x)
    assert len(seen.runs) == len({run.start for run in seen.runs})  # nothing is recorded afterwards


@pytest.mark.cases(1)
def test_each_turn_of_a_loop_is_counted(device: Any) -> None:
    f = fnx.jit(lambda x: lax.fori_loop(0, 5, lambda i, x: jnp.sin(x @ x), x))
    seen = fnx.profile(f)(jnp.ones((N, N)))
    assert max(row.count for row in seen.kernels) == 5


def test_work_on_any_device_is_seen_wherever_the_rest_is() -> None:
    with on_device("opencl"):
        pass  # it is here
    f, g = fnx.jit(jnp.sin, device="opencl"), fnx.jit(jnp.cos)
    x = jnp.ones(100)
    with fnx.profile() as seen:
        f(x).block_until_ready()
        g(x)
    assert {(row.device, row.count) for row in seen.kernels} == {("opencl", 1), ("cpu", 1)}
    assert " on opencl" in seen.table() and len(seen.busy) == seen.workers
    assert not get_device("opencl").is_recording and not get_device("cpu").is_recording


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["opencl", "webgpu"])
def test_commands_of_a_queue_in_order_do_not_overlap_and_fill_the_call(name: str) -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ x)
        return fnx.pure_callback(lambda v: np.asarray(v) + 1, x, x) * 2

    with on_device(name):
        jitted, x = fnx.jit(f), jnp.ones((256, 256)) / 256
        jitted(x).block_until_ready()
        begin = time.monotonic_ns()
        seen = fnx.profile(lambda x: jitted(x).block_until_ready())(x)
        end = time.monotonic_ns()
        want = np.asarray(jitted(x))
        np.testing.assert_array_equal(np.asarray(seen.result), want)
    runs = sorted(seen.runs, key=lambda run: run.start)
    assert len(runs) >= 5
    slack = 50_000  # the clocks of host and device are compared once
    assert begin - slack <= runs[0].start and runs[-1].stop <= end + slack
    for run, later in zip(runs, runs[1:]):
        assert run.start < run.stop <= later.start + slack
    assert seen.nanoseconds >= 0.5 * seen.seconds * 1e9


def test_more_commands_than_are_timed_together(device: Any) -> None:
    if device.name == "cuda":  # recorded kernels run in the interpreter
        device.library._compute = lambda symbol, words: True
    f = fnx.jit(lambda x: lax.fori_loop(0, 2100, lambda i, x: jnp.sin(x @ x), x))
    with fnx.profile() as seen:
        f(jnp.ones((N, N))).block_until_ready()
    assert max(row.count for row in seen.kernels) == 2100
    runs = sorted(seen.runs, key=lambda run: run.start)
    assert all(run.stop <= later.start + 50_000 for run, later in zip(runs, runs[1:]))


def test_a_driver_without_times_says_so_once_and_its_commands_are_waited_for(
        device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.driver, "set_profiler", lambda profiler: False)
    monkeypatch.setattr(gpu_device, "_said", {})
    f, x = fnx.jit(lambda x: jnp.sin(x @ x)), jnp.ones((N, N))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(3):
            seen = fnx.profile(f)(x)
            assert seen.nanoseconds and seen.kernels[0].line.startswith("test_profiles.py:")
    assert [str(w.message).partition(":")[0] for w in said] == [f"{device.name} reports no times"]


def test_a_device_that_fails_during_a_profile_can_be_profiled_afterwards(
        device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = fnx.jit(lambda x: jnp.sin(x @ x)), np.ones((N, N), np.float32)
    f(x)

    def done(value: int) -> bool:
        raise DeviceError("queued work failed")
    with monkeypatch.context() as patch, pytest.raises(DeviceError, match="queued work failed"), \
            fnx.profile():
        y = f(x)
        patch.setattr(device.driver, "done", done)
        patch.setattr(device.driver, "waited", lambda value, limit: done(value))
        np.asarray(y)
    assert not device.is_recording and not get_device("cpu").is_recording
    seen = fnx.profile(f)(x)
    assert seen.kernels[0].line.startswith("test_profiles.py:")


@pytest.mark.cases(1)
def test_ctrl_c_at_the_end_of_a_profile_leaves_the_order_of_work(
        device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = fnx.jit(lambda x: x * 2 + 1), jnp.zeros(1000)
    f(x).block_until_ready()

    def interrupted() -> None:
        raise KeyboardInterrupt
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        with fnx.profile():
            for _ in range(40):
                x = f(x)
            patch.setattr(device, "synchronize", interrupted)
    assert not device.is_recording
    for _ in range(40):
        x = f(x)
    want = np.zeros(1000, np.float32)
    for _ in range(80):
        want = want * 2 + 1
    np.testing.assert_array_equal(np.asarray(x), want)
    seen = fnx.profile(f)(x)
    assert [row.count for row in seen.kernels] == [1] and 0 < seen.nanoseconds <= seen.seconds * 1e9
