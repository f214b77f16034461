"""Trace cache of a function: by signature, and by the values that it captured.

    flag = True;  f(x)  ->  trace 1     (the signature is not known)
    flag = False; f(x)  ->  trace 2     (nor is this capture)
    flag = True;  f(x)  ->  trace 1     (both are cached)

A trace is never patched: another captured value means another trace. Captured arrays are operands
of the FUNCTION, so traces with captures of equal types give the identical node, and nothing is
compiled again.

No lock is held while f runs. Two threads may trace the same signature; the first insertion wins.

Functions of equal code share traces, so that ``jit(lambda ...)`` in a loop traces once:

    def step(lr):
        return jit(lambda x: x * lr)(x)        each call makes a new function; those with an
                                               equal lr have equal code and closure

Two functions share a trace if they have the same code, globals and options, and if their closures
and defaults are plain, equal values. (Values read from globals are checked as usual.) A trace that
captures memory is not cached here, as that would keep the memory alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any, Generic, TypeVar

from fnx.core.array.equality import StaticValue
from fnx.core.ir.cache import MEGABYTE, Cache, graph_bytes
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.errors import Location, warn
from fnx.core.support.line_visits import recording
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.core.tracing.trace import ClosedFunction, function_name
from fnx.transforms.dispatch.captures import VALUE_TYPES, Captures
from fnx.transforms.dispatch.executable import Executable
from fnx.transforms.dispatch.fastpath import Fastpath
from fnx.transforms.dispatch.signature import CallKey, describe_difference, short_repr

cache_explanations = lazy_import("fnx.transforms.dispatch.cache_explanations")
rule_demand = lazy_import("fnx.transforms.dispatch.rule_demand")

MAX_SIGNATURES = 256    # cached for each function; also of programs
TRACE_BYTES = 96 * MEGABYTE  # ... of a function
MAX_VARIANTS = 8        # traces cached for each signature
MAX_MISSES = 32         # explanations retained
WARN_AFTER = 5            # retraces due to one name or argument before a warning

T = TypeVar("T")


class CacheInfo(Record):
    """Counts of a jitted function. ``misses`` says why each trace after the first happened."""

    hits: int
    traces: int
    compiles: int
    entries: int
    misses: tuple[str, ...]


class TraceEntry(Record, Generic[T]):
    """A trace and its captures. ``lines`` are the user's lines that it ran."""

    captures: Captures
    value: T
    lines: frozenset[Location] = frozenset()


class TraceCache(Generic[T]):
    """Cache of the traces of ``f``. ``trace_count`` counts traces, ``misses`` explains them.

    A trace is a graph, or has an attribute ``graphs``, whose size counts toward the byte limit.

    ``f`` is called for the function, so that it can be a weak reference. With ``checks_rules`` a
    trace without the derivative rules that a call needs now is not used. ``explains``: whether
    another trace is a miss that the user should hear of.
    """

    def __init__(self, f: Callable[[], Any], checks_rules: bool = True, explains: bool = True
                 ) -> None:
        self._f, self._checks_rules, self._explains = f, checks_rules, explains
        self._entries: Cache[Any, list[TraceEntry[T]]] = Cache(
            "traces", MAX_SIGNATURES, TRACE_BYTES,
            lambda key, variants: graph_bytes([v.value for v in variants]))
        self._retraces: Counter[str] = Counter()
        self.hits = self.trace_count = 0
        self.misses: list[str] = []

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def __contains__(self, key: Any) -> bool:
        return self._entries.get(key) is not None

    def values(self) -> list[TraceEntry[T]]:
        """Return all cached traces, those of the most recently used signature last."""
        return [v for variants in self._entries.values() for v in variants]

    def clear(self) -> None:
        """Clear the cache."""
        self._entries.clear()

    def find(self, key: Any, make: Callable[[], tuple[T, list[UOp]]]) -> TraceEntry[T]:
        """Return the trace of a signature; ``make()`` returns a new one and the captured nodes."""
        if recording.recorder is not None:  # traces from before have no record of their lines
            return TraceEntry(Captures(self._f()), make()[0])
        entries = self._entries.get(key)
        hit = None if entries is None else self._find_valid(entries)
        if entries is not None and hit is not None:
            self.hits += 1
            if hit is not entries[-1]:  # most recently used last
                _discard(entries, hit)
                entries.append(hit)
            scope.record_lines(*hit.lines)
            return hit
        if self._explains:
            if config.read("jax_explain_cache_misses"):
                cache_explanations.log_miss(
                    self._f(), key, list(self._entries.keys()),
                    entries[-1].captures.find_change() if entries else None)
            self._explain(key, entries)
        (value, captures), lines = scope.collect_lines(make)
        entry = TraceEntry(Captures(self._f()), value, lines)
        if not entry.captures.determines_nodes(captures):
            self.trace_count += 1
            return entry
        entries = self._entries.put(key, []) if entries is None else entries
        for v in [v for v in entries if v.captures.is_dead()] + entries[:-MAX_VARIANTS + 1]:
            _discard(entries, v)
        entries.append(entry)
        self._entries.enforce_bounds(key)
        winner = self._find_valid(entries) or entry
        if winner is entry:
            self.trace_count += 1
        else:
            _discard(entries, entry)
        return winner

    def _find_valid(self, entries: list[TraceEntry[T]]) -> TraceEntry[T] | None:
        """Return the first variant whose captures are unchanged."""
        for v in list(entries):
            if v.captures.find_change() is None and (
                    not self._checks_rules or rule_demand.suits(v.value)):
                return v
        return None

    def _explain(self, key: Any, entries: list[TraceEntry[T]] | None) -> None:
        change = entries[-1].captures.find_change() if entries else None
        if change is not None:
            name, old, new = change
            self.record_miss(f"{name}: {short_repr(old)} -> {short_repr(new)}")
            if scope.is_open():  # captures often come from the outer trace
                return
            self._retraces[name] += 1
            if self._retraces[name] == WARN_AFTER:
                warn(f"{function_name(self._f())} was traced again {WARN_AFTER} times because "
                     f"{name!r}, which it reads from outside, was rebound (to {short_repr(new)} "
                     "now): pass it as an argument", RuntimeWarning)
        elif entries is None and len(self._entries):
            why = describe_difference(self._entries.keys()[-1], key)
            self.record_miss(why)
            name_part = why.partition(":")[0]
            self._retraces[name_part] += not scope.is_open()
            if self._retraces[name_part] == WARN_AFTER and not scope.is_open():
                warn(f"{function_name(self._f())} was traced again {WARN_AFTER} times because its "
                     f"arguments differed ({why} now): pad arrays to a few shapes, declare lengths "
                     "that vary by jit(dynamic=), pass a static argument as an array, or use a "
                     "function for each", RuntimeWarning)

    def record_miss(self, why: str) -> None:
        """Add why a trace did not hold for a call."""
        self.misses = [*self.misses[-MAX_MISSES + 1:], why]


