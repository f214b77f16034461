"""One typed configuration. Each field says whether it takes part in cache keys.

>>> config.x64
False
>>> with override(x64=True):
...     config.x64
True
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from fnx.core.errors import ArgumentError

# name: (default, environment variable or None, changes generated code?, what it means)
FIELDS: dict[str, tuple[Any, str | None, bool, str]] = {
    "x64": (False, None, True, "64-bit data from NumPy and Python stays 64 bits wide"),
    "check_index": (False, None, True, "out-of-bounds indices that are data raise"),
    "check_spec": (False, "FNX_CHECK", False, "check every graph between all passes"),
    "device": ("cpu", "FNX_DEVICE", False, "where calls run: cpu, interp, null or trace"),
    "workers": (0, "FNX_WORKERS", False, "worker threads of the cpu queue; 0: one per core"),
    "cache_dir": (None, "FNX_CACHE_DIR", False, "object cache; empty turns it off"),
    "time_limit": (0.0, None, False, "seconds a wait may take; 0: no limit"),
}


class Config:
    """The configuration of this process; fields and their meaning are in ``FIELDS``."""

    x64: bool
    check_index: bool
    check_spec: bool
    device: str
    workers: int
    cache_dir: str | None
    time_limit: float

    def __init__(self) -> None:
        for name, (default, variable, _, _) in FIELDS.items():
            value = default
            if variable is not None and variable in os.environ:
                text = os.environ[variable]
                value = text not in ("", "0") if isinstance(default, bool) else \
                    int(text or 0) if isinstance(default, int) else text
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in FIELDS:
            raise ArgumentError(f"expected one of {', '.join(FIELDS)}; got {name!r}")
        object.__setattr__(self, name, value)

    def key(self) -> tuple[Any, ...]:
        """The fields that change generated code, for cache keys."""
        return tuple(getattr(self, name) for name, field in FIELDS.items() if field[2])


config = Config()


@contextlib.contextmanager
def override(**fields: Any) -> Iterator[None]:
    """Set fields for the length of a ``with`` block (of the whole process, not of a thread)."""
    old = {name: getattr(config, name) for name in fields}
    try:
        for name, value in fields.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in old.items():
            setattr(config, name, value)
