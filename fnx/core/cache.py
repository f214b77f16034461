"""Bounded caches: what was used least recently goes first.

>>> squares = Cache("squares", 2)
>>> [squares.find(n, lambda n=n: n * n) for n in (2, 3, 2, 4)]
[4, 9, 4, 16]
>>> squares.get(3) is None, len(squares)
(True, 2)

Where entries differ in size, a cache is bounded by bytes, too: ``weigh`` estimates those of an
entry. One that alone is more than that is kept, by itself: it is the one in use.

>>> texts = Cache("texts", 100, nbytes=10, weigh=lambda key, text: len(text))
>>> for text in ("aaaa", "bbbbb", "cc"):
...     texts.keep(text[0], text) and None
>>> texts.keys(), texts.nbytes
(['b', 'c'], 7)

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
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar, cast

from fnx.core.record import Record, values
from fnx.core.uop import UOp
from fnx.core.weak import WeakMemo

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Owner = TypeVar("Owner")


NODE = 1000  # bytes of a node: measured, with its entry in the table, its arg and its lines
MEGABYTE = 1 << 20


def graphs_of(state: Any) -> Sequence[UOp]:
    """The graphs in something: itself, its ``graphs``, or those in the parts of it."""
    if isinstance(state, UOp):
        return (state,)
    graphs: Sequence[UOp] | None = getattr(state, "graphs", None)
    if graphs is not None:
        return graphs
    parts = values(state) if isinstance(state, Record) else \
        state if isinstance(state, (list, tuple)) else ()
    return [graph for part in parts for graph in graphs_of(part)]


def graph_bytes(state: Any) -> int:
    """An estimate of the memory of the graphs in something. What is inside a FUNCTION that they
    use is left out: it is kept, and counted, by itself."""
    stack = list(graphs_of(state))
    seen = set(stack)
    while stack:
        for node in stack.pop().src:
            if node not in seen:
                seen.add(node)
                if not node.op.closed:
                    stack.append(node)
    return NODE * len(seen)


class Cache(Generic[K, V]):
    """At most ``limit`` values by key, of ``most`` bytes; ``name`` says what they are.

    Attributes:
        limit: how many entries are kept.
        most: of how many bytes, as ``weigh(key, value)`` estimates them.
        nbytes: the bytes of those that are kept now.
    """

    __slots__ = ("__weakref__", "limit", "most", "nbytes", "_entries", "_weigh", "_weights")

    def __init__(self, name: str, limit: int, nbytes: int = 0,
                 weigh: Callable[[K, V], int] | None = None) -> None:
        self.limit, self.most, self._weigh = limit, nbytes, weigh
        self.nbytes = 0
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        _names[self] = name

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[V]:
        """All values, the most recently used last."""
        try:
            return list(self._entries.values())
        except RuntimeError:  # another thread changed it: as they lie, which no thread interrupts
            return list(dict.values(self._entries))

    def keys(self) -> list[K]:
        """All keys, the most recently used last."""
        try:
            return list(self._entries)
        except RuntimeError:  # as in ``values``
            return list(dict.keys(self._entries))

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
        if found is value:
            self.weigh(key)
        return found

    def weigh(self, key: K) -> None:
        """See to the bounds when an entry is there, or when its value has grown."""
        if self._weigh is not None and (value := self._entries.get(key)) is not None:
            weight = self._weigh(key, value)
            self.nbytes += weight - self._weights.get(key, 0)
            self._weights[key] = weight
            if self.nbytes > self.most:  # counted anew: two threads may have added at once
                self.nbytes = sum(list(self._weights.values()))
        while len(self._entries) > self.limit or self.nbytes > self.most and \
                len(self._entries) > 1:
            with suppress(KeyError):  # another thread may have evicted it
                old, _ = self._entries.popitem(last=False)
                self.nbytes -= self._weights.pop(old, 0)

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none."""
        found = self.get(key)
        return self.keep(key, make()) if found is None else found

    def drop(self, key: K) -> None:
        """Forget the value of a key."""
        self._entries.pop(key, None)
        self.nbytes -= self._weights.pop(key, 0)

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self._weights.clear()
        self.nbytes = 0


_names: WeakMemo[Cache[Any, Any], str] = WeakMemo()  # of all caches


def cache_sizes() -> dict[str, int]:
    """How many entries are kept now, by name of cache."""
    sizes: Counter[str] = Counter()
    for cache in _names.living():
        sizes[_names[cache]] += len(cache)
    return dict(sizes)


def cache_bytes() -> dict[str, int]:
    """Of how many bytes those entries are that are bounded by bytes, by name of cache."""
    sizes: Counter[str] = Counter()
    for cache in _names.living():
        sizes[_names[cache]] += cache.nbytes
    return dict(+sizes)


emptied: list[Callable[[], None]] = []  # what else is done then: forget what was made of entries


def clear_caches() -> None:
    """Empty all caches in memory: what was traced is traced anew.

    >>> clear_caches()
    """
    for cache in _names.living():
        cache.clear()
    for forget in emptied:
        forget()


class CacheOf(Generic[Owner, K, V]):
    """A Cache for each of some objects, which dies with it: values must not hold their owner."""

    __slots__ = ("_caches", "_make")

    def __init__(self, name: str, limit: int, nbytes: int = 0,
                 weigh: Callable[[K, V], int] | None = None) -> None:
        self._make = partial(Cache[K, V], name, limit, nbytes, weigh)
        self._caches: WeakMemo[Owner, Cache[K, V]] = WeakMemo()

    def __len__(self) -> int:
        return len(self._caches)

    def of(self, owner: Owner) -> Cache[K, V]:
        """The cache of an object."""
        found = self._caches.get(owner)
        if found is None:
            found = self._caches[owner] = self._make()
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
