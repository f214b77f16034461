"""Devices for tests of user-written kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fnx.core.support.config import override


@pytest.fixture(params=["interp", "cpu"])
def device(request: Any) -> Iterator[str]:
    """The interpreter, or compiled code; specs are checked."""
    with override(device=request.param, check_spec=True):
        yield request.param
