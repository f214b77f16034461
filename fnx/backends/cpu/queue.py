"""The cpu's queue: worker threads that run the native loops of runtime.py.

The threads are made natively at the first long submission: Python's interpreter knows nothing
of them, so they need no GIL and do not hold up its end. Numbers of the timeline go on over a
restart (another number of workers, a forked child): storages keep theirs.

Ctrl-C in a wait, and a wait past ``config.time_limit``, abort all that is submitted; waiting
for (or computing with) a result of aborted work raises. Work submitted afterwards runs.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from fnx.backends.allocator import Block, Pool
from fnx.backends.cpu import runtime
from fnx.backends.hcq import HostStorage, InFlight, Leasing, Signal
from fnx.backends.llvm.binding import cores
from fnx.backends.llvm.kernels import compiled_once
from fnx.core.config import config
from fnx.core.errors import DeviceError
from fnx.core.target import Target

SLICE = 50_000_000  # nanoseconds a wait sleeps before it looks for Ctrl-C and the time limit
_PATIENCE = 1.0  # seconds that aborted work may take to reach the next chunk


class _Native:
    """The runtime's functions: ``run_held`` and ``submit`` keep the GIL, the others release it."""

    def __init__(self, target: Target) -> None:
        process = ctypes.CDLL(None)
        imports = {}
        for name in runtime.IMPORTS:
            address = ctypes.cast(getattr(process, name), ctypes.c_void_p).value
            assert address is not None
            imports[name] = address
        self.library = compiled_once(runtime.text(target.triple), runtime.EXPORTS, target, imports)
        self.addresses = self.library.addresses
        word = ctypes.c_int64
        self.run = self._function(ctypes.CFUNCTYPE(word, word, word), "run")
        self.run_held = self._function(ctypes.PYFUNCTYPE(word, word, word), "run")
        self.submit = self._function(ctypes.PYFUNCTYPE(word, word, word, word), "submit")
        self.wait = self._function(ctypes.CFUNCTYPE(word, word, word, word), "wait")
        self.abort = self._function(ctypes.CFUNCTYPE(word, word), "abort")
        self.stop = self._function(ctypes.CFUNCTYPE(word, word), "stop")
        self.create: Any = process.pthread_create
        self.create.argtypes = (ctypes.c_void_p,) * 4
        self.join: Any = process.pthread_join
        self.join.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self.mutex_init: Any = process.pthread_mutex_init
        self.condition_init: Any = process.pthread_cond_init
        self.mutex_init.argtypes = self.condition_init.argtypes = (ctypes.c_void_p,) * 2

    def _function(self, prototype: Callable[[int], Any], name: str) -> Any:
        return prototype(self.addresses[name])


@functools.cache
def native(target: Target) -> _Native:
    """The loaded runtime."""
    return _Native(target)


class _Workers:
    """Running threads, the memory of their queue, and their private scratch."""

    def __init__(self, lib: _Native, pool: Pool, count: int, scratch: int, value: int) -> None:
        self.lib, self.asked, self.scratch = lib, count, scratch
        self._memory = (ctypes.c_int64 * (runtime.QUEUE_WORDS + 16))()
        start = -ctypes.addressof(self._memory) % 128 // 8
        self.words = memoryview(self._memory).cast("B").cast("q")[start:]
        self.address = ctypes.addressof(self._memory) + 8 * start
        self.words[runtime.SUBMITTED] = self.words[runtime.COMPLETED] = value
        self.words[runtime.ABORT] = value
        lib.mutex_init(self.address + 8 * runtime.MUTEX, None)
        for condition in (runtime.WORK, runtime.HELP, runtime.JOINED, runtime.FINISHED):
            lib.condition_init(self.address + 8 * condition, None)
        self._private = [Block(pool, max(64, scratch)) for _ in range(count)]
        self._arguments = (ctypes.c_int64 * (runtime.WORKER_WORDS * count))()
        self._threads: list[int] = []
        for i in range(count):
            if not self._start(i):
                break  # the system has no more threads: fewer will do

    @property
    def count(self) -> int:
        """Threads that run."""
        return len(self._threads)

    def _start(self, i: int) -> bool:
        at = runtime.WORKER_WORDS * i
        self._arguments[at + runtime.QUEUE] = self.address
        self._arguments[at + runtime.PRIVATE] = self._private[i].ptr
        thread = ctypes.c_void_p()
        code = self.lib.addresses["help" if i else "lead"]
        failed = self.lib.create(ctypes.byref(thread), None, code,
                                 ctypes.addressof(self._arguments) + 8 * at)
        if not failed:
            self._threads.append(thread.value or 0)
        elif i == 0:
            raise DeviceError(f"the system starts no worker thread: {os.strerror(failed)}",
                              hint="end some threads or processes")
        return not failed

    def completed(self) -> int:
        return self.words[runtime.COMPLETED]

    def stop(self, patience: float) -> bool:
        """End the threads; False where one is still in a kernel when patience is over."""
        self.lib.stop(self.address)
        end = time.monotonic() + patience
        while self.words[runtime.RETURNED] < self.count:
            if time.monotonic() > end:
                return False
            time.sleep(0.0005)
        for thread in self._threads:
            self.lib.join(thread, None)
        return True


