"""The cpu's queue: worker threads that run the native loops of runtime.py and workers.py.

The threads are started natively at the first long submission: Python does not know them, so they
need no GIL and do not delay the interpreter's exit. Timeline values continue over a restart (with
another number of workers, or in a forked child), so those of storages stay valid.

A first Ctrl-C only leaves the wait; a second one, or a wait longer than ``config.time_limit``,
aborts all submitted work: waiting for (or computing with) a result of aborted work raises. Work
submitted afterwards runs, on new threads if the old ones do not return.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from fnx.backends.allocator import Pool, PoolBlock, memory
from fnx.backends.cpu import layout, runtime
from fnx.backends.cpu.callbacks import Caller, Inside
from fnx.backends.cpu.direct import Direct
from fnx.backends.cpu.entry import PYTHON, Entries
from fnx.backends.cpu.recording import Recording
from fnx.backends.hcq import HostStorage, InFlight, Leasing, Signal
from fnx.backends.llvm.host import cores
from fnx.backends.llvm.kernels import compiled_once
from fnx.core.config import config
from fnx.core.errors import DeviceError, OutOfMemoryError
from fnx.core.process import at_fork, fork_safe_lock, wait_for_the_end
from fnx.core.record import Record
from fnx.core.target import Target

SLICE = 50_000_000  # nanoseconds between checks for Ctrl-C and the time limit in a wait
_PATIENCE = 1.0  # seconds for aborted work to reach the next chunk
_AGAIN = 2.0  # seconds after a Ctrl-C within which another one aborts
_NEVER = -_AGAIN, 0


class _Native:
    """The runtime's functions: ``run_held`` and ``submit`` hold the GIL, the others release it."""

    def __init__(self, target: Target) -> None:
        process = ctypes.CDLL(None)
        imports = {}
        for name in runtime.IMPORTS:
            library = ctypes.pythonapi if name in PYTHON else process
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            assert address is not None
            imports[name] = address
        self.library = compiled_once(runtime.text(target.triple), runtime.EXPORTS, target, imports)
        self.addresses = self.library.addresses
        word = ctypes.c_int64
        self.entries, self.direct = Entries(self.addresses["enter"]), Direct(self.addresses)
        self.run = self._function(ctypes.CFUNCTYPE(word, *[word] * 4), "run")
        self.run_held = self._function(ctypes.PYFUNCTYPE(word, *[word] * 4), "run")
        self.submit = self._function(ctypes.PYFUNCTYPE(word, word, word, word), "submit")
        self.wait = self._function(ctypes.CFUNCTYPE(word, word, word, word), "wait")
        self.abort = self._function(ctypes.CFUNCTYPE(word, word), "abort")
        self.execute = self._function(ctypes.CFUNCTYPE(word, *[word] * 5), "execute")
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
    """Load the runtime, once."""
    return _Native(target)


class _Workers:
    """Running threads, the memory of their queue, and their private scratch."""

    def __init__(self, lib: _Native, pool: Pool, count: int, scratch: int, value: int) -> None:
        self.lib, self.asked, self.scratch = lib, count, scratch
        self._memory = (ctypes.c_int64 * (layout.QUEUE_WORDS + 16))()
        start = -ctypes.addressof(self._memory) % 128 // 8
        self.words = memoryview(self._memory).cast("B").cast("q")[start:]
        self.address = ctypes.addressof(self._memory) + 8 * start
        self.words[layout.SUBMITTED] = self.words[layout.COMPLETED] = value
        self.words[layout.ABORT] = value
        self.words[layout.ROOM] = scratch
        for mutex in (layout.MUTEX, layout.LEADER):
            lib.mutex_init(self.address + 8 * mutex, None)
        for condition in (layout.WORK, layout.HELP, layout.JOINED, layout.FINISHED):
            lib.condition_init(self.address + 8 * condition, None)
        self._private = [PoolBlock(pool, max(64, scratch)) for _ in range(count)]
        self._arguments = (ctypes.c_int64 * (layout.WORKER_WORDS * count))()
        self.words[layout.HELPERS] = ctypes.addressof(self._arguments) + 8 * layout.WORKER_WORDS
        self._threads: list[int] = []
        self.running = ""  # the kernel that did not end when these threads were abandoned
        for i in range(count):
            if not self._start(i):
                break  # the system has no more threads: fewer suffice

    @property
    def here(self) -> bool:
        """Whether this is their leader thread, running a callback."""
        return bool(self._threads) and self._threads[0] == threading.get_ident()

    @property
    def count(self) -> int:
        """Number of running threads."""
        return len(self._threads)

    @property
    def scratches(self) -> list[int]:
        """Address of the private memory of each running thread."""
        return [block.ptr for block in self._private[:self.count]]

    def _start(self, i: int) -> bool:
        at = layout.WORKER_WORDS * i
        self._arguments[at + layout.QUEUE] = self.address
        self._arguments[at + layout.PRIVATE] = self._private[i].ptr
        thread = ctypes.c_void_p()
        code = self.lib.addresses["help" if i else "lead"]
        failed = self.lib.create(ctypes.byref(thread), None, code,
                                 ctypes.addressof(self._arguments) + 8 * at)
        if not failed:
            self._threads.append(thread.value or 0)
            self._arguments[at + layout.THREAD] = thread.value or 0
            self.words[layout.HELPER_COUNT] = i
        elif i == 0:
            raise DeviceError(f"the system starts no worker thread: {os.strerror(failed)}",
                              hint="end some threads or processes")
        return not failed

    def completed(self) -> int:
        return self.words[layout.COMPLETED]

    def returned(self) -> bool:
        """Whether all threads have ended, or are about to, and no caller leads them."""
        return self.words[layout.RETURNED] >= self.count and not self.words[layout.LED]

    def stop(self, patience: float) -> bool:
        """End the threads. False if one is still in a kernel after ``patience`` seconds."""
        self.lib.stop(self.address)
        end = time.monotonic() + patience
        while not self.returned():
            if time.monotonic() > end:
                return False
            time.sleep(0.0005)
        for thread in self._threads:
            self.lib.join(thread, None)
        return True


