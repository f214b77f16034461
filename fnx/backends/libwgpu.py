"""What wgpu and wgpu-native give: functions, pipelines with what they bind, passes, mapped copies
to the host, errors of a lost device.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

import numpy as np

from fnx.backends.gpu.call_list import CallList
from fnx.backends.gpu.driver import AsyncRead, HostBytes, QueuedLaunch
from fnx.core.support.errors import DeviceError
from fnx.core.support.kernel_interface import share_bindings
from fnx.core.support.process import load
from fnx.core.support.record import Record

_LOST_TEXT = "is lost"  # in the message, whatever was called
_MAP_MODE = "READ_NOSYNC"  # as in wgpu's own ``read_buffer``: "READ_DEFAULT" would submit once more
F = TypeVar("F", bound=Callable[..., Any])


class NativeFunctions:
    """Addresses of functions of wgpu-native, which wgpu calls by cffi."""

    def __init__(self) -> None:
        self._native = load("wgpu.backends.wgpu_native")
        self._ffi: Any = self._native.ffi
        self._addresses: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """Return the address of a function, by its name after ``wgpu``."""
        if name not in self._addresses:
            self._addresses[name] = self.address(getattr(self._native.lib, f"wgpu{name}"))
        return self._addresses[name]

    def address(self, pointer: Any) -> int:
        """Return the address that a pointer of cffi has."""
        return int(self._ffi.cast("uintptr_t", pointer))

    def handle(self, wrapper: Any) -> int:
        """Return the handle of wgpu-native that a wrapper of wgpu has."""
        return self.address(wrapper._internal)

    def checked(self, run: F) -> F:
        """Return a function that raises the errors that wgpu-native reports while it runs."""
        checked: F = self._native._api.libf._make_proxy_func("fnx", run)
        return checked

    def is_queue_empty(self, device: Any) -> bool:
        """Run callbacks that are due; return whether all submitted work is done."""
        is_empty: int = self._native._api.libf.wgpuDevicePoll(
            device._internal, False, self._ffi.NULL)
        return bool(is_empty & 0xFF)  # wgpu-native 27 returns a byte, declared as a word

    def timestamp_period(self, device: Any) -> float:
        """Return the nanoseconds of a tick of the clock for timestamps."""
        return float(self._native.lib.wgpuQueueGetTimestampPeriod(device.queue._internal))

    def timed_pass(self, queries: Any, begin: int) -> tuple[Any, ...]:
        """Return the descriptor of a pass whose times are the queries ``begin`` and the next one,
        and what it refers to.
        """
        writes = self._ffi.new("WGPUPassTimestampWrites *")
        writes.querySet = queries._internal
        writes.beginningOfPassWriteIndex, writes.endOfPassWriteIndex = begin, begin + 1
        descriptor = self._ffi.new("WGPUComputePassDescriptor *")
        descriptor.timestampWrites = writes
        return descriptor, writes


class WebGpuKernel:
    """The WGSL of a kernel, and its pipelines by the way in which operands share buffers."""

    def __init__(self, symbol: str, text: str) -> None:
        self.symbol, self.text = symbol, text
        self.pipelines: dict[tuple[int, ...], Any] = {}


class Pipelines:
    """The pipelines of kernels, and what they bind: buffers, and words of parameters.

    Args:
        wgpu: the module.
        gpu: the device.
    """

    def __init__(self, wgpu: Any, gpu: Any) -> None:
        self._compute, self._gpu = wgpu.ShaderStage.COMPUTE, gpu
        self._layouts: dict[tuple[int, int], Any] = {}

    def bind(self, kernel: WebGpuKernel, operands: Sequence[Any], params: Any, words: int
             ) -> tuple[Any, Any]:
        """Return the pipeline for operands in these buffers, and a bind group of them and of
        ``words`` words of parameters, rounded up to vectors of four.
        """
        buffers, words = list(dict.fromkeys(operands)), words + 3 & ~3
        layout = self._layout(len(buffers), words)
        entries = [{"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                   for i, b in enumerate(buffers)]
        entries.append({"binding": len(buffers), "resource": {
            "buffer": params, "offset": 0, "size": 4 * words}})
        pattern = tuple([buffers.index(b) for b in operands])
        pipeline = kernel.pipelines.get(pattern)
        if pipeline is None:
            module = self._gpu.create_shader_module(code=share_bindings(kernel.text, pattern))
            pipeline = kernel.pipelines[pattern] = self._gpu.create_compute_pipeline(
                layout=self._gpu.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": kernel.symbol})
        return pipeline, self._gpu.create_bind_group(layout=layout, entries=entries)

    def _layout(self, bindings: int, words: int) -> Any:
        key = bindings, words
        layout = self._layouts.get(key)
        if layout is None:
            entries: list[dict[str, Any]] = [
                {"binding": i, "visibility": self._compute, "buffer": {"type": "storage"}}
                for i in range(bindings)]
            entries.append({"binding": bindings, "visibility": self._compute, "buffer": {
                "type": "uniform", "has_dynamic_offset": True, "min_binding_size": 4 * words}})
            layout = self._layouts[key] = self._gpu.create_bind_group_layout(entries=entries)
        return layout


class PreparedPass(Record):
    """The calls of a pass on memory in certain buffers: they fill in the parameters, copy them to
    the uniform buffer ``params`` if they changed, and encode the pass, with what it ``uses``.
    """

    calls: CallList
    params: Any
    uses: list[Any]


class LinkedPass:
    """The launches of a pass on memory by number.

    Attributes:
        prepared: the calls by the buffers that contain the memory; none of these was freed when
            ``freed`` had been.
    """

    def __init__(self, launches: Sequence[QueuedLaunch], numbers: int) -> None:
        self.launches, self.numbers = launches, numbers
        self.prepared: dict[tuple[int, ...], PreparedPass] = {}
        self.freed = 0

    def drop(self, key: tuple[int, ...]) -> None:
        """Drop calls, once queued work has read their parameters."""
        self.prepared.pop(key).params.destroy()


class CopyDriver(Protocol):
    """The interface of the driver that copies use."""

    wgpu: Any

    def wait(self, value: int) -> None:
        """Wait until the timeline has passed a number."""


def device_lost_error(error: object) -> DeviceError:
    message = " ".join(str(error).split())
    return DeviceError(f"webgpu: the device is lost: {message}", hint=(
        "the driver gave it up (a reset, a kernel that took too long), or somebody destroyed it"))


def reports_device_loss(method: F) -> F:
    """Decorate a driver method: refuse calls after an abort, and report a lost device as such."""
    @functools.wraps(method)
    def called(driver: Any, *args: Any) -> Any:
        driver.check_not_aborted()
        try:
            return method(driver, *args)
        except driver.wgpu.GPUError as why:
            raise (device_lost_error(why) if _LOST_TEXT in str(why) else why) from None
    return called  # type: ignore[return-value]


class MappedCopy(AsyncRead):
    """A buffer that the host can read when the copy to it is done, and the timeline number after
    it.

    Attributes:
        ready: set when the copy is done or has failed; then ``failed`` is the reason.
    """

    __slots__ = ("_buffer", "_driver", "_promise", "failed", "nbytes", "ready", "value")

    def __init__(self, driver: CopyDriver, buffer: Any, nbytes: int, value: int) -> None:
        self._driver, self._buffer = driver, buffer
        self.nbytes, self.value = nbytes, value
        self.ready, self.failed = threading.Event(), ""
        self._promise = buffer.map_async(_MAP_MODE)

    @property
    def is_mapped(self) -> bool:
        """Whether the host can read it."""
        return self.ready.is_set() and not self.failed

    def wait(self) -> None:
        """Wait until the timeline has passed the number."""
        self._driver.wait(self.value)

    def wait_mapped(self) -> None:
        """Wait for the mapping, for as long as it takes."""
        try:
            self._promise.sync_wait()
        except Exception as why:
            self.failed = str(why)
        self.ready.set()

    def content(self) -> HostBytes:
        """The mapped bytes."""
        return np.frombuffer(self._buffer.read_mapped(copy=False), np.uint8, self.nbytes)

    def release(self) -> None:
        """Destroy the buffer. One that is not mapped yet is freed on its own."""
        if self.ready.is_set():
            self._buffer.destroy()


def start_copy_thread() -> SimpleQueue[MappedCopy]:
    """Start a thread that waits for copies; return the queue through which it gets them.

    Other threads then wait for an event, a wait that they can leave to check whether the device
    still works.
    """
    copies: SimpleQueue[MappedCopy] = SimpleQueue()

    def settle() -> None:
        while True:
            copies.get().wait_mapped()

    threading.Thread(target=settle, name="wgpu copies", daemon=True).start()
    return copies
