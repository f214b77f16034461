"""Eight devices of the processor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fnx


@pytest.fixture(autouse=True)
def _eight_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = fnx.config.cpu_devices
    fnx.config.cpu_devices = 8
    yield
    fnx.config.cpu_devices = before


@pytest.fixture
def mesh() -> fnx.sharding.Mesh:
    return fnx.make_mesh((4, 2), ("a", "b"))
