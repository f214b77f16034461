"""WebGPU's driver, by way of wgpu-native (the wheel ``wgpu``): Vulkan, Metal and DirectX.

    a call      one encoder, one submit; kernels are dispatches of one pass, in order
    memory      pieces of large buffers, so that a kernel's operands are few bindings
    arguments   words of one uniform buffer, written before the submit

A kernel is compiled when it is first launched, once for each way in which its operands share
buffers: two bindings may not be of one buffer. All counts and sizes are checked before anything is
encoded, as wgpu-native may end the process where something is wrong.
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

# The row: what the standard guarantees everywhere, so kernels for pages are made for it, too.
ROW = Target("webgpu", kind="wgsl", threads=128, shared=16 << 10, private=1 << 10, buffers=8,
             fma=False, wide=False, vector_bits=32, vector_registers=64, chunks=1024)
SOFTWARE, STEPS = "llvmpipe", (1 << 16) - 1  # Mesa's, which ends a thread's loops after so many
SLAB, LARGE = 16 << 20, 1 << 20  # bytes of a buffer that has pieces, and of a buffer of its own
_ALIGNED = 256
_LOOK = 0.1  # seconds of a wait, after which somebody looks whether the device is there
_SUBGROUPS = "subgroup"  # a feature that some adapters have
_PREPARED = 8  # passes that are kept of a command buffer, for memory in other buffers
_PACKAGES = ("pip install wgpu; Debian: apt-get install mesa-vulkan-drivers, which also computes "
             "without a GPU")


_START = 40  # bits: a piece is a number, its buffer's above where it starts
_MASK = (1 << _START) - 1


class WebGpuKernel:
    """Text of a kernel, and its pipelines by how its operands share buffers."""

    def __init__(self, symbol: str, text: str) -> None:
        self.symbol, self.text = symbol, text
        self.pipelines: dict[tuple[int, ...], Any] = {}


class LinkedPass:
    """Launches of one pass: their parameters where memory begins at 0, and what is prepared.

    Attributes:
        words: of all, each launch at a multiple of 256 bytes; ``numbers``: of each its memory in
            the list that a call has, the last for words that are no place.
        params: the buffer that has them; ``held``: what is in it behind all that is queued.
        prepared: by the buffers that memory is in.
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
    """Words of the parameters, whole vectors of them."""
    return 2 + len(launch.buffers) + len(launch.scalars) + 3 & ~3


def _check(launch: QueuedLaunch | PlacedLaunch) -> None:
    if any(not -1 << 31 <= s < 1 << 32 for s in launch.scalars):
        raise DeviceError(f"webgpu: expected numbers of 32 bits, got {launch.scalars}")


