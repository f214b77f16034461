"""Copies between devices: through the queues, in order, and without spreading faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends.gpu import memory, transfer
from fnx.backends.gpu.memory import GpuStorage
from fnx.core.support.errors import DeviceError
from tests.devices.conftest import found
from tests.devices.recording_cuda import recording

CHUNK = 1 << 12
PAIRS = [("opencl", "webgpu"), ("webgpu", "opencl"), ("cuda", "opencl"), ("opencl", "cuda"),
         ("webgpu", "cuda")]


@pytest.fixture(params=PAIRS, ids=lambda pair: "-".join(pair))
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two devices that copy in small chunks. A recording one checks its calls."""
    for module in (transfer, memory):
        monkeypatch.setattr(module, "MAX_BLOCK", CHUNK)
    with ExitStack() as stack:
        if "cuda" in request.param:
            stack.enter_context(recording(monkeypatch))
        yield tuple(map(found, request.param))


def placed(device: Any, value: np.ndarray[Any, Any]) -> Any:
    return fnx.device_put(value, device.name)


def never(*args: Any) -> Any:
    raise AssertionError("the bytes went through an array of the host")


@pytest.mark.cases(5)
@pytest.mark.parametrize("nbytes", [0, 1, 3, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 2,
                                    (transfer.MAX_CHUNKS_AHEAD + 2) * CHUNK + 5])
def test_any_number_of_bytes_arrives(nbytes: int, pair: Any, monkeypatch: pytest.MonkeyPatch
                                     ) -> None:
    source, to = pair
    value = np.random.default_rng(nbytes).integers(0, 256, nbytes).astype(np.uint8)
    x = placed(source, value)
    with monkeypatch.context() as patch:
        patch.setattr(GpuStorage, "host", never)
        y = fnx.device_put(x, to.name)
        z = fnx.jit(lambda y: y ^ 3)(y)
    assert y.device.platform == z.device.platform == to.name and y.committed
    np.testing.assert_array_equal(np.asarray(z), value ^ 3)
    np.testing.assert_array_equal(np.asarray(y), value)
    np.testing.assert_array_equal(np.asarray(fnx.device_put(y, source.name)), value)


@pytest.mark.cases(3)
def test_what_writes_over_the_source_comes_behind(pair: Any) -> None:
    source, to = pair
    again = fnx.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = placed(source, np.arange(3 * CHUNK, dtype=np.float32))
    want, sums = np.arange(3 * CHUNK, dtype=np.float32), []
    add = fnx.jit(lambda a, b: (a + b, b))
    total = placed(to, np.zeros(3 * CHUNK, np.float32))
    kept = []
    for _ in range(6):
        there = fnx.device_put(x, to.name)
        x = again(x)
        total, same = add(total, there)
        kept.append((same, want))
        sums.append(want)
        want = want * 2 + 1
    np.testing.assert_array_equal(np.asarray(total), sum(sums))
    for same, value in kept:
        np.testing.assert_array_equal(np.asarray(same), value)
    np.testing.assert_array_equal(np.asarray(x), want)