class _Refused(Record):
    """A range of submissions whose results do not exist, and the reason."""

    first: int
    last: int
    why: str
    error: BaseException | None = None  # raised by a callback


class CpuQueue(Signal):
    """An in-order queue.

    Attributes:
        clear: whether nothing is pending, nothing was ever aborted and nothing is recorded: short
            work may run at once, without reading the timeline.
        recording: the event buffer of the workers.
        caller: the kernel of HOST commands.
        last_effect: timeline value of the last submission with side effects.
        home: address of a word that holds the address of the queue's memory; 0: no workers run.
    """

    def __init__(self, target: Target, pool: Pool) -> None:
        self.clear = True
        self._before = 0  # timeline value of the last submission to earlier workers
        self._native, self._pool = native(target), pool
        self._lock = fork_safe_lock()
        self._home = ctypes.c_int64(0)
        self.home = ctypes.addressof(self._home)
        self._workers: _Workers | None = None
        self._flight = InFlight()
        self._flight_limit = memory() // 4
        self._refused: list[_Refused] = []
        self._given_up: list[tuple[_Workers, InFlight]] = []  # still running, so not to be freed
        self._left = _NEVER  # time and timeline value of the last wait that Ctrl-C interrupted
        self._done_at_fork = 0
        self._lost: list[Any] = []  # of the parent process: not to be freed in a child
        self._ended = False
        self.recording: Recording | None = None
        self.caller = Caller(self._failed)
        self.last_effect = 0
        self._failure: BaseException | None = None  # of a callback, until it was raised
        self._inside: list[Inside] = []
        atexit.register(self._at_exit)
        at_fork(self._before_fork, in_child=self._in_child)
        config.tell("workers", self._look_again)

    # ---- submitting -------------------------------------------------------------------------

    @property
    def submitted(self) -> int:
        """Timeline value of the last submission.

        Read from the workers' memory, as Ctrl-C may come between a submission and the next line of
        Python.
        """
        workers = self._workers
        return self._before if workers is None else workers.words[layout.SUBMITTED]

    def idle(self) -> bool:
        """Whether nothing is pending; also releases what is done."""
        with self._lock:
            if self._workers is not None:
                self._flight.release(self._workers.completed())
            empty = not self._flight
            self.clear = empty and not self._refused and self.recording is None
            return empty

    def submit(self, program: int, block: int, scratch: int, outs: Sequence[HostStorage],
               nbytes: int, begin: Callable[[], None] | None, buffer: Leasing, *keep: Any
               ) -> None:
        """Queue a program on a block; ``keep`` is retained until it is done.

        ``begin`` is called once there is room for it and nothing else can fail.

        Waits if the ring buffer is full, or if unfinished work (and ``nbytes`` of this) would take
        more memory than ``config.flight_bytes``.
        """
        while True:
            with self._lock:
                workers = self._ready(scratch)
                value = workers.words[layout.SUBMITTED] + 1
                behind = self._to_wait_for(workers, value, nbytes)
                if not behind:
                    self.clear = False
                    # Retained before it is queued: Ctrl-C may come after each call and each
                    # iteration of a loop. There is none between ``begin`` and the native call, as
                    # donated memory is overwritten.
                    self._flight.keep(value, nbytes, buffer, *keep)
                    if self.recording is not None:
                        self.recording.buffers[value] = buffer
                    if begin is not None:
                        begin()
                    self._native.submit(workers.address, program, block)
                    for storage in outs:  # not visible to others yet
                        storage.timeline = value
                    return
            self._sleep(workers, behind)

    @staticmethod
    def workers() -> int:
        """Return how many threads run once there is work for them."""
        return max(1, config.workers or cores())

    def scratches(self) -> list[int]:
        """Return the scratch of each running worker; the first one is the leader's."""
        return [] if self._workers is None else self._workers.scratches

    def record(self, recording: Recording | None) -> None:
        """Record what the workers run from now on; None: stop recording."""
        self.wait_all()
        with self._lock:
            self.recording = recording
            if self._workers is not None:
                self._workers.words[layout.EVENTS] = 0 if recording is None else recording.address
            self.clear = False  # recomputed at the next check

    def run_inside(self, program: int, block: int, scratch: int) -> None:
        """Run a program on this thread, which runs a callback."""
        run = Inside()
        self._inside.append(run)
        try:
            run.run(self._native.execute, program, block, scratch)
        finally:
            self._inside.remove(run)

    def _failed(self, error: BaseException) -> None:
        """Abort all submitted work: a callback raised, on the leader thread."""
        workers = self._workers
        if workers is None or not workers.here:
            return  # abandoned long ago
        first = workers.completed() + 1
        last = self._native.abort(workers.address)
        self.clear = False
        self._failure = error
        self._refused.append(_Refused(first, last, "ended when a callback raised", error))

    def raise_failure(self) -> None:
        """Raise what a callback raised, once."""
        error, self._failure = self._failure, None
        if error is not None:
            raise error

    def _to_wait_for(self, workers: _Workers, value: int, nbytes: int) -> int:
        """Return the timeline value that must be reached for one more submission to fit, or 0."""
        completed = workers.completed()
        self._flight.release(completed)
        if value - completed > layout.CAPACITY:
            return value - layout.CAPACITY // 2
        limit = config.flight_bytes or self._flight_limit
        if self._flight and self._flight.nbytes + nbytes > limit:
            return self._flight.oldest
        return 0

    def _ready(self, scratch: int) -> _Workers:
        """Return as many threads as configured, with enough scratch."""
        workers = self._workers
        count = self.workers()
        if workers is not None and workers.asked == count and workers.scratch >= scratch:
            return workers
        if self._ended:
            wait_for_the_end()
        self._refuse_if_stuck()
        if workers is not None:
            self.wait_all()
            scratch = max(scratch, workers.scratch)
            self._forget_workers()
            workers.stop(float("inf"))
        made = _Workers(self._native, self._pool, count, scratch, self._before)
        if self.recording is not None:
            made.words[layout.EVENTS] = self.recording.address
        self._workers = made
        self._offer(made)
        return made

    def share(self, scratch: int) -> None:
        """Make sure that as many workers as configured can help a caller."""
        if self.workers() > 1 and not self._ended:
            with self._lock, contextlib.suppress(DeviceError, OutOfMemoryError):
                if not self._stuck():
                    self._offer(self._ready(scratch))

    def _offer(self, workers: _Workers) -> None:
        """Let callers lead these workers."""
        self._home.value = workers.address if workers.count > 1 else 0

    def _forget_workers(self) -> None:
        """Detach the workers: later submissions go to others, and no caller leads these."""
        self._home.value = 0
        self._before, self._workers = self.submitted, None

    def _look_again(self) -> None:
        """Adapt to a changed number of workers."""
        self._home.value = 0
        self.clear = False

    def _stuck(self) -> list[tuple[_Workers, InFlight]]:
        """Return abandoned workers that have not returned yet."""
        self._given_up = [entry for entry in self._given_up if not entry[0].returned()]
        return self._given_up

    def _refuse_if_stuck(self) -> None:
        """Raise if each processor has a kernel that does not end."""
        if len(self._stuck()) >= cores():
            names = ", ".join(workers.running for workers, _ in self._given_up)
            raise DeviceError(f"no processor is left: expected every kernel to end, got {names} "
                              "running on after being aborted", hint="start the process anew")

    # ---- waiting ----------------------------------------------------------------------------

    def wait(self, value: int) -> None:
        """Wait for the submission with this number, then release its resources.

        The memory of a dropped result is then free for the next one, while it is still in the
        caches.
        """
        workers = self._workers
        if workers is not None:
            self._sleep(workers, value)
            if not workers.here:
                self.idle()
        if self._refused:
            self.check(value)

    def _sleep(self, workers: _Workers, value: int) -> None:
        """Wait until a value is reached, or its workers are abandoned."""
        if workers.here and value > workers.completed():
            raise DeviceError("a callback waits for work that is queued behind it",
                              hint="give it what it reads as an argument")
        wait, address = self._native.wait, workers.address
        limit = config.time_limit
        end = time.monotonic() + limit if limit else float("inf")
        try:
            while not wait(address, value, SLICE) and not workers.running:
                if time.monotonic() > end:
                    running = self._running(workers)
                    self.abort()
                    raise DeviceError(f"waited {limit} s, the time limit, for {running}",
                                      hint="raise fnx.config.time_limit, or set it to 0")
        except KeyboardInterrupt:
            self._leave(workers, value)
            raise

    def _leave(self, workers: _Workers, value: int) -> None:
        """Handle Ctrl-C: the first one only leaves the wait.

        Another one soon after, or before the same work is done, aborts what is submitted.
        """
        now, (before, behind) = time.monotonic(), self._left
        self._left = now, value
        if now - before < _AGAIN or workers.completed() < behind:
            self._left = _NEVER
            self.abort()

    def _running(self, workers: _Workers) -> str:
        return self._flight.running(workers.words[layout.COMMAND])

    def wait_all(self) -> None:
        """Wait for all submitted work (aborted work counts as done)."""
        workers = self._workers
        if workers is not None and not workers.here:
            self._sleep(workers, self.submitted)
            self.idle()

    def abort(self) -> None:
        """Skip all submitted work.

        Running kernels get a moment to end their chunks; workers that do not return are abandoned
        and replaced.
        """
        workers = self._workers
        if workers is None:
            return
        first = workers.completed() + 1
        last = self._native.abort(workers.address)
        for run in list(self._inside):
            run.abort()
        if first <= last:
            self.clear = False
            self._refused.append(_Refused(first, last, "was aborted (Ctrl-C or the time limit)"))
        end = time.monotonic() + _PATIENCE
        while not self._native.wait(workers.address, last, SLICE // 5):
            if time.monotonic() > end:
                self._give_up(workers)
                break

    def _give_up(self, workers: _Workers) -> None:
        """Abandon threads, with all that they may still access."""
        with self._lock:
            if self._workers is workers:
                self._native.stop(workers.address)  # for those that do return
                workers.running = self._running(workers)
                self._given_up.append((workers, self._flight))
                self._forget_workers()
                self._flight = InFlight()

    def check(self, value: int) -> None:
        """Raise if a result was never computed."""
        for first, last, why, error in self._refused:
            if first <= value <= last:
                if self._ended:
                    wait_for_the_end()
                if error is not None and error is self._failure:
                    self.raise_failure()
                raise DeviceError(f"the work that computes this array {why}",
                                  hint="compute it again")

    # ---- the process ------------------------------------------------------------------------

    def _at_exit(self) -> None:
        self._finish_effects()
        self._ended = True
        self.abort()  # results that nobody waits for are neither computed nor read
        workers = self._workers
        self._forget_workers()
        if workers is not None and not workers.stop(_PATIENCE):
            self._given_up.append((workers, self._flight))

    def _finish_effects(self) -> None:
        """Finish side effects before the process ends; report what failed."""
        workers = self._workers
        try:
            if workers is not None and self.last_effect > workers.completed():
                self._sleep(workers, self.last_effect)
            self.raise_failure()
        except (Exception, KeyboardInterrupt) as error:
            sys.excepthook(type(error), error, error.__traceback__)

    def _before_fork(self, until: float) -> None:
        """Drain the queue. Only work that was done before the memory was copied counts as done."""
        workers = self._workers
        self._done_at_fork = self._before if workers is None else workers.completed()
        while workers is not None and not workers.here and time.monotonic() < until and \
                self._done_at_fork < workers.words[layout.SUBMITTED]:
            self._native.wait(workers.address, workers.words[layout.SUBMITTED], SLICE)
            self._done_at_fork = workers.completed()

    def _in_child(self) -> None:
        """Detach from the threads, which do not exist here; their queue's memory stays as it is."""
        last, workers = self.submitted, self._workers
        self._forget_workers()
        if self._done_at_fork < last:
            self._refused.append(_Refused(self._done_at_fork + 1, last,
                                          "was not done when the process forked"))
        self._lost = [*self._given_up, (workers, self._flight)]
        self._given_up, self._flight = [], InFlight()
        self.clear = False  # recomputed at the next check
