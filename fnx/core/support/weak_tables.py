"""Weak tables that run no bytecode when an object dies.

A Python callback at an object's death runs wherever the interpreter happens to be: a Ctrl-C raised
in it is printed and lost, and locks that it takes may be held by the interrupted code. Here the
dead weak references are appended to a deque, and processed when an entry is added.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

from fnx.core.support.process import fork_safe_lock

K = TypeVar("K")
V = TypeVar("V")


_lock = fork_safe_lock()


class _Ref(weakref.ref[Any]):
    __slots__ = ("key", "value")
    key: int
    value: Any


class WeakMemo(Generic[K, V]):
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

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        ref = self._refs.get(id(key))
        return cast(V, ref.value) if ref is not None and ref() is key else None

    def __getitem__(self, key: K) -> V:
        ref = self._refs[id(key)]
        if ref() is not key:
            raise KeyError(key)
        return cast(V, ref.value)

    def __contains__(self, key: K) -> bool:
        ref = self._refs.get(id(key))
        return ref is not None and ref() is key

    def __setitem__(self, key: K, value: V) -> None:
        if self._dead:
            self._drop_dead()
        ref = _Ref(key, self._dead.append)
        ref.key, ref.value = id(key), value
        with _lock:
            self._refs[ref.key] = ref

    def __len__(self) -> int:
        self._drop_dead()
        return len(self._refs)

    def live_keys(self) -> list[K]:
        """Return the live keys."""
        return [key for ref in list(self._refs.values()) if (key := ref()) is not None]

    def _drop_dead(self) -> None:
        for dead in drain(self._dead):
            with _lock:  # another thread may insert a new object with the same address
                if self._refs.get(dead.key) is dead:
                    del self._refs[dead.key]


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
