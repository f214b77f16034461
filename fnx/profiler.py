"""Trace annotations and their timing, under the names of ``jax.profiler``.

Between ``start_trace`` and ``stop_trace`` (or in ``trace``) each annotation that a thread enters
and leaves is recorded as a span, and written as a Chrome trace, which Perfetto opens. For the cost
of the kernels of a call see ``f.lower(*args).show()``.

>>> import fnx, tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     with fnx.profiler.trace(folder):
...         with fnx.profiler.TraceAnnotation("step"):
...             pass
...     len(list(Path(folder).rglob("*.trace.json")))
1
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fnx.core.support.errors import ArgumentError, lazy_module

__all__ = [
    "ProfileOptions", "StepTraceAnnotation", "TraceAnnotation", "annotate_function", "start_trace",
    "stop_trace", "trace",
]

P = ParamSpec("P")
R = TypeVar("R")


class _Recording:
    """The spans of an active trace."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.spans = folder, list[dict[str, Any]]()

    def add(self, name: str, start: float, stop: float, metadata: dict[str, Any]) -> None:
        self.spans.append({"name": name, "ph": "X", "ts": start * 1e6, "dur": (stop - start) * 1e6,
                           "pid": os.getpid(), "tid": threading.get_ident(),
                           "args": {key: str(value) for key, value in metadata.items()}})

    def write(self) -> None:
        directory = self.folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"traceEvents": self.spans})
        (directory / f"{os.uname().nodename}.trace.json").write_text(text)


_active: _Recording | None = None
_lock = threading.Lock()


class ProfileOptions:
    """Options of JAX's profiler: attributes that may be set, without effect.

    >>> options = ProfileOptions()
    >>> options.python_tracer_level = 1
    """

    python_tracer_level: int = 0
    host_tracer_level: int = 2


class TraceAnnotation:
    """A span of a trace, as a context manager.

    Args:
        name: the name of the span.
        kwargs: metadata of the span.

    >>> with TraceAnnotation("step", number=1):
    ...     pass
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self._name, self._metadata, self._start = name, kwargs, 0.0

    def __enter__(self) -> TraceAnnotation:
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if _active is not None:
            _active.add(self._name, self._start, time.perf_counter(), self._metadata)


class StepTraceAnnotation(TraceAnnotation):
    """A span of one step of a program.

    Args:
        name: the name of the span.
        kwargs: metadata of the span, such as ``step_num=``.

    >>> with StepTraceAnnotation("train", step_num=1):
    ...     pass
    """


def annotate_function(func: Callable[P, R] | None = None, name: str | None = None,
                      **decorator_kwargs: Any) -> Any:
    """Record each call of a function as a span.

    Args:
        func: the function; if omitted, a decorator is returned.
        name: the name of the span; by default that of the function.
        decorator_kwargs: metadata of the span.

    Returns:
        The wrapped function.

    >>> @annotate_function
    ... def step(x: float) -> float:
    ...     return x + 1
    >>> step(1.0)
    2.0
    """
    if func is None:
        return functools.partial(annotate_function, name=name, **decorator_kwargs)
    title = name or str(getattr(func, "__qualname__", func))

    @functools.wraps(func)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with TraceAnnotation(title, **decorator_kwargs):
            return func(*args, **kwargs)
    return call


def start_trace(log_dir: str | os.PathLike[str], create_perfetto_link: bool = False,
                create_perfetto_trace: bool = False,
                profiler_options: ProfileOptions | None = None) -> None:
    """Start to record spans of all threads.

    Args:
        log_dir: the directory that ``stop_trace`` writes to.
        create_perfetto_link: must be False: nothing is uploaded.
        create_perfetto_trace: accepted for compatibility with JAX; Perfetto can always read the
            file.
        profiler_options: accepted for compatibility with JAX.

    Raises:
        ArgumentError: a trace is already active.

    >>> start_trace("/tmp/never written")
    >>> start_trace("/tmp/never written")           # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fnx.core.support.errors.ArgumentError: expected no trace that runs
    >>> _ = _end_recording()
    """
    global _active
    if create_perfetto_link:
        raise ArgumentError("expected create_perfetto_link=False",
                            hint="open the file with ui.perfetto.dev")
    with _lock:
        if _active is not None:
            raise ArgumentError(f"expected no active trace, got one writing to {_active.folder}",
                                hint="call stop_trace first")
        _active = _Recording(Path(log_dir))


def _end_recording() -> _Recording:
    global _active
    with _lock:
        recording, _active = _active, None
    if recording is None:
        raise ArgumentError("expected an active trace, got none", hint="call start_trace first")
    return recording


def stop_trace() -> None:
    """Stop the active trace and write it.

    Raises:
        ArgumentError: no trace is active.

    >>> stop_trace()                                # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fnx.core.support.errors.ArgumentError: expected an active trace, got none
    """
    _end_recording().write()


@contextlib.contextmanager
def trace(log_dir: str | os.PathLike[str], create_perfetto_link: bool = False,
          create_perfetto_trace: bool = False,
          profiler_options: ProfileOptions | None = None) -> Iterator[None]:
    """Record spans in a ``with`` block.

    Args:
        log_dir: the directory that they are written to.
        create_perfetto_link: must be False: nothing is uploaded.
        create_perfetto_trace: accepted for compatibility with JAX; Perfetto can always read the
            file.
        profiler_options: accepted for compatibility with JAX.

    Returns:
        A context manager.

    Raises:
        ArgumentError: a trace is already active.

    >>> import fnx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, fnx.profiler.trace(folder):
    ...     pass
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


_UNSUPPORTED = ("ProfileData", "ProfileEvent", "ProfilePlane", "device_memory_profile",
                "register_subprocess", "save_device_memory_profile", "start_server", "stop_server")

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__, _UNSUPPORTED)
