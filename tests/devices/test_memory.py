"""Device memory is bounded: free memory is released first, then an error lists what is in use."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import DeviceError, OutOfMemoryError
from tests.devices.conftest import on_device

ROOM, PIECE = 6 << 20, 1 << 20  # bytes of a device made small, and of an array


@pytest.fixture(params=["opencl", "webgpu"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device that has room for only a few arrays, besides what it holds."""
    with on_device(request.param) as device:
        gc.collect()  # garbage of other tests would leave more room later
        device.pool.trim()
        limits = device.driver.limits.replace(memory=device.pool.stats()["held"] + ROOM)
        monkeypatch.setattr(device.driver, "limits", limits)
        yield device


def piece(value: float) -> Any:
    return jnp.asarray(np.full(PIECE // 4, value, np.float32))


@pytest.mark.cases(1)
def test_beyond_it_the_error_says_what_is_in_use(small: Any) -> None:
    kept: list[Any] = []
    with pytest.raises(OutOfMemoryError, match=r"in use: \d+ of 1,0\d\d,\d\d\d") as why:
        kept += [piece(i) for i in range(20)]
    assert isinstance(why.value, MemoryError) and "test_memory.py" in str(why.value)
    assert f"{small.name}: expected 1,048,576 bytes" in str(why.value)
    held = [piece(1)] if kept else []
    del kept, held
    assert float(piece(3).sum()) == 3 * PIECE / 4  # it still works


@pytest.mark.cases(1)
def test_the_error_has_the_lines_that_made_what_is_in_use(small: Any) -> None:
    @fnx.jit
    def f(x: Any) -> Any:
        return (x * 2,
                x + 1)

    first = f.__wrapped__.__code__.co_firstlineno + 2
    x = piece(1)
    kept: list[Any] = [f(x) for _ in range(2)]  # the second by the fast path
    with pytest.raises(OutOfMemoryError) as why:
        kept.append([jnp.tanh(x - i) for i in range(2, 20)])  # x + 1 is a program of f
    text = str(why.value)
    for line in (first, first + 1):
        assert re.search(rf"2 of [0-9,]+ made at tests/devices/test_memory\.py:{line}\b", text)
    assert f"test_memory.py:{piece.__code__.co_firstlineno + 1}" in text  # uploaded by the host
    del kept, x


@pytest.mark.cases(1)
def test_what_is_free_is_used_again(small: Any) -> None:
    f = fnx.jit(lambda x: x * 2 + 1)
    for i in range(20):
        assert float(f(piece(i))[0]) == 2 * i + 1
    for i in range(20):  # garbage in reference cycles
        ring: list[Any] = [piece(i)]
        ring.append(ring)
        del ring


def test_one_that_can_never_fit(small: Any) -> None:
    with pytest.raises(OutOfMemoryError, match="expected 2[0-9,]+ bytes"):
        jnp.zeros(ROOM, np.float32) + jnp.arange(ROOM)
    assert float(piece(2)[5]) == 2


def test_arrays_above_what_one_may_have(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small.driver, "limits", small.driver.limits.replace(buffer=PIECE // 2))
    with pytest.raises(OutOfMemoryError, match="one array may have 524,288"):
        piece(1)


@pytest.mark.parametrize("limit", [{"groups": 2}, {"threads": 16}])
def test_a_grid_above_the_limits_is_refused_with_the_line(limit: dict[str, int], small: Any,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small.driver, "limits", small.driver.limits.replace(**limit))
    scale = 7 + len(*limit)  # each has a program of its own, which is encoded here
    f = fnx.jit(lambda x: jnp.tanh(x) * scale)
    x = jnp.asarray(np.arange(1000, dtype=np.float32))
    with pytest.raises(DeviceError, match=r"expected at most [0-9,]+ groups of [0-9,]+") as why:
        np.asarray(f(x))
    assert "test_memory.py" in str(why.value) and "in parts" in str(why.value)
    monkeypatch.undo()
    np.testing.assert_allclose(np.asarray(f(x)), scale * np.tanh(np.arange(1000)), rtol=1e-5)


@pytest.mark.cases(1)
def test_grids_beyond_one_axis(small: Any) -> None:
    """More groups than one grid axis allows use two axes."""
    n = 128 * (1 << 16) + 5 if small.name == "webgpu" else 1 << 20
    small.driver.limits = small.driver.limits.replace(memory=1 << 40)
    got = fnx.jit(lambda: jnp.arange(n, dtype="int32") % 7)()
    np.testing.assert_array_equal(np.asarray(got), np.arange(n, dtype=np.int32) % 7)
