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

from fnx.core.array.equality import Static
from fnx.core.array.trace import Closed
from fnx.core.cache import MEGABYTE, Cache, graph_bytes
from fnx.core.record import Record
from fnx.transforms.replay.captures import BY_VALUE, Captures
from fnx.transforms.replay.executable import Executable
from fnx.transforms.replay.launcher import Launcher

_LIMIT, _BYTES = 128, 64 * MEGABYTE
_PLAIN = BY_VALUE | {type(None)}


class Twin(Record):
    """A trace with its function, its captures and its program."""

    f: Callable[..., Any]
    captures: Captures
    closed: Closed
    executable: Executable


_kept: Cache[tuple[Any, ...], Twin] = Cache(
    "traces of twins", _LIMIT, _BYTES,
    lambda key, twin: twin.executable.nbytes + graph_bytes(twin.closed.function))


_launchers: Cache[tuple[Any, ...], list[Launcher]] = Cache("launchers of twins", _LIMIT)
_MOST = 4  # for each code key


def launchers(of: tuple[Any, ...]) -> Sequence[Launcher]:
    """Return the launchers of a code key; each checks by itself whether it applies."""
    return tuple(_launchers.get(of) or ())


def keep_launcher(of: tuple[Any, ...], launch: Launcher | None) -> None:
    """Cache the launcher of a trace for functions with equal code."""
    if launch is not None:
        found = _launchers.find(of, list)
        found.insert(0, launch)
        del found[_MOST:]


def forget() -> None:
    """Clear the caches."""
    _kept.clear()
    _launchers.clear()


def family(f: Callable[..., Any], *options: Any) -> tuple[Any, ...] | None:
    """Return the key of the code and closure of f. None if its trace cannot be shared.

    >>> def scaled(n):
    ...     return lambda x: x * n
    >>> family(scaled(2)) == family(scaled(2)) != family(scaled(2.0))
    True
    >>> family(scaled([2])) is None
    True
    """
    if type(f) is not FunctionType or f.__dict__:
        return None
    try:
        values = [cell.cell_contents for cell in f.__closure__ or ()]
    except ValueError:  # an unbound variable
        return None
    named = f.__kwdefaults__ or {}
    values += [*(f.__defaults__ or ()), *named.values()]
    if any(type(value) not in _PLAIN for value in values):
        return None
    return (id(f.__code__), id(f.__globals__), f.__qualname__, tuple(map(Static, values)),
            *named, *options)


def find(key: tuple[Any, ...]) -> Twin | None:
    """Return the cached trace of a code key and a signature, if its captures are unchanged."""
    found = _kept.get(key)
    return found if found is not None and found.captures.changed() is None else None


def keep(key: tuple[Any, ...], twin: Twin) -> None:
    """Cache a trace, replacing one whose captures have changed."""
    if twin.closed.captures or twin.closed.effects:
        return
    if _kept.get(key) is not None and find(key) is None:
        _kept.drop(key)
    _kept.keep(key, twin)
