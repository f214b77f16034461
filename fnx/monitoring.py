"""Events of this process, and functions that listen to them, under the names of ``jax.monitoring``.

fnx records how long it took to trace and to compile each function, by JAX's names of these events.

>>> import fnx
>>> register_event_duration_secs_listener(
...     lambda name, seconds, **_: print(name) if "backend" in name else None)
>>> y = fnx.jit(lambda x: x * 3.25 + 1)(2.0)
/jax/core/compile/backend_compile_duration
>>> clear_event_listeners()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fnx.core.support import events
from fnx.core.support.errors import NotRegisteredError, lazy_module

__all__ = [
    "clear_event_listeners",
    "record_event",
    "record_event_duration_secs",
    "record_event_time_span",
    "record_scalar",
    "register_event_duration_secs_listener",
    "register_event_listener",
    "register_event_time_span_listener",
    "register_scalar_listener",
    "unregister_event_duration_listener",
    "unregister_event_listener",
    "unregister_event_time_span_listener",
    "unregister_scalar_listener",
]


def clear_event_listeners() -> None:
    """Forget all functions that were registered.

    >>> clear_event_listeners()
    """
    for registered in events.listeners.values():
        registered.clear()


def _unregister(kind: str, callback: Callable[..., None]) -> None:
    if callback not in events.listeners[kind]:
        raise NotRegisteredError(f"expected a registered listener, got {callback!r}",
                                 hint="pass the object that was registered")
    events.listeners[kind].remove(callback)


def record_event(event: str, **kwargs: str | int) -> None:
    """Record that something happened.

    Args:
        event: its name.
        kwargs: texts and integers that describe it.

    >>> record_event("/cache/miss", key=3)
    """
    events.record("event", event, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Call a function for each event that is recorded.

    Args:
        callback: called with ``(name, **metadata)``.

    >>> register_event_listener(print)
    >>> unregister_event_listener(print)
    """
    events.listeners["event"].append(callback)


def unregister_event_listener(callback: Callable[..., None]) -> None:
    """Stop calling a function for each event.

    Args:
        callback: the function that was registered.

    Raises:
        NotRegisteredError: it is not registered.

    >>> register_event_listener(print)
    >>> unregister_event_listener(print)
    """
    _unregister("event", callback)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Record how long something took.

    Args:
        event: its name.
        duration: in seconds.
        kwargs: texts and integers that describe it.

    >>> record_event_duration_secs("/load", 0.5)
    """
    events.record("duration", event, duration, **kwargs)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Call a function for each duration that is recorded.

    Args:
        callback: called with ``(name, seconds, **metadata)``.

    >>> register_event_duration_secs_listener(print)
    >>> unregister_event_duration_listener(print)
    """
    events.listeners["duration"].append(callback)


def unregister_event_duration_listener(callback: Callable[..., None]) -> None:
    """Stop calling a function for each duration.

    Args:
        callback: the function that was registered.

    Raises:
        NotRegisteredError: it is not registered.

    >>> register_event_duration_secs_listener(print)
    >>> unregister_event_duration_listener(print)
    """
    _unregister("duration", callback)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Record a number.

    Args:
        event: its name.
        value: the number.
        kwargs: texts and integers that describe it.

    >>> record_scalar("/loss", 2.0)
    """
    events.record("scalar", event, value, **kwargs)


def register_scalar_listener(callback: Callable[..., None]) -> None:
    """Call a function for each number that is recorded.

    Args:
        callback: called with ``(name, value, **metadata)``.

    >>> register_scalar_listener(print)
    >>> unregister_scalar_listener(print)
    """
    events.listeners["scalar"].append(callback)


def unregister_scalar_listener(callback: Callable[..., None]) -> None:
    """Stop calling a function for each number.

    Args:
        callback: the function that was registered.

    Raises:
        NotRegisteredError: it is not registered.

    >>> register_scalar_listener(print)
    >>> unregister_scalar_listener(print)
    """
    _unregister("scalar", callback)


def record_event_time_span(event: str, start_time: float, end_time: float,
                           **kwargs: str | int) -> None:
    """Record when something began and ended.

    Args:
        event: its name.
        start_time: in seconds.
        end_time: in seconds.
        kwargs: texts and integers that describe it.

    >>> record_event_time_span("/epoch", 0.0, 2.0)
    """
    events.record("time_span", event, start_time, end_time, **kwargs)


def register_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Call a function for each time span that is recorded.

    Args:
        callback: called with ``(name, start, end, **metadata)``.

    >>> register_event_time_span_listener(print)
    >>> unregister_event_time_span_listener(print)
    """
    events.listeners["time_span"].append(callback)


def unregister_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Stop calling a function for each time span.

    Args:
        callback: the function that was registered.

    Raises:
        NotRegisteredError: it is not registered.

    >>> register_event_time_span_listener(print)
    >>> unregister_event_time_span_listener(print)
    """
    _unregister("time_span", callback)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
