"""Caches: bounded, least recently used first, the first value in wins, entries die with owners."""

from __future__ import annotations

import gc
import threading

from hypothesis import given
from hypothesis import strategies as st

from fnx.core.cache import Cache, CacheOf


@given(st.integers(1, 4), st.lists(st.integers(0, 6), max_size=40))
def test_a_cache_holds_what_was_used_last(limit: int, keys: list[int]) -> None:
    cache: Cache[int, str] = Cache(limit)
    used: list[int] = []
    for key in keys:
        assert (cache.get(key) is not None) == (key in used)
        assert cache.find(key, lambda key=key: str(key)) == str(key)
        used = [k for k in used if k != key][-limit + 1 if limit > 1 else len(used):] + [key]
        assert cache.keys() == used and len(cache) <= limit


def test_the_first_value_in_wins_and_no_lock_is_held_while_it_is_made() -> None:
    cache: Cache[str, object] = Cache(2)
    slow, fast = object(), object()

    def make() -> object:
        thread = threading.Thread(target=lambda: cache.find("key", lambda: fast))
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
        return slow

    assert cache.find("key", make) is fast and cache.find("key", lambda: slow) is fast


def test_entries_die_with_their_owner() -> None:
    class Owner:
        pass

    caches: CacheOf[Owner, int, int] = CacheOf(2)
    owners = [Owner() for _ in range(5)]
    for i, owner in enumerate(owners):
        assert caches.of(owner).find(0, lambda i=i: i) == i
    del owner, owners[1:]
    gc.collect()
    assert len(caches) == 1 and caches.of(owners[0]).find(0, lambda: 9) == 0
