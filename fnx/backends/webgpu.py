"""WebGPU's driver, through wgpu-native (the wheel ``wgpu``): Vulkan, Metal and DirectX.

    a call      one encoder, one submit; kernels are dispatches of one pass, in order
    memory      pieces of large buffers, so that the operands of a kernel need few bindings
    arguments   words of one uniform buffer, written before the submit

A kernel is compiled at its first launch, once for each way in which its operands share buffers,
since two bindings may not refer to the same buffer. All counts and sizes are checked before
anything is encoded, as wgpu-native may end the process on an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import (
    DeviceLimits,
    HostBytes,
    PlacedLaunch,
    QueuedLaunch,
)
from fnx.backends.gpu.ending import LeavingDriver
from fnx.backends.gpu.trial import require
from fnx.backends.libwgpu import MappedCopy, at_the_border, lost, settled
from fnx.core.bindings import AXIS, sharing
from fnx.core.errors import DeviceError
from fnx.core.process import exit_without_destructors, fork_safe_lock, load
from fnx.core.target import Target

# The target: the minimum that the standard guarantees, so that kernels for web pages can be
# compiled for it, too.
ROW = Target("webgpu", kind="wgsl", threads=128, shared=16 << 10, private=1 << 10, buffers=8,
             fma=False, wide=False, vector_bits=32, vector_registers=64, chunks=1024)
SOFTWARE, STEPS = "llvmpipe", (1 << 16) - 1  # Mesa's CPU driver, which stops longer loops
SLAB, LARGE = 16 << 20, 1 << 20  # bytes of a divided buffer; of an unshared one, at least
_ALIGNED = 256
_LOOK = 0.1  # seconds between checks for a lost device during a wait
_SUBGROUPS = "subgroup"  # an optional feature of adapters
_PREPARED = 8  # cached passes of a command buffer, for memory in different buffers
_PACKAGES = ("pip install wgpu; Debian: apt-get install mesa-vulkan-drivers, which also computes "
             "without a GPU")


_START = 40  # bits: an allocation is a number, the buffer's in the high bits, the offset below
_MASK = (1 << _START) - 1


class WebGpuKernel:
    """The WGSL of a kernel, and its pipelines by the way in which operands share buffers."""

    def __init__(self, symbol: str, text: str) -> None:
        self.symbol, self.text = symbol, text
        self.pipelines: dict[tuple[int, ...], Any] = {}


class LinkedPass:
    """The launches of a pass: their parameters if all memory began at 0, and prepared bind groups.

    Attributes:
        words: the parameters, those of each launch at a multiple of 256 bytes.
        numbers: for each word, the index of its memory in the list that a call passes; the last
            index for words that are not offsets.
        params: the uniform buffer for the words.
        held: its content once all queued work is done.
        prepared: pipelines and bind groups, by the buffers that contain the memory.
    """

    def __init__(self, launches: Sequence[PlacedLaunch]) -> None:
        words: list[int] = []
        numbers: list[int] = []
        self.launches, self.starts = launches, []
        for launch in launches:
            self.starts.append(4 * len(words))
            words += [0, launch.groups, *[offset for _, offset in launch.buffers],
                      *[s - (1 << 32) if s >= 1 << 31 else s for s in launch.scalars]]
            numbers += [-1, -1, *[number for number, _ in launch.buffers]]
            words += [0] * (-len(words) % (_ALIGNED // 4))
            numbers += [-1] * (len(words) - len(numbers))
        self.words, self.numbers = np.array(words, np.int64), np.array(numbers, np.int64)
        self.nbytes = 4 * len(words)
        self.params: Any = None
        self.held: bytes | None = None
        self.prepared: dict[tuple[int, ...], list[tuple[Any, Any, list[int], int, int]]] = {}


def _words(launch: PlacedLaunch) -> int:
    """Size of the parameters in words, rounded up to vectors of four."""
    return 2 + len(launch.buffers) + len(launch.scalars) + 3 & ~3


def _check(launch: QueuedLaunch | PlacedLaunch) -> None:
    if any(not -1 << 31 <= s < 1 << 32 for s in launch.scalars):
        raise DeviceError(f"webgpu: expected numbers of 32 bits, got {launch.scalars}")


def _narrowest_subgroup(adapter: Any) -> int:
    """Return the minimum subgroup size in threads; 0: the adapter has no subgroups."""
    least = [int(n) for name, n in adapter.info.items() if name.endswith("group_min_size")]
    width = min(least, default=0) if _SUBGROUPS in adapter.features else 0
    return width if width & (width - 1) == 0 and ROW.threads % max(width, 1) == 0 else 0


class WebGpuDriver(LeavingDriver):
    """The adapter that wgpu prefers.

    Raises:
        DeviceError: no wgpu, or no adapter.
    """

    name = "webgpu"
    links = reopens = True

    def __init__(self) -> None:
        self.pid = os.getpid()
        try:
            self.wgpu: Any = load("wgpu")
        except ImportError as why:
            raise DeviceError(f"webgpu: looked for the module wgpu: {why}", hint=_PACKAGES) from why
        try:
            adapter = self.wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        except Exception as why:
            raise DeviceError(f"webgpu: looked for an adapter: {why}", hint=_PACKAGES) from why
        if adapter is None:
            raise DeviceError("webgpu: looked for an adapter: none", hint=_PACKAGES)
        self.kind = str(adapter.info["device"])
        names = ("max-storage-buffer-binding-size", "max-buffer-size")
        limits = {name: adapter.limits[name] for name in names}
        narrowest = _narrowest_subgroup(adapter)
        try:
            self.gpu = adapter.request_device_sync(
                required_limits=limits, required_features=[_SUBGROUPS] if narrowest else [])
        except Exception as why:
            raise DeviceError(f"webgpu: expected a device of {self.kind}, it gives none: {why}",
                              hint='another adapter, or fnx.config.device = "cpu"') from why
        self.queue = self.gpu.queue
        self.limits = DeviceLimits(1 << 40, min(limits.values()), AXIS * AXIS, 256, ROW.shared)
        self._is_software = SOFTWARE in self.kind
        steps = STEPS if self._is_software else 0
        self.target = ROW.replace(subgroup=narrowest, steps=steps)
        self.submits = self._signals = self._passed = 0
        self._buffers: dict[int, Any] = {}
        self._free: dict[int, list[int]] = {}  # pieces of slabs, by size
        self._sizes: dict[int, int] = {}       # ... and their sizes
        self._slab = self._left = 0            # the rest of the last slab
        self._layouts: dict[tuple[int, int], Any] = {}
        self._pending: list[QueuedLaunch] = []
        self._params: Any = None
        self._lock = fork_safe_lock()
        self._copies: dict[int, MappedCopy] = {}  # to the host, by the timeline value after each
        self._settled = settled()
        self._word = self._buffer(_ALIGNED) << _START

    # ---- memory

    @at_the_border
    def alloc(self, nbytes: int) -> int:
        """Allocate a piece of a slab, or a separate buffer if it is large."""
        size = -(-nbytes // _ALIGNED) * _ALIGNED
        with self._lock:
            if size > LARGE:
                return self._buffer(size) << _START
            free = self._free.setdefault(size, [])
            if free:
                return free.pop()
            if self._left < size:
                self._slab, self._left = self._buffer(SLAB) << _START, SLAB
            piece = self._slab
            self._sizes[piece] = size
            self._slab, self._left = piece + size, self._left - size
            return piece

    def _buffer(self, nbytes: int) -> int:
        usage = self.wgpu.BufferUsage
        try:
            made = self.gpu.create_buffer(
                size=nbytes, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        except self.wgpu.GPUOutOfMemoryError as why:
            raise MemoryError(str(why)) from None
        number = len(self._buffers) + 1
        self._buffers[number] = made
        return number

    @at_the_border
    def free(self, memory: int) -> None:
        """Cache a piece for the next allocation of its size; destroy a buffer after queued work."""
        with self._lock:
            self._flush()
            size = self._sizes.get(memory)
            if size is not None:
                self._free[size].append(memory)
                return
            number = memory >> _START
            self._buffers[number].destroy()
            self._buffers[number] = None

    @at_the_border
    def write(self, memory: int, offset: int, value: HostBytes) -> None:
        """Queue a write of bytes that are copied at once, padded to whole words."""
        whole, rest = value.nbytes & ~3, value.nbytes & 3
        with self._lock:
            self._flush()
            at = (memory & _MASK) + offset
            if whole:
                self.queue.write_buffer(self._buffers[memory >> _START], at, value[:whole])
            if rest:  # the padding belongs to no other allocation
                self.queue.write_buffer(self._buffers[memory >> _START], at + whole,
                                        value[whole:].tobytes() + bytes(4 - rest))

    def read(self, memory: int, offset: int, to: HostBytes) -> None:
        """Wait interruptibly (Ctrl-C), then copy."""
        fetched = self.fetch(memory, offset, to.nbytes)
        fetched.wait()
        to[:] = fetched.content()
        fetched.release()

    @at_the_border
    def fetch(self, memory: int, offset: int, nbytes: int) -> MappedCopy:
        """Queue a copy, padded to whole words, to a buffer that is mapped when the queue has
        reached it.
        """
        with self._lock:
            self._flush()
            self._room()
            encoder = self.gpu.create_command_encoder()
            found = self._mapped(encoder, memory, offset, nbytes)
            return self._send(encoder, found, nbytes)

    def _mapped(self, encoder: Any, memory: int, offset: int, nbytes: int) -> Any:
        """Create a buffer to be mapped, and encode the copy to it."""
        whole = nbytes + 3 & ~3
        made = self._host_buffer(whole)
        encoder.copy_buffer_to_buffer(self._buffers[memory >> _START], (memory & _MASK) + offset,
                                      made, 0, whole)
        return made

    @at_the_border
    def copy(self, source: int, source_offset: int, to: int, offset: int,
             nbytes: int) -> None:
        """Queue a copy on the device."""
        with self._lock:
            self._flush()
            self._room()
            encoder = self.gpu.create_command_encoder()
            encoder.copy_buffer_to_buffer(
                self._buffers[source >> _START], (source & _MASK) + source_offset,
                self._buffers[to >> _START], (to & _MASK) + offset, nbytes + 3 & ~3)
            self._behind(encoder)

    def _host_buffer(self, nbytes: int) -> Any:
        usage = self.wgpu.BufferUsage
        return self.gpu.create_buffer(size=nbytes, usage=usage.MAP_READ | usage.COPY_DST)

    def _room(self) -> None:
        """Wait for the previous submission on Mesa, whose submit would wait for it anyway.

        Ctrl-C is seen in this wait, and nothing is half queued then.
        """
        queued = list(self._copies)
        if self._is_software and queued:
            self.leave(max(queued))

    def _behind(self, encoder: Any) -> None:
        """Submit, followed on Mesa by a copy of one word, for which ``_room`` can wait."""
        if self._is_software:
            self._send(encoder, self._mapped(encoder, self._word, 0, 4), 4)
        else:
            self.queue.submit([encoder.finish()])

    def _send(self, encoder: Any, mapped: Any, nbytes: int) -> MappedCopy:
        """Submit, and assign a timeline value to the copy."""
        self.queue.submit([encoder.finish()])
        self._signals += 1
        made = self._copies[self._signals] = MappedCopy(self, mapped, nbytes, self._signals)
        self._settled.put(made)
        return made

    # ---- kernels

    def load(self, texts: Mapping[str, str]) -> Mapping[str, WebGpuKernel]:
        """Wrap the source: compilation depends on how operands share buffers at launch."""
        return {symbol: WebGpuKernel(symbol, text) for symbol, text in texts.items()}

    def _pipeline(self, kernel: WebGpuKernel, pattern: tuple[int, ...], words: int) -> Any:
        """Return the pipeline for a ``pattern``: the binding of each operand."""
        found = kernel.pipelines.get(pattern)
        if found is None:
            module = self.gpu.create_shader_module(code=sharing(kernel.text, pattern))
            layout = self._layout(max(pattern, default=-1) + 1, words)
            found = kernel.pipelines[pattern] = self.gpu.create_compute_pipeline(
                layout=self.gpu.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": kernel.symbol})
        return found

    def _layout(self, bindings: int, words: int) -> Any:
        key = bindings, words
        found = self._layouts.get(key)
        if found is None:
            compute = self.wgpu.ShaderStage.COMPUTE
            entries: list[dict[str, Any]] = [
                {"binding": i, "visibility": compute, "buffer": {"type": "storage"}}
                for i in range(bindings)]
            entries.append({"binding": bindings, "visibility": compute, "buffer": {
                "type": "uniform", "has_dynamic_offset": True, "min_binding_size": 4 * words}})
            found = self._layouts[key] = self.gpu.create_bind_group_layout(entries=entries)
        return found

    def _group(self, buffers: Sequence[int], params: Any, words: int) -> Any:
        """Create a bind group of these buffers and ``words`` words of parameters."""
        entries = [{"binding": i, "resource": {"buffer": (b := self._buffers[number]),
                                               "offset": 0, "size": b.size}}
                   for i, number in enumerate(buffers)]
        entries.append({"binding": len(buffers), "resource": {
            "buffer": params, "offset": 0, "size": 4 * words}})
        return self.gpu.create_bind_group(layout=self._layout(len(buffers), words), entries=entries)

    def exec(self, launch: QueuedLaunch) -> None:
        """Defer the launch until other work must follow it: all go in one submit."""
        self.refuse_aborted()
        _check(launch)
        with self._lock:
            self._pending.append(launch)

    def _flush(self) -> None:
        """Encode and submit the deferred launches."""
        if not self._pending:
            return
        self._room()
        launches, self._pending = self._pending, []
        memory = list(dict.fromkeys([m for launch in launches for m, _ in launch.buffers]))
        numbers = {m: i for i, m in enumerate(memory)}
        placed = [PlacedLaunch(launch.kernel, launch.groups, launch.threads, tuple(
            [(numbers[m], offset) for m, offset in launch.buffers]), launch.scalars)
            for launch in launches]
        linked = LinkedPass(placed)
        if self._params is None or self._params.size < linked.nbytes:
            self._params = self._uniform(max(1 << 14, 2 * linked.nbytes))
        linked.params = self._params
        self._submit(linked, memory)

    def _uniform(self, nbytes: int) -> Any:
        usage = self.wgpu.BufferUsage
        return self.gpu.create_buffer(size=nbytes, usage=usage.UNIFORM | usage.COPY_DST)

    @at_the_border
    def link(self, launches: Sequence[PlacedLaunch]) -> LinkedPass:
        """Prepare a pass with its own uniform buffer; memory is bound at each call."""
        for launch in launches:
            _check(launch)
        made = LinkedPass(launches)
        with self._lock:
            made.params = self._uniform(max(made.nbytes, _ALIGNED))
        return made

    @at_the_border
    def launch(self, linked: LinkedPass, memory: Sequence[int]) -> None:
        """Submit a pass on this memory; only offsets change if it lies in the buffers of an earlier
        call.
        """
        with self._lock:
            self._flush()
            self._room()
            self._submit(linked, memory)

    def unlink(self, linked: LinkedPass) -> None:
        """Destroy the uniform buffer once queued work has read it."""
        linked.params.destroy()

    def _submit(self, linked: LinkedPass, memory: Sequence[int]) -> None:
        """Write the parameters if they changed, then encode and submit the pass."""
        if not linked.launches:
            return
        buffers = tuple([m >> _START for m in memory])
        prepared = linked.prepared.get(buffers)
        if prepared is None:
            prepared = [self._prepared(launch, buffers, linked.params, start)
                        for launch, start in zip(linked.launches, linked.starts)]
            if len(linked.prepared) == _PREPARED:
                linked.prepared.pop(next(iter(linked.prepared)))
            linked.prepared[buffers] = prepared
        places = np.array([*[m & _MASK for m in memory], 0], np.int64)
        content = (linked.words + places[linked.numbers]).astype(np.int32).tobytes()
        if content != linked.held:
            linked.held = None
            self.queue.write_buffer(linked.params, 0, content)
            linked.held = content
        encoder = self.gpu.create_command_encoder()
        made = encoder.begin_compute_pass()
        for pipeline, group, start, across, down in prepared:
            made.set_pipeline(pipeline)
            made.set_bind_group(0, group, start)
            made.dispatch_workgroups(across, down)
        made.end()
        self.submits += 1
        self._behind(encoder)

    def _prepared(self, launch: PlacedLaunch, buffers: Sequence[int], params: Any, start: int
                  ) -> tuple[Any, Any, list[int], int, int]:
        """Return pipeline, bind group, offset of the parameters, and workgroups along both axes."""
        numbers = [buffers[i] for i, _ in launch.buffers]
        used = list(dict.fromkeys(numbers))
        words = _words(launch)
        pattern = tuple([used.index(number) for number in numbers])
        return (self._pipeline(launch.kernel, pattern, words), self._group(used, params, words),
                [start], min(launch.groups, AXIS), -(-launch.groups // AXIS))

    def barrier(self) -> None:
        """Do nothing: each dispatch sees what earlier ones wrote."""

    def timestamp(self) -> int:
        """Return the host's clock when the queue is empty."""
        self.wait(self.signal())
        return time.monotonic_ns()

    # ---- the timeline

    @at_the_border
    def signal(self) -> int:
        """Return a timeline value after all that is submitted."""
        with self._lock:
            self._flush()
            self._signals += 1
            return self._signals

    def done(self, value: int) -> bool:
        """Whether a copy after it has come back."""
        for copy in list(self._copies.values()):
            if copy.there.is_set() and not copy.failed:
                self._reached(copy.value)
        return value <= self._passed

    def _reached(self, value: int) -> None:
        self._passed = max(self._passed, value)
        for number in [n for n in list(self._copies) if n <= value]:
            self._copies.pop(number, None)

    def last(self) -> int:
        """The last timeline value."""
        return self._signals

    @at_the_border
    def waited(self, value: int, limit: float) -> bool:
        """Whether a copy after the value came back within so many seconds.

        A copy queued after the value if there is one, else a new one of one word.
        """
        if self.done(value):
            return True
        queued = list(self._copies.values())
        later = [copy for copy in queued if copy.value >= value]
        if self._is_software and queued and not later:  # as in ``_room``
            if not self._came(queued[-1], limit):
                return False
        return self._came(later[0] if later else self.fetch(self._word, 0, 4), limit)

    def _came(self, copy: MappedCopy, limit: float) -> bool:
        start = time.monotonic()
        while not copy.there.wait(min(limit, _LOOK) if limit else _LOOK):
            if limit and time.monotonic() - start > limit:
                return False
            self._host_buffer(4)  # raises if the device is lost: the copy may then never come
        if copy.failed:
            raise lost(copy.failed)
        return self.done(copy.value)

    def abort(self) -> None:
        """Destroy the device. Its kernels may go on, but nobody waits for them."""
        self.aborted = True
        self.gpu.destroy()
        if self._is_software:
            exit_without_destructors()

    @at_the_border
    def submit(self) -> None:
        """Submit the deferred launches, with one encoder."""
        with self._lock:
            self._flush()


def device() -> GpuDevice:
    """Return the device, for ``get_device``."""
    require(WebGpuDriver.name)
    return GpuDevice(WebGpuDriver())
