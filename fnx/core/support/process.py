"""Fork safety and process exit: locks, lazily loaded modules, hooks around a fork.

A forked child has one thread. A lock that another thread held stays locked forever, and a module
that another thread was loading stays half loaded. Locks made here are unlocked in a child; a
module loaded here is loaded completely before the process forks, or not at all.

>>> with fork_safe_lock():
...     lazy_import("json").loads("1")
1
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

IMPORT_TIME = time.time()  # when fnx was imported: newer sources are not the code that runs
FORK_TIMEOUT = 1.0  # seconds that a fork waits for work; the child refuses unfinished work
_IMPORT_TIMEOUT = 10.0  # seconds that a fork waits for a module that another thread loads
_FORK_LOCK_TIMEOUT = 30.0  # seconds that a fork waits for another thread that forks
_MAX_TRIES = 3  # attempts to run a hook that fails
_RAISE_DELAY = 0.01  # seconds after a fork until a Ctrl-C that came during it is raised

_locks: list[weakref.ref[Any]] = []
_before_hooks: list[Callable[[float], None]] = []
_parent_hooks: list[Callable[[], None]] = []
_child_hooks: list[Callable[[], None]] = []
_interrupts: list[type[BaseException]] = []  # the exception raised during a fork, at most one
_fork_lock: Any = threading.RLock()  # held by the thread that forks


def fork_safe_lock() -> Any:
    """Make a lock that is unlocked in a forked child; re-entrant, as a finalizer may take it."""
    lock = threading.RLock()
    if len(_locks) & (len(_locks) - 1) == 0:  # drop dead ones at each power of two
        _locks[:] = [ref for ref in _locks if ref() is not None]
    _locks.append(weakref.ref(lock))
    return lock


_import_lock = fork_safe_lock()


def load(name: str) -> ModuleType:
    """Import a module on first use.

    Raises:
        RequirementError: its package is not installed, or has another version than fnx needs.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        return module
    with _import_lock:
        try:
            return importlib.import_module(name)
        except ImportError as e:
            package = name.partition(".")[0]
            if isinstance(e, ModuleNotFoundError) and e.name == package:
                raise requirements.missing(package) from None
            requirements.check_installed(package)
            raise


