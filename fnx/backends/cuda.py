"""CUDA's driver: NVIDIA's GPUs through libcuda.so.1 alone, called by ctypes. No toolkit.

    kernels     LLVM emits PTX (lower/render/nvptx.py), the driver assembles it
    arguments   a kernel has one: the address of its words (buffer addresses and scalars)
    a call      one copy of the words of all its kernels, one launch of a graph of them, both in
                machine code (gpu/call_list.py)

Each command buffer has one graph: its kernels read their words from a block of device memory that
belongs to the graph. A call fills in this call's addresses, and copies the words through a piece of
pinned host memory, in the order of the stream; there is no copy if the words equal those of the
previous call. A piece is used again when the timeline has passed its copy, so calls in flight never
share one. Long copies have a stream of their own (gpu/in_order_driver.py).

None of this has run on hardware so far: the tests run it on a recording driver, and compare types,
structures and numbers with those of cuda.h.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_uint64, c_void_p
from typing import Any

from fnx.backends.device.profiling import SignalProfiler
from fnx.backends.gpu.call_list import ArgumentWords
from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import DeviceLimits, HostBytes, QueuedLaunch, number_memory
from fnx.backends.gpu.in_order_driver import EventDriver
from fnx.backends.gpu.pinned_memory import PinnedRing
from fnx.backends.libcuda import (
    CU_MEMHOSTALLOC_DEVICEMAP,
    ENUMS,
    MIN_DRIVER,
    STICKY_ERRORS,
    KernelNode,
    address_of,
    format_version,
    load_functions,
    load_library,
)
from fnx.backends.llvm import binding
from fnx.core.support.errors import DeviceError
from fnx.core.support.kernel_interface import ABORT_REGISTER
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


_MIN_BLOCK_BYTES = 4 << 10  # bytes of the block of words of launches without a graph
_STICKY_ERRORS = {code: f"{text} ({name})" for name, (code, text) in STICKY_ERRORS.items()}
_MEMMOVE = address_of(ctypes.CDLL(None).memmove)
_NO_MEMORY, _NOT_READY = ENUMS["CUDA_ERROR_OUT_OF_MEMORY"], ENUMS["CUDA_ERROR_NOT_READY"]


class CudaKernel(Record):
    """A loaded function, and the words after its scalars: the abort address, if it has one."""

    handle: int
    behind: tuple[int, ...]


class CudaGraph:
    """A graph, what was instantiated from it, and the words of its kernels in device memory.

    Attributes:
        graph, executable: handles of the driver.
        block: the words in device memory.
    """

    def __init__(self, words: ArgumentWords) -> None:
        self.words = words
        self.graph = self.executable = self.block = 0


class CudaDriver(EventDriver):
    """The first GPU.

    Raises:
        DeviceError: no library, no GPU, or a driver or a chip that is too old.
    """

    name = "cuda"
    max_acquired = 1  # an event costs less than another block

    @property
    def can_reopen(self) -> bool:  # type: ignore[override]
        """Whether the context still works: not after a fault of a kernel."""
        return not self.lost

    def __init__(self) -> None:
        super().__init__()
        self.lost, self._thread = "", threading.local()
        self._calls = load_functions(load_library())
        self._ring = PinnedRing(self.pinned, self._record)
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
        self.queue, self.copy_queue = [
            self._pointer("cuStreamCreate", ENUMS["CU_STREAM_NON_BLOCKING"]) for _ in range(2)]
        memory = self._query_int("cuDeviceTotalMem_v2", self.device)
        self.limits = DeviceLimits(memory, memory, self._attribute("MAX_GRID_DIM_X"),
                                   self._attribute("MAX_THREADS_PER_BLOCK"),
                                   self._attribute("MAX_SHARED_MEMORY_PER_BLOCK"))
        self.target = target_of_chip(max(c for c in CHIPS if c <= chip))
        self._free_events: dict[int, list[int]] = {}  # by their flags, which ``_flags`` has
        self._flags: dict[int, int] = {}
        self._base, self._base_time = 0, 0.0  # an event of a profile, and its nanoseconds
        self._block = self._block_bytes = 0  # words of launches without a graph
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
            self.lost = self.lost or _STICKY_ERRORS[code]
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

    def _copy_in(self, queue: int, memory: int, offset: int, address: int, nbytes: int) -> None:
        self._call("cuMemcpyHtoDAsync_v2", memory + offset, address, nbytes, queue)

    def _copy_out(self, queue: int, memory: int, offset: int, address: int, nbytes: int) -> None:
        self._call("cuMemcpyDtoHAsync_v2", address, memory + offset, nbytes, queue)

    def _copy_within(self, source: int, source_offset: int, to: int, offset: int, nbytes: int
                     ) -> None:
        self._call("cuMemcpyDtoDAsync_v2", to + offset, source + source_offset, nbytes, self.queue)

    def _read(self, memory: int, offset: int, to: HostBytes) -> None:
        self._enter()
        self._call("cuMemcpyDtoH_v2", to.ctypes.data, memory + offset, to.nbytes)

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
        return CudaKernel(function, (self._abort_address,) if ABORT_REGISTER in text else ())

    def _words(self, launches: Sequence[QueuedLaunch], numbers: int) -> ArgumentWords:
        """Return the words; after the memory of a call comes what ``_run`` adds."""
        return ArgumentWords(self.runner, [
            ((), launch.buffers, (*launch.scalars, *launch.kernel.behind)) for launch in launches],
            numbers + 2)

    def _flush(self) -> None:
        self._enter()
        super()._flush()

    def _start(self) -> None:
        """Copy the words of all launches, and launch them."""
        numbered, memory = number_memory(self._pending)
        words = self._words(numbered, len(memory))
        if words.nbytes > self._block_bytes:
            if self._block:
                self._call("cuMemFree_v2", self._block)
            self._block_bytes = max(_MIN_BLOCK_BYTES, 1 << (words.nbytes - 1).bit_length())
            self._block = self._query_int("cuMemAlloc_v2", self._block_bytes)
        self._before_kernels(memory)
        self._add_copy(words, len(memory), self._block)
        self._run(words, memory)
        launches, self._pending = self._pending, []
        for launch, start in zip(launches, words.starts):
            word = c_uint64(self._block + start)
            begin = self._timed_mark() if self._times.is_open else 0
            self._call("cuLaunchKernel", launch.kernel.handle, launch.groups, 1, 1, launch.threads,
                       1, 1, 0, self.queue, (c_void_p * 1)(ctypes.addressof(word)), None)
            if begin:
                self._times.add((begin, self._timed_mark()), launch.command)

    def _add_copy(self, words: ArgumentWords, numbers: int, block: int) -> None:
        """Let a run copy the words that changed to a block of device memory, through a piece of
        pinned memory.
        """
        if not words.nbytes:
            return
        words.calls.call("memmove", _MEMMOVE, 0, words.address, words.nbytes, if_changed=True,
                         keeps_changed=True, memory=(numbers, 0), returns=numbers + 1)
        words.calls.call("cuMemcpyHtoDAsync_v2", address_of(self._calls["cuMemcpyHtoDAsync_v2"]),
                         block, 0, words.nbytes, self.queue, if_changed=True, memory=(numbers, 1))

    def _run(self, words: ArgumentWords, memory: list[int]) -> None:
        """Run the calls on this memory, with a piece of pinned memory for the words."""
        piece = self._ring.acquire(words.nbytes)
        failed = words.calls.run([*memory, piece, 0])
        if not words.calls.handle(len(memory) + 1):
            self._ring.undo(piece)
        if failed is not None:
            raise self._failure(*failed)

    def link(self, launches: Sequence[QueuedLaunch], numbers: int) -> CudaGraph:
        """Create a graph in which each kernel depends on the previous one."""
        graph = CudaGraph(self._words(launches, numbers))
        with self._lock:
            self._enter()
            graph.block = self._query_int("cuMemAlloc_v2", max(graph.words.nbytes, 8))
            self._add_copy(graph.words, numbers, graph.block)
            try:
                graph.graph = self._pointer("cuGraphCreate", 0)
                previous = c_uint64()
                for i, (launch, start) in enumerate(zip(launches, graph.words.starts)):
                    node = self._add_kernel_node(graph, launch, start, previous if i else None)
                    previous = node
                graph.executable = self._pointer("cuGraphInstantiateWithFlags", graph.graph, 0)
                graph.words.calls.call("cuGraphLaunch", address_of(self._calls["cuGraphLaunch"]),
                                       graph.executable, self.queue)
            except BaseException:
                self.unlink(graph)
                raise
        return graph

    def _add_kernel_node(self, graph: CudaGraph, launch: QueuedLaunch, start: int,
                         previous: c_uint64 | None) -> c_uint64:
        """Add a kernel to a graph; its argument is read at this time."""
        word, node = c_uint64(graph.block + start), c_uint64()
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
            self._before_kernels(memory)
            self._run(linked.words, memory)

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
        """Mark the begin and the end of each kernel, until the profile ends."""
        with self._lock:
            self._flush()
            if profiler is not None:
                event = self._timed_mark()
                self.leave(self._record())
                if self._base:  # the time between events is a float32, so it has to be short
                    self._base_time = self._read_time(event)
                    self._release(self._base)
                self._base = event
            return super().set_profiler(profiler)

    def _timed_mark(self) -> int:
        return self._mark(self.queue, ENUMS["CU_EVENT_DEFAULT"])

    def _read_time(self, event: int) -> float:
        milliseconds = c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), self._base, event)
        return self._base_time + milliseconds.value * 1e6

    def _read_times(self, events: list[Any]) -> list[tuple[int, int]]:
        self.leave(self._record())
        times = [(round(self._read_time(a)), round(self._read_time(b))) for a, b in events]
        for event in [event for pair in events for event in pair]:
            self._release(event)
        return times

    def _compare_clocks(self) -> tuple[int, int]:
        """Time an event."""
        start, event = time.monotonic_ns(), self._timed_mark()
        self.leave(self._record())
        nanoseconds = time.monotonic_ns() - start
        ahead = start + nanoseconds // 2 - round(self._read_time(event))
        self._release(event)
        return nanoseconds, ahead

    # ---- events

    def _mark(self, queue: int, flags: int = ENUMS["CU_EVENT_DISABLE_TIMING"]) -> int:
        free = self._free_events.setdefault(flags, [])
        event = free.pop() if free else self._pointer("cuEventCreate", flags)
        self._flags[event] = flags
        self._call("cuEventRecord", event, queue)
        return event

    def _wait_for(self, queue: int, event: int) -> None:
        self._call("cuStreamWaitEvent", queue, event, 0)

    def _is_complete(self, event: int) -> bool:
        self._enter()
        code = self._calls["cuEventQuery"](event)
        if code not in (0, _NOT_READY):
            raise self._failure("cuEventQuery", code)
        return not code

    def _release(self, event: int) -> None:
        self._free_events[self._flags[event]].append(event)


def device() -> GpuDevice:
    """Return the device, for ``get_device``."""
    return GpuDevice(CudaDriver())
