"""A background thread that writes to disk.

Writing a cache entry takes a dozen system calls. A thread that returns from one waits for the GIL,
some 5 ms each time: on a compile helper no kernel is compiled meanwhile, and on the caller's thread
it adds to the latency of the first call.

    later(do)   returns at once; functions are called one after the other, in order
    wait()      for readers of what was written; the end of the process waits, too

>>> done = []
>>> enqueue(lambda: done.append(1))
>>> wait(), done
(True, [1])
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

from fnx.core.support.process import at_exit, at_fork, fork_safe_lock

EXIT_TIMEOUT = 1.0  # seconds that process exit waits

_queue: deque[Callable[[], None]] = deque()
_writers: list[threading.Thread] = []  # the writing thread, while there is something to write
_start_lock = fork_safe_lock()


def enqueue(do: Callable[[], None]) -> None:
    """Call ``do`` soon on the writer thread, or here if the system has no more threads."""
    _queue.append(do)
    with _start_lock:
        if _writers:
            return
        thread = threading.Thread(target=_drain, name="fnx-disk", daemon=True)
        _writers.append(thread)
        try:
            thread.start()
            return
        except RuntimeError:  # no more threads, or the process ends
            pass
        except BaseException:
            _writers.clear()
            raise
    _drain()


def _drain() -> None:
    """Make all queued calls. An exception in one does not stop the others."""
    try:
        while True:
            while _queue:
                with contextlib.suppress(Exception):
                    _queue[0]()
                _queue.popleft()
            with _start_lock:
                if not _queue:
                    _writers.clear()
                    return
    except BaseException:  # Ctrl-C, if this is the caller's thread
        _writers.clear()
        raise


def wait(seconds: float = 60.0) -> bool:
    """Wait until all is written, at most this many seconds. Return whether it is."""
    until = time.monotonic() + seconds
    while (_queue or _writers) and time.monotonic() < until:
        time.sleep(0.0005)
    return not _queue


def _in_child() -> None:
    _queue.clear()
    _writers.clear()


at_exit(lambda: wait(EXIT_TIMEOUT))
at_fork(in_child=_in_child)
