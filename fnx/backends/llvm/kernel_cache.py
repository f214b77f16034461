"""Kernels by content digest: linked ones in memory, object files on disk, LLVM on helper threads.

    prepare(code):  linked already? -> object on disk? -> text(), queued for the helpers
    get(codes):     waits for the helpers, checks externals, links all that is new at once

Lowering may call ``prepare`` for each kernel as soon as it is ready, so that LLVM runs concurrently
with the lowering of the next one. A linked kernel lives as long as a command buffer (or the cache
of recently used kernels) retains it; its code is freed with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from fnx.backends.disk import background_writer
from fnx.backends.disk.cache import DiskCache, directory
from fnx.backends.llvm import binding as llvm
from fnx.backends.llvm import object_files
from fnx.core.ir.cache import MEGABYTE, Cache, DeathQueue
from fnx.core.ir.kernel_code import KernelCode
from fnx.core.support.errors import DeviceError, FnxError, user_location
from fnx.core.support.process import block_at_exit, fork_safe_lock
from fnx.core.support.target import Target

_MAX_RECENT = 1024  # linked kernels retained without a command buffer
_MAX_RECENT_BYTES = 48 * MEGABYTE
_MAX_THREADS = 4
_WARM_UP_IR = "define void @small(ptr %p) { store i64 0, ptr %p ret void }"


class LinkedKernel:
    """A linked kernel: its address, valid while this object lives. ``nbytes`` is its share of its
    library.
    """

    __slots__ = ("__weakref__", "_library", "address", "key", "nbytes")

    def __init__(self, key: bytes, address: int, library: llvm.Library) -> None:
        self.key, self.address, self._library = key, address, library
        self.nbytes = library.nbytes // len(library.addresses)


class _ProcessExitError(DeviceError):
    """A kernel is requested after the end of compilation."""


class _Latch:
    """An event that waits in a single C call: within ``threading.Event.wait``, Ctrl-C may cause the
    error "release unlocked lock".
    """

    __slots__ = ("_gate", "_open")

    def __init__(self) -> None:
        self._gate, self._open = threading.Lock(), False
        self._gate.acquire()

    def is_set(self) -> bool:
        return self._open

    def set(self) -> None:
        """Let all waiters through; ``wait`` also sees the flag if an interrupt left the lock
        acquired.
        """
        self._open = True
        with contextlib.suppress(RuntimeError):  # it is released already
            self._gate.release()

    def wait(self, timeout: float) -> bool:
        """Whether it is set, after at most ``timeout`` seconds."""
        if not self._open and self._gate.acquire(timeout=timeout):
            self._gate.release()
        return self._open


class _CompileJob:
    """The compilation of one kernel to an object file."""

    __slots__ = ("_disk", "_optimize", "_text", "started", "data", "done", "error", "key",
                 "nanoseconds", "symbol")

    def __init__(self, key: bytes, code: KernelCode, disk: DiskCache) -> None:
        self.key, self.symbol, self._disk = key, code.symbol, disk
        self._optimize = not code.is_library_call
        self._text, self.started = "", False
        self.data = disk.get(key)
        self.nanoseconds = 0  # of LLVM; 0 if it was on disk
        self.error: BaseException | None = None
        self.done = _Latch()
        if self.data is not None:
            self.done.set()

    def set_text(self, text: str) -> None:
        """Set the text to compile."""
        self._text = text

    def compile(self, target: Target) -> None:
        """Compile the text to an object file and check it; on a helper thread."""
        if self.error is not None:
            return
        self.started = True
        try:
            start = time.perf_counter_ns()
            data = llvm.compile_ir(self._text, target, self._optimize)
            self.nanoseconds = time.perf_counter_ns() - start
            object_files.check_undefined(object_files.undefined_symbols(data), self.symbol)
            self.data = data
        except BaseException as e:
            self.error = e
        finally:
            self._text = ""
            self.done.set()

    def keep(self) -> None:
        """Write the object file to disk."""
        if self.data is not None:
            self._disk.put(self.key, self.data, f"kernel {self.symbol}")

    def drop(self) -> None:
        """Fail the job: nobody will compile it."""
        self.error = _ProcessExitError(f"kernel {self.symbol} was not compiled: the process ends")
        self.done.set()

    def object(self) -> bytes:
        """Return the object file, once a helper has compiled it."""
        while not self.done.wait(0.1):  # short waits: Ctrl-C is seen between them
            pass
        if type(self.error) is _ProcessExitError:
            block_at_exit()
        if isinstance(self.error, FnxError):
            self.error.loc = user_location()  # the caller's location, not the helper's
        if self.error is not None:
            raise self.error
        assert self.data is not None
        return self.data


class CompilerThreads:
    """Threads that run LLVM; started when there is work for them."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._limit = max(1, min(target.cores, _MAX_THREADS))
        self.reset()

    def reset(self) -> None:
        """Forget all threads and work (in a forked child the threads are gone)."""
        self._work: queue.SimpleQueue[_CompileJob | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._open: set[_CompileJob] = set()  # queued or running
        self._ended = False

    def run(self, job: _CompileJob) -> None:
        """Compile a job on a helper thread, or here if the system has no more threads."""
        if self._ended:
            job.drop()
            return
        self._open.add(job)
        self._work.put(job)
        if len(self._threads) < min(self._limit, len(self._open)):
            self._start(self._loop)
        if not self._threads:
            self._work.put(None)
            self._loop()

    def start(self) -> None:
        """Start all threads before there is work, so that LLVM is warm for the first kernel of
        each.
        """
        while len(self._threads) < self._limit and not self._ended and self._start(self._warm):
            pass

    def _start(self, run: Callable[[], None]) -> bool:
        """Start a thread; return whether that succeeded."""
        thread = threading.Thread(target=run, name="fnx-llvm", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the process ends
            return False
        self._threads.append(thread)
        return True

    def _warm(self) -> None:
        with contextlib.suppress(FnxError):  # out of memory: the first kernel will report it
            llvm.compile_ir(_WARM_UP_IR, self._target)
        self._loop()

    def _loop(self) -> None:
        work, jobs = self._work, self._open
        while (job := work.get()) is not None:
            job.compile(self._target)
            jobs.discard(job)
            del job

    def end(self) -> None:
        """End at process exit: drop jobs that have not started, and start no more."""
        self._ended = True
        for job in tuple(self._open):
            if not job.started:
                job.drop()


class KernelCache:
    """All kernels of one target in this process."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.compiler_threads = CompilerThreads(target)
        self.counts = {"compiled": 0, "disk": 0, "memory": 0,
                       "print_us": 0, "llvm_us": 0, "link_us": 0}
        self._lock = fork_safe_lock()
        self._linked: dict[bytes, weakref.ref[LinkedKernel]] = {}
        self._dead_kernels: DeathQueue[bytes] = DeathQueue()
        self.recent: Cache[bytes, LinkedKernel] = Cache(
            "kernels", _MAX_RECENT, _MAX_RECENT_BYTES, lambda key, kernel: kernel.nbytes)
        self._jobs: dict[bytes, _CompileJob] = {}

    def prepare(self, code: KernelCode) -> None:
        """Make sure that ``get`` will find the kernel soon."""
        key = code.key
        with self._lock:
            if key not in self._jobs and self._kernel(key) is None:
                self._start(key, code)

    def _kernel(self, key: bytes) -> LinkedKernel | None:
        ref = self._linked.get(key)
        return None if ref is None else ref()

    def _start(self, key: bytes, code: KernelCode) -> None:
        job = _CompileJob(key, code, DiskCache(directory()))
        if job.data is not None:
            self.counts["disk"] += 1
        else:
            start = time.perf_counter_ns()
            job.set_text(code.text())
            self.counts["print_us"] += (time.perf_counter_ns() - start) // 1000
            self.counts["compiled"] += 1
            self.compiler_threads.run(job)
        self._jobs[key] = job

    def get(self, codes: Sequence[KernelCode]) -> list[LinkedKernel]:
        """Return the linked kernels of some codes, in order.

        Raises:
            DeviceError: a kernel calls a function that is not allowed.
            SpecError: LLVM rejects a kernel.
        """
        linked: dict[bytes, LinkedKernel] = {}
        with self._lock:
            for code in codes:
                key = code.key
                kernel = self._kernel(key)
                if kernel is not None:
                    self.counts["memory"] += 1
                    linked[key] = kernel
                elif key not in self._jobs:
                    self._start(key, code)
            jobs = {code.key: self._jobs[code.key] for code in codes if code.key not in linked}
        try:
            objects_of = {key: job.object() for key, job in jobs.items()}
            with self._lock:  # a job is removed after linking, else others would restart it
                to_link = []
                for key, data in objects_of.items():
                    kernel = self._kernel(key)  # another waiting thread has linked it
                    if kernel is not None:
                        linked[key] = kernel
                    else:
                        to_link.append((key, jobs[key].symbol, data))
                        self.counts["llvm_us"] += jobs[key].nanoseconds // 1000
                start = time.perf_counter_ns()
                linked |= self._link(to_link)
                self.counts["link_us"] += (time.perf_counter_ns() - start) // 1000
                for key, kernel in linked.items():
                    if self.recent.get(key) is None:
                        self.recent.put(key, kernel)
        finally:
            with self._lock:
                for key, job in jobs.items():
                    if job.done.is_set() and self._jobs.get(key) is job:
                        del self._jobs[key]
                        if job.nanoseconds:
                            background_writer.enqueue(job.keep)
        return [linked[code.key] for code in codes]

    def _link(self, new: list[tuple[bytes, str, bytes]]) -> dict[bytes, LinkedKernel]:
        """Link one library for all, or one each if their symbols are not distinct."""
        groups = [new] if len({s for _, s, _ in new}) == len(new) else [[entry] for entry in new]
        linked: dict[bytes, LinkedKernel] = {}
        for group in groups:
            if group:
                imports = object_files.imported_addresses([data for _, _, data in group])
                library = llvm.link([(data, [s]) for _, s, data in group], imports)
                for key, s, _ in group:
                    linked[key] = LinkedKernel(key, library.addresses[s], library)
        for key in self._dead_kernels.released():
            if self._kernel(key) is None:
                self._linked.pop(key, None)
        for key, kernel in linked.items():
            self._linked[key] = weakref.ref(kernel)
            self._dead_kernels.watch(kernel, key)
        return linked

    def in_child(self) -> None:
        """Reset in a forked child, which has no helpers; compilations in progress start again."""
        self.compiler_threads.reset()
        self._jobs = {}


def compile_cached(text: str, symbols: Sequence[str], target: Target,
                   imports: dict[str, int]) -> llvm.Library:
    """Compile the fixed code of a backend (the queue's own loops), or fetch it from disk."""
    disk = DiskCache(directory())
    key = hashlib.sha256(f"{llvm.version()}|{target}|{text}".encode()).digest()
    data = disk.get(key)
    if data is not None:
        with contextlib.suppress(DeviceError):  # damaged
            return llvm.link([(data, symbols)], imports)
    data = llvm.compile_ir(text, target)
    disk.put(key, data, "loops of the queue")
    return llvm.link([(data, symbols)], imports)