def _discard(entries: list[TraceEntry[T]], v: TraceEntry[T]) -> None:
    with suppress(ValueError):  # another thread may have removed it
        entries.remove(v)


# ---- functions of equal code ---------------------------------------------------------------------

_MAX_SHARED, _SHARED_BYTES = 128, 64 * MEGABYTE
_PLAIN_TYPES = VALUE_TYPES | {type(None)}


class SharedTrace(Record):
    """A trace with its function, its captures, its program and the user's lines that it ran."""

    f: Callable[..., Any]
    captures: Captures
    closed: ClosedFunction
    executable: Executable
    lines: frozenset[Location]


class _SharedCode:
    """What functions of one code key share: traces by signature, the last one last, and launchers,
    the last one first."""

    __slots__ = ("traces", "fastpaths")

    def __init__(self) -> None:
        self.traces: dict[CallKey, SharedTrace] = {}
        self.fastpaths: list[Fastpath] = []

    def nbytes(self) -> int:
        """Estimate the memory of the traces and their programs."""
        return sum([trace.executable.nbytes + graph_bytes(trace.closed.function)
                    for trace in list(self.traces.values())])


_shared: Cache[tuple[Any, ...], _SharedCode] = Cache(
    "traces of equal code", _MAX_SHARED, _SHARED_BYTES, lambda key, shared: shared.nbytes())
_MAX_FASTPATHS = 4  # for each code key


def shared_fastpaths(code_key: tuple[Any, ...]) -> Sequence[Fastpath]:
    """Return the launchers of a code key; each checks by itself whether it applies."""
    shared = _shared.get(code_key)
    return () if shared is None else tuple(shared.fastpaths)


def share_fastpath(code_key: tuple[Any, ...], fastpath: Fastpath | None) -> None:
    """Cache the launcher of a cached trace for functions with equal code."""
    shared = _shared.get(code_key)
    if fastpath is not None and shared is not None:
        shared.fastpaths.insert(0, fastpath)
        del shared.fastpaths[_MAX_FASTPATHS:]


def find_shared(code_key: tuple[Any, ...], key: CallKey) -> SharedTrace | None:
    """Return the cached trace of a code key and a signature, if its captures are unchanged."""
    shared = _shared.get(code_key)
    trace = None if shared is None else shared.traces.get(key)
    return trace if trace is not None and trace.captures.find_change() is None else None


def share_trace(code_key: tuple[Any, ...], key: CallKey, trace: SharedTrace) -> None:
    """Cache a trace, replacing one whose captures have changed."""
    if trace.closed.captures or trace.closed.effects or find_shared(code_key, key) is not None:
        return
    traces = _shared.get_or_make(code_key, _SharedCode).traces
    traces.pop(key, None)
    for old in list(traces)[:-_MAX_SHARED + 1]:
        traces.pop(old, None)
    traces[key] = trace
    _shared.enforce_bounds(code_key)


def clear_shared() -> None:
    """Clear the cache of traces of equal code."""
    _shared.clear()


def drop_shared(code_key: tuple[Any, ...] | None) -> None:
    """Drop the traces and launchers of a code key."""
    if code_key is not None:
        _shared.remove(code_key)


def code_key(f: Callable[..., Any], *options: Any) -> tuple[Any, ...] | None:
    """Return the key of the code and closure of f. None if its trace cannot be shared.

    >>> def scaled(n):
    ...     return lambda x: x * n
    >>> code_key(scaled(2)) == code_key(scaled(2)) != code_key(scaled(2.0))
    True
    >>> code_key(scaled([2])) is None
    True
    """
    if type(f) is not FunctionType or f.__dict__:
        return None
    try:
        values = [cell.cell_contents for cell in f.__closure__ or ()]
    except ValueError:  # an unbound variable
        return None
    kwdefaults = f.__kwdefaults__ or {}
    values += [*(f.__defaults__ or ()), *kwdefaults.values()]
    if any(type(value) not in _PLAIN_TYPES for value in values):
        return None
    return (id(f.__code__), id(f.__globals__), f.__qualname__, tuple(map(StaticValue, values)),
            *kwdefaults, *options)
