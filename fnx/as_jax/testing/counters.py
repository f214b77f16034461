"""Blocks that count events: ``with count_jit_tracing_cache_miss() as count: ...; count()``.

>>> import fnx
>>> with count_jit_tracing_cache_miss() as count:
...     y = fnx.jit(lambda x: x + 0.125)(1.0)
>>> count()
1
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from fnx.core.support import events
from fnx.core.support.config import config

Count = Callable[[], int]


@contextlib.contextmanager
def _count(name: str) -> Iterator[Count]:
    seen: list[str] = []

    def listen(event: str, seconds: float, **metadata: Any) -> None:
        if event == name:
            seen.append(event)

    events.listeners["duration"].append(listen)
    try:
        yield lambda: len(seen)
    finally:
        events.listeners["duration"].remove(listen)


def count_jit_tracing_cache_miss() -> contextlib.AbstractContextManager[Count]:
    """Count the traces of jitted functions."""
    return _count(events.TRACE)


def count_jit_compilation_cache_miss() -> contextlib.AbstractContextManager[Count]:
    """Count the compilations."""
    return _count(events.COMPILE)


# A call that JAX's compiled dispatch does not know is traced or compiled; each lowering, too.
count_pjit_cpp_cache_miss = count_jit_tracing_cache_miss
count_aot_jit_cpp_cache_miss = count_jit_compilation_cache_miss
count_jit_and_pmap_lowerings = count_jit_compilation_cache_miss


@contextlib.contextmanager
def count_device_put() -> Iterator[Count]:
    """Count no transfers: all devices of fnx's default share the memory of the process."""
    yield lambda: 0


def count_primitive_compiles() -> contextlib.AbstractContextManager[Count]:
    """Count the compilations, also of operations that are called outside of jitted functions."""
    return count_jit_compilation_cache_miss()


# All devices of fnx's default share the memory of the process.
count_internal_device_puts = count_device_put_fast_path_hit = count_device_put
count_jax_array_shard_arg_calls = count_device_put


@contextlib.contextmanager
def assert_global_configs_unchanged() -> Iterator[None]:
    """Fail if a block changes a setting."""
    before = str(config)
    yield
    if str(config) != before:
        raise AssertionError(f"expected settings to stay {before}, got {config}")


@contextlib.contextmanager
def assert_num_jit_and_pmap_compilations(times: int) -> Iterator[None]:
    """Fail unless a block compiles as often as said."""
    with count_jit_compilation_cache_miss() as count:
        yield
    if count() != times:
        raise AssertionError(f"expected {times} compilations, got {count()}")