class _LazyModule:
    """A module that is imported when one of its names is read."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(load(self._name), name)


def lazy_import(module: str, function: str = "") -> Any:
    """Return a stub for a module that is imported at its first use, or for one of its functions.

    >>> math, sqrt = lazy_import("math"), lazy_import("math", "sqrt")
    >>> math.sqrt(4.0), sqrt(4.0)
    (2.0, 2.0)
    """
    def call(*args: Any, **options: Any) -> Any:
        return getattr(load(module), function)(*args, **options)

    if not function:
        return _LazyModule(module)
    call.__module__, call.__name__ = module, function
    return call


requirements = lazy_import("fnx.core.support.requirements")


def _noop(*args: Any) -> None:
    pass


def at_fork(before: Callable[[float], None] = _noop,
            in_parent: Callable[[], None] = _noop,
            in_child: Callable[[], None] = _noop) -> None:
    """Register hooks around a fork, like ``os.register_at_fork``.

    ``before`` gets the time (``time.monotonic``) until which it may wait. If Ctrl-C interrupts it
    or ``in_parent``, the hook is restarted, and KeyboardInterrupt is raised after the fork.
    Threads that fork at the same time do so one after another. No signal handler is called
    between the last of ``before`` and the end of ``in_child``.
    """
    _before_hooks.insert(0, before)
    _parent_hooks.append(in_parent)
    _child_hooks.append(in_child)


def _uninterruptible(run: Callable[[], None], tries: int) -> Iterator[None]:
    """Call ``run`` each time the generator is resumed, and complete it despite Ctrl-C.

    Python calls fork hooks from C and drops their exceptions. A function could be interrupted at
    its first instruction, where signals are checked; in a resumed generator that instruction is
    inside its ``try``, and so is the back edge of the inner loop. ``tries``: how often ``run`` may
    fail before the next yield.
    """
    while True:
        try:
            while True:
                try:
                    if tries:
                        run()
                        tries = 0
                    yield
                    tries = _MAX_TRIES
                except GeneratorExit:
                    return
                except KeyboardInterrupt:
                    _interrupts[:] = (KeyboardInterrupt,)
                    tries = _MAX_TRIES
                except BaseException as e:  # from another signal handler, or from a hook
                    _interrupts[:] = (type(e),)
                    tries -= 1
        except BaseException as e:
            _interrupts[:] = (type(e),)
            tries = _MAX_TRIES


def _restart_forever(run: Callable[[], None]) -> Iterator[None]:
    """Chain ``_uninterruptible`` generators, so that another replaces one that Ctrl-C ended after
    all."""
    steps = chain.from_iterable(chain([_uninterruptible(run, 0)],
                                      map(_uninterruptible, repeat(run), repeat(_MAX_TRIES))))
    next(steps)
    return steps


class _ForkHooks(threading.local):
    """The fork hooks of a thread, and the signal mask to restore.

    They are per thread, as two threads cannot resume one generator.
    """

    def __init__(self) -> None:
        self.mask: set[Any] | None = None
        self.before, self.in_parent, self.in_child = [
            partial(next, _restart_forever(step))
            for step in (_run_before, _run_in_parent, _run_in_child)]


def _run_before() -> None:
    _fork_lock.acquire(timeout=_FORK_LOCK_TIMEOUT)
    until = time.monotonic() + (0.0 if _interrupts else FORK_TIMEOUT)
    for hook in _before_hooks:
        hook(until)
    if _fork_hooks.mask is None:
        _fork_hooks.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.pthread_sigmask(signal.SIG_BLOCK, [
        number for number in signal.valid_signals() if callable(signal.getsignal(number))])


def _run_in_parent() -> None:
    for hook in _parent_hooks:
        hook()
    if _fork_hooks.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _fork_hooks.mask)
        _fork_hooks.mask = None
    _end_fork()


def _run_in_child() -> None:
    if _fork_hooks.mask is not None:  # signals are blocked, so nothing is restarted here
        _interrupts.clear()  # the exception belongs to the parent
        for ref in _locks:
            lock = ref()
            if lock is not None and not lock._is_owned():  # not held by the forking thread
                lock._at_fork_reinit()
        for hook in _child_hooks:
            hook()
        mask, _fork_hooks.mask = _fork_hooks.mask, None
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _end_fork()


def _end_fork() -> None:
    """Let the next thread fork, and raise an exception that came during this fork."""
    while _fork_lock._is_owned():
        _fork_lock.release()
    if _interrupts:
        timer = threading.Timer(_RAISE_DELAY, _raise_in_main, [_interrupts.pop()])
        timer.daemon = True
        timer.start()


def _raise_in_main(error: type[BaseException]) -> None:
    """Raise in the main thread as Ctrl-C does, also interrupting a system call it sleeps in.

    (_thread.interrupt_main does not.)
    """
    main = threading.main_thread().ident or 0
    if error is not KeyboardInterrupt:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(error))
    elif callable(signal.getsignal(signal.SIGINT)):  # else it would end the process
        signal.pthread_kill(main, signal.SIGINT)


def _lock_imports(until: float) -> None:
    _import_lock.acquire(timeout=_IMPORT_TIMEOUT)


def _unlock_imports() -> None:
    with contextlib.suppress(RuntimeError):  # released completely, or never acquired (timeout)
        while True:
            _import_lock.release()


at_fork(_lock_imports, _unlock_imports, _unlock_imports)
_fork_hooks = _ForkHooks()
if hasattr(os, "register_at_fork"):  # methodcaller: no bytecode runs before the generator's
    os.register_at_fork(before=partial(methodcaller("before"), _fork_hooks),
                        after_in_parent=partial(methodcaller("in_parent"), _fork_hooks),
                        after_in_child=partial(methodcaller("in_child"), _fork_hooks))


def at_exit(function: Callable[[], object]) -> None:
    """Call a function when the process ends, before C libraries run their destructors.

    A program can run all functions of ``atexit`` itself and live on (``atexit._run_exitfuncs``,
    which also forgets them): this one then still waits for the end.
    """
    load("atexit").register(_run_at_exit, function)


def _run_at_exit(function: Callable[[], object]) -> None:
    if threading.main_thread().is_alive():  # Python ends it before it runs the functions of atexit
        threading._register_atexit(at_exit, function)  # type: ignore[attr-defined]
    else:
        function()


def before_exit(function: Callable[[], object]) -> None:
    """Call a function when the main thread ends, before all functions of ``at_exit``."""
    threading._register_atexit(function)  # type: ignore[attr-defined]


def block_at_exit() -> None:
    """Block a daemon thread forever at process exit; return at once in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


@cache
def exit_without_destructors() -> None:
    """Make this process end by ``_exit``, which skips the destructors of C libraries.

    Threads of a library may still compute with memory that its destructors free. Needs ``on_exit``
    in the C library, which passes the exit code. Buffers of C streams are flushed before.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)
        libc.fflush(None)  # now too, as atexit refuses registrations during shutdown
        load("atexit").register(libc.fflush, None)
