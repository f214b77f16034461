"""Devices that may not be there: what runs on one asks for it by its fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fnx.backends.base import DeviceBase, get_device
from fnx.core.array import eager_cache
from fnx.core.config import override
from fnx.core.errors import DeviceError


def found(name: str) -> DeviceBase:
    """A device; where it is not here and ``TESTED_DEVICES`` names it, the test fails."""
    try:
        return get_device(name)
    except DeviceError as why:
        if name in os.environ.get("TESTED_DEVICES", "").split():
            raise
        pytest.skip(str(why))


@contextmanager
def on_device(name: str) -> Iterator[DeviceBase]:
    """All that is computed inside is computed there."""
    device = found(name)
    eager_cache.clear_cache()
    with override(device=name):
        yield device
    eager_cache.clear_cache()


@pytest.fixture
def opencl() -> Iterator[DeviceBase]:
    """OpenCL's, for the whole test."""
    with on_device("opencl") as device:
        yield device


@pytest.fixture
def webgpu() -> Iterator[DeviceBase]:
    """WebGPU's, for the whole test."""
    with on_device("webgpu") as device:
        yield device
