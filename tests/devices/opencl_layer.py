"""cl_khr_command_buffer_mutable_dispatch over a driver that lacks it: a layer that records calls.

It stands between fnx and libOpenCL.so.1, reports the extension, checks each call against the
specification, and enqueues the kernels of a command buffer one by one. Structures are read by the
offsets that they have in C, not by the declarations that are tested.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_int, c_uint, c_uint64, c_void_p
from typing import Any

import pytest

import fnx
from fnx.backends import libopencl, opencl
from fnx.backends.device import base
from fnx.backends.gpu.device import GpuDevice
from fnx.core.support.config import override

INVALID_OPERATION = -59
_P, _U = c_void_p, c_uint
_TYPES: dict[str, tuple[Any, ...]] = {
    "clCreateCommandBufferKHR": (_P, _U, _P, _P, _P),
    "clFinalizeCommandBufferKHR": (c_int, _P),
    "clReleaseCommandBufferKHR": (c_int, _P),
    "clEnqueueCommandBufferKHR": (c_int, _U, _P, _P, _U, _P, _P),
    "clCommandNDRangeKernelKHR": (c_int, _P, _P, _P, _P, _U, _P, _P, _P, _U, _P, _P, _P),
    "clUpdateMutableCommandsKHR": (c_int, _P, _U, _P, _P)}


def _words(address: int, count: int) -> list[int]:
    return list((c_uint64 * count).from_address(address))


class Commands:
    """A command buffer: its queue, commands by handle (kernel, sizes), and whether it is final."""

    def __init__(self, queue: int) -> None:
        self.queue, self.is_final = queue, False
        self.commands: dict[int, tuple[int, int, int]] = {}


class MutableDispatchLayer:
    """The library.

    Attributes:
        calls: names of the functions of the extension that were called, with numbers of commands
            or of updates.
        fails: the function that returns an error, once, or always.
        version, capabilities, fields: what the device reports.
        buffers: the command buffers that were not released.
    """

    def __init__(self) -> None:
        self.library: Any = libopencl.load_library()
        self.calls: list[tuple[str, int]] = []
        self.fails, self.version, self.capabilities, self.fields = "", (0, 9, 2), 1 << 2, 1 << 3
        self.buffers: dict[int, Commands] = {}
        self._handles = 0
        self._functions: dict[str, Any] = {
            name: ctypes.CFUNCTYPE(*types)(self._called(name)) for name, types in _TYPES.items()}
        self.wrong: list[str] = []
        self._inner = self.library.clGetDeviceInfo
        self.clGetDeviceInfo = ctypes.CFUNCTYPE(c_int, _P, _U, ctypes.c_size_t, _P, _P)(self._info)
        find = ctypes.CFUNCTYPE(_P, _P, ctypes.c_char_p)
        self.clGetExtensionFunctionAddressForPlatform = find(lambda platform, name: ctypes.cast(
            self._functions[name.decode()], c_void_p).value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["library"], name)

    def _info(self, device: int, what: int, size: int, to: int, count: int) -> int:
        values = {0x12A9: struct.pack("Q", self.capabilities),
                  0x12B0: struct.pack("Q", self.fields),
                  0x1060: struct.pack("I64s", self.version[0] << 22 | self.version[1] << 12
                                      | self.version[2], b"cl_khr_command_buffer_mutable_dispatch")}
        if what not in values:
            code: int = self._inner(c_void_p(device), c_uint(what), ctypes.c_size_t(size),
                                    c_void_p(to), c_void_p(count))
            return code
        ctypes.memmove(to, values[what], len(values[what]))
        if count:
            ctypes.c_size_t.from_address(count).value = len(values[what])
        return 0

    def _called(self, name: str) -> Callable[..., int]:
        method = getattr(self, f"_{name}")

        def called(*args: Any) -> int:
            if self.fails == name:
                if name == "clCreateCommandBufferKHR":
                    c_int.from_address(args[-1]).value = INVALID_OPERATION
                    return 0
                return INVALID_OPERATION
            try:
                return int(method(*args) or 0)
            except Exception as why:  # ctypes would print it and go on
                self.wrong.append(f"{name}{args}: {why!r}")
                return INVALID_OPERATION
        return called

    def _new(self) -> int:
        self._handles += 0x1000
        return self._handles

    # ---- the extension

    def _clCreateCommandBufferKHR(self, count: int, queues: int, properties: int, code: int) -> int:
        assert count == 1 and _words(properties, 3) == [0x1293, 1 << 0 | 1 << 1, 0]
        handle = self._new()
        self.buffers[handle] = Commands(_words(queues, 1)[0])
        self.calls.append(("create", 0))
        c_int.from_address(code).value = 0
        return handle

    def _clCommandNDRangeKernelKHR(self, buffer: int, queue: int | None, properties: int,
                                   kernel: int, dimensions: int, offset: int | None, size: int,
                                   group: int, count: int, waits: int | None, point: int,
                                   handle: int) -> None:
        commands = self.buffers[buffer]
        assert not commands.is_final and not queue and dimensions == 1 and not offset
        assert _words(properties, 3) == [0x12B1, 1 << 3, 0]
        before = len(commands.commands)
        points = [c_uint.from_address(waits).value] if waits else []
        assert count == len(points) and points == [before] * bool(before), "each waits for the last"
        number = self._new()
        commands.commands[number] = kernel, _words(size, 1)[0], _words(group, 1)[0]
        c_uint.from_address(point).value = before + 1
        c_uint64.from_address(handle).value = number

    def _clFinalizeCommandBufferKHR(self, buffer: int) -> None:
        commands = self.buffers[buffer]
        assert not commands.is_final
        commands.is_final = True
        self.calls.append(("finalize", len(commands.commands)))

    def _clUpdateMutableCommandsKHR(self, buffer: int, count: int, types: int, configs: int
                                    ) -> None:
        commands = self.buffers[buffer]
        assert commands.is_final and not any((c_uint * count).from_address(types))
        for config in _words(configs, count):
            command, args, svm, infos, dimensions, values, *rest = struct.unpack(
                "QIIIIQ5Q", ctypes.string_at(config, 64 + 8))[:11]
            assert (svm, infos, dimensions, *rest) == (0,) * 8, "only arguments are updated"
            kernel = commands.commands[command][0]
            for i in range(args):
                index, size, value = struct.unpack("IxxxxQQ", ctypes.string_at(values + 24 * i, 24))
                assert size == 8
                code = self.library.clSetKernelArg(c_void_p(kernel), c_uint(index),
                                                   ctypes.c_size_t(size), c_void_p(value))
                assert code == 0, code
        self.calls.append(("update", count))

    def _clEnqueueCommandBufferKHR(self, count: int, queues: int | None, buffer: int, waits: int,
                                   events: int | None, event: int | None) -> None:
        commands = self.buffers[buffer]
        assert commands.is_final and not (count or queues or waits or events or event)
        for kernel, size, group in commands.commands.values():
            code = self.library.clEnqueueNDRangeKernel(
                c_void_p(commands.queue), c_void_p(kernel), c_uint(1), None,
                (c_uint64 * 1)(size), (c_uint64 * 1)(group), c_uint(0), None, None)
            assert code == 0, code
        self.calls.append(("enqueue", len(commands.commands)))

    def _clReleaseCommandBufferKHR(self, buffer: int) -> None:
        del self.buffers[buffer]


@contextmanager
def mutable_dispatch(monkeypatch: pytest.MonkeyPatch, **reported: Any
                     ) -> Iterator[tuple[Any, MutableDispatchLayer]]:
    """Yield an OpenCL device on such a library; check at the end that no call was wrong."""
    layer = MutableDispatchLayer()
    for name, value in reported.items():
        setattr(layer, name, value)
    monkeypatch.setattr(opencl, "load_library", lambda: layer)
    monkeypatch.setattr(opencl, "_said", {})
    device = GpuDevice(opencl.OpenClDriver())
    monkeypatch.setitem(base._devices, "opencl", device)
    fnx.clear_caches()  # programs of other tests are cached by device name
    with override(device="opencl"):
        yield device, layer
    device.synchronize()
    fnx.clear_caches()
    assert layer.wrong == []
