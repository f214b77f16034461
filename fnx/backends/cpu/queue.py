"""The cpu's queue: worker threads that run the native loops of runtime.py and workers.py.

The threads are started natively at the first long submission: Python does not know them, so they
need no GIL and do not delay the interpreter's exit. Timeline values continue over a restart (with
another number of workers, or in a forked child), so those of storages stay valid.

A first Ctrl-C only leaves the wait; a second one, or a wait longer than ``config.time_limit``,
aborts all submitted work: waiting for (or computing with) a result of aborted work raises. Work
submitted afterwards runs, on new threads if the old ones do not return.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from fnx.backends.cpu import layout
from fnx.backends.cpu.callbacks import CallbackKernel, InlineSubmission
from fnx.backends.cpu.native_runtime import NativeRuntime, native_runtime
from fnx.backends.cpu.profile_events import EventRecording
from fnx.backends.device.allocator import Pool, PoolBlock, available_memory
from fnx.backends.device.hcq import HostStorage, InFlight, PooledCommandBuffer, Signal
from fnx.backends.llvm.host_cpu import cores
from fnx.core.support.config import config
from fnx.core.support.errors import DeviceError, OutOfMemoryError
from fnx.core.support.process import at_exit, at_fork, block_at_exit, fork_safe_lock
from fnx.core.support.record import Record

WAIT_SLICE_NS = 50_000_000  # nanoseconds between checks for Ctrl-C and the time limit in a wait
_ABORT_TIMEOUT = 1.0  # seconds for aborted work to reach the next chunk
_INTERRUPT_WINDOW = 2.0  # seconds after a Ctrl-C within which another one aborts
_NO_INTERRUPT = -_INTERRUPT_WINDOW, 0


class _WorkerThreads:
    """Running threads, the memory of their queue, and their private scratch."""

    def __init__(self, lib: NativeRuntime, pool: Pool, count: int, scratch: int,
                 value: int) -> None:
        self.lib, self.requested, self.scratch = lib, count, scratch
        self._memory = (ctypes.c_int64 * (layout.QUEUE_WORDS + 16))()
        start = -ctypes.addressof(self._memory) % 128 // 8
        self.words = memoryview(self._memory).cast("B").cast("q")[start:]
        self.address = ctypes.addressof(self._memory) + 8 * start
        self.words[layout.SUBMITTED] = self.words[layout.COMPLETED] = value
        self.words[layout.ABORT] = value
        self.words[layout.SCRATCH_CAPACITY] = scratch
        for mutex in (layout.MUTEX, layout.LEADER):
            lib.mutex_init(self.address + 8 * mutex, None)
        for condition in (layout.SUBMITTED_COND, layout.JOB_OPENED, layout.JOB_FINISHED,
                          layout.FINISHED):
            lib.condition_init(self.address + 8 * condition, None)
        self._private = [PoolBlock(pool, max(64, scratch)) for _ in range(count)]
        self._arguments = (ctypes.c_int64 * (layout.WORKER_WORDS * count))()
        self.words[layout.WORKERS] = ctypes.addressof(self._arguments) + 8 * layout.WORKER_WORDS
        self._threads: list[int] = []
        self.running = ""  # the kernel that did not end when these threads were abandoned
        for i in range(count):
            if not self._start(i):
                break  # the system has no more threads: fewer suffice

    @property
    def is_leader_thread(self) -> bool:
        """Whether this is their leader thread, running a callback."""
        return bool(self._threads) and self._threads[0] == threading.get_ident()

    @property
    def count(self) -> int:
        """Number of running threads."""
        return len(self._threads)

    @property
    def scratch_addresses(self) -> list[int]:
        """Address of the private memory of each running thread."""
        return [block.ptr for block in self._private[:self.count]]

    def _start(self, i: int) -> bool:
        offset = layout.WORKER_WORDS * i
        self._arguments[offset + layout.QUEUE] = self.address
        self._arguments[offset + layout.PRIVATE_SCRATCH] = self._private[i].ptr
        thread = ctypes.c_void_p()
        code = self.lib.addresses["worker_loop" if i else "leader_loop"]
        failed = self.lib.create(ctypes.byref(thread), None, code,
                                 ctypes.addressof(self._arguments) + 8 * offset)
        if not failed:
            self._threads.append(thread.value or 0)
            self._arguments[offset + layout.THREAD] = thread.value or 0
            self.words[layout.WORKER_COUNT] = i
        elif i == 0:
            raise DeviceError(f"the system starts no worker thread: {os.strerror(failed)}",
                              hint="end some threads or processes")
        return not failed

    def completed(self) -> int:
        return self.words[layout.COMPLETED]

    def returned(self) -> bool:
        """Whether all threads have ended, or are about to, and no caller leads them."""
        return self.words[layout.RETURNED] >= self.count and not self.words[layout.LEADER_COUNT]

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


class _FailedRange(Record):
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
        caller: the kernel of CALLBACK commands.
        last_effect: timeline value of the last submission with side effects.
        queue_ptr: address of a word that holds the address of the queue's memory; 0: no workers.
    """

    def __init__(self, pool: Pool) -> None:
        self.clear = True
        self._before = 0  # timeline value of the last submission to earlier workers
        self._native, self._pool = native_runtime(), pool
        self._lock = fork_safe_lock()
        self._queue_ptr = ctypes.c_int64(0)
        self.queue_ptr = ctypes.addressof(self._queue_ptr)
        self._workers: _WorkerThreads | None = None
        self._flight = InFlight()
        self._flight_limit = available_memory() // 4
        self._failed_ranges: list[_FailedRange] = []
        # still running, so not to be freed
        self._abandoned: list[tuple[_WorkerThreads, InFlight]] = []
        # time and timeline value of the last wait that Ctrl-C interrupted
        self._left = _NO_INTERRUPT
        self._completed_at_fork = 0
        self._leaked: list[Any] = []  # of the parent process: not to be freed in a child
        self._ended = False
        self.recording: EventRecording | None = None
        self.caller = CallbackKernel(self._failed)
        self.last_effect = 0
        self._failure: BaseException | None = None  # of a callback, until it was raised
        self._inline_runs: list[InlineSubmission] = []
        at_exit(self._at_exit)
        at_fork(self._drain_before_fork, in_child=self._in_child)
        config.add_listener("workers", self._on_worker_count)

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
            self.clear = empty and not self._failed_ranges and self.recording is None
            return empty

    def submit(self, program: int, block: int, scratch: int, outs: Sequence[HostStorage],
               nbytes: int, on_commit: Callable[[], None] | None, buffer: PooledCommandBuffer,
               *resources: Any
               ) -> None:
        """Queue a program on a block; ``resources`` is retained until it is done.

        ``on_commit`` is called once there is room for it and nothing else can fail.

        Waits if the ring buffer is full, or if unfinished work (and ``nbytes`` of this) would take
        more memory than ``config.flight_bytes``.
        """
        while True:
            with self._lock:
                workers = self._get_workers(scratch)
                value = workers.words[layout.SUBMITTED] + 1
                blocking_value = self._blocking_value(workers, value, nbytes)
                if not blocking_value:
                    self.clear = False
                    # Retained before it is queued: Ctrl-C may come after each call and each
                    # iteration of a loop. There is none between ``on_commit`` and the native call,
                    # as donated memory is overwritten.
                    self._flight.keep(value, nbytes, buffer, *resources)
                    if self.recording is not None:
                        self.recording.buffers[value] = buffer
                    if on_commit is not None:
                        on_commit()
                    self._native.submit(workers.address, program, block)
                    for storage in outs:  # not visible to others yet
                        storage.timeline = value
                    return
            self._sleep(workers, blocking_value)

    @staticmethod
    def workers() -> int:
        """Return how many threads run once there is work for them."""
        return max(1, config.workers or cores())

    def scratch_addresses(self) -> list[int]:
        """Return the scratch of each running worker; the first one is the leader's."""
        return [] if self._workers is None else self._workers.scratch_addresses

    def record(self, recording: EventRecording | None) -> None:
        """Record what the workers run from now on; None: stop recording."""
        self.wait_all()
        with self._lock:
            self.recording = recording
            if self._workers is not None:
                self._workers.words[layout.EVENTS] = 0 if recording is None else recording.address
            self.clear = False  # recomputed at the next check

    def run_inline(self, program: int, block: int, scratch: int) -> None:
        """Run a program on this thread, which runs a callback."""
        run = InlineSubmission()
        self._inline_runs.append(run)
        try:
            run.run(self._native.execute, program, block, scratch)
        finally:
            self._inline_runs.remove(run)

    def _failed(self, error: BaseException) -> None:
        """Abort all submitted work: a callback raised, on the leader thread."""
        workers = self._workers
        if workers is None or not workers.is_leader_thread:
            return  # abandoned long ago
        first = workers.completed() + 1
        last = self._native.abort(workers.address)
        self.clear = False
        self._failure = error
        self._failed_ranges.append(_FailedRange(first, last, "ended when a callback raised", error))

    def raise_failure(self) -> None:
        """Raise what a callback raised, once."""
        error, self._failure = self._failure, None
        if error is not None:
            raise error

    def _blocking_value(self, workers: _WorkerThreads, value: int, nbytes: int) -> int:
        """Return the timeline value that must be reached for one more submission to fit, or 0."""
        completed = workers.completed()
        self._flight.release(completed)
        if value - completed > layout.CAPACITY:
            return value - layout.CAPACITY // 2
        limit = config.flight_bytes or self._flight_limit
        if self._flight and self._flight.nbytes + nbytes > limit:
            return self._flight.oldest
        return 0

    def _get_workers(self, scratch: int) -> _WorkerThreads:
        """Return as many threads as configured, with enough scratch."""
        workers = self._workers
        count = self.workers()
        if workers is not None and workers.requested == count and workers.scratch >= scratch:
            return workers
        if self._ended:
            block_at_exit()
        self._check_stuck()
        if workers is not None:
            self.wait_all()
            scratch = max(scratch, workers.scratch)
            self._detach_workers()
            workers.stop(float("inf"))
        threads = _WorkerThreads(self._native, self._pool, count, scratch, self._before)
        if self.recording is not None:
            threads.words[layout.EVENTS] = self.recording.address
        self._workers = threads
        self._publish_workers(threads)
        return threads

    def ensure_workers(self, scratch: int) -> None:
        """Make sure that as many workers as configured can help a caller."""
        if self.workers() > 1 and not self._ended:
            with self._lock, contextlib.suppress(DeviceError, OutOfMemoryError):
                if not self._stuck_workers():
                    self._publish_workers(self._get_workers(scratch))

    def _publish_workers(self, workers: _WorkerThreads) -> None:
        """Let callers lead these workers."""
        self._queue_ptr.value = workers.address if workers.count > 1 else 0

    def _detach_workers(self) -> None:
        """Detach the workers: later submissions go to others, and no caller leads these."""
        self._queue_ptr.value = 0
        self._before, self._workers = self.submitted, None

    def _on_worker_count(self) -> None:
        """Adapt to a changed number of workers."""
        self._queue_ptr.value = 0
        self.clear = False

    def _stuck_workers(self) -> list[tuple[_WorkerThreads, InFlight]]:
        """Return abandoned workers that have not returned yet."""
        self._abandoned = [entry for entry in self._abandoned if not entry[0].returned()]
        return self._abandoned

    def _check_stuck(self) -> None:
        """Raise if each processor has a kernel that does not end."""
        if len(self._stuck_workers()) >= cores():
            names = ", ".join(workers.running for workers, _ in self._abandoned)
            raise DeviceError(f"no processor is left: expected every kernel to end, got {names} "
                              "running on after being aborted", hint="restart the process")

    # ---- waiting ----------------------------------------------------------------------------

    def wait(self, value: int) -> None:
        """Wait for the submission with this number, then release its resources.

        The memory of a dropped result is then free for the next one, while it is still in the
        caches.
        """
        workers = self._workers
        if workers is not None:
            self._sleep(workers, value)
            if not workers.is_leader_thread:
                self.idle()
        if self._failed_ranges:
            self.check(value)

    def _sleep(self, workers: _WorkerThreads, value: int) -> None:
        """Wait until a value is reached, or its workers are abandoned."""
        if workers.is_leader_thread and value > workers.completed():
            raise DeviceError("a callback waits for work that is queued behind it",
                              hint="pass the arrays that the callback reads as its arguments")
        wait, address = self._native.wait, workers.address
        limit = config.time_limit
        deadline = time.monotonic() + limit if limit else float("inf")
        try:
            while not wait(address, value, WAIT_SLICE_NS) and not workers.running:
                if time.monotonic() > deadline:
                    running = self._running(workers)
                    self.abort()
                    raise DeviceError(f"waited {limit} s, the time limit, for {running}",
                                      hint="increase fnx.config.time_limit, or set it to 0 for no "
                                           "limit")
        except KeyboardInterrupt:
            self._on_interrupt(workers, value)
            raise

    def _on_interrupt(self, workers: _WorkerThreads, value: int) -> None:
        """Handle Ctrl-C: the first one only leaves the wait.

        Another one soon after, or before the same work is done, aborts what is submitted.
        """
        now, (last_time, last_value) = time.monotonic(), self._left
        self._left = now, value
        if now - last_time < _INTERRUPT_WINDOW or workers.completed() < last_value:
            self._left = _NO_INTERRUPT
            self.abort()

    def _running(self, workers: _WorkerThreads) -> str:
        return self._flight.running(workers.words[layout.COMMAND])

    def wait_all(self) -> None:
        """Wait for all submitted work (aborted work counts as done)."""
        workers = self._workers
        if workers is not None and not workers.is_leader_thread:
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
        for run in list(self._inline_runs):
            run.abort()
        if first <= last:
            self.clear = False
            self._failed_ranges.append(_FailedRange(first, last,
                                                    "was aborted (Ctrl-C or the time limit)"))
        end = time.monotonic() + _ABORT_TIMEOUT
        while not self._native.wait(workers.address, last, WAIT_SLICE_NS // 5):
            if time.monotonic() > end:
                self._abandon(workers)
                break

    def _abandon(self, workers: _WorkerThreads) -> None:
        """Abandon threads, with all that they may still access."""
        with self._lock:
            if self._workers is workers:
                self._native.stop(workers.address)  # for those that do return
                workers.running = self._running(workers)
                self._abandoned.append((workers, self._flight))
                self._detach_workers()
                self._flight = InFlight()

    def check(self, value: int) -> None:
        """Raise if a result was never computed."""
        for first, last, reason, error in self._failed_ranges:
            if first <= value <= last:
                if self._ended:
                    block_at_exit()
                if error is not None and error is self._failure:
                    self.raise_failure()
                raise DeviceError(f"the work that computes this array {reason}",
                                  hint="compute it again")

    # ---- the process ------------------------------------------------------------------------

    def _at_exit(self) -> None:
        self._finish_effects()
        self._ended = True
        self.abort()  # results that nobody waits for are neither computed nor read
        workers = self._workers
        self._detach_workers()
        if workers is not None and not workers.stop(_ABORT_TIMEOUT):
            self._abandoned.append((workers, self._flight))

    def _finish_effects(self) -> None:
        """Finish side effects before the process ends; report what failed."""
        workers = self._workers
        try:
            if workers is not None and self.last_effect > workers.completed():
                self._sleep(workers, self.last_effect)
            self.raise_failure()
        except (Exception, KeyboardInterrupt) as error:
            sys.excepthook(type(error), error, error.__traceback__)

    def _drain_before_fork(self, deadline: float) -> None:
        """Drain the queue. Only work that was done before the memory was copied counts as done."""
        workers = self._workers
        self._completed_at_fork = self._before if workers is None else workers.completed()
        while workers is not None and not workers.is_leader_thread and \
                time.monotonic() < deadline and \
                self._completed_at_fork < workers.words[layout.SUBMITTED]:
            self._native.wait(workers.address, workers.words[layout.SUBMITTED], WAIT_SLICE_NS)
            self._completed_at_fork = workers.completed()

    def _in_child(self) -> None:
        """Detach from the threads, which do not exist here; their queue's memory stays as it is."""
        last, workers = self.submitted, self._workers
        self._detach_workers()
        if self._completed_at_fork < last:
            self._failed_ranges.append(_FailedRange(self._completed_at_fork + 1, last,
                                                    "was not done when the process forked"))
        self._leaked = [*self._abandoned, (workers, self._flight)]
        self._abandoned, self._flight = [], InFlight()
        self.clear = False  # recomputed at the next check
