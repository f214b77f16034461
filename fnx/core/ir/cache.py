"""Weak tables, and bounded LRU caches.

>>> squares = Cache("squares", 2)
>>> [squares.get_or_make(n, lambda n=n: n * n) for n in (2, 3, 2, 4)]
[4, 9, 4, 16]
>>> squares.get(3) is None, len(squares)
(True, 2)

If entries differ in size, a cache is also bounded by bytes: ``weigh`` estimates those of an entry.
An entry that alone exceeds the bound stays, as the only one: it is in use.

>>> texts = Cache("texts", 100, nbytes=10, weigh=lambda key, text: len(text))
>>> for text in ("aaaa", "bbbbb", "cc"):
...     texts.put(text[0], text) and None
>>> texts.keys(), texts.nbytes
(['b', 'c'], 7)

All caches can be listed and cleared:

>>> cache_sizes()["squares"]
2
>>> clear_caches()
>>> len(squares)
0

No lock is held, least of all while a value is made (user code, LLVM). Two threads may make the
same value; then the first insertion wins, and both get that value.

Weak tables run no bytecode when an object dies. A Python callback at an object's death runs
wherever the interpreter happens to be: a Ctrl-C raised in it is printed and lost, and locks that it
takes may be held by the interrupted code. Here the dead weak references are appended to a deque,
and processed when an entry is added.
"""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from fnx.core.ir.uop import UOp
from fnx.core.support.process import fork_safe_lock
from fnx.core.support.record import Record, values

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Owner = TypeVar("Owner")
P = ParamSpec("P")

# ---- weak tables --------------------------------------------------------------------------------


_lock = fork_safe_lock()


class _Ref(weakref.ref[Any]):
    __slots__ = ("key", "value")
    key: int
    value: Any


class WeakMemo(Generic[Owner, V]):
    """Values by the identity of a key, while the key lives (a value must not reference its key).

    >>> class Key: pass
    >>> memo, key = WeakMemo(), Key()
    >>> memo[key] = 1
    >>> memo.get(key), key in memo, len(memo)
    (1, True, 1)
    >>> del key
    >>> len(memo)
    0
    """

    def __init__(self) -> None:
        self._refs: dict[int, _Ref] = {}
        self._dead: deque[_Ref] = deque()

    def get(self, key: Owner) -> V | None:
        """Return the value of a key, or None."""
        ref = self._refs.get(id(key))
        return cast(V, ref.value) if ref is not None and ref() is key else None

    def __getitem__(self, key: Owner) -> V:
        ref = self._refs[id(key)]
        if ref() is not key:
            raise KeyError(key)
        return cast(V, ref.value)

    def __contains__(self, key: Owner) -> bool:
        ref = self._refs.get(id(key))
        return ref is not None and ref() is key

    def __setitem__(self, key: Owner, value: V) -> None:
        if self._dead:
            self._drop_dead()
        ref = _Ref(key, self._dead.append)
        ref.key, ref.value = id(key), value
        with _lock:
            self._refs[ref.key] = ref

    def __len__(self) -> int:
        self._drop_dead()
        return len(self._refs)

    def live_keys(self) -> list[Owner]:
        """Return the live keys."""
        return [key for ref in list(self._refs.values()) if (key := ref()) is not None]

    def _drop_dead(self) -> None:
        for dead in drain(self._dead):
            with _lock:  # another thread may insert a new object with the same address
                if self._refs.get(dead.key) is dead:
                    del self._refs[dead.key]


_memos: WeakMemo[Any, dict[Any, Any]] = WeakMemo()


def memos_of(owner: object) -> dict[Any, Any]:
    """Return the table of what was found out about an object, which lives as long as it."""
    memos = _memos.get(owner)
    if memos is None:
        memos = _memos[owner] = {}
    return memos


def find_memo(owner: object, key: Any) -> Any:
    """Return an entry of the table of an object, or None."""
    memos = _memos.get(owner)
    return None if memos is None else memos.get(key)


