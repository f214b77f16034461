"""Trace cache of a function: by signature, and by the values that it captured.

    flag = True;  f(x)  ->  trace 1     (the signature is not known)
    flag = False; f(x)  ->  trace 2     (nor is this capture)
    flag = True;  f(x)  ->  trace 1     (both are cached)

A trace is never patched: another captured value means another trace. Captured arrays are operands
of the FUNCTION, so traces with captures of equal types give the identical node, and nothing is
compiled again.

No lock is held while f runs. Two threads may trace the same signature; the first insertion wins.
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

MAX_SIGNATURES = 256    # cached for each function; also of programs
TRACE_BYTES = 96 * MEGABYTE  # ... of a function
MAX_VARIANTS = 8        # traces cached for each signature
MAX_MISSES = 32         # explanations retained
PATIENCE = 5            # retraces due to one name or argument before a warning

T = TypeVar("T")


class CacheInfo(Record):
    """Counts of a jitted function. ``misses`` says why each trace after the first happened."""

    hits: int
    traces: int
    compiles: int
    entries: int
    misses: tuple[str, ...]


class Variant(Record, Generic[T]):
    """A trace and its captures."""

    captures: Captures
    value: T


class Traces(Generic[T]):
    """Cache of the traces of ``f``. ``made`` counts traces, ``misses`` explains them.

    A trace is a graph, or has an attribute ``graphs``, whose size counts toward the byte limit.

    ``f`` is called for the function, so that it can be a weak reference.
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
        """Return all cached traces, those of the most recently used signature last."""
        return [v for variants in self._kept.values() for v in variants]

    def clear(self) -> None:
        """Clear the cache."""
        self._kept.clear()

    def find(self, key: Any, make: Callable[[], tuple[T, list[UOp]]]) -> Variant[T]:
        """Return the trace of a signature; ``make()`` returns a new one and the captured nodes."""
        variants = self._kept.get(key)
        found = None if variants is None else _valid(variants)
        if variants is not None and found is not None:
            self.hits += 1
            if found is not variants[-1]:  # most recently used last
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
            if scope.is_open():  # captures often come from the outer trace
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
    """Return the first variant whose captures are unchanged."""
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
