"""ctypes declarations of libOpenCL.so.1: functions by name, and their errors."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from fnx.core.support.errors import DeviceError

LIBRARY = "libOpenCL.so.1"
PACKAGES = "Debian: apt-get install ocl-icd-libopencl1 pocl-opencl-icd"
ERRORS = {-1: "DEVICE_NOT_FOUND", -4: "MEM_OBJECT_ALLOCATION_FAILURE", -5: "OUT_OF_RESOURCES",
           -6: "OUT_OF_HOST_MEMORY", -11: "BUILD_PROGRAM_FAILURE", -30: "INVALID_VALUE",
           -34: "INVALID_CONTEXT", -36: "INVALID_COMMAND_QUEUE", -38: "INVALID_MEM_OBJECT",
           -48: "INVALID_KERNEL", -51: "INVALID_ARG_SIZE", -52: "INVALID_KERNEL_ARGS",
           -54: "INVALID_WORK_GROUP_SIZE", -55: "INVALID_WORK_ITEM_SIZE",
           -61: "INVALID_BUFFER_SIZE", -63: "INVALID_GLOBAL_WORK_SIZE"}

# Constants of the standard's headers.
ALL_DEVICES, _IS_GPU, TYPE, NAME, EXTENSIONS = 0xFFFFFFFF, 1 << 2, 0x1000, 0x102B, 0x1030
FP32, _FP64, _DENORMAL, CORRECT_DIVIDE = 0x101B, 0x1032, 1 << 0, 1 << 7

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
    "clGetEventProfilingInfo": (_P, _U, _S, _P, _P),
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


class OpenClError(DeviceError):
    """An error code that the driver returned."""

    code = 0


def make_error(name: str, code: int) -> OpenClError:
    error = OpenClError(f"opencl: {name} failed with {ERRORS.get(code, 'error')} ({code})")
    error.code = code
    return error


class OpenClFunctions:
    """Functions by name; each raises OpenClError on an error code."""

    def __init__(self, find: Callable[[str, Any, tuple[Any, ...]], Callable[..., Any]],
                 status_functions: Mapping[str, tuple[Any, ...]],
                 create_functions: Mapping[str, tuple[Any, ...]]
                 ) -> None:
        self.calls: dict[str, Callable[..., Any]] = {}
        self.addresses: dict[str, int] = {}
        for name, types in status_functions.items():
            function: Any = find(name, c_int, types)
            self.calls[name] = functools.partial(_call_status, name, function)
            self.addresses[name] = ctypes.cast(function, c_void_p).value or 0
        for name, types in create_functions.items():
            self.calls[name] = functools.partial(_call_create, name, find(name, c_void_p, types))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.calls[name]


def load_library() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as why:
        raise DeviceError(f"opencl: looked for {LIBRARY}: {why}", hint=PACKAGES) from None


def load_functions(library: Any) -> OpenClFunctions:
    def find(name: str, result: Any, types: tuple[Any, ...]) -> Callable[..., Any]:
        function_pointer = getattr(library, name)
        function_pointer.restype, function_pointer.argtypes = result, types
        function: Callable[..., Any] = function_pointer
        return function

    return OpenClFunctions(find, _STATUS_FUNCTIONS, _CREATE_FUNCTIONS)


def load_khr_functions(library: Any, platform: int) -> OpenClFunctions | None:
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
        raise make_error(name, code)


def _call_create(name: str, function: Callable[..., int], *args: Any) -> int:
    code = c_int()
    handle = function(*args, byref(code))
    if code.value:
        raise make_error(name, code.value)
    return handle


class OpenClDevices:
    """The devices of all platforms, what they say of themselves, and the one to use.

    Attributes:
        cl: the functions.
        device: the device to use.
    """

    cl: OpenClFunctions
    device: int

    def _select_device(self) -> tuple[int, int]:
        """Return the platform and the device to use."""
        platform_of = {d: platform for platform in self._ids("clGetPlatformIDs")
                       for d in self._ids("clGetDeviceIDs", platform, ALL_DEVICES)}
        devices = list(platform_of)
        if not devices:
            raise DeviceError("opencl: expected a driver, looked in /etc/OpenCL/vendors: none",
                              hint=PACKAGES)
        devices.sort(key=lambda d: not self._query_int(TYPE, d) & _IS_GPU)
        for device in devices:
            if self._query_int(_FP64, device) and self._query_int(FP32, device) & _DENORMAL and \
                    self._query_int(FP32, device) & CORRECT_DIVIDE:
                return platform_of[device], device
        raise DeviceError(
            "opencl: expected a device with float64, subnormal numbers and divisions that are "
            f"rounded correctly, got {', '.join([self._text(NAME, d) for d in devices])}",
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
