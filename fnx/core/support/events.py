"""Named events of this process, and the functions that listen to them (fnx.monitoring)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Listener = Callable[..., None]
TRACE = "/jax/core/compile/jaxpr_trace_duration"  # the names in JAX's dispatch.py
COMPILE = "/jax/core/compile/backend_compile_duration"
KINDS = ("event", "duration", "scalar", "time_span")
listeners: dict[str, list[Listener]] = {kind: [] for kind in KINDS}


def record(kind: str, name: str, *values: Any, **metadata: Any) -> None:
    """Call the listeners of a kind with the name, the values and the metadata of an event.

    >>> listeners["scalar"].append(lambda name, value, **metadata: print(name, value, metadata))
    >>> record("scalar", "/loss", 2.0, step=1)
    /loss 2.0 {'step': 1}
    >>> del listeners["scalar"][:]
    """
    for listener in tuple(listeners[kind]):
        listener(name, *values, **metadata)
