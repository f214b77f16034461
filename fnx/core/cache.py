"""Bounded caches: what was used least recently goes first.

>>> squares = Cache("squares", 2)
>>> [squares.find(n, lambda n=n: n * n) for n in (2, 3, 2, 4)]
[4, 9, 4, 16]
>>> squares.get(3) is None, len(squares)
(True, 2)

All of them can be asked what they hold, and emptied: what is needed again is made again.

>>> cache_sizes()["squares"]
2
>>> clear_caches()
>>> len(squares)
0

No lock is held, least of all while a value is made (user code, LLVM): two threads may make the
same value, then the first that is in wins and both get it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from fnx.core.weak import WeakMemo

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Owner = TypeVar("Owner")


class Cache(Generic[K, V]):
    """At most ``limit`` values by key; ``name`` says what they are."""

    __slots__ = ("__weakref__", "limit", "_entries")

    def __init__(self, name: str, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()
        _names[self] = name

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[V]:
        """All values, the most recently used last."""
        return list(self._entries.values())

    def keys(self) -> list[K]:
        """All keys, the most recently used last."""
        return list(self._entries)

    def get(self, key: K) -> V | None:
        """The value of a key, which counts as used now."""
        try:
            self._entries.move_to_end(key)
            return self._entries[key]
        except KeyError:
            return None

    def keep(self, key: K, value: V) -> V:
        """Store a value, unless there is one already: that which is there now."""
        found = self._entries.setdefault(key, value)
        while len(self._entries) > self.limit:
            with suppress(KeyError):  # another thread may have evicted it
                self._entries.popitem(last=False)
        return found

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none."""
        found = self.get(key)
        return self.keep(key, make()) if found is None else found

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()


_names: WeakMemo[Cache[Any, Any], str] = WeakMemo()  # of all caches


def cache_sizes() -> dict[str, int]:
    """How many entries are kept now, by name of cache."""
    sizes: Counter[str] = Counter()
    for cache in _names.living():
        sizes[_names[cache]] += len(cache)
    return dict(sizes)


def clear_caches() -> None:
    """Empty all caches in memory."""
    for cache in _names.living():
        cache.clear()


class CacheOf(Generic[Owner, K, V]):
    """A Cache for each of some objects, which dies with it: values must not hold their owner."""

    __slots__ = ("_caches", "limit", "name")

    def __init__(self, name: str, limit: int) -> None:
        self.name, self.limit = name, limit
        self._caches: WeakMemo[Owner, Cache[K, V]] = WeakMemo()

    def __len__(self) -> int:
        return len(self._caches)

    def of(self, owner: Owner) -> Cache[K, V]:
        """The cache of an object."""
        found = self._caches.get(owner)
        if found is None:
            found = self._caches[owner] = Cache(self.name, self.limit)
        return found


class cached(Generic[V]):
    """A property that is computed once. Unlike ``functools.cached_property`` of Python 3.11, which
    has a lock for each class, that a forked child may find closed.

    >>> class Circle:
    ...     @cached
    ...     def area(self):
    ...         print("computed")
    ...         return 3.14
    >>> circle = Circle()
    >>> circle.area, circle.area
    computed
    (3.14, 3.14)
    """

    def __init__(self, make: Callable[[Any], V]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __get__(self, owner: Any, kind: type) -> V:
        if owner is None:  # asked of the class, by a reader
            return cast(V, self)
        made: V = vars(owner).setdefault(self._make.__name__, self._make(owner))
        return made
