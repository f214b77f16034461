"""A libcuda that records: it checks each call, and runs the queued work with the interpreter.

Device memory is host memory, handles are numbers that each belong to one kind of object, and
streams hold the queued work until an event is queried: only then do copies and kernels access their
memory, so overwriting a block too early gives wrong results. Nothing but waits for events orders
two streams: one runs as late as it can, or ahead of all others (``eager``), so that a wait that is
missing gives a wrong result, too. Fresh and freed memory is garbage. Whatever a real driver would
refuse, or answer with a fault, adds a line to ``wrong``.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import fnx
from fnx.backends import cuda, libcuda
from fnx.backends.device import base
from fnx.backends.device.hcq import collect_execs, decode_commands
from fnx.backends.gpu.device import GpuDevice
from fnx.core.ir import accessors, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import run_kernel

NAME, MEMORY = b"Recording GPU", 8 << 30
_ATTRIBUTES = {1: 1024, 5: 2 ** 31 - 1, 8: 48 << 10, 75: 9, 76: 0}


class Refused(Exception):
    """A call that returns an error code."""


def _put(pointer: int, value: int, kind: Any = ctypes.c_uint64) -> None:
    kind.from_address(pointer).value = value


def _bytes(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.ndarray((nbytes,), np.uint8, (ctypes.c_char * nbytes).from_address(address))


class RecordingCuda:
    """The library.

    Attributes:
        calls: how often each function was called.
        wrong: what a driver would have refused.
        kernels: KERNELs by symbol, set by the encoder.
        fault: the code that the next event query returns.
        endless: symbols of kernels that poll the cancellation flag in host memory.
        unending: names of kernels that end only when cancelled.
        alone: whether only one thread calls: then a copy to the host must find all streams empty.
        eager: of the streams by number, those that run ahead of others.
        asks: how often an event is queried until it is reached.
        drops_waits: of the streams by number, those that do not wait for events.
        version: of the driver.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.kernels: dict[str, UOp] = {}
        self.fault, self.version, self.devices, self.alone = 0, 12040, 1, True
        self.room = MEMORY
        self.mapped: set[int] = set()
        self.endless: set[str] = set()
        self.unending: set[str] = set()
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.pinned: dict[int, np.ndarray[Any, Any]] = {}
        self.things: dict[int, tuple[str, Any]] = {}
        self.streams: dict[int, list[tuple[str, Any]]] = {}
        self.eager: set[int] = set()
        self.drops_waits: set[int] = set()
        self.recorded: Counter[int] = Counter()  # how often each event was recorded
        self.asked: Counter[int] = Counter()
        self.asks = 2
        self.reached: dict[int, int] = {}  # nanoseconds, by event
        self.ran: list[str] = []
        self.functions = {name: ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._called(name))
                          for name, types in libcuda.SIGNATURES.items()}

    @property
    def stream(self) -> list[tuple[str, Any]]:
        """The work that is queued, of all streams."""
        return [work for stream in self.streams.values() for work in stream]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["functions"][name]
        except KeyError:
            raise AttributeError(name) from None

    def _called(self, name: str) -> Callable[..., int]:
        method = getattr(type(self), f"_{name}")

        def called(*args: Any) -> int:
            self.calls[name] += 1
            try:
                method(self, *args)
            except Refused as code:
                return int(code.args[0])
            except Exception as why:  # ctypes would print it and go on
                self.wrong.append(f"{name}{args}: {why!r}")
                return 1
            return 0
        return called

    # ---- handles

    def _new(self, kind: str, thing: Any) -> int:
        handle = 0x10000 + 16 * len(self.things)
        self.things[handle] = kind, thing
        return handle

    def _is(self, handle: int | None, kind: str) -> Any:
        assert handle in self.things, f"expected a {kind}, got {handle}"
        found, thing = self.things[handle]
        assert found == kind, f"expected a {kind}, got a {found}"
        return thing

    def _end(self, handle: int, kind: str) -> None:
        self._is(handle, kind)
        self.things[handle] = f"{kind} that was destroyed", None

    def _inside(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        """Return the memory from an address to the end of its allocation."""
        for start, memory in self.memory.items():
            if start <= address < start + memory.nbytes or start == address:
                assert address + nbytes <= start + memory.nbytes, "beyond the end of memory"
                return memory[address - start:]
        raise AssertionError(f"{address:#x} is in no memory")

    # ---- opening

    def _cuInit(self, flags: int) -> None:
        assert flags == 0
        self.streams.clear()  # what a driver had queued that is opened anew is abandoned

    def _cuDriverGetVersion(self, to: int) -> None:
        _put(to, self.version, ctypes.c_int)

    def _cuGetErrorName(self, code: int, to: int) -> None:
        self.text = ctypes.create_string_buffer(b"CUDA_ERROR_RECORDED")
        _put(to, ctypes.addressof(self.text))

    def _cuDeviceGetCount(self, to: int) -> None:
        _put(to, self.devices, ctypes.c_int)

    def _cuDeviceGet(self, to: int, number: int) -> None:
        assert number < self.devices
        _put(to, 7, ctypes.c_int)

    def _cuDeviceGetName(self, to: int, size: int, device: int) -> None:
        assert device == 7 and size > len(NAME)
        ctypes.memmove(to, NAME + b"\0", len(NAME) + 1)

    def _cuDeviceGetAttribute(self, to: int, which: int, device: int) -> None:
        assert device == 7
        _put(to, _ATTRIBUTES[which], ctypes.c_int)

    def _cuDeviceTotalMem_v2(self, to: int, device: int) -> None:
        assert device == 7
        _put(to, MEMORY)

    def _cuDevicePrimaryCtxRetain(self, to: int, device: int) -> None:
        _put(to, self._new("context", None))

    def _cuCtxSetCurrent(self, context: int) -> None:
        self._is(context, "context")

    def _cuStreamCreate(self, to: int, flags: int) -> None:
        assert flags == 1
        handle = self._new("stream", [])
        self.streams[handle] = self._is(handle, "stream")
        _put(to, handle)

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        assert flags == 0
        self._is(event, "event")
        if list(self.streams).index(stream) not in self.drops_waits:
            self._is(stream, "stream").append(("wait", (event, self.recorded[event])))

    # ---- memory

    def _cuMemAlloc_v2(self, to: int, nbytes: int) -> None:
        assert nbytes > 0
        if nbytes > self.room:
            raise Refused(2)
        whole = np.full(nbytes + 256, 0xCD, np.uint8)
        start = -whole.ctypes.data % 256
        self.room -= nbytes
        self.memory[whole.ctypes.data + start] = whole[start:start + nbytes]
        _put(to, whole.ctypes.data + start)

    def _cuMemFree_v2(self, address: int) -> None:
        self._run_all()
        gone = self.memory.pop(address)
        self.room += gone.nbytes
        gone[:] = 0xEE

    def _cuMemHostAlloc(self, to: int, nbytes: int, flags: int) -> None:
        assert flags in (0, 2) and nbytes > 0
        made = np.full(nbytes, 0xAB, np.uint8)
        self.pinned[made.ctypes.data] = made
        self.mapped |= {made.ctypes.data} if flags else set()
        _put(to, made.ctypes.data)

    def _cuMemHostGetDevicePointer_v2(self, to: int, memory: int, flags: int) -> None:
        assert memory in self.mapped and not flags
        _put(to, memory)

    def _cuMemcpyHtoDAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._inside(to, nbytes)
        assert any(at <= source and source + nbytes <= at + block.nbytes
                   for at, block in self.pinned.items()), "an asynchronous copy of pageable memory"
        self._is(stream, "stream").append(("copy", lambda: self._inside(to, nbytes).__setitem__(
            slice(nbytes), _bytes(source, nbytes))))

    def _cuMemcpyDtoH_v2(self, to: int, source: int, nbytes: int) -> None:
        assert not self.alone or all(kind == "event" for kind, _ in self.stream), \
            "it waits for no stream that is not blocking"
        _bytes(to, nbytes)[:] = self._inside(source, nbytes)[:nbytes]

    def _cuMemcpyDtoHAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._inside(source, nbytes)
        assert any(at <= to and to + nbytes <= at + block.nbytes
                   for at, block in self.pinned.items()), "an asynchronous copy to pageable memory"
        self._is(stream, "stream").append(("copy", lambda: _bytes(to, nbytes).__setitem__(
            slice(nbytes), self._inside(source, nbytes)[:nbytes])))

    def _cuMemcpyDtoDAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._is(stream, "stream").append(("copy", lambda: self._inside(to, nbytes).__setitem__(
            slice(nbytes), self._inside(source, nbytes)[:nbytes].copy())))

    # ---- kernels

    def _cuModuleLoadDataEx(self, to: int, image: int, count: int, options: int, values: int
                            ) -> None:
        text = ctypes.string_at(image).decode()
        assert count == 2 and [*(ctypes.c_int * 2).from_address(options)] == [5, 6]
        assert (ctypes.c_uint64 * 2).from_address(values)[1] == 1 << 13
        assert ".target sm_90" in text and ".version 8.0" in text
        entries = dict(re.findall(r"\.visible \.entry (\w+)\([^)]*\)\s*\.reqntid (\d+)", text))
        assert entries and len(re.findall(r"\.param ", text.split(")")[0])) == 1
        if "ld.volatile.global" in text:
            self.endless |= entries.keys()
        _put(to, self._new("module", {s: int(threads) for s, threads in entries.items()}))

    def _cuModuleGetFunction(self, to: int, module: int, symbol: bytes) -> None:
        name = symbol.decode()
        _put(to, self._new("function", (name, self._is(module, "module")[name])))

    def _kernel(self, function: int, grid: tuple[int, ...], group: tuple[int, ...], shared: int,
                params: int, extra: int | None) -> tuple[str, int]:
        symbol, threads = self._is(function, "function")
        assert grid[0] > 0 and grid[1:] == (1, 1) and group == (threads, 1, 1), (grid, group)
        assert not shared and not extra
        argument = ctypes.c_uint64.from_address(params).value
        return symbol, ctypes.c_uint64.from_address(argument).value

    def _cuLaunchKernel(self, function: int, *args: Any) -> None:
        kernel = self._kernel(function, args[:3], args[3:6], *args[6:7], *args[8:])
        self._is(args[7], "stream").append(("kernel", kernel))

    def _compute(self, symbol: str, words: int) -> bool:
        """Run a kernel on the memory that its argument words point to when it starts; return
        whether it has ended."""
        kernel = self.kernels[symbol]
        nodes = toposort([kernel])
        refs = {n.arg.slot: n.dtype for n in nodes if n.op is ops.REF}
        variables = {n.arg.slot: n.dtype for n in nodes if n.op is ops.VAR}
        buffers = max(refs) + 1
        count = buffers + max(variables, default=-1) + 1
        if symbol in self.endless and kernel.arg.name in self.unending:  # computes nothing
            word = int(self._inside(words + 8 * count, 8)[:8].view(np.uint64)[0])
            assert word in self.mapped
            return bool(ctypes.c_int.from_address(word).value)
        found = self._inside(words, 8 * count)[:8 * count].view(np.uint64)
        written = accessors.written_slots(kernel)
        memory = []
        for i, address in enumerate(map(int, found[:buffers])):
            if i not in refs:
                memory.append(np.zeros(0, np.uint8))
                continue
            whole, dtype = self._inside(address, 1), refs[i].np
            assert address % np.dtype(dtype).itemsize == 0
            array = whole[:whole.nbytes // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize]
            memory.append(array.view(dtype) if i in written else array.view(dtype).copy())
        scalars = [found[buffers + i:buffers + i + 1].view(variables[i].np)[0]
                   if i in variables else 0 for i in range(count - buffers)]
        run_kernel(kernel, memory, scalars)
        self.ran.append(symbol)
        return True

    # ---- graphs

    def _cuGraphCreate(self, to: int, flags: int) -> None:
        assert flags == 0
        _put(to, self._new("graph", []))

    def _cuGraphAddKernelNode_v2(self, to: int, graph: int, before: int | None, count: int,
                                 params: int) -> None:
        nodes = self._is(graph, "graph")
        given = [*(ctypes.c_uint64 * count).from_address(before)] if before else []
        assert given == [node for node, _ in nodes[-1:]], "each waits for the one before"
        p = libcuda.KernelNode.from_address(params)
        assert not p.kern and not p.ctx
        kernel = self._kernel(p.func, (p.gridDimX, p.gridDimY, p.gridDimZ),
                              (p.blockDimX, p.blockDimY, p.blockDimZ), p.sharedMemBytes,
                              p.kernelParams, p.extra)
        nodes.append((self._new("node", kernel), kernel))
        _put(to, nodes[-1][0])

    def _cuGraphInstantiateWithFlags(self, to: int, graph: int, flags: int) -> None:
        assert flags == 0
        _put(to, self._new("executable", [kernel for _, kernel in self._is(graph, "graph")]))

    def _cuGraphLaunch(self, executable: int, stream: int) -> None:
        self._is(stream, "stream").extend(
            [("kernel", kernel) for kernel in self._is(executable, "executable")])

    def _cuGraphDestroy(self, graph: int) -> None:
        self._end(graph, "graph")

    def _cuGraphExecDestroy(self, executable: int) -> None:
        self._end(executable, "executable")

    # ---- the timeline

    def _cuEventCreate(self, to: int, flags: int) -> None:
        assert flags in (0, 2)
        _put(to, self._new("event", flags == 0))

    def _cuEventRecord(self, event: int, stream: int) -> None:
        self._is(event, "event")
        self.recorded[event] += 1
        self._is(stream, "stream").append(("event", (event, self.recorded[event])))

    def _in_flight(self, event: int) -> bool:
        return ("event", (event, self.recorded[event])) in self.stream

    def _cuEventQuery(self, event: int) -> None:
        """Return not-ready until the last of ``asks`` queries, which runs the streams up to it."""
        self._is(event, "event")
        if self.fault:
            raise Refused(self.fault)
        if not self._in_flight(event):
            return
        self.asked[event] += 1
        if self.asked[event] >= self.asks:
            for number, stream in enumerate(self.streams.values()):
                if number in self.eager:
                    self._run(stream, len(stream))
            if self._run_to((event, self.recorded[event])):
                del self.asked[event]
                return
        raise Refused(600)

    def _cuEventElapsedTime(self, to: int, first: int, second: int) -> None:
        for event in (first, second):
            assert self._is(event, "event"), "an event without times"
            assert not self._in_flight(event), "an event that is in flight"
        _put(to, (self.reached[second] - self.reached[first]) / 1e6, ctypes.c_float)

    def _run_to(self, event: tuple[int, int]) -> bool:
        """Run the stream of an event up to it; return whether it was reached."""
        for stream in self.streams.values():
            if ("event", event) in stream:
                return self._run(stream, stream.index(("event", event)) + 1)
        return True

    def _run_all(self) -> None:
        for stream in self.streams.values():
            self._run(stream, len(stream))

    def _run(self, stream: list[tuple[str, Any]], count: int) -> bool:
        """Run work of a stream in order, and of others what it waits for; return whether all of it
        has ended."""
        for _ in range(count):
            kind, what = stream[0]
            if kind == "kernel" and not self._compute(*what) or \
                    kind == "wait" and not self._run_to(what):
                return False
            stream.pop(0)
            if kind == "copy":
                what()
            elif kind == "event":
                self.reached[what[0]] = time.monotonic_ns()
        return True


class RecordedDevice(GpuDevice):
    """A device that registers the kernels it loads with the library."""

    def __init__(self, library: RecordingCuda) -> None:
        super().__init__(cuda.CudaDriver())
        self.library = library

    def encode(self, commands: Any, code: Mapping[Any, Any], arena: int) -> Any:
        for c in collect_execs(decode_commands(commands)):
            if c.kernel.op is ops.KERNEL:
                self.library.kernels[code[c.kernel].symbol] = c.kernel
        return super().encode(commands, code, arena)


@contextmanager
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedDevice]:
    """Yield a CUDA device on such a library, and check at the end that nothing was wrong."""
    library = RecordingCuda()
    monkeypatch.setattr(cuda, "load_library", lambda: library)
    made = RecordedDevice(library)
    monkeypatch.setitem(base._devices, "cuda", made)
    fnx.clear_caches()  # programs of other tests are cached by device name
    yield made
    fnx.clear_caches()
    assert library.wrong == []
