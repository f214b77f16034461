"""What a fork must not cut in two: locks that other threads hold, and modules being loaded.

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
import threading
import weakref
from types import ModuleType
from typing import Any

_PATIENCE = 10.0  # seconds that a fork waits for a module that another thread loads

_locks: list[weakref.ref[Any]] = []


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


def _before() -> None:
    _loading.acquire(timeout=_PATIENCE)


def _loaded() -> None:
    with contextlib.suppress(RuntimeError):  # it took too long
        _loading.release()


def _in_child() -> None:
    for ref in _locks:
        lock = ref()
        if lock is not None and not lock._is_owned():  # by the thread that forked
            lock._at_fork_reinit()
    _loaded()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_loaded, after_in_child=_in_child)
