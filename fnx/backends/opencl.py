"""OpenCL's driver: any vendor's, found through libOpenCL.so.1, called by ctypes.

One context and two in-order queues, of kernels and of long copies, of the first device that
supports float64 (a GPU before a CPU).
A call enqueues the command buffer of its kernels, after an update of the arguments that changed, if
the driver can do that (cl_khr_command_buffer_mutable_dispatch); if not, each kernel.
Programs are built from source. Arithmetic matches the host: products and sums are not contracted,
divisions and square roots are rounded correctly, subnormal numbers are kept.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from fnx.backends.device.profiling import SignalProfiler
from fnx.backends.gpu.call_list import CallList, CallRunner
from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import DeviceLimits, HostBytes, QueuedLaunch
from fnx.backends.gpu.driver_probe import probe_driver
from fnx.backends.gpu.in_order_driver import EventDriver
from fnx.backends.libopencl import (
    CORRECT_DIVIDE,
    ERRORS,
    FP32,
    NAME,
    TYPE,
    CommandUpdates,
    OpenClDevices,
    OpenClError,
    load_functions,
    load_khr_functions,
    load_library,
    make_error,
)
from fnx.core.support import errors
from fnx.core.support.errors import DeviceError
from fnx.core.support.kernel_interface import ABORT_FLAG
from fnx.core.support.record import Record
from fnx.core.support.target import Target

OPTIONS = b"-cl-std=CL1.2"
CORRECT_DIVIDE_OPTION = b" -cl-fp32-correctly-rounded-divide-sqrt"

# Constants of the standard's headers.
_IS_PROCESSOR, _MAX_GROUP, _GLOBAL, _BUFFER, _LOCAL = 1 << 1, 0x1004, 0x101F, 0x1010, 0x1023
_BUILD_LOG, _STATUS, _COMPLETE = 0x1183, 0x11D3, 0
_TIMED, _QUEUED, _START, _END = 1 << 1, 0x1280, 0x1282, 0x1283  # times of events
_NO_MEMORY = (-4, -5, -6)
_FLAGS, _SIMULTANEOUS_USE, _MUTABLE = 0x1293, 1 << 0, 1 << 1  # of command buffers
_UPDATABLE, _ARGUMENTS = 0x12B1, 1 << 3  # fields of a command that are updated
_HOST_MEMORY, _MAPPED, _MAPPED_TO_READ = 1 << 4, 3, 1  # of a buffer; map to read (and write)
_said: dict[Any, Any] = {}  # the registry of the module warnings: what was said once


class OpenClKernel(Record):
    """A kernel, and what is needed to create another kernel object, since arguments belong to the
    object. ``ends``: whether it takes the address of the abort word.
    """

    handle: int
    program: int
    symbol: bytes
    ends: bool


class OpenClLaunches:
    """Linked launches.

    Attributes:
        launches, numbers: what was linked.
        calls: the calls of a launch.
        kernels: the kernels with their arguments.
        commands: the command buffer; 0: there is none.
        updates: the structures that the calls refer to.
    """

    def __init__(self, launches: Sequence[QueuedLaunch], numbers: int, runner: CallRunner) -> None:
        self.launches, self.numbers = launches, numbers
        self.calls = CallList(runner, sum([len(k.buffers) + 2 for k in launches]), numbers)
        self.kernels: list[int] = []
        self.commands, self.updates = 0, list[Any]()


class OpenClDriver(OpenClDevices, EventDriver):
    """The first suitable device.

    Raises:
        DeviceError: no library, no driver, or no device that computes in float64 as the host does.
    """

    name = "opencl"
    can_reopen = True

    def __init__(self) -> None:
        super().__init__()
        library = load_library()
        self.cl = load_functions(library)
        self.platform, self.device = self._select_device()
        self.recording = load_khr_functions(library, self.platform) \
            if self._updates_commands() else None
        self._records = self.recording is not None
        self.context = self.cl.clCreateContext(None, 1, (c_void_p * 1)(self.device), None, None)
        self.queue, self.copy_queue = [
            self.cl.clCreateCommandQueue(self.context, self.device, 0) for _ in range(2)]
        self.kind = self._text(NAME)
        self.is_processor = bool(self._query_int(TYPE) & _IS_PROCESSOR)
        rounds_divisions = self._query_int(FP32) & CORRECT_DIVIDE
        self.options = OPTIONS + (CORRECT_DIVIDE_OPTION if rounds_divisions else b"")
        threads, local = self._query_int(_MAX_GROUP), self._query_int(_LOCAL)
        memory, buffer = self._query_int(_GLOBAL), self._query_int(_BUFFER)
        self.limits = DeviceLimits(memory, buffer, 1 << 31, threads, local)
        self.target = Target("opencl", kind="opencl", threads=min(256, threads),
                             shared=min(32 << 10, local), private=1 << 10, vector_bits=128,
                             vector_registers=64, max_chunks=1024)
        self.enqueues = self._freed = 0
        self._untimed_queue, self._timed_queue = self.queue, 0
        self._abort_memory, address = self._host_memory(4, _MAPPED_TO_READ, bytes(4))
        self._abort_word = c_int.from_address(address)

    # ---- memory

    def alloc(self, nbytes: int) -> int:
        """Create a buffer."""
        try:
            return int(self.cl.clCreateBuffer(self.context, 1, nbytes, None))
        except OpenClError as error:
            if error.code in _NO_MEMORY:
                raise MemoryError(str(error)) from None
            raise

    def free(self, memory: int) -> None:
        """Release a buffer; the driver waits for queued work that uses it."""
        self._freed += 1  # other memory may get its handle
        self.cl.clReleaseMemObject(memory)

    def _pin(self, nbytes: int) -> int:
        return self._host_memory(nbytes, _MAPPED)[1]

    def _host_memory(self, nbytes: int, map_flags: int, content: bytes = b"") -> tuple[int, int]:
        """Create a buffer with initial content. Return it and its mapped host address.

        Kernels may read a buffer that is mapped for reading only, so the host must not write it
        before.
        """
        buffer = self.cl.clCreateBuffer(self.context, _HOST_MEMORY, nbytes, None)
        if content:
            self.cl.clEnqueueWriteBuffer(self.queue, buffer, 1, 0, len(content), content, 0, None,
                                         None)
        return buffer, self.cl.clEnqueueMapBuffer(self.queue, buffer, 1, map_flags, 0, nbytes, 0,
                                                  None, None)

    def _copy_in(self, queue: int, memory: int, offset: int, address: int, nbytes: int) -> None:
        self.cl.clEnqueueWriteBuffer(queue, memory, 0, offset, nbytes, address, 0, None, None)

    def _copy_out(self, queue: int, memory: int, offset: int, address: int, nbytes: int) -> None:
        self.cl.clEnqueueReadBuffer(queue, memory, 0, offset, nbytes, address, 0, None, None)

    def _copy_within(self, source: int, source_offset: int, to: int, offset: int, nbytes: int
                     ) -> None:
        self.cl.clEnqueueCopyBuffer(self.queue, source, to, source_offset, offset, nbytes, 0, None,
                                    None)

    def _read(self, memory: int, offset: int, to: HostBytes) -> None:
        self.cl.clEnqueueReadBuffer(self.queue, memory, 1, offset, to.nbytes, to.ctypes.data, 0,
                                    None, None)

    # ---- work

    def load(self, texts: Mapping[str, str]) -> Mapping[str, OpenClKernel]:
        """Build one program of all kernels; text that precedes several kernels is included once."""
        heads: dict[str, None] = {}
        bodies = []
        for text in texts.values():
            head, kernel, body = text.partition("__kernel ")
            heads[head] = None
            bodies.append(kernel + body)
        source = "".join([*heads, *bodies]).encode()
        program = self.cl.clCreateProgramWithSource(
            self.context, 1, (c_char_p * 1)(source), (c_size_t * 1)(len(source)))
        try:
            self.cl.clBuildProgram(program, 1, (c_void_p * 1)(self.device), self.options, None,
                                   None)
        except OpenClError as error:
            log = ctypes.create_string_buffer(1 << 14)
            self.cl.clGetProgramBuildInfo(program, self.device, _BUILD_LOG, 1 << 14, log, None)
            log_text = log.value.decode(errors="replace").strip()
            raise DeviceError(f"{error.message}: {log_text}") from None
        return {symbol: self._kernel(program, symbol.encode(), ABORT_FLAG in text)
                for symbol, text in texts.items()}

    def _kernel(self, program: int, symbol: bytes, takes_abort_word: bool) -> OpenClKernel:
        return OpenClKernel(self.cl.clCreateKernel(program, symbol), program, symbol,
                            takes_abort_word)

    def _start(self) -> None:
        """Set the arguments of each launch, then enqueue the kernel."""
        launches, self._pending = self._pending, []
        for launch in launches:
            self._set_arguments(launch.kernel.handle, launch)
            self._before_kernels([m for m, _ in launch.buffers])
            event = c_void_p()
            self.cl.clEnqueueNDRangeKernel(
                self.queue, launch.kernel.handle, 1, None,
                byref(c_size_t(launch.groups * launch.threads)), byref(c_size_t(launch.threads)),
                0, None, byref(event) if self._times.is_open else None)
            if self._times.is_open:
                self._times.add(event.value or 0, launch.command)
        self.enqueues += len(launches)

    def _set_arguments(self, kernel: int, launch: QueuedLaunch, is_bound: bool = True) -> None:
        """Set the arguments, except for the memory of a launch that is not bound."""
        values = [*itertools.chain.from_iterable(launch.buffers), *launch.scalars]
        if launch.kernel.ends:
            values.append(self._abort_memory)
        for i, value in enumerate(values):
            if is_bound or i % 2 or i >= 2 * len(launch.buffers):
                self.cl.clSetKernelArg(kernel, i, 8, byref(ctypes.c_int64(value)))

    def _copy_kernel(self, launch: QueuedLaunch, is_bound: bool) -> int:
        """Create a kernel object for one launch, with its arguments."""
        kernel = self._kernel(launch.kernel.program, launch.kernel.symbol, launch.kernel.ends)
        self._set_arguments(kernel.handle, launch, is_bound)
        return kernel.handle

    def link(self, launches: Sequence[QueuedLaunch], numbers: int) -> OpenClLaunches:
        """List the calls of a launch."""
        linked = OpenClLaunches(launches, numbers, self.runner)
        if self._records and launches:
            try:
                self._link_commands(linked)
                return linked
            except OpenClError as error:
                self.unlink(linked)
                self._stop_recording(error)
                linked = OpenClLaunches(launches, numbers, self.runner)
        self._link_kernels(linked)
        return linked

    def _link_kernels(self, linked: OpenClLaunches) -> None:
        """List the calls that set the memory of each kernel if it changed, and enqueue it."""
        calls = linked.calls
        set_argument, enqueue = [self.cl.addresses[name] for name in (
            "clSetKernelArg", "clEnqueueNDRangeKernel")]
        for launch in linked.launches:
            kernel = self._copy_kernel(launch, False)
            linked.kernels.append(kernel)
            for i, (number, _) in enumerate(launch.buffers):
                calls.call("clSetKernelArg", set_argument, kernel, 2 * i, 8, calls.store(number),
                           if_changed=True)
            calls.call("clEnqueueNDRangeKernel", enqueue, self.queue, kernel, 1, 0,
                       calls.word(launch.groups * launch.threads), calls.word(launch.threads),
                       0, 0, 0)
        calls.call("clFlush", self.cl.addresses["clFlush"], self.queue)

    def _link_commands(self, linked: OpenClLaunches) -> None:
        """Record a command buffer, and list the calls that update its arguments and enqueue it."""
        recording, calls, handles = self.recording, linked.calls, list[int]()
        assert recording is not None
        linked.commands = recording.clCreateCommandBufferKHR(1, (c_void_p * 1)(self.queue), (
            c_uint64 * 3)(_FLAGS, _SIMULTANEOUS_USE | _MUTABLE, 0))
        previous = None
        for launch in linked.launches:
            # memory of the first call replaces this one, as all arguments must have a value
            linked.kernels.append(self._copy_kernel(launch.replace(buffers=tuple(
                [(self._abort_memory, offset) for _, offset in launch.buffers])), True))
            sync_point, handle = c_uint(), c_void_p()
            recording.clCommandNDRangeKernelKHR(
                linked.commands, None, (c_uint64 * 3)(_UPDATABLE, _ARGUMENTS, 0),
                linked.kernels[-1], 1, None, byref(c_size_t(launch.groups * launch.threads)),
                byref(c_size_t(launch.threads)), 0 if previous is None else 1,
                None if previous is None else byref(previous), byref(sync_point), byref(handle))
            previous = sync_point
            handles.append(handle.value or 0)
        recording.clFinalizeCommandBufferKHR(linked.commands)
        updates = CommandUpdates([(handle, [(2 * i, calls.store(number)) for i, (number, _)
                                            in enumerate(launch.buffers)])
                                  for handle, launch in zip(handles, linked.launches)])
        linked.updates.append(updates)
        calls.call("clUpdateMutableCommandsKHR",
                   recording.addresses["clUpdateMutableCommandsKHR"], linked.commands,
                   *updates.arguments, if_changed=True)
        calls.call("clEnqueueCommandBufferKHR", recording.addresses["clEnqueueCommandBufferKHR"],
                   0, 0, linked.commands, 0, 0, 0)
        calls.call("clFlush", self.cl.addresses["clFlush"], self.queue)

    def _stop_recording(self, error: OpenClError) -> None:
        """Enqueue kernels one by one from now on: the driver failed at what it says that it can do.
        """
        if not self._records:
            return
        self._records = False
        errors.warn(f"opencl: {self.kind} reports cl_khr_command_buffer_mutable_dispatch, and it "
                    f"fails ({error.message}), so kernels are enqueued one by one", UserWarning,
                    ("fnx", 0), _said)

    def launch(self, linked: OpenClLaunches, memory: list[int]) -> None:
        """Run the calls. If a command buffer fails, none of its kernels was enqueued."""
        with self._lock:
            self._flush()
            if self._order.is_open:
                self._order.before_compute(memory, self._wait_for_copies)
            failed = linked.calls.run(memory, self._freed)
            if failed is not None and linked.commands:
                linked.calls = self._replace_commands(linked, make_error(*failed))
                failed = linked.calls.run(memory, self._freed)
            self.enqueues += 1 if linked.commands else len(linked.kernels)
        if failed is not None:
            raise make_error(*failed)

    def _replace_commands(self, linked: OpenClLaunches, error: OpenClError) -> CallList:
        """Release a command buffer that failed; return calls that enqueue its kernels."""
        self.unlink(linked)
        self._stop_recording(error)
        kernels = OpenClLaunches(linked.launches, linked.numbers, self.runner)
        self._link_kernels(kernels)
        linked.kernels, linked.commands = kernels.kernels, 0
        return kernels.calls

    def unlink(self, linked: OpenClLaunches) -> None:
        """Release the command buffer once it has run, and the kernels; the driver waits for queued
        work that uses these.
        """
        if linked.commands:
            assert self.recording is not None
            self.wait(self.signal())
            self.recording.clReleaseCommandBufferKHR(linked.commands)
        for kernel in linked.kernels:
            self.cl.clReleaseKernel(kernel)

    # ---- times

    def set_profiler(self, profiler: SignalProfiler | None) -> bool:
        """Queue work on a queue whose events have times, until the profile ends."""
        if profiler is not None and not self._timed_queue:
            try:
                self._timed_queue = self.cl.clCreateCommandQueue(self.context, self.device, _TIMED)
            except OpenClError:
                return False
        with self._lock:  # later work goes to another queue, after all that is queued
            self._flush()
            queue = self._untimed_queue if profiler is None else self._timed_queue
            self._wait_between(self.queue, queue)
            self.queue = queue
        return super().set_profiler(profiler)

    def _compare_clocks(self) -> tuple[int, int]:
        """Time how long it takes to queue a marker."""
        start, event = time.monotonic_ns(), self._mark(self.queue)
        nanoseconds = time.monotonic_ns() - start
        self.wait(self.signal())
        offset = start + nanoseconds // 2 - self._read_time(event, _QUEUED)
        self.cl.clReleaseEvent(event)
        return nanoseconds, offset

    def _read_times(self, events: list[Any]) -> list[tuple[int, int]]:
        self.wait(self.signal())
        times = [(self._read_time(e, _START), self._read_time(e, _END)) for e in events]
        for event in events:
            self.cl.clReleaseEvent(event)
        return times

    def _read_time(self, event: int, what: int) -> int:
        value = c_uint64()
        self.cl.clGetEventProfilingInfo(event, what, 8, byref(value), None)
        return value.value

    # ---- events

    def _mark(self, queue: int) -> int:
        event = c_void_p()
        self.cl.clEnqueueMarkerWithWaitList(queue, 0, None, byref(event))
        return event.value or 0

    def _wait_for(self, queue: int, event: int) -> None:
        self.cl.clEnqueueBarrierWithWaitList(queue, 1, byref(c_void_p(event)), None)

    def _is_complete(self, event: int) -> bool:
        status = c_int()
        self.cl.clGetEventInfo(event, _STATUS, 4, byref(status), None)
        if status.value < 0:
            raise DeviceError("opencl: queued work failed with "
                              f"{ERRORS.get(status.value, 'error')} ({status.value})")
        return status.value == _COMPLETE

    def _release(self, event: int) -> None:
        self.cl.clReleaseEvent(event)

    def _begin(self) -> None:
        self.cl.clFlush(self.queue)
        if self._copied > self._passed:
            self.cl.clFlush(self.copy_queue)


def device() -> GpuDevice:
    """Return the device, for ``get_device``."""
    probe_driver(OpenClDriver.name)
    return GpuDevice(OpenClDriver())