class CpuQueue(Signal):
    """One in-order queue.

    Attributes:
        clear: nothing is pending and nothing was ever aborted: short work may run at once,
            without a look at the timeline.
    """

    def __init__(self, target: Target, pool: Pool) -> None:
        self.clear = True
        self._before = 0  # timeline value of the last submission to the workers before these
        self._native, self._pool = native(target), pool
        self._lock = threading.RLock()
        self._workers: _Workers | None = None
        self._flight = InFlight()
        self._aborted: list[tuple[int, int]] = []
        self._lost: list[Any] = []  # of threads that never came back: not to be freed
        atexit.register(self._at_exit)
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork,
                            after_in_child=self._in_child)

    # ---- submitting -------------------------------------------------------------------------

    @property
    def submitted(self) -> int:
        """Timeline value of the last submission. What the workers see is what counts: Ctrl-C
        may come between a submission and the next line of Python."""
        workers = self._workers
        return self._before if workers is None else workers.words[runtime.SUBMITTED]

    def idle(self) -> bool:
        """Whether nothing is pending; lets go of what is done."""
        with self._lock:
            if self._workers is not None:
                self._flight.release(self._workers.completed())
            empty = not self._flight
            self.clear = empty and not self._aborted
            return empty

    def submit(self, program: int, block: int, scratch: int, outs: Sequence[HostStorage],
               buffer: Leasing, *keep: Any) -> None:
        """Queue a program on a block; ``keep`` is held until it is done."""
        with self._lock:
            workers = self._ready(scratch)
            value = workers.words[runtime.SUBMITTED] + 1
            self.clear = False
            for storage in outs:
                storage.timeline = value
            # Held before it is queued: an exception may come between any two lines.
            self._flight.keep(value, buffer, *keep)
            while not self._native.submit(workers.address, program, block):
                self._sleep(workers, value - runtime.CAPACITY // 2)
            self._flight.release(workers.completed())

    def _ready(self, scratch: int) -> _Workers:
        """Threads as many as asked for, with enough scratch."""
        workers = self._workers
        count = max(1, config.workers or cores())
        if workers is not None and workers.asked == count and workers.scratch >= scratch:
            return workers
        if workers is not None:
            self.wait_all()
            scratch = max(scratch, workers.scratch)
            self._before, self._workers = self.submitted, None
            workers.stop(float("inf"))
        made = _Workers(self._native, self._pool, count, scratch, self._before)
        self._workers = made
        return made

    # ---- waiting ----------------------------------------------------------------------------

    def wait(self, value: int) -> None:
        """Return when the submission with this number is done."""
        workers = self._workers
        if workers is not None:
            self._sleep(workers, value)
        if self._aborted:
            self.check(value)

    def _sleep(self, workers: _Workers, value: int) -> None:
        wait, address = self._native.wait, workers.address
        limit = config.time_limit
        end = time.monotonic() + limit if limit else float("inf")
        try:
            while not wait(address, value, SLICE):
                if time.monotonic() > end:
                    running = self._running(workers)
                    self.abort()
                    raise DeviceError(f"waited {limit} s, the time limit, for {running}",
                                      hint="raise fnx.config.time_limit, or set it to 0")
        except KeyboardInterrupt:
            self.abort()
            raise

    def _running(self, workers: _Workers) -> str:
        names = self._flight.names()
        at = workers.words[runtime.COMMAND]
        return f"kernel {names[at]}" if at < len(names) else "the queue"

    def wait_all(self) -> None:
        """Return when all submitted work is done (aborted work counts as done)."""
        if self._workers is not None:
            self._sleep(self._workers, self.submitted)
            self.idle()

    def abort(self) -> None:
        """Skip what is submitted; gives the running kernels a moment to end their chunks."""
        workers = self._workers
        if workers is None:
            return
        first = workers.completed() + 1
        last = self._native.abort(workers.address)
        if first <= last:
            self._aborted.append((first, last))
            self.clear = False
        end = time.monotonic() + _PATIENCE / 2
        while not self._native.wait(workers.address, last, SLICE // 5):
            if time.monotonic() > end:
                break

    def check(self, value: int) -> None:
        """Refuse a result of aborted work."""
        if value and any(first <= value <= last for first, last in self._aborted):
            raise DeviceError("the work that computes this array was aborted (Ctrl-C or the "
                              "time limit)", hint="compute it again")

    # ---- the process ------------------------------------------------------------------------

    def _at_exit(self) -> None:
        self.abort()  # what nobody waits for is not computed, and is not to be read
        self._before, workers, self._workers = self.submitted, self._workers, None
        if workers is not None:
            if not workers.stop(_PATIENCE):
                self._lost += [workers, self._flight]

    def _before_fork(self) -> None:
        self._lock.acquire()
        if self._workers is not None:
            while not self._native.wait(self._workers.address, self.submitted, SLICE):
                pass

    def _after_fork(self) -> None:
        self._lock.release()

    def _in_child(self) -> None:
        """The threads are gone; the memory of their queue is left as it was at the fork."""
        if self._workers is not None:
            self._lost.append(self._workers)
        self._before, self._workers = self.submitted, None
        self._flight = InFlight()
        self.clear = not self._aborted
        self._lock = threading.RLock()
