"""What a fork or the end of the process must not cut in two: locks, modules, work of threads.

A forked child has one thread. A lock that another one held stays locked for ever, and a module
that another one was loading stays half loaded. Locks made here are open in a child; modules
loaded here are loaded whole before the process forks, or not begun.

>>> with fork_safe_lock():
...     load("json").__name__
'json'
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

PATIENCE = 1.0  # seconds that a fork waits for work; what is unfinished is refused in the child
_LOADED = 10.0  # ... and for a module that another thread loads
_LATER = 0.01  # seconds after a fork until a Ctrl-C that came during it is raised

_locks: list[weakref.ref[Any]] = []
_before: list[Callable[[float], None]] = []
_in_parent: list[Callable[[], None]] = []
_in_child: list[Callable[[], None]] = []
_interrupted = [False]  # whether Ctrl-C came during a fork


def fork_safe_lock() -> Any:
    """A re-entrant lock (a finalizer may come in the middle) that a forked child finds open."""
    lock = threading.RLock()
    if len(_locks) & (len(_locks) - 1) == 0:  # at each doubling
        _locks[:] = [ref for ref in _locks if ref() is not None]
    _locks.append(weakref.ref(lock))
    return lock


_loading = fork_safe_lock()


def load(name: str) -> ModuleType:
    """Import a module at its first use."""
    with _loading:
        return importlib.import_module(name)


def _nothing(*args: Any) -> None:
    pass


def at_fork(before: Callable[[float], None] = _nothing,
            in_parent: Callable[[], None] = _nothing,
            in_child: Callable[[], None] = _nothing) -> None:
    """Register what happens around a fork, as ``os.register_at_fork``.

    ``before`` is given the time (``time.monotonic``) until which it may wait. Where Ctrl-C comes
    in one of these it begins anew, and KeyboardInterrupt is raised after the fork.
    """
    _before.insert(0, before)
    _in_parent.append(in_parent)
    _in_child.append(in_child)


def _hooks(run: Callable[[], None]) -> Iterator[None]:
    """Call ``run`` each time it is resumed; none is cut short by Ctrl-C, which comes later.

    Python calls what is registered from C and drops exceptions. A function could be left at its
    first instruction, where signals are looked at; that of a generator is within its ``try``.
    """
    pending = False
    while True:
        try:
            if pending:
                run()
                pending = False
            yield
            pending = True
        except KeyboardInterrupt:
            pending = _interrupted[0] = True


def _run_before() -> None:
    until = time.monotonic() + (0.0 if _interrupted[0] else PATIENCE)
    for hook in _before:
        hook(until)


def _run_in_parent() -> None:
    for hook in _in_parent:
        hook()
    if _interrupted[0]:
        _interrupted[0] = False
        again = threading.Timer(_LATER, _interrupt_main)
        again.daemon = True
        again.start()


def _interrupt_main() -> None:
    """As Ctrl-C does: what the main thread sleeps in ends, too (unlike _thread.interrupt_main)."""
    if callable(signal.getsignal(signal.SIGINT)):  # else it would end the process
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _run_in_child() -> None:
    _interrupted[0] = False
    for ref in _locks:
        lock = ref()
        if lock is not None and not lock._is_owned():  # by the thread that forked
            lock._at_fork_reinit()
    for hook in _in_child:
        hook()


def _wait_for_loading(until: float) -> None:
    _loading.acquire(timeout=_LOADED)


def _loaded() -> None:
    with contextlib.suppress(RuntimeError):  # not held any more; or never, as it took too long
        while True:
            _loading.release()


at_fork(_wait_for_loading, _loaded, _loaded)
if hasattr(os, "register_at_fork"):
    _steps = [_hooks(_run_before), _hooks(_run_in_parent)]
    for _step in _steps:
        next(_step)
    os.register_at_fork(before=partial(next, _steps[0]), after_in_parent=partial(next, _steps[1]),
                        after_in_child=_run_in_child)


def wait_for_the_end() -> None:
    """Where the process ends, a daemon thread stops without a word; the main thread goes on."""
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait()