def test_nobody_waits_for_what_is_sent(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, to = pair
    if getattr(source.driver, "_is_software", False):
        pytest.skip("its submit waits for the submission before")
    x = fnx.jit(lambda x: x + 1)(placed(source, np.ones(CHUNK // 4, np.float32)))
    waits: list[int] = []
    for device in pair:
        wait = device.driver.wait
        monkeypatch.setattr(device.driver, "wait", lambda v, wait=wait: waits.append(v) or wait(v))
    y = fnx.device_put(x, to.name)
    assert not waits
    assert (np.asarray(y) == 2).all() and waits


def test_copies_that_nobody_reads_hold_bounded_memory_of_the_host(
        pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, to = pair
    monkeypatch.setattr(memory, "MAX_PINNED", 8 * CHUNK)
    xs = [placed(source, np.full(CHUNK // 4, i, np.int32)) for i in range(40)]
    kept = [fnx.device_put(x, to.name) for x in xs]
    for x in xs:
        fnx.device_put(x, to.name)  # and is dropped
    waiting = sum(a.nbytes for a in source.pool.outgoing.pending())
    assert waiting <= 8 * CHUNK
    for i, y in enumerate(kept):
        assert (np.asarray(y) == i).all()


@pytest.mark.cases(2)
def test_a_lost_source_is_said_and_the_other_device_goes_on(pair: Any) -> None:
    source, to = pair
    x = fnx.jit(lambda x: jnp.sin(x) * 3)(placed(source, np.ones(CHUNK, np.float32)))
    y = fnx.device_put(x, to.name)
    source.pool.lost = "map_sin failed"
    for _ in range(2):
        with pytest.raises(DeviceError, match="lost when map_sin failed") as why:
            np.asarray(fnx.jit(lambda y: y + 1)(y))
        assert "test_transfer.py" in str(why.value) and "  Fix: " in str(why.value)
    with pytest.raises(DeviceError, match="lost when map_sin failed"):
        fnx.device_put(x, to.name)
    assert not to.pool.lost
    assert (np.asarray(placed(to, np.ones(3, np.float32)) + 1) == 2).all()
    source.pool.lost = ""
    np.testing.assert_allclose(np.asarray(y), 3 * np.sin(np.ones(CHUNK)), rtol=1e-6)


def test_a_lost_destination_is_said_and_the_source_goes_on(pair: Any) -> None:
    source, to = pair
    x = placed(source, np.ones(CHUNK, np.float32))
    y = fnx.device_put(x, to.name)
    to.pool.lost = "map_sin failed"
    with pytest.raises(DeviceError, match=f"{to.name}: .*lost when map_sin failed"):
        np.asarray(y)
    to.pool.lost = ""
    assert not source.pool.lost and (np.asarray(x + 1) == 2).all()
    assert (np.asarray(y) == 1).all()


def test_a_fault_of_the_source_is_its_own(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised in a call of the other device, which has not failed."""
    source, to = pair
    x = placed(source, np.ones(CHUNK, np.float32)) + 1

    def failed(value: int) -> None:
        raise DeviceError(f"{source.name}: queued work failed")
    with monkeypatch.context() as patch:
        patch.setattr(source.driver, "wait", failed)
        with pytest.raises(DeviceError, match="queued work failed; in flight: ") as why:
            np.asarray(fnx.device_put(x, to.name) * 2)
    assert "test_transfer.py" in str(why.value)
    assert source.pool.lost and not to.pool.lost
    for device in pair:  # the failed one is reopened
        assert (np.asarray(placed(device, np.ones(3, np.float32)) + 1) == 2).all()


@pytest.mark.cases(2)
@pytest.mark.parametrize("nbytes", [0, 3, 4 * CHUNK, 9 * CHUNK + 4])
def test_values_set_out_for_the_host(nbytes: int, pair: Any, monkeypatch: pytest.MonkeyPatch
                                     ) -> None:
    source, _ = pair
    value = np.random.default_rng(nbytes).integers(0, 256, nbytes).astype(np.uint8)
    x = fnx.jit(lambda x: x ^ 3)(placed(source, value))
    fnx.copy_to_host_async([x, x])
    again = fnx.jit(lambda x: x + 1, donate_argnums=0)
    y = x ^ 0
    y.copy_to_host_async()
    z = again(y)  # overwritten in place, after the copy
    z.copy_to_host_async()
    with monkeypatch.context() as patch:
        if nbytes:
            patch.setattr(source.driver, "read", never)
        np.testing.assert_array_equal(np.asarray(x), value ^ 3)
        np.testing.assert_array_equal(np.asarray(z), (value ^ 3) + np.uint8(1))
    monkeypatch.setattr(memory, "MAX_PINNED", 8 * CHUNK)
    xs = [placed(source, np.full(CHUNK // 4, i, np.int32)) + 0 for i in range(30)]
    fnx.copy_to_host_async(xs)
    assert sum(a.nbytes for a in source.pool.outgoing.pending()) <= 8 * CHUNK
    for i, x in enumerate(xs):
        assert (np.asarray(x) == i).all()
