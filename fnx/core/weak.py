"""Tables that follow the lives of objects, without bytecode that runs when one dies.

A callback in Python at an object's death runs wherever the interpreter happens to be: Ctrl-C that
is raised in it is printed and lost, and locks in it may be held by the code around. Here the
weak references themselves are appended to a deque, and looked at when something is added.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

from fnx.core.process import fork_safe_lock

K = TypeVar("K")
V = TypeVar("V")


_changing = fork_safe_lock()


class _Ref(weakref.ref[Any]):
    __slots__ = ("key", "value")
    key: int
    value: Any


class WeakMemo(Generic[K, V]):
    """Values by the identity of a key, for as long as the key lives (a value may not hold it).

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
        """The value of a key."""
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
            self._forget()
        ref = _Ref(key, self._dead.append)
        ref.key, ref.value = id(key), value
        with _changing:
            self._refs[ref.key] = ref

    def __len__(self) -> int:
        self._forget()
        return len(self._refs)

    def living(self) -> list[K]:
        """The keys."""
        return [key for ref in list(self._refs.values()) if (key := ref()) is not None]

    def _forget(self) -> None:
        for dead in drain(self._dead):
            with _changing:  # else another thread may put in an object that is now at this address
                if self._refs.get(dead.key) is dead:
                    del self._refs[dead.key]


class Deaths(Generic[V]):
    """What is left to be done for objects that died.

    >>> class Owner: pass
    >>> deaths, owner = Deaths(), Owner()
    >>> deaths.watch(owner, "its file")
    >>> del owner
    >>> list(deaths.take())
    ['its file']
    """

    def __init__(self) -> None:
        self._watched: dict[int, _Ref] = {}
        self._dead: deque[_Ref] = deque()

    def watch(self, owner: object, value: V) -> None:
        """Remember a value for the time after an owner's death."""
        ref = _Ref(owner, self._dead.append)
        ref.value = value
        self._watched[id(ref)] = ref

    def take(self) -> Iterator[V]:
        """The values of those that died, each once."""
        for dead in drain(self._dead):
            self._watched.pop(id(dead), None)
            yield dead.value

    def awaited(self) -> list[V]:
        """The values of those that live."""
        return [ref.value for ref in list(self._watched.values()) if ref() is not None]

    def forget(self) -> None:
        """Leave undone what was to be done."""
        self._watched.clear()
        self._dead.clear()


def drain(dead: deque[_Ref]) -> Iterator[_Ref]:
    """Take what is there; other threads may do so, too."""
    while dead:
        try:
            yield dead.popleft()
        except IndexError:
            return
