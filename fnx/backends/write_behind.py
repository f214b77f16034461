"""A background thread that writes to disk.

Writing a cache entry takes a dozen system calls. A thread that returns from one waits for the GIL,
some 5 ms each time: on a compile helper no kernel is compiled meanwhile, and on the caller's thread
it adds to the latency of the first call.

    later(do)   returns at once; functions are called one after the other, in order
    wait()      for readers of what was written; the end of the process waits, too

>>> done = []
>>> later(lambda: done.append(1))
>>> wait(), done
(True, [1])
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

from fnx.core.process import at_fork, fork_safe_lock

PATIENCE = 1.0  # seconds that process exit waits

_waiting: deque[Callable[[], None]] = deque()
_threads: list[threading.Thread] = []  # the writing thread, while there is something to write
_starting = fork_safe_lock()


def later(do: Callable[[], None]) -> None:
    """Call ``do`` soon on the writer thread, or here if the system has no more threads."""
    _waiting.append(do)
    with _starting:
        if _threads:
            return
        thread = threading.Thread(target=_write, name="fnx-disk", daemon=True)
        _threads.append(thread)
        try:
            thread.start()
            return
        except RuntimeError:  # no more threads, or the process ends
            pass
        except BaseException:
            _threads.clear()
            raise
    _write()


def _write() -> None:
    """Make all queued calls. An exception in one does not stop the others."""
    try:
        while True:
            while _waiting:
                with contextlib.suppress(Exception):
                    _waiting[0]()
                _waiting.popleft()
            with _starting:
                if not _waiting:
                    _threads.clear()
                    return
    except BaseException:  # Ctrl-C, if this is the caller's thread
        _threads.clear()
        raise


def wait(seconds: float = 60.0) -> bool:
    """Wait until all is written, at most this many seconds. Return whether it is."""
    until = time.monotonic() + seconds
    while (_waiting or _threads) and time.monotonic() < until:
        time.sleep(0.0005)
    return not _waiting


def _in_child() -> None:
    _waiting.clear()
    _threads.clear()


atexit.register(wait, PATIENCE)
at_fork(in_child=_in_child)
