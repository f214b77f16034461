"""ctypes declarations of libcuda.so.1: functions, enums and structures, as in cuda.h.

Tests compare all of this with the header (of the wheel nvidia-cuda-runtime-cu12).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from fnx.core.support.errors import DeviceError

LIBRARY = "libcuda.so.1"
MIN_DRIVER = 12000  # the first that accepts PTX 8.0 and graphs of kernels with contexts

_P, _I, _U, _S, _Q = c_void_p, c_int, c_uint, c_size_t, c_uint64
# Exported functions and their argument types. All return an error code.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U,),
    "cuDriverGetVersion": (_P,),
    "cuGetErrorName": (_I, _P),
    "cuDeviceGetCount": (_P,),
    "cuDeviceGet": (_P, _I),
    "cuDeviceGetName": (_P, _I, _I),
    "cuDeviceGetAttribute": (_P, _I, _I),
    "cuDeviceTotalMem_v2": (_P, _I),
    "cuDevicePrimaryCtxRetain": (_P, _I),
    "cuCtxSetCurrent": (_P,),
    "cuMemAlloc_v2": (_P, _S),
    "cuMemFree_v2": (_Q,),
    "cuMemHostAlloc": (_P, _S, _U),
    "cuMemHostGetDevicePointer_v2": (_P, _P, _U),
    "cuMemcpyHtoDAsync_v2": (_Q, _P, _S, _P),
    "cuMemcpyDtoH_v2": (_P, _Q, _S),
    "cuMemcpyDtoHAsync_v2": (_P, _Q, _S, _P),
    "cuMemcpyDtoDAsync_v2": (_Q, _Q, _S, _P),
    "cuModuleLoadDataEx": (_P, _P, _U, _P, _P),
    "cuModuleGetFunction": (_P, _P, c_char_p),
    "cuStreamCreate": (_P, _U),
    "cuStreamWaitEvent": (_P, _P, _U),
    "cuEventCreate": (_P, _U),
    "cuEventRecord": (_P, _P),
    "cuEventQuery": (_P,),
    "cuEventElapsedTime": (_P, _P, _P),
    "cuLaunchKernel": (_P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P),
    "cuGraphCreate": (_P, _U),
    "cuGraphAddKernelNode_v2": (_P, _P, _P, _S, _P),
    "cuGraphInstantiateWithFlags": (_P, _P, _Q),
    "cuGraphLaunch": (_P, _P),
    "cuGraphDestroy": (_P,),
    "cuGraphExecDestroy": (_P,),
}

# Enum values of the header, by their names there.
ENUMS = {
    "CUDA_ERROR_OUT_OF_MEMORY": 2,
    "CUDA_ERROR_NO_DEVICE": 100,
    "CUDA_ERROR_NOT_READY": 600,
    "CU_STREAM_NON_BLOCKING": 1,
    "CU_EVENT_DEFAULT": 0,
    "CU_EVENT_DISABLE_TIMING": 2,
    "CU_JIT_ERROR_LOG_BUFFER": 5,
    "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": 6,
    "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 1,
    "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X": 5,
    "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK": 8,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 75,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 76,
}
CU_MEMHOSTALLOC_DEVICEMAP = 2  # a #define of the header
# Sticky errors: after one of these, every call of this process fails. Code, and what happened.
STICKY_ERRORS = {
    "CUDA_ERROR_ECC_UNCORRECTABLE": (214, "memory of the device lost bits"),
    "CUDA_ERROR_ILLEGAL_ADDRESS": (700, "a kernel accessed an invalid address"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (702, "a kernel ran for longer than the system allows"),
    "CUDA_ERROR_ASSERT": (710, "a kernel ended by itself"),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": (714, "a kernel overflowed its stack"),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (715, "a kernel has an instruction that the chip lacks"),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (716, "a kernel read or wrote at a misaligned address"),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": (717, "a kernel used an address of the wrong memory space"),
    "CUDA_ERROR_INVALID_PC": (718, "a kernel jumped to an invalid address"),
    "CUDA_ERROR_LAUNCH_FAILED": (719, "a kernel failed"),
}


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS of cuda.h."""

    _fields_ = (("func", _P), ("gridDimX", _U), ("gridDimY", _U), ("gridDimZ", _U),
                ("blockDimX", _U), ("blockDimY", _U), ("blockDimZ", _U), ("sharedMemBytes", _U),
                ("kernelParams", _P), ("extra", _P), ("kern", _P), ("ctx", _P))


def load_library() -> Any:
    """Load the library.

    Raises:
        DeviceError: it is not installed; names the file.
    """
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(f"cuda: looked for {LIBRARY}: {error}", hint=(
            "NVIDIA's driver brings it (Debian: apt-get install nvidia-driver); without a GPU: "
            'fnx.config.device = "cpu"')) from None


def load_functions(library: Any) -> dict[str, Callable[..., int]]:
    """Return the functions of a library with their types set.

    Raises:
        DeviceError: the library lacks one of them.
    """
    functions: dict[str, Callable[..., int]] = {}
    for name, types in SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise DeviceError(f"cuda: looked for {name} in {LIBRARY}: it is too old",
                              hint=f"a driver of CUDA {format_version(MIN_DRIVER)} or later has it"
                              ) from None
        function.restype, function.argtypes = c_int, types
        functions[name] = function
    return functions


def address_of(function: Callable[..., Any]) -> int:
    """Return the address of a C function."""
    return ctypes.cast(function, c_void_p).value or 0  # type: ignore[arg-type]


def format_version(version: int) -> str:
    """Format a CUDA version number as major.minor."""
    return f"{version // 1000}.{version % 1000 // 10}"
