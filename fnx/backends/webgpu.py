"""WebGPU's driver, through wgpu-native (the wheel ``wgpu``): Vulkan, Metal and DirectX.

    a call      one encoder, one submit, in machine code (gpu/call_list.py); kernels are dispatches
                of one pass, in order
    memory      pieces of large buffers, so that the operands of a kernel need few bindings; a
                number: that of the buffer in its high bits, the offset in the low ones
    arguments   words of one uniform buffer, written before the submit: of each launch, the number
                of groups, offsets of its buffers, scalars

A kernel is compiled at its first launch, once for each way in which its operands share buffers,
since two bindings may not refer to the same buffer. Counts and sizes are checked before encoding,
and that memory was not freed, as wgpu-native may end the process on an error. While a profile is
recorded, each launch is a pass of its own, which has its times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from ctypes import addressof, c_int32, sizeof
from typing import Any

import numpy as np

from fnx.backends.device.profiling import SignalProfiler
from fnx.backends.gpu.call_list import ArgumentWords, CallList
from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import DeviceLimits, HostBytes, QueuedLaunch, number_memory
from fnx.backends.gpu.driver_probe import probe_driver
from fnx.backends.gpu.in_order_driver import InOrderDriver
from fnx.backends.libwgpu import (
    LinkedPass,
    MappedCopy,
    NativeFunctions,
    Pipelines,
    PreparedPass,
    WebGpuKernel,
    device_lost_error,
    reports_device_loss,
    start_copy_thread,
)
from fnx.core.support.errors import DeviceError, DonatedError
from fnx.core.support.kernel_interface import MAX_GROUPS_PER_AXIS
from fnx.core.support.process import exit_without_destructors, load
from fnx.core.support.target import Target

# The target: the minimum that the standard guarantees, so that kernels for web pages can be
# compiled for it, too.
ROW = Target("webgpu", kind="wgsl", threads=128, shared=16 << 10, private=1 << 10, max_buffers=8,
             branch_barriers=False, fma=False, has_64bit=False, vector_bits=32,
             vector_registers=64, max_chunks=1024)
# Mesa's CPU driver, which stops longer loops
SOFTWARE_ADAPTER, MAX_LOOP_STEPS = "llvmpipe", (1 << 16) - 1
SLAB, MAX_PIECE = 16 << 20, 1 << 20  # bytes of a divided buffer; of an unshared one, at least
ALIGNMENT = 256  # of pieces and of the words of a launch
BUFFER_SHIFT = 40  # bits of an offset in memory
OFFSET_MASK = (1 << BUFFER_SHIFT) - 1
_MAX_PREPARED = 8  # cached passes of a command buffer, for memory in different buffers
_ENCODER, _PASS, _ENCODED = range(3)  # handles that the calls of a pass return, behind its memory
_SUBGROUPS, _TIMES = "subgroup", "timestamp-query"  # optional features of adapters
_PACKAGES = ("pip install wgpu; Debian: apt-get install mesa-vulkan-drivers, which also computes "
             "without a GPU")


def _min_subgroup_size(adapter: Any) -> int:
    """Return the minimum subgroup size in threads; 0: the adapter has no subgroups."""
    min_sizes = [int(n) for name, n in adapter.info.items() if name.endswith("group_min_size")]
    width = min(min_sizes, default=0) if _SUBGROUPS in adapter.features else 0
    return width if width & (width - 1) == 0 and ROW.threads % max(width, 1) == 0 else 0


class WebGpuDriver(InOrderDriver):
    """The adapter that wgpu prefers.

    Raises:
        DeviceError: no wgpu, or no adapter.
    """

    name = "webgpu"
    can_reopen = True

    def __init__(self) -> None:
        super().__init__()
        try:
            self.wgpu: Any = load("wgpu")
        except ImportError as error:
            raise DeviceError("webgpu: looked for the module wgpu: "
                              f"{getattr(error, 'message', error)}", hint=_PACKAGES) from error
        try:
            adapter = self.wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        except Exception as error:
            raise DeviceError(f"webgpu: looked for an adapter: {error}", hint=_PACKAGES) from error
        if adapter is None:
            raise DeviceError("webgpu: looked for an adapter: none", hint=_PACKAGES)
        self.kind = str(adapter.info["device"])
        self.is_processor = adapter.info.get("adapter_type") == "CPU"
        names = ("max-storage-buffer-binding-size", "max-buffer-size")
        limits = {name: adapter.limits[name] for name in names}
        min_subgroup = _min_subgroup_size(adapter)
        self._has_times = _TIMES in adapter.features
        features = [_SUBGROUPS] * bool(min_subgroup) + [_TIMES] * self._has_times
        try:
            self.gpu = adapter.request_device_sync(required_limits=limits,
                                                   required_features=features)
        except Exception as error:
            raise DeviceError(f"webgpu: expected a device of {self.kind}, it gives none: {error}",
                              hint='another adapter, or fnx.config.device = "cpu"') from error
        self.queue = self.gpu.queue
        self.limits = DeviceLimits(1 << 40, min(limits.values()),
                                   MAX_GROUPS_PER_AXIS * MAX_GROUPS_PER_AXIS, 256, ROW.shared)
        self._is_software = SOFTWARE_ADAPTER in self.kind
        max_steps = MAX_LOOP_STEPS if self._is_software else 0
        self.target = ROW.replace(subgroup=min_subgroup, max_steps=max_steps)
        self._buffers: dict[int, Any] = {}     # those that were not freed, by number
        self._last = self._freed = 0           # the last number, and how many were freed
        self._free: dict[int, list[int]] = {}  # pieces of slabs, by size
        self._sizes: dict[int, int] = {}       # ... and their sizes
        self._slab = self._left = 0            # the rest of the last slab
        self._copies: dict[int, MappedCopy] = {}  # to the host, by the timeline value after each
        self._copy_queue = start_copy_thread()
        self._marker_memory = self._add_buffer(ALIGNMENT)
        self._queries: Any = None              # of the times of passes: two of each
        self._used, self.submits = 0, 0        # queries of a profile; passes
        self.functions, self.pipelines = NativeFunctions(), Pipelines(self.wgpu, self.gpu)
        self._run_checked = self.functions.checked(CallList.run)
        self._submit_calls, self._discard_calls = [CallList(self.runner, 0, 1) for _ in range(2)]
        self._submit_calls.call(
            "QueueSubmit", self.functions["QueueSubmit"], self.functions.handle(self.queue), 1,
            self._submit_calls.address_of(0), has_status=False)
        for calls in (self._submit_calls, self._discard_calls):
            calls.call("CommandBufferRelease", self.functions["CommandBufferRelease"], 0,
                       memory=(0, 0), has_status=False)

    # ---- memory

    @reports_device_loss
    def alloc(self, nbytes: int) -> int:
        """Allocate a piece of a slab, or a separate buffer if it is large."""
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        with self._lock:
            if size > MAX_PIECE:
                return self._add_buffer(size)
            free = self._free.setdefault(size, [])
            if free:
                return free.pop()
            if self._left < size:
                self._slab, self._left = self._add_buffer(SLAB), SLAB
            piece = self._slab
            self._sizes[piece] = size
            self._slab, self._left = piece + size, self._left - size
            return piece

    def _add_buffer(self, nbytes: int) -> int:
        usage = self.wgpu.BufferUsage
        try:
            buffer = self._create(nbytes, usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        except self.wgpu.GPUOutOfMemoryError as why:
            raise MemoryError(str(why)) from None
        self._last += 1
        self._buffers[self._last] = buffer
        return self._last << BUFFER_SHIFT

    def _create(self, nbytes: int, usage: int) -> Any:
        return self.gpu.create_buffer(size=nbytes, usage=usage)

    def _buffer(self, number: int) -> Any:
        """Return a buffer by its number.

        Raises:
            DonatedError: it was freed; wgpu-native ends a process that submits its use.
        """
        try:
            return self._buffers[number]
        except KeyError:
            raise DonatedError("webgpu: expected an array with a value, got one whose memory was "
                               "freed", hint="call x.delete() when nothing reads x any more"
                               ) from None

    def _part(self, memory: int, offset: int) -> tuple[Any, int]:
        """Return the buffer that contains memory, and the offset in it."""
        return self._buffer(memory >> BUFFER_SHIFT), (memory & OFFSET_MASK) + offset

    @reports_device_loss
    def free(self, memory: int) -> None:
        """Cache a piece for the next allocation of its size; destroy a buffer after queued work."""
        with self._lock:
            self._flush()
            size = self._sizes.get(memory)
            if size is not None:
                self._free[size].append(memory)
                return
            self._buffer(memory >> BUFFER_SHIFT).destroy()
            del self._buffers[memory >> BUFFER_SHIFT]
            self._freed += 1

    @reports_device_loss
    def write(self, memory: int, offset: int, value: HostBytes) -> None:
        """Queue a write of bytes that are copied at once, padded to whole words."""
        whole_bytes, tail_bytes = value.nbytes & ~3, value.nbytes & 3
        with self._lock:
            self._flush()
            buffer, start = self._part(memory, offset)
            if whole_bytes:
                self.queue.write_buffer(buffer, start, value[:whole_bytes])
            if tail_bytes:  # the padding belongs to no other allocation
                self.queue.write_buffer(buffer, start + whole_bytes,
                                        value[whole_bytes:].tobytes() + bytes(4 - tail_bytes))

    @reports_device_loss
    def fetch(self, memory: int, offset: int, nbytes: int) -> MappedCopy:
        """Queue a copy, padded to whole words, to a buffer that is mapped when the queue has
        reached it.
        """
        with self._lock:
            self._flush()
            self._wait_for_previous()
            return self._fetch(*self._part(memory, offset), nbytes)

    def _fetch(self, buffer: Any, start: int, nbytes: int) -> MappedCopy:
        usage = self.wgpu.BufferUsage
        mapped = self._create(nbytes + 3 & ~3, usage.MAP_READ | usage.COPY_DST)
        self._copy(buffer, start, mapped, 0, nbytes)
        copy = self._copies[self._signals] = MappedCopy(self, mapped, nbytes, self._signals)
        self._copy_queue.put(copy)
        return copy

    @reports_device_loss
    def copy(self, source: int, source_offset: int, to: int, offset: int,
             nbytes: int) -> None:
        """Queue a copy on the device."""
        with self._lock:
            self._flush()
            self._wait_for_previous()
            self._copy(*self._part(source, source_offset), *self._part(to, offset), nbytes)

    def _copy(self, source: Any, start: int, to: Any, offset: int, nbytes: int) -> None:
        """Submit a copy between buffers, padded to whole words."""
        encoder = self.gpu.create_command_encoder()
        encoder.copy_buffer_to_buffer(source, start, to, offset, nbytes + 3 & ~3)
        self.queue.submit([encoder.finish()])
        self._record()

    def _wait_for_previous(self) -> None:
        """Wait for the previous submission on Mesa, whose submit would wait for it anyway.

        Ctrl-C is seen in this wait, and nothing is half queued then.
        """
        if self._is_software:
            self.leave(self._signals)

    # ---- kernels

    def load(self, texts: Mapping[str, str]) -> Mapping[str, WebGpuKernel]:
        """Wrap the source: compilation depends on how operands share buffers at launch."""
        return {symbol: WebGpuKernel(symbol, text) for symbol, text in texts.items()}

    @reports_device_loss
    def _start(self) -> None:
        """Encode and submit the deferred launches."""
        self._wait_for_previous()
        launches, memory = number_memory(self._pending)
        self._pending = []
        linked = self.link(launches, len(memory))
        self._submit(linked, memory)
        self.unlink(linked)

    @reports_device_loss
    def link(self, launches: Sequence[QueuedLaunch], numbers: int) -> LinkedPass:
        """Check the scalars; calls are prepared once it is known in which buffers memory is."""
        for launch in launches:
            if any(not -1 << 31 <= s < 1 << 32 for s in launch.scalars):
                raise DeviceError(f"webgpu: expected numbers of 32 bits, got {launch.scalars}")
        return LinkedPass(launches, numbers)

    @reports_device_loss
    def launch(self, linked: LinkedPass, memory: list[int]) -> None:
        """Submit a pass on this memory; only offsets change if it lies in the buffers of an earlier
        call.
        """
        if not linked.launches:
            return
        with self._lock:
            self._flush()
            self._wait_for_previous()
            self._submit(linked, memory)

    def unlink(self, linked: LinkedPass) -> None:
        """Drop all calls."""
        for key in list(linked.prepared):
            linked.drop(key)

    def _submit(self, linked: LinkedPass, memory: list[int]) -> None:
        """Encode the pass, with the parameters of this memory, and submit it."""
        calls = self._find_prepared(linked, tuple([m >> BUFFER_SHIFT for m in memory])).calls
        encoded = linked.numbers + _ENCODED
        try:
            self._run_checked(calls, [*[m & OFFSET_MASK for m in memory], 0, 0, 0])
        except self.wgpu.GPUError:  # a submit would end the process
            calls.has_changed = True
            self._discard_calls.run([calls.handle(encoded)])
            raise
        self._run_checked(self._submit_calls, [calls.handle(encoded)])
        self.submits += 1
        self._record()

    def _find_prepared(self, linked: LinkedPass, buffers: tuple[int, ...]) -> PreparedPass:
        """Return the calls for memory in these buffers."""
        if linked.freed != self._freed:
            linked.freed = self._freed
            for key in [key for key in linked.prepared if not self._buffers.keys() >= set(key)]:
                linked.drop(key)
        prepared = linked.prepared.get(buffers)
        if prepared is None:
            prepared = self._prepare(linked, buffers)
            if len(linked.prepared) == _MAX_PREPARED:
                linked.drop(next(iter(linked.prepared)))
            linked.prepared[buffers] = prepared
        return prepared

    def _prepare(self, linked: LinkedPass, buffers: Sequence[int]) -> PreparedPass:
        """List the calls of a pass on these buffers."""
        functions, is_timed, usage = self.functions, self._times.is_open, self.wgpu.BufferUsage
        words = ArgumentWords(self.runner, [
            ((0, launch.groups), launch.buffers, launch.scalars) for launch in linked.launches],
            linked.numbers + _ENCODED + 1, c_int32, ALIGNMENT)
        params = self._create(max(words.nbytes, ALIGNMENT), usage.UNIFORM | usage.COPY_DST)
        calls, starts = words.calls, (c_int32 * len(words.starts))(*words.starts)
        uses: list[Any] = [starts]

        def encode(name: str, first: int, *arguments: int, returns: int | None = None) -> None:
            calls.call(name, functions[name], *arguments, memory=(linked.numbers + first, 0),
                       returns=None if returns is None else linked.numbers + returns,
                       has_status=False)

        def end() -> None:
            encode("ComputePassEncoderEnd", _PASS, 0)
            encode("ComputePassEncoderRelease", _PASS, 0)
        calls.call("QueueWriteBuffer", functions["QueueWriteBuffer"], functions.handle(self.queue),
                   functions.handle(params), 0, words.address, words.nbytes, if_changed=True,
                   has_status=False)
        calls.call("DeviceCreateCommandEncoder", functions["DeviceCreateCommandEncoder"],
                   functions.handle(self.gpu), 0, returns=linked.numbers + _ENCODER)
        if not is_timed:
            encode("CommandEncoderBeginComputePass", _ENCODER, 0, 0, returns=_PASS)
        for i, launch in enumerate(linked.launches):
            operands = [self._buffer(buffers[number]) for number, _ in launch.buffers]
            count = 2 + len(launch.buffers) + len(launch.scalars)
            pipeline, group = self.pipelines.bind(launch.kernel, operands, params, count)
            uses += pipeline, group
            if is_timed:
                uses.append(descriptor := self._descriptor(launch))
                encode("CommandEncoderBeginComputePass", _ENCODER, 0,
                       functions.address(descriptor[0]), returns=_PASS)
            encode("ComputePassEncoderSetPipeline", _PASS, 0, functions.handle(pipeline))
            encode("ComputePassEncoderSetBindGroup", _PASS, 0, 0, functions.handle(group), 1,
                   addressof(starts) + sizeof(c_int32) * i)
            encode("ComputePassEncoderDispatchWorkgroups", _PASS, 0,
                   min(launch.groups, MAX_GROUPS_PER_AXIS),
                   -(-launch.groups // MAX_GROUPS_PER_AXIS), 1)
            if is_timed:
                end()
        if not is_timed:
            end()
        encode("CommandEncoderFinish", _ENCODER, 0, 0, returns=_ENCODED)
        encode("CommandEncoderRelease", _ENCODER, 0)
        return PreparedPass(calls, params, uses)

    # ---- times

    @reports_device_loss
    def set_profiler(self, profiler: SignalProfiler | None) -> bool:
        """Submit each launch as a pass with times, until the profile ends."""
        if not self._has_times:
            return False
        if self._queries is None:
            count, usage = 2 * self._times.room, self.wgpu.BufferUsage
            self._queries = self.gpu.create_query_set(type="timestamp", count=count)
            self._resolved = self._create(8 * count, usage.QUERY_RESOLVE | usage.COPY_SRC)
        return super().set_profiler(profiler)

    def _descriptor(self, launch: QueuedLaunch) -> tuple[Any, ...]:
        """Return the descriptor of a pass with the times of a launch, and what it refers to."""
        self._times.add(None, launch.command)
        self._used += 2
        return self.functions.timed_pass(self._queries, self._used - 2)

    def _compare_clocks(self) -> tuple[int, int]:
        """Time an empty pass."""
        encoder = self.gpu.create_command_encoder()
        encoder.begin_compute_pass(timestamp_writes={
            "query_set": self._queries, "beginning_of_pass_write_index": 0,
            "end_of_pass_write_index": 1}).end()
        encoded, start = encoder.finish(), time.monotonic_ns()
        self.queue.submit([encoded])
        begin, end = self._read_times([None])[0]
        nanoseconds = time.monotonic_ns() - start
        return nanoseconds, start + (nanoseconds - begin - end) // 2

    @reports_device_loss
    def _read_times(self, events: list[Any]) -> list[tuple[int, int]]:
        count, self._used = len(events), 0
        encoder = self.gpu.create_command_encoder()
        encoder.resolve_query_set(self._queries, 0, 2 * count, self._resolved, 0)
        self.queue.submit([encoder.finish()])
        self._wait_for_previous()
        fetched = self._fetch(self._resolved, 0, 16 * count)
        fetched.wait()
        ticks = fetched.content().view(np.uint64).astype(np.float64).reshape(count, 2)
        fetched.release()
        return [(round(a), round(b)) for a, b in ticks * self.functions.timestamp_period(self.gpu)]

    # ---- the timeline

    @reports_device_loss
    def done(self, value: int) -> bool:
        """Whether the work before it is done: no work is left, or a copy after it has come back."""
        if value > self._passed:
            last = self._signals
            is_empty = self.functions.is_queue_empty(self.gpu)
            copies = list(self._copies.values())
            for copy in copies:
                if copy.is_mapped:
                    self._reached(copy.value)
            if is_empty:  # the host may not have mapped all copies
                self._reached(min([last, *[copy.value - 1 for copy in copies
                                           if not copy.is_mapped]]))
        return value <= self._passed

    def _reached(self, value: int) -> None:
        self._passed = max(self._passed, value)
        for number in [n for n in list(self._copies) if n <= value]:
            self._copies.pop(number, None)

    @reports_device_loss
    def check_wait(self, value: int) -> None:
        """Raise if a copy failed or the device is lost, as the work may then never end.

        If others always submit more, a copy after the value shows that it was reached.
        """
        for copy in list(self._copies.values()):
            if copy.failed:
                raise device_lost_error(copy.failed)
        self._create(4, self.wgpu.BufferUsage.COPY_DST)
        if not self._is_software and max(self._copies, default=0) < value:
            self.fetch(self._marker_memory, 0, 4)

    def abort(self) -> None:
        """Destroy the device. Its kernels may go on, but nobody waits for them."""
        self.aborted = True
        self.gpu.destroy()
        if self._is_software:
            exit_without_destructors()


def device() -> GpuDevice:
    """Return the device, for ``get_device``."""
    probe_driver(WebGpuDriver.name)
    return GpuDevice(WebGpuDriver())
