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

_MAX_TRACES, _MAX_BYTES = 128, 64 * MEGABYTE
_PLAIN_TYPES = VALUE_TYPES | {type(None)}


class SharedTrace(Record):
    """A trace with its function, its captures and its program."""

    f: Callable[..., Any]
    captures: Captures
    closed: ClosedFunction
    executable: Executable


_traces: Cache[tuple[Any, ...], SharedTrace] = Cache(
    "traces of twins", _MAX_TRACES, _MAX_BYTES,
    lambda key, twin: twin.executable.nbytes + graph_bytes(twin.closed.function))


_fastpaths: Cache[tuple[Any, ...], list[Fastpath]] = Cache("launchers of twins", _MAX_TRACES)
_MAX_FASTPATHS = 4  # for each code key


def find_fastpaths(key: tuple[Any, ...]) -> Sequence[Fastpath]:
    """Return the launchers of a code key; each checks by itself whether it applies."""
    return tuple(_fastpaths.get(key) or ())


def cache_fastpath(key: tuple[Any, ...], fastpath: Fastpath | None) -> None:
    """Cache the launcher of a trace for functions with equal code."""
    if fastpath is not None:
        fastpaths = _fastpaths.get_or_make(key, list)
        fastpaths.insert(0, fastpath)
        del fastpaths[_MAX_FASTPATHS:]


def clear() -> None:
    """Clear the caches."""
    _traces.clear()
    _fastpaths.clear()


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


def find_trace(key: tuple[Any, ...]) -> SharedTrace | None:
    """Return the cached trace of a code key and a signature, if its captures are unchanged."""
    trace = _traces.get(key)
    return trace if trace is not None and trace.captures.find_change() is None else None


def cache_trace(key: tuple[Any, ...], trace: SharedTrace) -> None:
    """Cache a trace, replacing one whose captures have changed."""
    if trace.closed.captures or trace.closed.effects:
        return
    if _traces.get(key) is not None and find_trace(key) is None:
        _traces.remove(key)
    _traces.put(key, trace)
