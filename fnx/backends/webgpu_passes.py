"""WebGPU's compute passes: parameters, pipelines, and the calls of wgpu-native that encode them.

    words       parameters of each launch: number of groups, offsets of its buffers, scalars
    calls       create an encoder; begin a pass, set and dispatch each launch, end; finish
    a submit    run the words, upload them if they changed, run the calls, submit what they encoded

While a profile is recorded, each launch is a pass of its own, which has its times (``PassTimes``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, c_int32
from typing import Any

import numpy as np

from fnx.backends.device.profiling import CommandTimes
from fnx.backends.gpu.call_list import CallList, CallRunner
from fnx.backends.gpu.driver import HostBytes, QueuedLaunch, bind_launch
from fnx.backends.libwgpu import NativeFunctions
from fnx.core.support.errors import DeviceError
from fnx.core.support.kernel_interface import MAX_GROUPS_PER_AXIS, share_bindings

ALIGNMENT = 256
_MAX_PREPARED = 8  # cached passes of a command buffer, for memory in different buffers
_MIN_PARAMS = 1 << 14  # bytes of the uniform buffer of launches that are not linked
_ENCODER, _PASS, _ENCODED, _HANDLES = range(4)  # handles that the calls of a pass return

# bits: an allocation is a number, the buffer's in the high bits, the offset below
BUFFER_SHIFT = 40
OFFSET_MASK = (1 << BUFFER_SHIFT) - 1


class WebGpuKernel:
    """The WGSL of a kernel, and its pipelines by the way in which operands share buffers."""

    def __init__(self, symbol: str, text: str) -> None:
        self.symbol, self.text = symbol, text
        self.pipelines: dict[tuple[int, ...], Any] = {}


class LinkedPass:
    """The launches of a pass, and the calls that encode them.

    Attributes:
        words: the parameters of the last call, those of each launch at a multiple of 256 bytes.
        params: the uniform buffer for the words.
        upload: the call that copies the words there.
        is_current: whether it has them once the queue is idle.
        prepared: the calls, with what they use, by the buffers that contain the memory.
    """

    def __init__(self, launches: Sequence[QueuedLaunch], numbers: int, runner: CallRunner) -> None:
        self.launches, self.starts = launches, []
        self.nbytes = sum([round_up(4 * _param_words(launch)) for launch in launches])
        self.words = CallList(runner, self.nbytes // 4, numbers, c_int32)
        for launch in launches:
            _check_scalars(launch)
            self.starts.append(4 * self.words.used)
            self.words.add((0, launch.groups))
            self.words.add_stores(launch.buffers)
            self.words.add(launch.scalars)
            self.words.used = round_up(4 * self.words.used) // 4
        self.params: Any = None
        self.upload = CallList(runner, 0, 0)
        self.is_current = False
        self.prepared: dict[tuple[int, ...], tuple[CallList, list[Any]]] = {}


def round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _param_words(launch: QueuedLaunch) -> int:
    """Size of the parameters in words, rounded up to vectors of four."""
    return 2 + len(launch.buffers) + len(launch.scalars) + 3 & ~3


def _check_scalars(launch: QueuedLaunch) -> None:
    if any(not -1 << 31 <= s < 1 << 32 for s in launch.scalars):
        raise DeviceError(f"webgpu: expected numbers of 32 bits, got {launch.scalars}")


class PassEncoder:
    """Encodes and submits passes.

    Args:
        wgpu: the module.
        gpu: the device.
        buffers: its buffers by number.

    Attributes:
        times: those of the open profile; None: there is none.
        submits: number of submitted passes.
    """

    def __init__(self, wgpu: Any, gpu: Any, buffers: Mapping[int, Any]) -> None:
        self._wgpu, self._gpu, self._buffers = wgpu, gpu, buffers
        self.runner, self.functions = CallRunner(), NativeFunctions()
        self._layouts: dict[tuple[int, int], Any] = {}
        self._params: Any = None
        self.times: PassTimes | None = None
        self.submits = 0
        self._run_checked = self.functions.checked(CallList.run)
        self._submit_calls, self._discard_calls = [CallList(self.runner, 0, 1) for _ in range(2)]
        self._submit_calls.call(
            "QueueSubmit", self.functions["QueueSubmit"], self.functions.handle(gpu.queue), 1,
            self._submit_calls.address_of(0), has_status=False)
        for calls in (self._submit_calls, self._discard_calls):
            calls.call("CommandBufferRelease", self.functions["CommandBufferRelease"], 0, first=0,
                       has_status=False)

    # ---- what a pass uses

    def _pipeline(self, kernel: WebGpuKernel, pattern: tuple[int, ...], words: int) -> Any:
        """Return the pipeline for a ``pattern``: the binding of each operand."""
        pipeline = kernel.pipelines.get(pattern)
        if pipeline is None:
            module = self._gpu.create_shader_module(code=share_bindings(kernel.text, pattern))
            layout = self._layout(max(pattern, default=-1) + 1, words)
            pipeline = kernel.pipelines[pattern] = self._gpu.create_compute_pipeline(
                layout=self._gpu.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": kernel.symbol})
        return pipeline

    def _layout(self, bindings: int, words: int) -> Any:
        key = bindings, words
        layout = self._layouts.get(key)
        if layout is None:
            compute = self._wgpu.ShaderStage.COMPUTE
            entries: list[dict[str, Any]] = [
                {"binding": i, "visibility": compute, "buffer": {"type": "storage"}}
                for i in range(bindings)]
            entries.append({"binding": bindings, "visibility": compute, "buffer": {
                "type": "uniform", "has_dynamic_offset": True, "min_binding_size": 4 * words}})
            layout = self._layouts[key] = self._gpu.create_bind_group_layout(entries=entries)
        return layout

    def _group(self, buffers: Sequence[int], params: Any, words: int) -> Any:
        """Create a bind group of these buffers and ``words`` words of parameters."""
        entries = [{"binding": i, "resource": {"buffer": (b := self._buffers[number]),
                                               "offset": 0, "size": b.size}}
                   for i, number in enumerate(buffers)]
        entries.append({"binding": len(buffers), "resource": {
            "buffer": params, "offset": 0, "size": 4 * words}})
        return self._gpu.create_bind_group(layout=self._layout(len(buffers), words),
                                           entries=entries)

    def _uniform(self, nbytes: int) -> Any:
        usage = self._wgpu.BufferUsage
        return self._gpu.create_buffer(size=nbytes, usage=usage.UNIFORM | usage.COPY_DST)

    # ---- passes

    def link(self, launches: Sequence[QueuedLaunch], numbers: int) -> LinkedPass:
        """Prepare a pass with its own uniform buffer; memory is bound at each call."""
        linked = LinkedPass(launches, numbers, self.runner)
        self._connect(linked, self._uniform(max(linked.nbytes, ALIGNMENT)))
        return linked

    def _connect(self, linked: LinkedPass, params: Any) -> None:
        """Give a pass its uniform buffer."""
        linked.params, functions = params, self.functions
        linked.upload.call("QueueWriteBuffer", functions["QueueWriteBuffer"],
                           functions.handle(self._gpu.queue), functions.handle(params), 0,
                           addressof(linked.words.words), linked.nbytes, has_status=False)

    def submit_once(self, launches: Sequence[QueuedLaunch]) -> None:
        """Submit launches that are not linked, on the memory that they have."""
        memory = list(dict.fromkeys([m for launch in launches for m, _ in launch.buffers]))
        numbers = {m: i for i, m in enumerate(memory)}
        linked = LinkedPass([bind_launch(launch, numbers) for launch in launches], len(memory),
                            self.runner)
        if self._params is None or self._params.size < linked.nbytes:
            self._params = self._uniform(max(_MIN_PARAMS, 2 * linked.nbytes))
        self._connect(linked, self._params)
        self.submit(linked, memory)

    def submit(self, linked: LinkedPass, memory: Sequence[int]) -> None:
        """Upload the parameters if they changed, then encode and submit the pass."""
        buffers = tuple([m >> BUFFER_SHIFT for m in memory])
        prepared = linked.prepared.get(buffers)
        if prepared is None:
            prepared = self._prepare(linked, buffers)
            if len(linked.prepared) == _MAX_PREPARED:
                linked.prepared.pop(next(iter(linked.prepared)))
            linked.prepared[buffers] = prepared
        linked.words.run([m & OFFSET_MASK for m in memory])
        linked.is_current &= not linked.words.has_changed
        if not linked.is_current:
            self._run_checked(linked.upload, [])
            linked.is_current = True
        calls = prepared[0]
        try:
            self._run_checked(calls, [0] * _HANDLES)
        except self._wgpu.GPUError:  # a submit would end the process
            self._discard_calls.run([calls.handle(_ENCODED)])
            raise
        self._run_checked(self._submit_calls, [calls.handle(_ENCODED)])
        self.submits += 1

    def _prepare(self, linked: LinkedPass, buffers: Sequence[int]) -> tuple[CallList, list[Any]]:
        """List the calls that encode a pass on these buffers; also return what they use."""
        functions, times, uses = self.functions, self.times, list[Any]()
        calls = CallList(self.runner, len(linked.launches), _HANDLES, c_int32)

        def encode(name: str, first: int, *arguments: int, returns: int | None = None) -> None:
            calls.call(name, functions[name], *arguments, first=first, returns=returns,
                       has_status=False)

        def end() -> None:
            encode("ComputePassEncoderEnd", _PASS, 0)
            encode("ComputePassEncoderRelease", _PASS, 0)
        calls.call("DeviceCreateCommandEncoder", functions["DeviceCreateCommandEncoder"],
                   functions.handle(self._gpu), 0, returns=_ENCODER)
        if times is None:
            encode("CommandEncoderBeginComputePass", _ENCODER, 0, 0, returns=_PASS)
        for launch, start in zip(linked.launches, linked.starts):
            numbers = [buffers[i] for i, _ in launch.buffers]
            distinct = list(dict.fromkeys(numbers))
            words = _param_words(launch)
            pattern = tuple([distinct.index(number) for number in numbers])
            pipeline = self._pipeline(launch.kernel, pattern, words)
            group = self._group(distinct, linked.params, words)
            uses += pipeline, group
            if times is not None:
                uses.append(descriptor := times.descriptor(launch))
                encode("CommandEncoderBeginComputePass", _ENCODER, 0,
                       functions.address(descriptor[0]), returns=_PASS)
            encode("ComputePassEncoderSetPipeline", _PASS, 0, functions.handle(pipeline))
            encode("ComputePassEncoderSetBindGroup", _PASS, 0, 0, functions.handle(group), 1,
                   calls.word(start))
            encode("ComputePassEncoderDispatchWorkgroups", _PASS, 0,
                   min(launch.groups, MAX_GROUPS_PER_AXIS),
                   -(-launch.groups // MAX_GROUPS_PER_AXIS), 1)
            if times is not None:
                end()
        if times is None:
            end()
        encode("CommandEncoderFinish", _ENCODER, 0, 0, returns=_ENCODED)
        encode("CommandEncoderRelease", _ENCODER, 0)
        return calls, uses


class PassTimes:
    """The times of passes, each of one launch, by queries that the host reads together.

    Args:
        wgpu, gpu, functions: as those of PassEncoder.
        read: waits for all work, and returns the bytes of a buffer.
    """

    def __init__(self, wgpu: Any, gpu: Any, functions: NativeFunctions,
                 read: Callable[[Any, int], HostBytes]) -> None:
        self._gpu, self._functions, self._read = gpu, functions, read
        self.commands = CommandTimes(self._read_times, self._compare_clocks)
        count = 2 * self.commands.room
        self._queries = gpu.create_query_set(type="timestamp", count=count)
        self._resolved = gpu.create_buffer(size=8 * count, usage=(
            wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC))
        self._period = functions.timestamp_period(gpu)
        self._used = 0  # queries

    def descriptor(self, launch: QueuedLaunch) -> tuple[Any, ...]:
        """Return the descriptor of a pass with the times of a launch, and what it refers to."""
        self.commands.add(None, launch.command)
        self._used += 2
        return self._functions.timed_pass(self._queries, self._used - 2)

    def _compare_clocks(self) -> tuple[int, int]:
        """Time an empty pass."""
        encoder = self._gpu.create_command_encoder()
        encoder.begin_compute_pass(timestamp_writes={
            "query_set": self._queries, "beginning_of_pass_write_index": 0,
            "end_of_pass_write_index": 1}).end()
        encoded, start = encoder.finish(), time.monotonic_ns()
        self._gpu.queue.submit([encoded])
        begin, end = self._read_times([None])[0]
        nanoseconds = time.monotonic_ns() - start
        return nanoseconds, start + (nanoseconds - begin - end) // 2

    def _read_times(self, passes: Sequence[None]) -> list[tuple[int, int]]:
        """Return when the passes began and ended."""
        count, self._used = len(passes), 0
        encoder = self._gpu.create_command_encoder()
        encoder.resolve_query_set(self._queries, 0, 2 * count, self._resolved, 0)
        self._gpu.queue.submit([encoder.finish()])
        ticks = self._read(self._resolved, 16 * count).view(np.uint64).reshape(count, 2)
        return [(round(int(a) * self._period), round(int(b) * self._period)) for a, b in ticks]
