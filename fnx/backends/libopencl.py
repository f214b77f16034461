"""ctypes declarations of libOpenCL.so.1: functions by name, and their errors."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
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
ALL_DEVICES, _IS_GPU, TYPE, NAME, _EXTENSIONS = 0xFFFFFFFF, 1 << 2, 0x1000, 0x102B, 0x1060
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
# Functions of cl_khr_command_buffer and cl_khr_command_buffer_mutable_dispatch.
_STATUS_FUNCTIONS_KHR = {
    "clFinalizeCommandBufferKHR": (_P,),
    "clReleaseCommandBufferKHR": (_P,),
    "clEnqueueCommandBufferKHR": (_U, _P, _P, _U, _P, _P),
    "clCommandNDRangeKernelKHR": (_P, _P, _P, _P, _U, _P, _P, _P, _U, _P, _P, _P),
    "clUpdateMutableCommandsKHR": (_P, _U, _P, _P),
}
_CREATE_FUNCTIONS_KHR = {"clCreateCommandBufferKHR": (_U, _P, _P, _P)}


# Command buffers whose arguments are updated, also while they run. Before this version the function
# for updates had another signature (api/cl_khr_command_buffer_mutable_dispatch.asciidoc of the
# specification, "Version History").
_MUTABLE_DISPATCH, _MIN_VERSION = b"cl_khr_command_buffer_mutable_dispatch", (0, 9, 2)
_BUFFER_CAPABILITIES, _SIMULTANEOUS_USE = 0x12A9, 1 << 2
_MUTABLE_CAPABILITIES, _ARGUMENTS = 0x12B0, 1 << 3
_DISPATCH_CONFIG = 0  # the type of a structure for updates


class _Extension(ctypes.Structure):
    """cl_name_version of CL/cl.h."""

    _fields_ = (("version", _U), ("name", ctypes.c_char * 64))

    @property
    def number(self) -> tuple[int, int, int]:
        """The version: major, minor, patch."""
        return self.version >> 22, self.version >> 12 & 0x3FF, self.version & 0xFFF


class _Argument(ctypes.Structure):
    """cl_mutable_dispatch_arg_khr of CL/cl_ext.h."""

    _fields_ = (("arg_index", _U), ("arg_size", _S), ("arg_value", _P))


class _Config(ctypes.Structure):
    """cl_mutable_dispatch_config_khr of CL/cl_ext.h."""

    _fields_ = (("command", _P), ("num_args", _U), ("num_svm_args", _U), ("num_exec_infos", _U),
                ("work_dim", _U), ("arg_list", _P), ("arg_svm_list", _P), ("exec_info_list", _P),
                ("global_work_offset", _P), ("global_work_size", _P), ("local_work_size", _P))


class CommandUpdates:
    """Updates of the memory of commands, for clUpdateMutableCommandsKHR.

    Args:
        commands: of each command, its handle, and arguments with the address of their value.

    Attributes:
        arguments: of the function, after the command buffer.
    """

    def __init__(self, commands: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> None:
        lists = [(_Argument * len(values))(*[_Argument(i, 8, address) for i, address in values])
                 for _, values in commands]
        configs = [_Config(handle, len(values), arg_list=ctypes.addressof(values))
                   for (handle, _), values in zip(commands, lists)]
        types = (_U * len(configs))(*[_DISPATCH_CONFIG] * len(configs))
        pointers = (_P * len(configs))(*map(ctypes.addressof, configs))
        self.arguments = len(configs), ctypes.addressof(types), ctypes.addressof(pointers)
        self._structures = lists, configs, types, pointers


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
    """Return the functions of command buffers, or None if the platform lacks one of them."""
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

    def _updates_commands(self) -> bool:
        """Whether the device says that arguments of command buffers can be updated, also of those
        that run.
        """
        extensions = (_Extension * 512)()
        nbytes = c_size_t()
        try:
            self.cl.clGetDeviceInfo(self.device, _EXTENSIONS, ctypes.sizeof(extensions), extensions,
                                    byref(nbytes))
            versions = {e.name: e.number for e in extensions[:nbytes.value
                                                             // ctypes.sizeof(_Extension)]}
            return versions.get(_MUTABLE_DISPATCH, (0, 0, 0)) >= _MIN_VERSION and bool(
                self._query_int(_BUFFER_CAPABILITIES) & _SIMULTANEOUS_USE
                and self._query_int(_MUTABLE_CAPABILITIES) & _ARGUMENTS)
        except OpenClError:  # a device of OpenCL 1 or 2
            return False

    def _text(self, param: int, device: int | None = None) -> str:
        buffer = ctypes.create_string_buffer(8192)
        self.cl.clGetDeviceInfo(device or self.device, param, 8192, buffer, None)
        return buffer.value.decode(errors="replace")
