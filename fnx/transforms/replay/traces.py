"""Traces of a function: by signature, and by the values that it read from outside.

    flag = True;  f(x)  ->  trace 1     (the signature is not known)
    flag = False; f(x)  ->  trace 2     (nor is this value)
    flag = True;  f(x)  ->  trace 1     (both are kept)

Nothing is ever put into a trace in the place of something else: another value outside is
another trace. Arrays from outside are operands of the FUNCTION, so that is the identical node
where they have the same types, and nothing compiles again.

No lock is held while f runs. Two threads may trace the same thing; the first that is in wins.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from fnx.core.array import scope
from fnx.core.array.trace import name_of
from fnx.core.cache import MEGABYTE, Cache, graph_bytes
from fnx.core.errors import user_site
from fnx.core.record import Record
from fnx.core.uop import UOp
from fnx.transforms.replay.captures import Captures
from fnx.transforms.replay.signature import difference, short

MAX_SIGNATURES = 256    # kept for each function, and programs
TRACE_BYTES = 96 * MEGABYTE  # ... of a function
MAX_VARIANTS = 8        # traces kept for each signature
MAX_MISSES = 32         # explanations kept
PATIENCE = 5            # traces because of one name or argument before it is said aloud

T = TypeVar("T")


class CacheInfo(Record):
    """Counts of a jitted function. ``misses`` says why each trace after the first happened."""

    hits: int
    traces: int
    compiles: int
    entries: int
    misses: tuple[str, ...]


class Variant(Record, Generic[T]):
    """A trace, and what it read from outside."""

    captures: Captures
    value: T


class Traces(Generic[T]):
    """What ``f`` was traced to. ``made`` counts the traces that were kept, ``misses`` says why.

    A trace is a graph, or has ``graphs``, by which it is counted.

    ``f`` is a reference to the function, so that what is remembered of it may die with it.
    """

    def __init__(self, f: Callable[[], Any]) -> None:
        self._f = f
        self._kept: Cache[Any, list[Variant[T]]] = Cache(
            "traces", MAX_SIGNATURES, TRACE_BYTES,
            lambda key, variants: graph_bytes([v.value for v in variants]))
        self._rebound: Counter[str] = Counter()
        self.hits = self.made = 0
        self.misses: list[str] = []

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def __contains__(self, key: Any) -> bool:
        return self._kept.get(key) is not None

    def values(self) -> list[Variant[T]]:
        """All that are kept, of the most recently used signature last."""
        return [v for variants in self._kept.values() for v in variants]

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def find(self, key: Any, make: Callable[[], tuple[T, list[UOp]]]) -> Variant[T]:
        """The trace of a signature; ``make()`` gives it with the nodes that it captured."""
        variants = self._kept.get(key)
        found = None if variants is None else _valid(variants)
        if variants is not None and found is not None:
            self.hits += 1
            if found is not variants[-1]:  # the last is the one used last
                _discard(variants, found)
                variants.append(found)
            return found
        self._explain(key, variants)
        value, captures = make()
        made = Variant(Captures(self._f()), value)
        if not made.captures.determine(captures):
            self.made += 1
            return made
        variants = self._kept.keep(key, []) if variants is None else variants
        for v in [v for v in variants if v.captures.gone()] + variants[:-MAX_VARIANTS + 1]:
            _discard(variants, v)
        variants.append(made)
        self._kept.weigh(key)
        first = _valid(variants) or made
        if first is made:
            self.made += 1
        else:
            _discard(variants, made)
        return first

    def _explain(self, key: Any, variants: list[Variant[T]] | None) -> None:
        change = variants[-1].captures.changed() if variants else None
        if change is not None:
            name, then, now = change
            self._say(f"{name}: {short(then)} -> {short(now)}")
            if scope.is_open():  # where what is read is often made by the trace around it
                return
            self._rebound[name] += 1
            if self._rebound[name] == PATIENCE:
                _warn(f"{name_of(self._f())} was traced again {PATIENCE} times because {name!r}, "
                      f"which it reads from outside, was rebound (to {short(now)} now): pass it "
                      "as an argument")
        elif variants is None and len(self._kept):
            why = difference(self._kept.keys()[-1], key)
            self._say(why)
            place = why.partition(":")[0]
            self._rebound[place] += not scope.is_open()
            if self._rebound[place] == PATIENCE and not scope.is_open():
                _warn(f"{name_of(self._f())} was traced again {PATIENCE} times because its "
                      f"arguments differed ({why} now): pad arrays to a few shapes, make a "
                      "static argument one that is data, or make a function for each")

    def _say(self, why: str) -> None:
        self.misses = [*self.misses[-MAX_MISSES + 1:], why]


def _valid(variants: list[Variant[T]]) -> Variant[T] | None:
    """The first whose captures all hold."""
    for v in list(variants):
        if v.captures.changed() is None:
            return v
    return None


def _discard(variants: list[Variant[T]], v: Variant[T]) -> None:
    with suppress(ValueError):  # another thread may have removed it
        variants.remove(v)


def _warn(text: str) -> None:
    file, line = user_site() or ("<unknown>", 0)
    warnings.warn_explicit(text, RuntimeWarning, file, line)