def _narrowest_subgroup(adapter: Any) -> int:
    """Threads, at least, that read values of one another; 0: the adapter has no subgroups."""
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
        self._slab = self._left = 0            # what of the last slab is left
        self._layouts: dict[tuple[int, int], Any] = {}
        self._pending: list[QueuedLaunch] = []
        self._params: Any = None
        self._lock = fork_safe_lock()
        self._copies: dict[int, MappedCopy] = {}  # to the host, by the number behind each
        self._settled = settled()
        self._word = self._buffer(_ALIGNED) << _START

    # ---- memory

    @at_the_border
    def alloc(self, nbytes: int) -> int:
        """A piece of a slab; what is large has a buffer of its own."""
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
        """A piece is kept for the next of its size; a buffer goes when queued work has used it."""
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
        """Copied at once; written when the queue comes to it. Whole words."""
        whole, rest = value.nbytes & ~3, value.nbytes & 3
        with self._lock:
            self._flush()
            at = (memory & _MASK) + offset
            if whole:
                self.queue.write_buffer(self._buffers[memory >> _START], at, value[:whole])
            if rest:  # what is behind it in its word is nobody's
                self.queue.write_buffer(self._buffers[memory >> _START], at + whole,
                                        value[whole:].tobytes() + bytes(4 - rest))

    def read(self, memory: int, offset: int, to: HostBytes) -> None:
        """Waits so that Ctrl-C is heard, then copies."""
        fetched = self.fetch(memory, offset, to.nbytes)
        fetched.wait()
        to[:] = fetched.content()
        fetched.release()

    @at_the_border
    def fetch(self, memory: int, offset: int, nbytes: int) -> MappedCopy:
        """Whole words, to a buffer that is mapped when the queue has come to it."""
        with self._lock:
            self._flush()
            self._room()
            encoder = self.gpu.create_command_encoder()
            found = self._mapped(encoder, memory, offset, nbytes)
            return self._send(encoder, found, nbytes)

    def _mapped(self, encoder: Any, memory: int, offset: int, nbytes: int) -> Any:
        """A buffer that will be mapped, and the copy to it."""
        whole = nbytes + 3 & ~3
        made = self._host_buffer(whole)
        encoder.copy_buffer_to_buffer(self._buffers[memory >> _START], (memory & _MASK) + offset,
                                      made, 0, whole)
        return made

    @at_the_border
    def copy(self, source: int, source_offset: int, to: int, offset: int,
             nbytes: int) -> None:
        """A copy on the device."""
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
        """Mesa's submit waits for the submission before, which is done here, as Ctrl-C is heard
        here; nothing is half queued then."""
        queued = list(self._copies)
        if self._is_software and queued:
            self.leave(max(queued))

    def _behind(self, encoder: Any) -> None:
        """Submit; where ``_room`` looks for it, with a word that says when all of it is done."""
        if self._is_software:
            self._send(encoder, self._mapped(encoder, self._word, 0, 4), 4)
        else:
            self.queue.submit([encoder.finish()])

    def _send(self, encoder: Any, mapped: Any, nbytes: int) -> MappedCopy:
        """Submit, with a number behind it."""
        self.queue.submit([encoder.finish()])
        self._signals += 1
        made = self._copies[self._signals] = MappedCopy(self, mapped, nbytes, self._signals)
        self._settled.put(made)
        return made

    # ---- kernels

    def load(self, texts: Mapping[str, str]) -> Mapping[str, WebGpuKernel]:
        """Kept as text: how operands share buffers is known when a kernel is launched."""
        return {symbol: WebGpuKernel(symbol, text) for symbol, text in texts.items()}

    def _pipeline(self, kernel: WebGpuKernel, pattern: tuple[int, ...], words: int) -> Any:
        """``pattern``: of each operand its binding."""
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
        """A bind group of these buffers and so many words of parameters."""
        entries = [{"binding": i, "resource": {"buffer": (b := self._buffers[number]),
                                               "offset": 0, "size": b.size}}
                   for i, number in enumerate(buffers)]
        entries.append({"binding": len(buffers), "resource": {
            "buffer": params, "offset": 0, "size": 4 * words}})
        return self.gpu.create_bind_group(layout=self._layout(len(buffers), words), entries=entries)

    def exec(self, launch: QueuedLaunch) -> None:
        """Kept until something has to come behind it: all go in one submit."""
        self.refuse_aborted()
        _check(launch)
        with self._lock:
            self._pending.append(launch)

    def _flush(self) -> None:
        """Encode and submit the launches that are kept."""
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
        """Their parameters have a buffer of their own; memory is found at each call."""
        for launch in launches:
            _check(launch)
        made = LinkedPass(launches)
        with self._lock:
            made.params = self._uniform(max(made.nbytes, _ALIGNED))
        return made

    @at_the_border
    def launch(self, linked: LinkedPass, memory: Sequence[int]) -> None:
        """Where memory is in the buffers of a call before, only its places are other ones."""
        with self._lock:
            self._flush()
            self._room()
            self._submit(linked, memory)

    def unlink(self, linked: LinkedPass) -> None:
        """Its parameters go when queued work has read them."""
        linked.params.destroy()

    def _submit(self, linked: LinkedPass, memory: Sequence[int]) -> None:
        """Write the parameters, where they are others; one encoder, one submit."""
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
        """A pipeline, a bind group, where its parameters begin, groups along both axes."""
        numbers = [buffers[i] for i, _ in launch.buffers]
        used = list(dict.fromkeys(numbers))
        words = _words(launch)
        pattern = tuple([used.index(number) for number in numbers])
        return (self._pipeline(launch.kernel, pattern, words), self._group(used, params, words),
                [start], min(launch.groups, AXIS), -(-launch.groups // AXIS))

    def barrier(self) -> None:
        """Each dispatch sees what those before it wrote."""

    def timestamp(self) -> int:
        """The host's clock, when the queue is empty."""
        self.wait(self.signal())
        return time.monotonic_ns()

    # ---- the timeline

    @at_the_border
    def signal(self) -> int:
        """Behind what is submitted."""
        with self._lock:
            self._flush()
            self._signals += 1
            return self._signals

    def done(self, value: int) -> bool:
        """Whether a copy behind it has come back."""
        for copy in list(self._copies.values()):
            if copy.there.is_set() and not copy.failed:
                self._reached(copy.value)
        return value <= self._passed

    def _reached(self, value: int) -> None:
        self._passed = max(self._passed, value)
        for number in [n for n in list(self._copies) if n <= value]:
            self._copies.pop(number, None)

    def last(self) -> int:
        """The last number."""
        return self._signals

    @at_the_border
    def waited(self, value: int, limit: float) -> bool:
        """Whether a copy came back in so many seconds: one that was queued behind the number, else
        of a word, which is queued now."""
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
            self._host_buffer(4)  # raises where the device is lost: the copy may never come
        if copy.failed:
            raise lost(copy.failed)
        return self.done(copy.value)

    def abort(self) -> None:
        """The device is destroyed. Its kernels may go on, which nobody waits for."""
        self.aborted = True
        self.gpu.destroy()
        if self._is_software:
            exit_without_destructors()

    @at_the_border
    def submit(self) -> None:
        """One encoder, one submit."""
        with self._lock:
            self._flush()


def device() -> GpuDevice:
    """The device, for ``get_device``."""
    require(WebGpuDriver.name)
    return GpuDevice(WebGpuDriver())
