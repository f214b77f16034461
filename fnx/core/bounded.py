"""A bounded cache: the entries used last are kept, and no lock is held while one is made.

>>> squares = Bounded(2)
>>> [squares.find(n, lambda: n * n) for n in (3, 4, 3, 5)], list(squares)
([9, 16, 9, 25], [3, 5])
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class Bounded(Generic[V]):
    """At most ``most`` values by key. Two threads may both make one: the first to finish wins."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: dict[Hashable, V] = {}  # used last: at the end
        self._lock = threading.RLock()  # a finalizer may look up, too

    def find(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key; ``make()`` where there is none yet."""
        with self._lock:
            if key in self._values:
                found = self._values[key] = self._values.pop(key)
                return found
        made = make()
        with self._lock:
            made = self._values.setdefault(key, made)
            if len(self._values) > self.most:
                del self._values[next(iter(self._values))]
        return made

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()

    def __iter__(self) -> Iterator[Hashable]:
        return iter(tuple(self._values))

    def __len__(self) -> int:
        return len(self._values)
