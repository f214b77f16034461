"""Sorts run on the device, as a network of kernels, or by digits of the keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.lower.analysis import tuning
from tests.devices.conftest import on_device_or_recording


@pytest.fixture(params=["opencl", "webgpu", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with on_device_or_recording(request.param, monkeypatch) as found:
        yield found


def refuse(*args: Any) -> None:
    raise AssertionError("the host reads")


def numbers(n: int, dtype: str) -> Any:
    """Numbers with many equal ones; of floats, some that are not in order with others."""
    x = np.random.default_rng(n).integers(-9, 9, n)
    if dtype == "uint32":
        return x.astype(np.uint32)
    if not dtype.startswith("float"):
        return x.astype(dtype)
    special = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-42], dtype)
    return np.where(x < 2, x / 7, special[x % len(special)]).astype(dtype)


def sorts(x: Any) -> Any:
    rows = x[:len(x) // 2 * 2].reshape(2, -1)
    return (jnp.sort(x), jnp.argsort(x), jnp.argsort(x, descending=True), jnp.sort(rows, axis=0),
            jnp.argsort(rows), jnp.lexsort((x, x[::-1])))


@pytest.mark.cases(1)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint32", "bool", "float64",
                                   "int64"])
@pytest.mark.parametrize("n", [2, 3, 17, 100])
def test_sorts_equal_the_interpreter(device: Any, dtype: str, n: int,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    if dtype.endswith("64") and not device.target.has_64bit:
        pytest.skip("the device has no 64 bits")
    x = numbers(n, dtype)
    with override(device="interp"):
        want = [np.asarray(y) for y in fnx.jit(sorts)(x)]
    with monkeypatch.context() as patch:
        patch.setattr(device.driver, "read", refuse)
        got = fnx.jit(sorts)(jnp.asarray(x))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.cases(1)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint32", "bool", "float64",
                                   "int64"])
@pytest.mark.parametrize("n", [5, 1030])
def test_sorts_by_digits_equal_the_interpreter(device: Any, dtype: str, n: int,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NETWORK_STEPS_OF_A_DIGIT", 0)
    test_sorts_equal_the_interpreter(device, dtype, n, monkeypatch)


def test_a_million_are_sorted_on_the_device(opencl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(opencl.driver, "read", refuse)
        got = fnx.jit(lambda x: (jnp.sort(x), jnp.argsort(x)))(jnp.asarray(x))
    np.testing.assert_array_equal(np.asarray(got[0]), np.sort(x))
    np.testing.assert_array_equal(np.asarray(got[1]), np.argsort(x, kind="stable"))
