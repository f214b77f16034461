"""The calls that cross into a driver, and those that must not."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends.gpu.driver import QueueDriver
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError
from tests.devices.conftest import on_device_or_recording
from tests.devices.recording_cuda import recording
from tests.devices.test_opencl import digits_losses

VERBS = [name for name in vars(QueueDriver) if not name.startswith("_")
         and callable(getattr(QueueDriver, name)) and name != "check_process"]


@pytest.fixture(params=["opencl", "webgpu", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with on_device_or_recording(request.param, monkeypatch) as found:
        yield found


@pytest.mark.cases(1)
@pytest.mark.parametrize("donate", [0, None], ids=["donated", "in turns"])
def test_a_digits_step_is_one_launch(donate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[Any] = []
    with recording(monkeypatch) as device, override(device="cuda"):
        before = device.library.calls.copy()

        def stepped() -> None:
            nonlocal before
            counts.append(device.library.calls - before)
            before = device.library.calls.copy()
        losses = [float(x) for x in digits_losses(7, donate, stepped)]
    for count in counts[3:]:
        assert count["cuGraphLaunch"] == 1 and not count["cuLaunchKernel"]
        assert not count["cuGraphInstantiateWithFlags"]
        assert count["cuMemcpyHtoDAsync_v2"] <= 1 + 3  # of argument words; images, labels, the rate
    with override(device="cpu"):
        np.testing.assert_allclose(losses, [float(x) for x in digits_losses(7, donate)], rtol=1e-3)


def test_a_digits_step_is_one_submit(webgpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    submits, counts = [0], []
    kind = type(webgpu.driver.queue)
    submit = kind.submit

    def counted(queue: Any, buffers: Any) -> None:
        submits[0] += 1
        submit(queue, buffers)
    monkeypatch.setattr(kind, "submit", counted)
    driver = webgpu.driver  # it counts submits in machine code
    losses = digits_losses(5, None, lambda: counts.append(driver.submits + submits[0]))
    assert list(np.diff(counts)[1:]) == [1] * 3
    monkeypatch.undo()
    got = [float(x) for x in losses]
    with override(device="cpu"):
        np.testing.assert_allclose(got, [float(x) for x in digits_losses(5, None)], rtol=1e-3)


class NoDevice:
    info, limits = {"device": "Small GPU"}, {"max-storage-buffer-binding-size": 1,
                                             "max-buffer-size": 1}
    features: tuple[str, ...] = ()

    def request_device_sync(self, **_: Any) -> Any:
        raise RuntimeError("Request device failed (2): not enough limits")


@pytest.mark.parametrize(("adapter", "said"), [
    (None, "looked for an adapter: none"), (OSError("no Vulkan"), "for an adapter: no Vulkan"),
    (NoDevice(), "a device of Small GPU, it gives none: .*limits")])
def test_an_adapter_that_is_not_there_is_said(adapter: Any, said: str, webgpu: Any,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def request(**_: Any) -> Any:
        if isinstance(adapter, Exception):
            raise adapter
        return adapter
    monkeypatch.setattr(webgpu.driver.wgpu.gpu, "request_adapter_sync", request, raising=False)
    with pytest.raises(DeviceError, match=said) as why:
        type(webgpu.driver)()
    assert "  Fix: " in str(why.value)


def chain(x: Any) -> Any:
    for _ in range(5):
        x = jnp.cumsum(x[::-1]) * 0.5
    return x


def _child(device: Any, x: Any, y: Any, f: Any) -> None:
    called: list[str] = []
    for name in VERBS:
        setattr(device.driver, name, lambda *args, _name=name: called.append(_name))
    attempts = [
        lambda: np.asarray(y), lambda: f(x), lambda: x + 1, lambda: jnp.ones(5) * 2,
        lambda: fnx.device_put(np.ones(3), device.name), lambda: fnx.device_put(x, "cpu"),
        lambda: y.block_until_ready(), lambda: float(y[0]), lambda: fnx.jit(lambda x: x * 7)(x),
        device.synchronize, device.pool.trim,
        lambda: device.to_device(y._storage).copy_to(y._storage),
        lambda: setattr(y, "_storage", None) or device.pool.stats(), device._at_exit]
    said = 0
    for attempt in attempts:
        try:
            attempt()
        except DeviceError as why:
            said += "a child of it" in str(why)
    raise SystemExit(7 if not called and said >= 9 else f"{called} {said}")


@pytest.mark.cases(1)
def test_no_verb_is_called_in_a_forked_child(device: Any) -> None:
    f = fnx.jit(chain)
    x = jnp.asarray(np.ones(50, np.float32))
    y = f(x) + 0
    child = multiprocessing.get_context("fork").Process(target=_child, args=(device, x, y, f))
    child.start()
    child.join(60)
    assert child.exitcode == 7
    assert np.isfinite(np.asarray(y)).all()
