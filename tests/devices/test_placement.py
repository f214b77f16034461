"""Operations run where their arrays were placed, uncommitted arrays follow, and devices do not
mix."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.support.errors import PlacementError, UnknownDeviceError
from tests.devices.conftest import found

A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(params=["opencl", "interp"])
def there(request: pytest.FixtureRequest) -> Any:
    """A device that is not the configured one."""
    found(request.param)
    return fnx.devices(request.param)[0]


def test_devices_by_name(there: Any) -> None:
    assert fnx.devices(there.platform) == [there] == fnx.local_devices(backend=there.platform)
    assert there.id == 0 and repr(there) == f"{there.platform.capitalize()}Device(id=0)"
    assert fnx.devices() == [fnx.devices("cpu")[0]] != [there]
    assert issubclass(UnknownDeviceError, RuntimeError)  # which is what JAX raises
    assert not issubclass(UnknownDeviceError, ValueError)  # which some programs catch first
    with pytest.raises(UnknownDeviceError, match="expected one of cpu, .* or gpu, got 'tpu'"):
        fnx.devices("tpu")


@pytest.mark.cases(1)
def test_what_is_computed_of_placed_arrays_is_there(there: Any) -> None:
    x, z = fnx.device_put(A, there), jnp.asarray(A)
    assert x.committed and x.device is there and x.devices() == {there} and not z.committed
    assert x.platform() == there.platform and x.sharding.device is there
    f = fnx.jit(lambda x, y: (x @ y.T, y + 1))
    for _ in range(3):  # the general path, then the fast path
        for made in (x + 1, jnp.sin(x), x * z, z * x, jnp.concatenate([z, x]), x[0], *f(x, z),
                     *f(z, x), fnx.grad(lambda x: (x * x).sum())(x), x.sum(), next(iter(x)),
                     fnx.vmap(lambda r: r.sum())(x), fnx.jit(lambda v: v + x)(z)):
            assert made.device is there and made.committed
        for made in (z + 1, *f(z, z)):
            assert made.device is fnx.devices("cpu")[0] and not made.committed
    np.testing.assert_allclose(f(x, z)[0], A @ A.T)


def test_places_do_not_mix(there: Any) -> None:
    x, z = fnx.device_put(A, there), fnx.device_put(A, fnx.devices("cpu")[0])
    calls: list[Any] = [
        lambda: x + z, lambda: fnx.jit(lambda a, b: a + b)(x, z), lambda: jnp.stack([x, z]),
        lambda: fnx.jit(lambda a: a + z)(x), lambda: fnx.jit(lambda a, b: a + b)(x, b=z)]
    for call in calls:
        for _ in range(2):
            with pytest.raises(PlacementError) as error:
                call()
            text = str(error.value)
            assert text.count("(placed at tests/devices/test_placement.py:") == 2
            assert f"on {there.platform} (" in text and "on cpu (" in text
            assert "Fix: move one of them: fnx.device_put" in text
    assert (fnx.device_put(x, fnx.devices("cpu")[0]) + z).device.platform == "cpu"
    assert (x + fnx.device_put(z, there)).device is there


def test_values_go_to_and_fro(there: Any) -> None:
    rng = np.random.default_rng(0)
    for shape, dtype in (((), "float32"), ((0, 3), "int8"), ((7,), "bool"), ((999, 1023), "int32"),
                         ((5,), "float16"), ((3, 3000, 1000), "uint8")):
        value = rng.integers(0, 2, shape).astype(dtype)
        x = fnx.device_put(value, there)
        np.testing.assert_array_equal(fnx.device_get(x), value)
        back = fnx.device_put(x, fnx.devices("cpu")[0])
        np.testing.assert_array_equal(fnx.device_put(back, there), value)
    made = fnx.device_put({"a": 1.5, "b": [A]}, there)
    assert made["a"].device is made["b"][0].device is there and made["a"].weak
    both = fnx.device_put([A, A], [there, fnx.devices("cpu")[0]])
    assert [x.device.platform for x in both] == [there.platform, "cpu"]


def test_a_placed_array_does_not_place_what_it_was_made_of(there: Any) -> None:
    with fnx.default_device(there):
        x = jnp.asarray(A) + 0
        assert x.device is there and not x.committed
        y = fnx.device_put(x, there)
        assert y.committed and not x.committed
        donating = fnx.jit(lambda v: v + 1, donate_argnums=0)
        np.testing.assert_array_equal(donating(y), A + 1)
        np.testing.assert_array_equal(x, A)  # they shared memory


def test_traced_arrays_are_where_the_call_is(there: Any) -> None:
    f = fnx.jit(lambda x: fnx.device_put(x, there) * 2)
    np.testing.assert_array_equal(f(A), A * 2)


@pytest.mark.cases(1)
def test_jit_for_a_device(there: Any) -> None:
    """As in JAX: its results are committed to the device, whatever the arguments."""
    cpu = fnx.devices("cpu")[0]
    for device in (there, there.platform):
        f = fnx.jit(lambda x: x * 3, device=device)
        for x in (A, jnp.asarray(A), fnx.device_put(A, cpu), fnx.device_put(A, there)) * 3:
            y = f(x)
            assert y.committed and y.device is there and (y + jnp.asarray(A)).device is there
            np.testing.assert_array_equal(y, A * 3)
            z = fnx.jit(lambda y: y + 1)(y)
            assert z.committed and z.device is there
            same, double = fnx.jit(lambda x: (x, x * 2), device=device)(x)
            assert same.device is double.device is there and same.committed
            np.testing.assert_array_equal(same, A)
    with pytest.raises(PlacementError, match=r"placed at tests/devices/test_placement\.py:"):
        y + fnx.device_put(A, cpu)
    g = fnx.jit(lambda x: x * 3, device=cpu)
    for _ in range(3):
        y = g(fnx.device_put(A, there))
        assert y.committed and y.device is cpu


PROBE = """
import fnx, sys
x = fnx.numpy.ones(3) + 1
assert fnx.devices()[0].platform == "cpu" and x.device is fnx.devices()[0]
assert not [m for m in sys.modules if m.startswith("fnx.backends.gpu")]
assert "OpenCL" not in open("/proc/self/maps").read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_is_opened_that_nobody_names() -> None:
    subprocess.run([sys.executable, "-c", PROBE], check=True)


def test_work_in_flight_at_the_end_of_a_process() -> None:
    found("opencl")
    code = ("import fnx, fnx.numpy as jnp\nx = fnx.device_put(jnp.arange(4e4), 'opencl')\n"
            "for i in range(20): y = jnp.sort(jnp.cumsum(x + i)); z = y.sum()\n")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True)


def test_an_upload_does_not_wait_for_work(monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = found("opencl")
    waits: list[int] = []
    wait = device.driver.wait
    monkeypatch.setattr(device.driver, "wait", lambda v: waits.append(v) or wait(v))
    x = fnx.device_put(np.ones(1000, np.float32), "opencl")
    for i in range(200):
        x = x + fnx.device_put(np.full(1000, i, np.float32), "opencl")
    assert not waits
    assert float(x[0]) == 1 + sum(range(200))
    assert get_device("opencl") is device
