"""Caches are bounded, evict the least recently used entry, keep the first value for a key, and drop
entries of dead owners."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
import threading
from weakref import ref

from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir.cache import Cache, cache_sizes, clear_caches, memoized, memos_of


@given(st.integers(1, 4), st.lists(st.integers(0, 6), max_size=40))
def test_a_cache_holds_what_was_used_last(limit: int, keys: list[int]) -> None:
    cache: Cache[int, str] = Cache("texts", limit)
    used: list[int] = []
    for key in keys:
        assert (cache.get(key) is not None) == (key in used)
        assert cache.get_or_make(key, lambda key=key: str(key)) == str(key)
        used = [k for k in used if k != key][-limit + 1 if limit > 1 else len(used):] + [key]
        assert cache.keys() == used and len(cache) <= limit


def test_the_first_value_in_wins_and_no_lock_is_held_while_it_is_made() -> None:
    cache: Cache[str, object] = Cache("objects", 2)
    slow, fast = object(), object()

    def make() -> object:
        thread = threading.Thread(target=lambda: cache.get_or_make("key", lambda: fast))
        thread.start()
        thread.join(200)
        assert not thread.is_alive()
        return slow

    assert cache.get_or_make("key", make) is fast and cache.get_or_make("key", lambda: slow) is fast


def test_entries_die_with_their_owner() -> None:
    class Owner:
        pass

    class Value:
        pass

    made: list[int] = []

    @memoized
    def count(owner: Owner, more: int) -> Value:
        made.append(more)
        return Value()

    owners = [Owner() for _ in range(5)]
    values = [ref(count(owner, more)) for owner in owners for more in (0, 1) for _ in range(2)]
    assert made == 5 * [0, 1] and len(set(values)) == 10
    del owners[1:]
    gc.collect()
    assert not memos_of(Owner())  # those of the dead are dropped when one is added
    assert [value() is None for value in values] == 4 * [False] + 16 * [True]


def test_all_caches_are_listed_and_emptied_and_results_stay_right() -> None:
    double = fnx.jit(fnx.grad(lambda x: (x * x).sum()))
    kept: Cache[str, int] = Cache("of this test", 3)
    for _ in range(2):
        assert double(jnp.ones(3))[0] == 2 and kept.get_or_make("key", lambda: 1) == 1
        sizes = cache_sizes()
        assert sizes["of this test"] == 1 and sizes["results of passes"] and sizes["executables"]
        clear_caches()
        assert not any(cache_sizes().values())
    del kept
    assert "of this test" not in cache_sizes()


class Meddling:
    """A key whose hash lets another thread run: here it adds an entry."""

    def __init__(self, cache: Cache[object, int]) -> None:
        self.cache, self.armed = cache, False

    def __hash__(self) -> int:
        if self.armed:
            self.armed = False
            self.cache.put("more", 2)
        return 1


def test_a_cache_is_listed_while_other_threads_use_it() -> None:
    for listed in (Cache.values, Cache.keys):
        cache: Cache[object, int] = Cache("listed", 10)
        key = Meddling(cache)
        cache.put(key, 0)
        cache.put("other", 1)
        key.armed = True
        assert set(listed(cache)) == ({0, 1, 2} if listed is Cache.values
                                      else {key, "other", "more"})


def test_there_are_few_caches() -> None:
    script = pathlib.Path(__file__).parents[3] / "scripts" / "count_caches.py"
    found = subprocess.run([sys.executable, str(script), "--at-most", "3"], capture_output=True,
                           text=True, check=False)
    assert found.returncode == 1 and "Cache of 'traces'" in found.stdout, found.stdout
    assert int(found.stdout.split()[-2]) <= 14, found.stdout
