"""CUDA's driver: NVIDIA's GPUs through libcuda.so.1 alone, called by ctypes. No toolkit.

    kernels     LLVM emits PTX (lower/render/nvptx.py), the driver assembles it
    arguments   a kernel has one: the address of its words (buffer addresses and scalars)
    a call      one copy of the words of all its kernels, one launch of a graph of them

Each command buffer has one graph: its kernels read their words from a block of device memory that
belongs to the graph. A call acquires a block of pinned host memory, writes this call's addresses
there and copies it, in stream order; there is no copy if the words equal those of the previous
call. An acquired block is returned when the timeline has passed its copy, so calls in flight never
share one.

None of this has run on hardware so far: the tests run it on a recording driver, and compare types,
structures and numbers with those of cuda.h.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_int64, c_uint64, c_void_p
from typing import Any

from fnx.backends.cuda_times import EventTimes
from fnx.backends.device.profiling import SignalProfiler
from fnx.backends.gpu import pinned_memory
from fnx.backends.gpu.call_list import CallList, CallRunner
from fnx.backends.gpu.cancellation import AbortableDriver
from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import DeviceLimits, HostBytes, QueuedLaunch
from fnx.backends.libcuda import (
    CU_MEMHOSTALLOC_DEVICEMAP,
    ENUMS,
    MIN_DRIVER,
    STICKY_ERRORS,
    KernelNode,
    format_version,
    load_functions,
    load_library,
)
from fnx.backends.llvm import binding
from fnx.core.support.errors import DeviceError
from fnx.core.support.kernel_interface import ABORT_REGISTER
from fnx.core.support.process import fork_safe_lock
from fnx.core.support.record import Record
from fnx.core.support.target import Target

CHIPS = (70, 75, 80, 86, 89, 90)  # PTX for one also runs on all later ones
PTX = "+ptx80"
THREADS, SHARED, PRIVATE = 256, 48 << 10, 1 << 10  # the same for every chip

# matrix units: their first chip
FIRST_CHIP_OF_UNIT = {"mma_bf16": 80, "mma_f16": 80, "mma_tf32": 80}


def target_of_chip(chip: int) -> Target:
    """Return the target of a chip (compute capability, times ten).

    >>> target_of_chip(75).unit_names, target_of_chip(80).cpu
    ((), 'sm_80')
    """
    units = tuple([name for name, first in FIRST_CHIP_OF_UNIT.items() if chip >= first])
    return Target("cuda", triple="nvptx64-nvidia-cuda", cpu=f"sm_{chip}", features=PTX,
                  kind="nvptx", threads=THREADS, shared=SHARED, private=PRIVATE, unit_names=units,
                  subgroup=32, async_copies=chip >= 80, vector_bits=128,
                  vector_registers=128, max_chunks=1024)


POLL_INTERVAL = 64           # calls between checks for completed events
_MIN_BLOCK_BYTES = 4 << 10   # bytes of a block of words

_STICKY_ERRORS = {code: f"{text} ({name})" for name, (code, text) in STICKY_ERRORS.items()}
_NO_MEMORY, _NOT_READY = ENUMS["CUDA_ERROR_OUT_OF_MEMORY"], ENUMS["CUDA_ERROR_NOT_READY"]


class CudaKernel(Record):
    """A loaded function, its symbol, and the words after its scalars: the abort address, if it has
    one.
    """

    handle: int
    symbol: str
    behind: tuple[int, ...]


class CudaGraph:
    """An instantiated graph, and the words of its kernels.

    Attributes:
        graph, executable: handles of the driver.
        block: the words in device memory.
        words: those of the last call.
        is_current: whether the block has them once all queued work is done.
    """

    def __init__(self, words: CallList, symbols: tuple[str, ...]) -> None:
        self.words, self.symbols, self.is_current = words, symbols, False
        self.graph = self.executable = self.block = 0


class CudaDriver(AbortableDriver):
    """The first GPU.

    Raises:
        DeviceError: no library, no GPU, or a driver or a chip that is too old.
    """

    name = "cuda"

    @property
    def can_reopen(self) -> bool:  # type: ignore[override]
        """Whether the context still works: not after a fault of a kernel."""
        return not self.lost

    def __init__(self) -> None:
        self.pid, self.lost = os.getpid(), ""
        self._lock, self._thread = fork_safe_lock(), threading.local()
        self._calls = load_functions(load_library())
        self._call("cuInit", 0)
        version = self._query_int("cuDriverGetVersion")
        if version < MIN_DRIVER:
            raise DeviceError(f"cuda: expected a driver of CUDA {format_version(MIN_DRIVER)} or "
                              "later, "
                              f"got {format_version(version)}", hint="install a newer driver")
        if not self._query_int("cuDeviceGetCount"):
            raise DeviceError("cuda: expected a GPU, the driver has none",
                              hint="see nvidia-smi, and CUDA_VISIBLE_DEVICES")
        self.device = self._query_int("cuDeviceGet", 0)
        chip = 10 * self._attribute("COMPUTE_CAPABILITY_MAJOR") + \
            self._attribute("COMPUTE_CAPABILITY_MINOR")
        if chip < CHIPS[0]:
            raise DeviceError(f"cuda: expected a chip from sm_{CHIPS[0]} on, got sm_{chip}",
                              hint='fnx.config.device = "cpu"')
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, self.device)
        self.kind = name.value.decode(errors="replace")
        self.context = self._pointer("cuDevicePrimaryCtxRetain", self.device)
        self._enter()
        self.stream = self._pointer("cuStreamCreate", ENUMS["CU_STREAM_NON_BLOCKING"])
        memory = self._query_int("cuDeviceTotalMem_v2", self.device)
        self.limits = DeviceLimits(memory, memory, self._attribute("MAX_GRID_DIM_X"),
                                   self._attribute("MAX_THREADS_PER_BLOCK"),
                                   self._attribute("MAX_SHARED_MEMORY_PER_BLOCK"))
        self.target = target_of_chip(max(c for c in CHIPS if c <= chip))
        self._signals = self._passed = 0
        self._events: dict[int, int] = {}
        self._free_events: list[int] = []
        self._times = EventTimes(self._call, self.stream, lambda: self.wait(self._record()))
        self._pending: list[QueuedLaunch] = []
        # kernels ahead of each value
        self._pending_values: deque[tuple[int, tuple[str, ...]]] = deque()
        self._block, self._block_bytes = 0, 0  # words of launches without a graph
        self.pinned = pinned_memory.PinnedPool(self._pin, self._reached, self._poll_until)
        self.runner = CallRunner()
        abort_address = self._pointer("cuMemHostAlloc", 4, CU_MEMHOSTALLOC_DEVICEMAP)
        self._abort_word = c_int.from_address(abort_address)
        self._abort_word.value = 0
        self._abort_address = self._query_int("cuMemHostGetDevicePointer_v2", abort_address, 0)

    # ---- calls of the library

    def _call(self, name: str, *args: Any) -> None:
        code = self._calls[name](*args)
        if code:
            raise self._failure(name, code)

    def _failure(self, name: str, code: int) -> Exception:
        if code == _NO_MEMORY:
            return MemoryError(f"cuda: {name} has no memory left")
        if code in _STICKY_ERRORS:
            if not self.lost:
                symbols_in_flight = dict.fromkeys([s for _, symbols in self._pending_values
                                                   for s in symbols])
                self.lost = _STICKY_ERRORS[code] + (f"; one of: {', '.join(symbols_in_flight)}"
                                                    if symbols_in_flight else "")
            return self._lost_error()
        text = c_char_p()
        self._calls["cuGetErrorName"](code, byref(text))
        return DeviceError(f"cuda: {name} failed with {(text.value or b'error').decode()} ({code})")

    def _lost_error(self) -> DeviceError:
        return DeviceError(f"cuda: the device is lost: {self.lost}", hint=(
            "restart the process: CUDA refuses all calls of this one; other devices go on"))

    def _query_int(self, name: str, *args: Any) -> int:
        """Return the value that a function writes through its first argument."""
        value = c_uint64()
        self._call(name, byref(value), *args)
        return value.value

    _pointer = _query_int

    def _attribute(self, name: str) -> int:
        return self._query_int("cuDeviceGetAttribute", ENUMS[f"CU_DEVICE_ATTRIBUTE_{name}"],
                               self.device)

    def _enter(self) -> None:
        """Make the context current in the calling thread."""
        if not getattr(self._thread, "entered", False):
            self._call("cuCtxSetCurrent", self.context)
            self._thread.entered = True

    def check_process(self) -> None:
        """Refuse a forked child, and a context that a kernel fault destroyed."""
        super().check_process()
        if self.lost:
            raise self._lost_error()

    # ---- memory

    def alloc(self, nbytes: int) -> int:
        """Allocate device memory."""
        self._enter()
        return self._query_int("cuMemAlloc_v2", nbytes)

    def free(self, memory: int) -> None:
        """Free memory; the driver waits for its users."""
        with self._lock:
            self._flush()
            self._call("cuMemFree_v2", memory)

    def _pin(self, nbytes: int) -> int:
        return self._pointer("cuMemHostAlloc", nbytes, 0)

    def write(self, memory: int, offset: int, value: HostBytes) -> None:
        """Copy to pinned memory at once, and from there in stream order."""
        source, address = value.ctypes.data, memory + offset
        with self._lock:
            self._flush()
            for start in range(0, value.nbytes, pinned_memory.MAX_BLOCK):
                size = min(pinned_memory.MAX_BLOCK, value.nbytes - start)
                block = self.pinned.acquire(size)
                ctypes.memmove(block, source + start, size)
                self._call("cuMemcpyHtoDAsync_v2", address + start, block, size, self.stream)
                self.pinned.behind(self._record())

    def read(self, memory: int, offset: int, to: HostBytes) -> None:
        """Wait interruptibly (Ctrl-C), then copy."""
        self.wait(self.signal())
        self._enter()
        self._call("cuMemcpyDtoH_v2", to.ctypes.data, memory + offset, to.nbytes)

    def fetch(self, memory: int, offset: int, nbytes: int) -> pinned_memory.PinnedCopy:
        """Queue a copy to pinned memory, followed by an event."""
        with self._lock:
            self._flush()
            block = self.pinned.acquire_block(nbytes)
            self._call("cuMemcpyDtoHAsync_v2", block[1], memory + offset, nbytes, self.stream)
            return pinned_memory.PinnedCopy(self.pinned, block, nbytes, self._record(), self.wait)

    def copy(self, source: int, source_offset: int, to: int, offset: int, nbytes: int) -> None:
        """Queue a copy on the device."""
        with self._lock:
            self._flush()
            self._call("cuMemcpyDtoDAsync_v2", to + offset, source + source_offset, nbytes,
                       self.stream)

    # ---- work

    def load(self, texts: Mapping[str, str]) -> Mapping[str, CudaKernel]:
        """Load a module for each kernel: LLVM emits its PTX, the driver assembles it."""
        return {symbol: self._load_kernel(symbol, text) for symbol, text in texts.items()}

    def _load_kernel(self, symbol: str, text: str) -> CudaKernel:
        image = binding.assembly(text, self.target).encode()
        self._enter()
        log, module = ctypes.create_string_buffer(1 << 13), c_uint64()
        options = (c_int * 2)(ENUMS["CU_JIT_ERROR_LOG_BUFFER"],
                              ENUMS["CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"])
        values = (c_void_p * 2)(ctypes.addressof(log), len(log))
        code = self._calls["cuModuleLoadDataEx"](byref(module), c_char_p(image), 2, options, values)
        if code:
            error = self._failure("cuModuleLoadDataEx", code)
            log_text = log.value.decode(errors="replace").strip()
            raise DeviceError(f"{error.args[0]}: {log_text}") if log_text and not self.lost \
                else error
        function = self._pointer("cuModuleGetFunction", module.value, symbol.encode())
        return CudaKernel(function, symbol,
                          (self._abort_address,) if ABORT_REGISTER in text else ())

    def exec(self, launch: QueuedLaunch) -> None:
        """Defer the launch until other work must follow it: one copy then serves all."""
        with self._lock:
            self._pending.append(launch)
            times = self._times.commands
            if times.is_open and len(self._pending) == times.room:
                self._flush()
                times.report()

    def _flush(self) -> None:
        """Copy the words of all deferred launches, and launch them."""
        self._enter()
        launches = self._pending
        if not launches:
            return
        words: list[int] = []
        starts = []
        for launch in launches:
            starts.append(len(words))
            words += [memory + offset for memory, offset in launch.buffers]
            words += [*launch.scalars, *launch.kernel.behind]
        nbytes = 8 * max(len(words), 1)
        if nbytes > self._block_bytes:
            if self._block:
                self._call("cuMemFree_v2", self._block)
            self._block_bytes = max(_MIN_BLOCK_BYTES, 1 << (nbytes - 1).bit_length())
            self._block = self._query_int("cuMemAlloc_v2", self._block_bytes)
        self._send((c_int64 * len(words))(*words), self._block)
        self._pending = []
        for launch, start in zip(launches, starts):
            word = c_uint64(self._block + 8 * start)
            begin = self._times.record() if self._times.commands.is_open else 0
            self._call("cuLaunchKernel", launch.kernel.handle, launch.groups, 1, 1, launch.threads,
                       1, 1, 0, self.stream, (c_void_p * 1)(ctypes.addressof(word)), None)
            if begin:
                self._times.commands.add((begin, self._times.record()), launch.command)
        self._run([launch.kernel.symbol for launch in launches])

    def _send(self, words: ctypes.Array[Any], block: int) -> None:
        """Copy words to a block of device memory, through a block of pinned memory."""
        if nbytes := ctypes.sizeof(words):
            staging = self.pinned.acquire(nbytes)
            ctypes.memmove(staging, words, nbytes)
            self._call("cuMemcpyHtoDAsync_v2", block, staging, nbytes, self.stream)

    def _run(self, symbols: Sequence[str]) -> None:
        """Record an event after launched kernels, and thereby after the copy of their words."""
        value = self._record()
        self._pending_values.append((value, tuple(symbols)))
        self.pinned.behind(value)
        if value % POLL_INTERVAL == 0:
            self._reached(value - POLL_INTERVAL // 2)

    def link(self, launches: Sequence[QueuedLaunch], numbers: int) -> CudaGraph:
        """Create a graph in which each kernel depends on the previous one."""
        count = sum([len((*launch.buffers, *launch.scalars, *launch.kernel.behind))
                     for launch in launches])
        words, starts = CallList(self.runner, count, numbers), []
        for launch in launches:
            starts.append(words.used)
            words.add_stores(launch.buffers)
            words.add((*launch.scalars, *launch.kernel.behind))
        graph = CudaGraph(words, tuple([launch.kernel.symbol for launch in launches]))
        with self._lock:
            self._enter()
            graph.block = self._query_int("cuMemAlloc_v2", 8 * max(count, 1))
            try:
                graph.graph = self._pointer("cuGraphCreate", 0)
                previous = c_uint64()
                for i, (launch, start) in enumerate(zip(launches, starts)):
                    node = self._add_kernel_node(graph, launch, start, previous if i else None)
                    previous = node
                graph.executable = self._pointer("cuGraphInstantiateWithFlags", graph.graph, 0)
            except BaseException:
                self.unlink(graph)
                raise
        return graph

    def _add_kernel_node(self, graph: CudaGraph, launch: QueuedLaunch, start: int,
                         previous: c_uint64 | None
              ) -> c_uint64:
        """Add a kernel to a graph; its argument is read at this time."""
        word, node = c_uint64(graph.block + 8 * start), c_uint64()
        arguments = (c_void_p * 1)(ctypes.addressof(word))
        params = KernelNode(launch.kernel.handle, launch.groups, 1, 1, launch.threads, 1, 1, 0,
                            ctypes.addressof(arguments), None, None, None)
        self._call("cuGraphAddKernelNode_v2", byref(node), graph.graph,
                   None if previous is None else byref(previous), 0 if previous is None else 1,
                   byref(params))
        return node

    def launch(self, linked: CudaGraph, memory: list[int]) -> None:
        """Copy the words if they changed since the last call, and launch the graph."""
        with self._lock:
            self._flush()
            linked.words.run(memory)
            linked.is_current &= not linked.words.has_changed
            if not linked.is_current:
                self._send(linked.words.words, linked.block)
                linked.is_current = True
            self._call("cuGraphLaunch", linked.executable, self.stream)
            self._run(linked.symbols)

    def unlink(self, linked: CudaGraph) -> None:
        """Destroy a graph once it has run."""
        with self._lock:
            self._flush()
            for name, handle in (("cuGraphExecDestroy", linked.executable),
                                 ("cuGraphDestroy", linked.graph), ("cuMemFree_v2", linked.block)):
                if handle:
                    self._call(name, handle)

    # ---- times

    def set_profiler(self, profiler: SignalProfiler | None) -> bool:
        """Record events around each kernel, until the profile ends."""
        with self._lock:
            self._flush()
            self._times.switch(profiler)
        return True

    def report_times(self) -> None:
        """Read the events of the profile."""
        with self._lock:
            self._flush()
            self._times.commands.report()

    # ---- the timeline

    def _record(self) -> int:
        """Record an event after all that is in the stream. Return its timeline value."""
        event = self._free_events.pop() if self._free_events else self._pointer(
            "cuEventCreate", ENUMS["CU_EVENT_DISABLE_TIMING"])
        self._call("cuEventRecord", event, self.stream)
        self._signals += 1
        self._events[self._signals] = event
        return self._signals

    def signal(self) -> int:
        """Record an event after all queued work."""
        with self._lock:
            self._flush()
            return self._record()

    def done(self, value: int) -> bool:
        """Whether the event was reached."""
        with self._lock:
            self._flush()
            return self._reached(value)

    def _reached(self, value: int) -> bool:
        if value <= self._passed:
            return True
        self.check_not_aborted()
        self._enter()
        code = self._calls["cuEventQuery"](self._events[value])
        if code == _NOT_READY:
            return False
        if code:
            raise self._failure("cuEventQuery", code)
        for reached in range(self._passed + 1, value + 1):
            self._free_events.append(self._events.pop(reached))
        self._passed = value
        while self._pending_values and self._pending_values[0][0] <= value:
            self._pending_values.popleft()
        return True

    def last(self) -> int:
        """Timeline value of the last event."""
        with self._lock:
            return self._signals

    def _poll_until(self, value: int) -> None:
        pause = 0.0
        while True:
            with self._lock:
                if self._reached(value):
                    return
            time.sleep(pause)
            pause = min(pause + 2e-5, 1e-3)

    def submit(self) -> None:
        """Launch what is deferred; a stream begins by itself."""
        with self._lock:
            self._flush()


def device() -> GpuDevice:
    """Return the device, for ``get_device``."""
    return GpuDevice(CudaDriver())
