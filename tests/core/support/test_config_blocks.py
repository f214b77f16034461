"""Settings of a ``with`` block belong to the thread or task that entered it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
import fnx.sharding
from fnx.core.scope import scope
from fnx.core.support.config import FIELDS, config, override

OTHERS: dict[str, Any] = {
    "x64": True, "truncate": True, "check": "nan", "check_index": True, "tracebacks": "all",
    "device": "interp", "disable_jit": True, "no_tracing": True, "search": 1.0,
    "hoist_bytes": 1, "strip_bytes": 1, "time_limit": 9.0}


def test_tasks_have_settings_of_their_own() -> None:
    f = fnx.jit(lambda x: x + jnp.arange(3).sum())
    seen: dict[str, list[str]] = {"a": [], "b": []}

    async def task(name: str, x64: bool) -> None:
        with fnx.enable_x64(x64):
            for _ in range(8):  # by the general path, the fast path, the native call
                seen[name].append(str(f(jnp.arange(2)).dtype))
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(task("a", True), task("b", False))
    asyncio.run(both())
    assert seen == {"a": ["int64"] * 8, "b": ["int32"] * 8}
    assert str(f(jnp.arange(2)).dtype) == "int32"


@pytest.mark.parametrize("name", OTHERS)
def test_no_setting_leaks(name: str) -> None:
    before = getattr(config, name)
    inside, others = threading.Event(), threading.Event()

    def enter() -> None:
        with override(**{name: OTHERS[name]}):
            inside.set()
            others.wait(30)
    thread = threading.Thread(target=enter)
    thread.start()
    inside.wait(30)
    mode, seen, key = config.mode, getattr(config, name), config.key()
    others.set()
    thread.join()
    assert seen == before and mode is config.mode and key == config.key()


def test_of_the_process_are_assignments_and_what_all_share() -> None:
    seen = []
    with override(workers=3, check_spec=config.check_spec):
        thread = threading.Thread(target=lambda: seen.append((config.workers, config.time_limit)))
        config.time_limit = 7.0
        thread.start()
        thread.join()
    assert seen == [(3, 7.0)]
    config.time_limit = FIELDS["time_limit"].default
    assert config.workers != 3


def test_an_assignment_in_a_block_that_sets_it_ends_with_it() -> None:
    with override(search=1.0):
        config.search = 2.0
        assert config.search == 2.0 and "search = 2.0  (assigned)" in repr(config)
    assert config.search == FIELDS["search"].default


def test_a_task_keeps_a_block_no_longer_than_who_entered_it() -> None:
    seen = []

    async def child() -> None:
        seen.append(config.search)
        await asyncio.sleep(0.01)
        seen.append(config.search)

    async def parent() -> None:
        with override(search=1.0):
            task = asyncio.create_task(child())
            await asyncio.sleep(0)
        await task
    asyncio.run(parent())
    assert seen == [1.0, FIELDS["search"].default]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x64", "check_index", "search"]))))
@settings(max_examples=50)
def test_generators_that_end_in_any_order(steps: list[tuple[int, str]]) -> None:
    """Each step enters a block in a generator, or exits one that is open."""
    def block(name: str) -> Iterator[None]:
        with override(**{name: OTHERS[name]}):
            yield
    before, mode = config.key(), config.mode
    running: dict[int, tuple[str, Iterator[None]]] = {}
    for place, name in steps:
        if place in running:
            next(running.pop(place)[1], None)
        else:
            running[place] = name, block(name)
            next(running[place][1])
        names = {name for name, _ in running.values()}
        for field in ("x64", "check_index", "search"):
            assert (getattr(config, field) == OTHERS[field]) == (field in names)
        assert (config.mode is mode) == (not names)
    for _, generator in running.values():
        next(generator, None)
    assert config.key() == before and config.mode is mode


def test_blocks_that_end_by_an_error() -> None:
    blocks: list[AbstractContextManager[None]] = [fnx.enable_x64(), fnx.disable_jit()]
    with pytest.raises(ZeroDivisionError), ExitStack() as stack:
        for entered in blocks:
            stack.enter_context(entered)
        raise ZeroDivisionError
    assert not config.x64 and not config.disable_jit


def test_names_and_meshes_are_of_a_task_too() -> None:
    seen = {}

    async def task(name: str) -> None:
        with fnx.named_scope(name), fnx.sharding.set_mesh(
                fnx.sharding.make_mesh((1,), (name,))):
            await asyncio.sleep(0)
            seen[name] = [part for part, _ in scope._open_transforms()], \
                fnx.sharding.get_mesh().axis_names

    async def both() -> None:
        await asyncio.gather(task("a"), task("b"))
    asyncio.run(both())
    assert seen == {"a": (["a"], ("a",)), "b": (["b"], ("b",))}
