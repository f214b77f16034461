"""WebGPU's driver, through wgpu-native (the wheel ``wgpu``): Vulkan, Metal and DirectX.

    a call      one encoder, one submit, in machine code (gpu/call_list.py); kernels are dispatches
                of one pass, in order
    memory      pieces of large buffers, so that the operands of a kernel need few bindings
    arguments   words of one uniform buffer, written before the submit

A kernel is compiled at its first launch, once for each way in which its operands share buffers,
since two bindings may not refer to the same buffer. Counts and sizes are checked before encoding,
as wgpu-native may end the process on an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fnx.backends.device.profiling import SignalProfiler
from fnx.backends.gpu.cancellation import InterruptibleDriver
from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import DeviceLimits, HostBytes, QueuedLaunch
from fnx.backends.gpu.driver_probe import probe_driver
from fnx.backends.libwgpu import (
    MappedCopy,
    device_lost_error,
    reports_device_loss,
    start_copy_thread,
)
from fnx.backends.webgpu_passes import (
    ALIGNMENT,
    BUFFER_SHIFT,
    OFFSET_MASK,
    LinkedPass,
    PassEncoder,
    PassTimes,
    WebGpuKernel,
    round_up,
)
from fnx.core.support.errors import DeviceError
from fnx.core.support.kernel_interface import MAX_GROUPS_PER_AXIS
from fnx.core.support.process import exit_without_destructors, fork_safe_lock, load
from fnx.core.support.target import Target

# The target: the minimum that the standard guarantees, so that kernels for web pages can be
# compiled for it, too.
ROW = Target("webgpu", kind="wgsl", threads=128, shared=16 << 10, private=1 << 10, max_buffers=8,
             branch_barriers=False, fma=False, has_64bit=False, vector_bits=32,
             vector_registers=64, max_chunks=1024)
# Mesa's CPU driver, which stops longer loops
SOFTWARE_ADAPTER, MAX_LOOP_STEPS = "llvmpipe", (1 << 16) - 1
SLAB, MAX_PIECE = 16 << 20, 1 << 20  # bytes of a divided buffer; of an unshared one, at least
_CHECK_SECONDS = 0.1  # seconds between checks for a lost device during a wait
_MORE_PAUSE, _MAX_PAUSE = 2e-5, 1e-3  # seconds by which pauses of a wait grow, and their bound
_SUBGROUPS, _TIMES = "subgroup", "timestamp-query"  # optional features of adapters
_PACKAGES = ("pip install wgpu; Debian: apt-get install mesa-vulkan-drivers, which also computes "
             "without a GPU")


def _min_subgroup_size(adapter: Any) -> int:
    """Return the minimum subgroup size in threads; 0: the adapter has no subgroups."""
    min_sizes = [int(n) for name, n in adapter.info.items() if name.endswith("group_min_size")]
    width = min(min_sizes, default=0) if _SUBGROUPS in adapter.features else 0
    return width if width & (width - 1) == 0 and ROW.threads % max(width, 1) == 0 else 0


class WebGpuDriver(InterruptibleDriver):
    """The adapter that wgpu prefers.

    Raises:
        DeviceError: no wgpu, or no adapter.
    """

    name = "webgpu"
    can_reopen = True

    def __init__(self) -> None:
        self.pid = os.getpid()
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
        self._signals = self._passed = 0
        self._buffers: dict[int, Any] = {}
        self._free: dict[int, list[int]] = {}  # pieces of slabs, by size
        self._sizes: dict[int, int] = {}       # ... and their sizes
        self._slab = self._left = 0            # the rest of the last slab
        self._pending: list[QueuedLaunch] = []
        self._times: PassTimes | None = None
        self._lock, self.passes = fork_safe_lock(), PassEncoder(self.wgpu, self.gpu, self._buffers)
        self._copies: dict[int, MappedCopy] = {}  # to the host, by the timeline value after each
        self._copy_queue = start_copy_thread()
        self._marker_memory = self._buffer(ALIGNMENT) << BUFFER_SHIFT

    # ---- memory

    @reports_device_loss
    def alloc(self, nbytes: int) -> int:
        """Allocate a piece of a slab, or a separate buffer if it is large."""
        size = round_up(nbytes)
        with self._lock:
            if size > MAX_PIECE:
                return self._buffer(size) << BUFFER_SHIFT
            free = self._free.setdefault(size, [])
            if free:
                return free.pop()
            if self._left < size:
                self._slab, self._left = self._buffer(SLAB) << BUFFER_SHIFT, SLAB
            piece = self._slab
            self._sizes[piece] = size
            self._slab, self._left = piece + size, self._left - size
            return piece

    def _buffer(self, nbytes: int) -> int:
        usage = self.wgpu.BufferUsage
        try:
            buffer = self.gpu.create_buffer(
                size=nbytes, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        except self.wgpu.GPUOutOfMemoryError as why:
            raise MemoryError(str(why)) from None
        number = len(self._buffers) + 1
        self._buffers[number] = buffer
        return number

    @reports_device_loss
    def free(self, memory: int) -> None:
        """Cache a piece for the next allocation of its size; destroy a buffer after queued work."""
        with self._lock:
            self._flush()
            size = self._sizes.get(memory)
            if size is not None:
                self._free[size].append(memory)
                return
            number = memory >> BUFFER_SHIFT
            self._buffers[number].destroy()
            self._buffers[number] = None

    @reports_device_loss
    def write(self, memory: int, offset: int, value: HostBytes) -> None:
        """Queue a write of bytes that are copied at once, padded to whole words."""
        whole_bytes, tail_bytes = value.nbytes & ~3, value.nbytes & 3
        with self._lock:
            self._flush()
            start = (memory & OFFSET_MASK) + offset
            if whole_bytes:
                self.queue.write_buffer(self._buffers[memory >> BUFFER_SHIFT], start,
                                        value[:whole_bytes])
            if tail_bytes:  # the padding belongs to no other allocation
                self.queue.write_buffer(self._buffers[memory >> BUFFER_SHIFT], start + whole_bytes,
                                        value[whole_bytes:].tobytes() + bytes(4 - tail_bytes))

    def read(self, memory: int, offset: int, to: HostBytes) -> None:
        """Wait interruptibly (Ctrl-C), then copy."""
        mapped = self.fetch(memory, offset, to.nbytes)
        mapped.wait()
        to[:] = mapped.content()
        mapped.release()

    @reports_device_loss
    def fetch(self, memory: int, offset: int, nbytes: int) -> MappedCopy:
        """Queue a copy, padded to whole words, to a buffer that is mapped when the queue has
        reached it.
        """
        with self._lock:
            self._flush()
            self._wait_for_previous()
            encoder = self.gpu.create_command_encoder()
            mapped = self._mapped(encoder, memory, offset, nbytes)
            return self._send(encoder, mapped, nbytes)

    def _mapped(self, encoder: Any, memory: int, offset: int, nbytes: int) -> Any:
        """Create a buffer to be mapped, and encode the copy to it."""
        padded = nbytes + 3 & ~3
        mapped = self._host_buffer(padded)
        encoder.copy_buffer_to_buffer(self._buffers[memory >> BUFFER_SHIFT],
                                      (memory & OFFSET_MASK) + offset, mapped, 0, padded)
        return mapped

    @reports_device_loss
    def copy(self, source: int, source_offset: int, to: int, offset: int,
             nbytes: int) -> None:
        """Queue a copy on the device."""
        with self._lock:
            self._flush()
            self._wait_for_previous()
            encoder = self.gpu.create_command_encoder()
            encoder.copy_buffer_to_buffer(
                self._buffers[source >> BUFFER_SHIFT], (source & OFFSET_MASK) + source_offset,
                self._buffers[to >> BUFFER_SHIFT], (to & OFFSET_MASK) + offset, nbytes + 3 & ~3)
            self.queue.submit([encoder.finish()])
            self._signals += 1

    def _host_buffer(self, nbytes: int) -> Any:
        usage = self.wgpu.BufferUsage
        return self.gpu.create_buffer(size=nbytes, usage=usage.MAP_READ | usage.COPY_DST)

    def _wait_for_previous(self) -> None:
        """Wait for the previous submission on Mesa, whose submit would wait for it anyway.

        Ctrl-C is seen in this wait, and nothing is half queued then.
        """
        if self._is_software:
            self.leave(self._signals)

    def _send(self, encoder: Any, mapped: Any, nbytes: int) -> MappedCopy:
        """Submit, and assign a timeline value to the copy."""
        self.queue.submit([encoder.finish()])
        self._signals += 1
        copy = self._copies[self._signals] = MappedCopy(self, mapped, nbytes, self._signals)
        self._copy_queue.put(copy)
        return copy

    # ---- kernels

    def load(self, texts: Mapping[str, str]) -> Mapping[str, WebGpuKernel]:
        """Wrap the source: compilation depends on how operands share buffers at launch."""
        return {symbol: WebGpuKernel(symbol, text) for symbol, text in texts.items()}

    def exec(self, launch: QueuedLaunch) -> None:
        """Defer the launch until other work must follow it: all go in one submit."""
        self.check_not_aborted()
        with self._lock:
            self._pending.append(launch)
            times = self.passes.times
            if times is not None and len(self._pending) == times.commands.room:
                self._flush()
                times.commands.report()

    def _flush(self) -> None:
        """Encode and submit the deferred launches."""
        if not self._pending:
            return
        self._wait_for_previous()
        launches, self._pending = self._pending, []
        self.passes.submit_once(launches)
        self._signals += 1

    @reports_device_loss
    def link(self, launches: Sequence[QueuedLaunch], numbers: int) -> LinkedPass:
        """Prepare a pass with its own uniform buffer; memory is bound at each call."""
        with self._lock:
            return self.passes.link(launches, numbers)

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
            self.passes.submit(linked, memory)
            self._signals += 1

    def unlink(self, linked: LinkedPass) -> None:
        """Destroy the uniform buffer once queued work has read it."""
        linked.params.destroy()

    @reports_device_loss
    def set_profiler(self, profiler: SignalProfiler | None) -> bool:
        """Submit each launch as a pass with times, until the profile ends."""
        if not self._has_times:
            return False
        with self._lock:
            self._flush()
            if self._times is None:
                self._times = PassTimes(self.wgpu, self.gpu, self.passes.functions,
                                        self._read_buffer)
            self._times.commands.switch(profiler)
            self.passes.times = None if profiler is None else self._times
        return True

    @reports_device_loss
    def report_times(self) -> None:
        """Read the timestamps of the profile."""
        with self._lock:
            self._flush()
            if self.passes.times is not None:
                self.passes.times.commands.report()

    def _read_buffer(self, buffer: Any, nbytes: int) -> HostBytes:
        self._wait_for_previous()
        encoder, mapped = self.gpu.create_command_encoder(), self._host_buffer(nbytes)
        encoder.copy_buffer_to_buffer(buffer, 0, mapped, 0, nbytes)
        copy = self._send(encoder, mapped, nbytes)
        copy.wait()
        content = copy.content().copy()
        copy.release()
        return content

    # ---- the timeline

    @reports_device_loss
    def signal(self) -> int:
        """Return a timeline value after all that is submitted."""
        with self._lock:
            self._flush()
            self._signals += 1
            return self._signals

    @reports_device_loss
    def done(self, value: int) -> bool:
        """Whether the work before it is done: no work is left, or a copy after it has come back."""
        if value > self._passed:
            last = self._signals
            is_empty = self.passes.functions.is_queue_empty(self.gpu)
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

    def last(self) -> int:
        """The last timeline value."""
        return self._signals

    @reports_device_loss
    def waited(self, value: int, limit: float) -> bool:
        """Whether the value was reached within so many seconds.

        If others always submit more, a copy after the value shows it.
        """
        start, pause, checked = time.monotonic(), 0.0, 0.0
        while not self.done(value):
            for copy in list(self._copies.values()):
                if copy.failed:
                    raise device_lost_error(copy.failed)
            waited = time.monotonic() - start
            if limit and waited > limit:
                return False
            if waited > checked + _CHECK_SECONDS:
                checked = waited
                self._host_buffer(4)  # raises if the device is lost: the work may then never end
                if not self._is_software and max(self._copies, default=0) < value:
                    self.fetch(self._marker_memory, 0, 4)
            time.sleep(pause)
            pause = min(pause + _MORE_PAUSE, _MAX_PAUSE)
        return True

    def abort(self) -> None:
        """Destroy the device. Its kernels may go on, but nobody waits for them."""
        self.aborted = True
        self.gpu.destroy()
        if self._is_software:
            exit_without_destructors()

    @reports_device_loss
    def submit(self) -> None:
        """Submit the deferred launches, with one encoder."""
        with self._lock:
            self._flush()


def device() -> GpuDevice:
    """Return the device, for ``get_device``."""
    probe_driver(WebGpuDriver.name)
    return GpuDevice(WebGpuDriver())
