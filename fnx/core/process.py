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
import ctypes
import importlib
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain, repeat
from operator import methodcaller
from types import ModuleType
from typing import Any

LOADED = time.time()  # when fnx was imported: sources that are newer are not those that run
PATIENCE = 1.0  # seconds that a fork waits for work; what is unfinished is refused in the child
_LOADED = 10.0  # ... and for a module that another thread loads
_OTHERS = 30.0  # ... and for another thread that forks
_TRIES = 3  # of what is registered, where it fails
_LATER = 0.01  # seconds after a fork until a Ctrl-C that came during it is raised

_locks: list[weakref.ref[Any]] = []
_before: list[Callable[[float], None]] = []
_in_parent: list[Callable[[], None]] = []
_in_child: list[Callable[[], None]] = []
_cut: list[type[BaseException]] = []  # what a handler raised during a fork: at most one
_forking: Any = threading.RLock()  # held by the thread that forks


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
    found = sys.modules.get(name)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    with _loading:
        return importlib.import_module(name)


def deferred(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is loaded when it is first called.

    >>> deferred("math", "sqrt")(4.0)
    2.0
    """
    def call(*args: Any, **options: Any) -> Any:
        return getattr(load(module), name)(*args, **options)

    call.__module__, call.__name__ = module, name
    return call


def _nothing(*args: Any) -> None:
    pass


def at_fork(before: Callable[[float], None] = _nothing,
            in_parent: Callable[[], None] = _nothing,
            in_child: Callable[[], None] = _nothing) -> None:
    """Register what happens around a fork, as ``os.register_at_fork``.

    ``before`` is given the time (``time.monotonic``) until which it may wait. Where Ctrl-C comes
    in it or in ``in_parent`` it begins anew, and KeyboardInterrupt is raised after the fork.
    Threads that fork at once do so one after another. No handler of a signal is called between
    the last of ``before`` and the end of ``in_child``.
    """
    _before.insert(0, before)
    _in_parent.append(in_parent)
    _in_child.append(in_child)


def _uncut(run: Callable[[], None], left: int) -> Iterator[None]:
    """Call ``run`` each time it is resumed; none is cut short by Ctrl-C, which comes later.

    Python calls what is registered from C and drops exceptions. A function could be left at its
    first instruction, where signals are looked at; that of a generator is within its ``try``. So
    is a jump back of the inner loop. ``left``: how often ``run`` may fail before the next yield.
    """
    while True:
        try:
            while True:
                try:
                    if left:
                        run()
                        left = 0
                    yield
                    left = _TRIES
                except GeneratorExit:
                    return
                except KeyboardInterrupt:
                    _cut[:] = (KeyboardInterrupt,)
                    left = _TRIES
                except BaseException as e:  # of another handler, or of what is registered
                    _cut[:] = (type(e),)
                    left -= 1
        except BaseException as e:
            _cut[:] = (type(e),)
            left = _TRIES


def _without_end(run: Callable[[], None]) -> Iterator[None]:
    """``_uncut`` of it, and another one where Ctrl-C has ended the one before after all."""
    steps = chain.from_iterable(chain([_uncut(run, 0)], map(_uncut, repeat(run), repeat(_TRIES))))
    next(steps)
    return steps


class _Around(threading.local):
    """What Python calls around the forks of a thread, and which signals the thread blocks
    otherwise. Several threads can't resume one generator."""

    def __init__(self) -> None:
        self.mask: set[Any] | None = None
        self.before, self.in_parent, self.in_child = [
            partial(next, _without_end(step))
            for step in (_run_before, _run_in_parent, _run_in_child)]


def _run_before() -> None:
    _forking.acquire(timeout=_OTHERS)
    until = time.monotonic() + (0.0 if _cut else PATIENCE)
    for hook in _before:
        hook(until)
    if _around.mask is None:
        _around.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.pthread_sigmask(signal.SIG_BLOCK, [
        number for number in signal.valid_signals() if callable(signal.getsignal(number))])


def _run_in_parent() -> None:
    for hook in _in_parent:
        hook()
    if _around.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _around.mask)
        _around.mask = None
    _forked()


def _run_in_child() -> None:
    if _around.mask is not None:  # no handler is called: nothing is begun anew
        _cut.clear()  # it came to the parent
        for ref in _locks:
            lock = ref()
            if lock is not None and not lock._is_owned():  # by the thread that forked
                lock._at_fork_reinit()
        for hook in _in_child:
            hook()
        mask, _around.mask = _around.mask, None
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _forked()


def _forked() -> None:
    """The next one may fork; what came during this fork is raised."""
    while _forking._is_owned():
        _forking.release()
    if _cut:
        again = threading.Timer(_LATER, _raise, [_cut.pop()])
        again.daemon = True
        again.start()


def _raise(error: type[BaseException]) -> None:
    """As Ctrl-C does: what the main thread sleeps in ends, too (unlike _thread.interrupt_main)."""
    main = threading.main_thread().ident or 0
    if error is not KeyboardInterrupt:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(error))
    elif callable(signal.getsignal(signal.SIGINT)):  # else it would end the process
        signal.pthread_kill(main, signal.SIGINT)


def _wait_for_loading(until: float) -> None:
    _loading.acquire(timeout=_LOADED)


def _loaded() -> None:
    with contextlib.suppress(RuntimeError):  # not held any more; or never, as it took too long
        while True:
            _loading.release()


at_fork(_wait_for_loading, _loaded, _loaded)
_around = _Around()
if hasattr(os, "register_at_fork"):  # methodcaller: no instruction of Python before a generator's
    os.register_at_fork(before=partial(methodcaller("before"), _around),
                        after_in_parent=partial(methodcaller("in_parent"), _around),
                        after_in_child=partial(methodcaller("in_child"), _around))


def wait_for_the_end() -> None:
    """Where the process ends, a daemon thread stops without a word; the main thread goes on."""
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


@cache
def exit_without_destructors() -> None:
    """Let this process end by ``_exit``, which calls no destructors of libraries: threads of one go
    on computing, with memory that its destructors free. Where the C library has ``on_exit``, which
    hands the exit code over; what C has buffered is written before."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)
        libc.fflush(None)  # here, too: in the middle of the end nothing is registered any more
        load("atexit").register(libc.fflush, None)
