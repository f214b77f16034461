"""Cache of traces by code and closure, so that ``jit(lambda ...)`` in a loop traces once.

    def step(lr):
        return jit(lambda x: x * lr)(x)        each call makes a new function; those with an
                                               equal lr have equal code and closure

Two functions share a trace if they have the same code, globals and options, and if their closures
and defaults are plain, equal values. (Values read from globals are checked as usual.) A trace that
captures memory is not cached here, as that would keep the memory alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from fnx.core.array.equality import StaticValue
from fnx.core.ir.cache import MEGABYTE, Cache, graph_bytes
from fnx.core.support.record import Record
from fnx.core.tracing.trace import ClosedFunction
from fnx.transforms.dispatch.captures import VALUE_TYPES, Captures
from fnx.transforms.dispatch.executable import Executable
from fnx.transforms.dispatch.fastpath import Fastpath
from fnx.transforms.dispatch.signature import CallKey

_MAX_TRACES, _MAX_BYTES = 128, 64 * MEGABYTE
_PLAIN_TYPES = VALUE_TYPES | {type(None)}


class SharedTrace(Record):
    """A trace with its function, its captures and its program."""

    f: Callable[..., Any]
    captures: Captures
    closed: ClosedFunction
    executable: Executable


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
    "traces of equal code", _MAX_TRACES, _MAX_BYTES, lambda key, shared: shared.nbytes())
_MAX_FASTPATHS = 4  # for each code key


def find_fastpaths(code_key: tuple[Any, ...]) -> Sequence[Fastpath]:
    """Return the launchers of a code key; each checks by itself whether it applies."""
    shared = _shared.get(code_key)
    return () if shared is None else tuple(shared.fastpaths)


def cache_fastpath(code_key: tuple[Any, ...], fastpath: Fastpath | None) -> None:
    """Cache the launcher of a cached trace for functions with equal code."""
    shared = _shared.get(code_key)
    if fastpath is not None and shared is not None:
        shared.fastpaths.insert(0, fastpath)
        del shared.fastpaths[_MAX_FASTPATHS:]


def find_trace(code_key: tuple[Any, ...], key: CallKey) -> SharedTrace | None:
    """Return the cached trace of a code key and a signature, if its captures are unchanged."""
    shared = _shared.get(code_key)
    trace = None if shared is None else shared.traces.get(key)
    return trace if trace is not None and trace.captures.find_change() is None else None


def cache_trace(code_key: tuple[Any, ...], key: CallKey, trace: SharedTrace) -> None:
    """Cache a trace, replacing one whose captures have changed."""
    if trace.closed.captures or trace.closed.effects or find_trace(code_key, key) is not None:
        return
    traces = _shared.get_or_make(code_key, _SharedCode).traces
    traces.pop(key, None)
    for old in list(traces)[:-_MAX_TRACES + 1]:
        traces.pop(old, None)
    traces[key] = trace
    _shared.enforce_bounds(code_key)


def clear() -> None:
    """Clear the cache."""
    _shared.clear()


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
