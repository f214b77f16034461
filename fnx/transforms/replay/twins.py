"""Functions that are the same: ``jit(f)(x)``, written at each call, traces once.

    def step(lr):
        return jit(lambda x: x * lr)(x)        each call has a function of its own; those with an
                                               equal lr have the same code, reading equal values

Two functions are twins if they have the same code, globals and options, and what they have closed
over and their defaults are plain values, and the same. (What they read from globals is looked at
as ever.) A trace that captures memory is not kept here: it would keep the memory, too.
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
    """A trace, what it was of, what it read from outside, and its program."""

    f: Callable[..., Any]
    captures: Captures
    closed: Closed
    executable: Executable


_kept: Cache[tuple[Any, ...], Twin] = Cache(
    "traces of twins", _LIMIT, _BYTES,
    lambda key, twin: twin.executable.nbytes + graph_bytes(twin.closed.function))


_launchers: Cache[tuple[Any, ...], list[Launcher]] = Cache("launchers of twins", _LIMIT)
_MOST = 4  # of a family


def launchers(of: tuple[Any, ...]) -> Sequence[Launcher]:
    """Those of a family: each looks itself whether it is meant."""
    return tuple(_launchers.get(of) or ())


def keep_launcher(of: tuple[Any, ...], launch: Launcher | None) -> None:
    """Keep the launcher of a trace that twins of a family take."""
    if launch is not None:
        found = _launchers.find(of, list)
        found.insert(0, launch)
        del found[_MOST:]


def forget() -> None:
    """Forget all twins."""
    _kept.clear()
    _launchers.clear()


def family(f: Callable[..., Any], *options: Any) -> tuple[Any, ...] | None:
    """What f has in common with its twins; None where it has none.

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
    except ValueError:  # a variable that has no value yet
        return None
    named = f.__kwdefaults__ or {}
    values += [*(f.__defaults__ or ()), *named.values()]
    if any(type(value) not in _PLAIN for value in values):
        return None
    return (id(f.__code__), id(f.__globals__), f.__qualname__, tuple(map(Static, values)),
            *named, *options)


def find(key: tuple[Any, ...]) -> Twin | None:
    """What is kept of a family and a signature, if what was read from outside is the same."""
    found = _kept.get(key)
    return found if found is not None and found.captures.changed() is None else None


def keep(key: tuple[Any, ...], twin: Twin) -> None:
    """Keep a trace for twins, in place of one whose globals have changed."""
    if twin.closed.captures or twin.closed.effects:
        return
    if _kept.get(key) is not None and find(key) is None:
        _kept.drop(key)
    _kept.keep(key, twin)
