"""Devices that may be missing: a test requests one by its fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fnx.backends.device.base import DeviceBase, get_device
from fnx.core.array import eager_cache
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError
from tests.devices.recording_cuda import recording


def found(name: str) -> DeviceBase:
    """Return a device. If it is missing, skip the test, or fail it if ``TESTED_DEVICES`` names the
    device."""
    try:
        return get_device(name)
    except DeviceError as why:
        if name in os.environ.get("TESTED_DEVICES", "").split():
            raise
        pytest.skip(str(why))


@contextmanager
def on_device(name: str) -> Iterator[DeviceBase]:
    """Run everything inside on the device."""
    device = found(name)
    eager_cache.clear_cache()
    with override(device=name):
        yield device
    eager_cache.clear_cache()


@contextmanager
def on_device_or_recording(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run everything inside on the device; on CUDA, with its calls recorded."""
    if name != "cuda":
        with on_device(name) as device:
            yield device
        return
    with recording(monkeypatch) as made, override(device="cuda"):
        yield made


@pytest.fixture
def opencl() -> Iterator[DeviceBase]:
    """The OpenCL device, for the whole test."""
    with on_device("opencl") as device:
        yield device


@pytest.fixture
def webgpu() -> Iterator[DeviceBase]:
    """The WebGPU device, for the whole test."""
    with on_device("webgpu") as device:
        yield device