def memoized(f: Callable[Concatenate[Owner, P], V]) -> Callable[Concatenate[Owner, P], V]:
    """Memoize a function of an object, by its identity, and of hashable arguments.

    The results live as long as the object, so they must not reference it.

    >>> class Word(str): pass
    >>> @memoized
    ... def repeated(word, n):
    ...     print("computed")
    ...     return n * word
    >>> word = Word("ab")
    >>> repeated(word, 2), repeated(word, 2)
    computed
    ('abab', 'abab')
    """
    def lookup(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> V:
        memos, key = memos_of(owner), (f, args, *kwargs.items())
        if key not in memos:
            memos.setdefault(key, f(owner, *args, **kwargs))
        result: V = memos[key]
        return result
    update_wrapper(lookup, f)
    return lookup


class DeathQueue(Generic[V]):
    """A queue of values, each released by the death of an object.

    >>> class Owner: pass
    >>> deaths, owner = DeathQueue(), Owner()
    >>> deaths.watch(owner, "its file")
    >>> del owner
    >>> list(deaths.released())
    ['its file']
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Ref] = {}
        self._dead: deque[_Ref] = deque()

    def watch(self, owner: object, value: V) -> None:
        """Register a value to be released when its owner dies."""
        ref = _Ref(owner, self._dead.append)
        ref.value = value
        self._pending[id(ref)] = ref

    def released(self) -> Iterator[V]:
        """Yield the values of owners that died, each once."""
        for dead in drain(self._dead):
            self._pending.pop(id(dead), None)
            yield dead.value

    def pending(self) -> list[V]:
        """Return the values of owners that live."""
        return [ref.value for ref in list(self._pending.values()) if ref() is not None]

    def discard(self) -> None:
        """Discard all values."""
        self._pending.clear()
        self._dead.clear()


def drain(dead: deque[_Ref]) -> Iterator[_Ref]:
    """Yield and remove the entries of a deque; other threads may do the same."""
    while dead:
        try:
            yield dead.popleft()
        except IndexError:
            return


# ---- graphs, weighed ----------------------------------------------------------------------------


NODE_BYTES = 1000  # bytes of a node, measured with its table entry, its arg and its locations
MEGABYTE = 1 << 20


def find_graphs(state: Any) -> Sequence[UOp]:
    """Return the graphs in a value: itself, its ``graphs``, or those of its elements."""
    if isinstance(state, UOp):
        return (state,)
    graphs: Sequence[UOp] | None = getattr(state, "graphs", None)
    if graphs is not None:
        return graphs
    parts = values(state) if isinstance(state, Record) else \
        state if isinstance(state, (list, tuple)) else ()
    return [graph for part in parts for graph in find_graphs(part)]


def graph_bytes(state: Any) -> int:
    """Estimate the memory of the graphs in a value.

    The inside of a FUNCTION that they use is left out, as it is cached and counted by itself.
    """
    stack = list(find_graphs(state))
    seen = set(stack)
    while stack:
        for node in stack.pop().src:
            if node not in seen:
                seen.add(node)
                if not node.op.is_isolated:
                    stack.append(node)
    return NODE_BYTES * len(seen)


class Cache(Generic[K, V]):
    """An LRU cache of at most ``limit`` entries and ``max_bytes`` bytes; statistics show ``name``.

    Attributes:
        limit: maximum number of entries.
        max_bytes: maximum number of bytes, as ``weigh(key, value)`` estimates them.
        nbytes: bytes of the present entries.
    """

    __slots__ = ("__weakref__", "limit", "max_bytes", "nbytes", "_entries", "_weigh", "_weights")

    def __init__(self, name: str, limit: int, nbytes: int = 0,
                 weigh: Callable[[K, V], int] | None = None) -> None:
        self.limit, self.max_bytes, self._weigh = limit, nbytes, weigh
        self.nbytes = 0
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        _names[self] = name

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[V]:
        """Return all values, the most recently used last."""
        try:
            return list(self._entries.values())
        except RuntimeError:  # another thread changed it; this copy, unordered, is atomic
            return list(dict.values(self._entries))

    def keys(self) -> list[K]:
        """Return all keys, the most recently used last."""
        try:
            return list(self._entries)
        except RuntimeError:  # as in ``values``
            return list(dict.keys(self._entries))

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None, and mark it as used."""
        try:
            self._entries.move_to_end(key)
            return self._entries[key]
        except KeyError:
            return None

    def put(self, key: K, value: V) -> V:
        """Insert a value unless the key has one; return the value that the key has now."""
        present = self._entries.setdefault(key, value)
        if present is value:
            self.enforce_bounds(key)
        return present

    def enforce_bounds(self, key: K) -> None:
        """Enforce the bounds after an entry was added or its value has grown."""
        if self._weigh is not None and (value := self._entries.get(key)) is not None:
            weight = self._weigh(key, value)
            self.nbytes += weight - self._weights.get(key, 0)
            self._weights[key] = weight
            if self.nbytes > self.max_bytes:  # recount, as two threads may have added at once
                self.nbytes = sum(list(self._weights.values()))
        while len(self._entries) > self.limit or self.nbytes > self.max_bytes and \
                len(self._entries) > 1:
            with suppress(KeyError):  # another thread may have evicted it
                old, _ = self._entries.popitem(last=False)
                self.nbytes -= self._weights.pop(old, 0)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made if there is none."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value

    def remove(self, key: K) -> None:
        """Remove a key."""
        self._entries.pop(key, None)
        self.nbytes -= self._weights.pop(key, 0)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._weights.clear()
        self.nbytes = 0


_names: WeakMemo[Cache[Any, Any], str] = WeakMemo()  # of all caches


def cache_sizes() -> dict[str, int]:
    """Return the number of entries, by name of cache."""
    sizes: Counter[str] = Counter()
    for cache in _names.live_keys():
        sizes[_names[cache]] += len(cache)
    return dict(sizes)


def cache_bytes() -> dict[str, int]:
    """Return the bytes of the entries, by name of cache, of caches that are bounded by bytes."""
    sizes: Counter[str] = Counter()
    for cache in _names.live_keys():
        sizes[_names[cache]] += cache.nbytes
    return dict(+sizes)


clear_hooks: list[Callable[[], None]] = []  # hooks of clear_caches: drop what was made from entries


def clear_caches() -> None:
    """Clear all in-memory caches: functions are traced anew.

    >>> clear_caches()
    """
    for cache in _names.live_keys():
        cache.clear()
    for forget in clear_hooks:
        forget()


class cached_property(Generic[V]):
    """A property that is computed once.

    Unlike ``functools.cached_property`` of Python 3.11 it has no lock per class, which a forked
    child could find locked.

    >>> class Circle:
    ...     @cached_property
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
        if owner is None:  # accessed on the class, by documentation tools
            return cast(V, self)
        value: V = vars(owner).setdefault(self._make.__name__, self._make(owner))
        return value
