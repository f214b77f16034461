"""OpenCL's driver: any vendor's, found through libOpenCL.so.1, called by ctypes.

One context and one in-order queue of the first device that supports float64 (a GPU before a CPU).
Programs are built from source. Arithmetic matches the host: products and sums are not contracted,
divisions and square roots are rounded correctly, subnormal numbers are kept.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from fnx.backends.gpu.cancellation import AbortableDriver
from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import DeviceLimits, HostBytes, QueuedLaunch
from fnx.backends.gpu.driver_probe import probe_driver
from fnx.backends.gpu.pinned_memory import MAX_BLOCK, PinnedCopy, PinnedPool
from fnx.core.support.errors import DeviceError
from fnx.core.support.kernel_interface import ABORT_FLAG
from fnx.core.support.process import fork_safe_lock
from fnx.core.support.record import Record
from fnx.core.support.target import Target

LIBRARY = "libOpenCL.so.1"
_PACKAGES = "Debian: apt-get install ocl-icd-libopencl1 pocl-opencl-icd"
OPTIONS = b"-cl-std=CL1.2"
CORRECT_DIVIDE_OPTION = b" -cl-fp32-correctly-rounded-divide-sqrt"

# Constants of the standard's headers.
_ALL_DEVICES, _IS_PROCESSOR, _IS_GPU = 0xFFFFFFFF, 1 << 1, 1 << 2
_TYPE, _MAX_GROUP, _GLOBAL, _BUFFER, _LOCAL = 0x1000, 0x1004, 0x101F, 0x1010, 0x1023
_NAME, _EXTENSIONS, _FP32, _FP64 = 0x102B, 0x1030, 0x101B, 0x1032
_DENORMAL, _CORRECT_DIVIDE = 1 << 0, 1 << 7
_BUILD_LOG, _STATUS, _COMPLETE = 0x1183, 0x11D3, 0
_NO_MEMORY = (-4, -5, -6)
_ERRORS = {-1: "DEVICE_NOT_FOUND", -4: "MEM_OBJECT_ALLOCATION_FAILURE", -5: "OUT_OF_RESOURCES",
           -6: "OUT_OF_HOST_MEMORY", -11: "BUILD_PROGRAM_FAILURE", -30: "INVALID_VALUE",
           -34: "INVALID_CONTEXT", -36: "INVALID_COMMAND_QUEUE", -38: "INVALID_MEM_OBJECT",
           -48: "INVALID_KERNEL", -51: "INVALID_ARG_SIZE", -52: "INVALID_KERNEL_ARGS",
           -54: "INVALID_WORK_GROUP_SIZE", -55: "INVALID_WORK_ITEM_SIZE",
           -61: "INVALID_BUFFER_SIZE", -63: "INVALID_GLOBAL_WORK_SIZE"}

_P, _U, _S = c_void_p, c_uint, c_size_t
# Functions and their argument types. These return an error code; those of ``_CREATE_FUNCTIONS``
# return a handle and write the code through their last argument.
_STATUS_FUNCTIONS = {
    "clGetPlatformIDs": (_U, _P, _P),
    "clGetDeviceIDs": (_P, c_uint64, _U, _P, _P),
    "clGetDeviceInfo": (_P, _U, _S, _P, _P),
    "clBuildProgram": (_P, _U, _P, c_char_p, _P, _P),
    "clGetProgramBuildInfo": (_P, _P, _U, _S, _P, _P),
    "clSetKernelArg": (_P, _U, _S, _P),
    "clReleaseMemObject": (_P,),
    "clReleaseEvent": (_P,),
    "clReleaseKernel": (_P,),
    "clEnqueueNDRangeKernel": (_P, _P, _U, _P, _P, _P, _U, _P, _P),
    "clEnqueueReadBuffer": (_P, _P, _U, _S, _S, _P, _U, _P, _P),
    "clEnqueueWriteBuffer": (_P, _P, _U, _S, _S, _P, _U, _P, _P),
    "clEnqueueCopyBuffer": (_P, _P, _P, _S, _S, _S, _U, _P, _P),
    "clEnqueueMarkerWithWaitList": (_P, _U, _P, _P),
    "clEnqueueBarrierWithWaitList": (_P, _U, _P, _P),
    "clGetEventInfo": (_P, _U, _S, _P, _P),
    "clFlush": (_P,),
}
_CREATE_FUNCTIONS = {
    "clCreateContext": (_P, _U, _P, _P, _P, _P),
    "clCreateCommandQueue": (_P, _P, c_uint64, _P),
    "clCreateBuffer": (_P, c_uint64, _S, _P, _P),
    "clCreateProgramWithSource": (_P, _U, _P, _P, _P),
    "clCreateKernel": (_P, c_char_p, _P),
    "clEnqueueMapBuffer": (_P, _P, _U, c_uint64, _S, _S, _U, _P, _P, _P),
}


# Functions of cl_khr_command_buffer.
_STATUS_FUNCTIONS_KHR = {
    "clFinalizeCommandBufferKHR": (_P,),
    "clReleaseCommandBufferKHR": (_P,),
    "clEnqueueCommandBufferKHR": (_U, _P, _P, _U, _P, _P),
    "clCommandNDRangeKernelKHR": (_P, _P, _P, _P, _U, _P, _P, _P, _U, _P, _P, _P),
}
_CREATE_FUNCTIONS_KHR = {"clCreateCommandBufferKHR": (_U, _P, _P, _P)}
_FLAGS, _SIMULTANEOUS_USE = 0x1293, 1
_HOST_MEMORY, _MAPPED, _MAPPED_TO_READ = 1 << 4, 3, 1  # of a buffer; map to read (and write)
_MAX_ACQUIRED = 64  # acquired pieces of pinned memory before their copies are checked
MIN_RECORDED = 8  # launches; fewer are faster when queued one by one


class OpenClFunctions:
    """Functions by name; each raises OpenClError on an error code."""

    def __init__(self, find: Callable[[str, Any, tuple[Any, ...]], Callable[..., Any]],
                 status_functions: Mapping[str, tuple[Any, ...]],
                 create_functions: Mapping[str, tuple[Any, ...]]
                 ) -> None:
        self.calls: dict[str, Callable[..., Any]] = {}
        for name, types in status_functions.items():
            self.calls[name] = functools.partial(_call_status, name, find(name, c_int, types))
        for name, types in create_functions.items():
            self.calls[name] = functools.partial(_call_create, name, find(name, c_void_p, types))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.calls[name]


def _load_library() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as why:
        raise DeviceError(f"opencl: looked for {LIBRARY}: {why}", hint=_PACKAGES) from None


def _load_functions(library: Any) -> OpenClFunctions:
    def find(name: str, result: Any, types: tuple[Any, ...]) -> Callable[..., Any]:
        function_pointer = getattr(library, name)
        function_pointer.restype, function_pointer.argtypes = result, types
        function: Callable[..., Any] = function_pointer
        return function

    return OpenClFunctions(find, _STATUS_FUNCTIONS, _CREATE_FUNCTIONS)


def _load_khr_functions(library: Any, platform: int) -> OpenClFunctions | None:
    """Return the functions of cl_khr_command_buffer, or None if the platform lacks them."""
    address = library.clGetExtensionFunctionAddressForPlatform
    address.restype, address.argtypes = c_void_p, (_P, c_char_p)

    def find(name: str, result: Any, types: tuple[Any, ...]) -> Callable[..., Any]:
        function_address = address(platform, name.encode())
        if not function_address:
            raise LookupError(name)
        return ctypes.CFUNCTYPE(result, *types)(function_address)

    try:
        return OpenClFunctions(find, _STATUS_FUNCTIONS_KHR, _CREATE_FUNCTIONS_KHR)
    except LookupError:
        return None


def _call_status(name: str, function: Callable[..., int], *args: Any) -> None:
    code = function(*args)
    if code:
        raise _make_error(name, code)


def _call_create(name: str, function: Callable[..., int], *args: Any) -> int:
    code = c_int()
    handle = function(*args, byref(code))
    if code.value:
        raise _make_error(name, code.value)
    return handle


class OpenClKernel(Record):
    """A kernel, and what is needed to create another kernel object, since arguments belong to the
    object. ``ends``: whether it takes the address of the abort word.
    """

    handle: int
    program: int
    symbol: bytes
    ends: bool


class OpenClRecord(Record):
    """A command buffer, and the kernels whose arguments it reads."""

    handle: int
    kernels: tuple[int, ...]


class OpenClError(DeviceError):
    """An error code that the driver returned."""

    code = 0


def _make_error(name: str, code: int) -> OpenClError:
    error = OpenClError(f"opencl: {name} failed with {_ERRORS.get(code, 'error')} ({code})")
    error.code = code
    return error


class OpenClDriver(AbortableDriver):
    """The first suitable device.

    Raises:
        DeviceError: no library, no driver, or no device that computes in float64 as the host does.
    """

    name = "opencl"
    can_reopen = True

    def __init__(self) -> None:
        self.pid = os.getpid()
        library = _load_library()
        self.cl = _load_functions(library)
        self.platform, self.device = self._select_device()
        has_command_buffers = b"cl_khr_command_buffer" in self._text(_EXTENSIONS).encode().split()
        self.recording = _load_khr_functions(library, self.platform) \
            if has_command_buffers else None
        handle = (c_void_p * 1)(self.device)
        self.context = self.cl.clCreateContext(None, 1, handle, None, None)
        self.queue = self.cl.clCreateCommandQueue(self.context, self.device, 0)
        self.kind = self._text(_NAME)
        self.is_processor = bool(self._query_int(_TYPE) & _IS_PROCESSOR)
        rounds_divisions = self._query_int(_FP32) & _CORRECT_DIVIDE
        self.options = OPTIONS + (CORRECT_DIVIDE_OPTION if rounds_divisions else b"")
        threads, local = self._query_int(_MAX_GROUP), self._query_int(_LOCAL)
        memory, buffer = self._query_int(_GLOBAL), self._query_int(_BUFFER)
        self.limits = DeviceLimits(memory, buffer, 1 << 31, threads, local)
        self.target = Target("opencl", kind="opencl", threads=min(256, threads),
                             shared=min(32 << 10, local), private=1 << 10, vector_bits=128,
                             vector_registers=64, max_chunks=1024)
        self.enqueues = self.copies = self.flushes = 0
        self._events: dict[int, int] = {}
        self._arguments: dict[int, tuple[int, ...]] = {}  # of each kernel, as last set
        self._signals = self._done = 0
        self._lock = fork_safe_lock()
        self.pinned = PinnedPool(self._pin, self.done, self.wait)
        self._abort_memory, address = self._host_memory(4, _MAPPED_TO_READ, bytes(4))
        self._abort_word = c_int.from_address(address)

    # ---- which device

    def _select_device(self) -> tuple[int, int]:
        """Return the platform and the device to use."""
        platform_of = {d: platform for platform in self._ids("clGetPlatformIDs")
                       for d in self._ids("clGetDeviceIDs", platform, _ALL_DEVICES)}
        devices = list(platform_of)
        if not devices:
            raise DeviceError("opencl: expected a driver, looked in /etc/OpenCL/vendors: none",
                              hint=_PACKAGES)
        devices.sort(key=lambda d: not self._query_int(_TYPE, d) & _IS_GPU)
        for device in devices:
            if self._query_int(_FP64, device) and self._query_int(_FP32, device) & _DENORMAL and \
                    self._query_int(_FP32, device) & _CORRECT_DIVIDE:
                return platform_of[device], device
        raise DeviceError(
            "opencl: expected a device with float64, subnormal numbers and divisions that are "
            f"rounded correctly, got {', '.join([self._text(_NAME, d) for d in devices])}",
            hint='fnx.config.device = "cpu"')

    def _ids(self, function: str, *args: Any) -> list[int]:
        count = c_uint()
        call = self.cl.calls[function]
        try:
            call(*args, 0, None, byref(count))
            ids = (c_void_p * count.value)()
            call(*args, count.value, ids, None)
        except OpenClError:
            return []  # no device is reported as an error
        return [x for x in ids if x]

    def _query_int(self, param: int, device: int | None = None) -> int:
        value = c_uint64()
        self.cl.clGetDeviceInfo(device or self.device, param, 8, byref(value), None)
        return value.value

    def _text(self, param: int, device: int | None = None) -> str:
        buffer = ctypes.create_string_buffer(8192)
        self.cl.clGetDeviceInfo(device or self.device, param, 8192, buffer, None)
        return buffer.value.decode(errors="replace")

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
        self._arguments.clear()  # another buffer may get this handle
        self.cl.clReleaseMemObject(memory)

    def write(self, memory: int, offset: int, value: HostBytes) -> None:
        """Copy to pinned memory, one block at a time, from which the device reads."""
        for start in range(0, value.nbytes, MAX_BLOCK):
            chunk = value[start:start + MAX_BLOCK]
            with self._lock:  # else another thread's signal may precede the copy
                address = self.pinned.acquire(chunk.nbytes)
                ctypes.memmove(address, chunk.ctypes.data, chunk.nbytes)
                self.cl.clEnqueueWriteBuffer(self.queue, memory, 0, offset + start, chunk.nbytes,
                                             address, 0, None, None)
                acquired = self.pinned.acquired
                if len(acquired) >= _MAX_ACQUIRED or \
                        sum([size for size, _ in acquired]) >= MAX_BLOCK:
                    self.pinned.behind(self.signal())

    def _pin(self, nbytes: int) -> int:
        """Allocate host memory, never freed, that the device reads without another copy."""
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

    def read(self, memory: int, offset: int, to: HostBytes) -> None:
        """Wait interruptibly (Ctrl-C), then copy."""
        self.wait(self.signal())
        self.cl.clEnqueueReadBuffer(self.queue, memory, 1, offset, to.nbytes, to.ctypes.data, 0,
                                    None, None)

    def fetch(self, memory: int, offset: int, nbytes: int) -> PinnedCopy:
        """Queue a copy to pinned memory, followed by a marker."""
        with self._lock:
            block = self.pinned.acquire_block(nbytes)
            self.cl.clEnqueueReadBuffer(self.queue, memory, 0, offset, nbytes, block[1], 0, None,
                                        None)
            return PinnedCopy(self.pinned, block, nbytes, self.signal(), self.wait)

    def copy(self, source: int, source_offset: int, to: int, offset: int, nbytes: int) -> None:
        """Queue a copy on the device."""
        self.copies += 1
        self.cl.clEnqueueCopyBuffer(self.queue, source, to, source_offset, offset, nbytes, 0, None,
                                    None)

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

    def exec(self, launch: QueuedLaunch) -> None:
        """Set the arguments, then enqueue the kernel."""
        self._set_arguments(launch.kernel.handle, launch)
        self.enqueues += 1
        groups, threads = launch.groups, launch.threads
        self.cl.clEnqueueNDRangeKernel(self.queue, launch.kernel.handle, 1, None,
                                       byref(c_size_t(groups * threads)), byref(c_size_t(threads)),
                                       0, None, None)

    def _set_arguments(self, kernel: int, launch: QueuedLaunch) -> None:
        """Set the arguments that changed since the kernel was last launched."""
        values = (*itertools.chain.from_iterable(launch.buffers), *launch.scalars)
        if launch.kernel.ends:
            values = (*values, self._abort_memory)
        previous = self._arguments.get(kernel)
        if values == previous:
            return
        self._arguments[kernel] = values
        for i, value in enumerate(values):
            if previous is None or value != previous[i]:
                self.cl.clSetKernelArg(kernel, i, 8, byref(ctypes.c_int64(value)))

    def record(self, launches: Sequence[QueuedLaunch]) -> OpenClRecord | None:
        """Record a command buffer in which each launch depends on the previous one.

        Each launch has a kernel object of its own: PoCL 3.1 reads arguments at replay, and so would
        see only the last ones that were set.
        """
        if self.recording is None or len(launches) < MIN_RECORDED:
            return None
        command_buffer: int = self.recording.clCreateCommandBufferKHR(
            1, (c_void_p * 1)(self.queue), (c_uint64 * 3)(_FLAGS, _SIMULTANEOUS_USE, 0))
        previous, kernels = None, []
        for launch in launches:
            launch_kernel = self._kernel(launch.kernel.program, launch.kernel.symbol,
                                         launch.kernel.ends)
            kernels.append(launch_kernel.handle)
            self._set_arguments(launch_kernel.handle, launch)
            sync_point = c_uint()
            self.recording.clCommandNDRangeKernelKHR(
                command_buffer, None, None, launch_kernel.handle, 1, None,
                byref(c_size_t(launch.groups * launch.threads)), byref(c_size_t(launch.threads)),
                0 if previous is None else 1, None if previous is None else byref(previous),
                byref(sync_point), None)
            previous = sync_point
        self.recording.clFinalizeCommandBufferKHR(command_buffer)
        return OpenClRecord(command_buffer, tuple(kernels))

    def replay(self, recorded: OpenClRecord) -> None:
        """Enqueue the command buffer in one call."""
        self.enqueues += 1
        assert self.recording is not None
        self.recording.clEnqueueCommandBufferKHR(0, None, recorded.handle, 0, None, None)

    def forget(self, recorded: OpenClRecord) -> None:
        """Release the command buffer once it has run."""
        assert self.recording is not None
        self.wait(self.signal())
        self.recording.clReleaseCommandBufferKHR(recorded.handle)
        for kernel in recorded.kernels:
            self._arguments.pop(kernel, None)
            self.cl.clReleaseKernel(kernel)

    # ---- the timeline

    def signal(self) -> int:
        """Enqueue a marker."""
        event = c_void_p()
        with self._lock:
            self.cl.clEnqueueMarkerWithWaitList(self.queue, 0, None, byref(event))
            self._signals += 1
            self._events[self._signals] = event.value or 0
            return self._signals

    def done(self, value: int) -> bool:
        """Whether the marker was reached."""
        with self._lock:
            event = self._events.get(value)
            if value <= self._done or event is None:
                return True
            self.check_not_aborted()
            status = c_int()
            self.cl.clGetEventInfo(event, _STATUS, 4, byref(status), None)
            if status.value < 0:
                raise DeviceError("opencl: queued work failed with "
                                  f"{_ERRORS.get(status.value, 'error')} ({status.value})")
            if status.value != _COMPLETE:
                return False
            self._done = value
            for old in [v for v in self._events if v <= value]:
                self.cl.clReleaseEvent(self._events.pop(old))
            return True

    def last(self) -> int:
        """Timeline value of the last marker."""
        with self._lock:
            return self._signals

    def submit(self) -> None:
        """Flush the queue."""
        self.flushes += 1
        self.cl.clFlush(self.queue)


def device() -> GpuDevice:
    """Return the device, for ``get_device``."""
    probe_driver(OpenClDriver.name)
    return GpuDevice(OpenClDriver())
