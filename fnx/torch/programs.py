"""Programs of FX graphs: compiled once for each set of sizes, run on the memory of tensors.

A tensor whose elements are dense in memory is read where it is, in any order of its axes (as
channels_last); other tensors are copied first. Results are written into new tensors with the
strides that PyTorch recorded. Storage addresses take the way of DLPack's data pointer, without a
capsule for each tensor.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import fnx.numpy as jnp
from fnx import random
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.scope import storage
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError
from fnx.core.support.record import Record
from fnx.torch import graphs
from fnx.torch.entry import Range, TensorIndexError, dtype_name, meta_of
from fnx.torch.shapes import memory_order
from fnx.transforms.jit import jit

ALIGNMENT = 64  # of the addresses that kernels expect
_empty = ctypes.create_string_buffer(2 * ALIGNMENT)
EMPTY_ADDRESS = -(-ctypes.addressof(_empty) // ALIGNMENT) * ALIGNMENT  # of tensors of no elements
new_tensor = torch._C._dynamo.guards._empty_strided_cpu


class TensorMemory:
    """The memory of a tensor, as a command buffer takes it."""

    __slots__ = ("is_aliased", "nbytes", "ptr", "timeline")

    def __init__(self, nbytes: int) -> None:
        self.ptr, self.nbytes, self.timeline, self.is_aliased = EMPTY_ADDRESS, nbytes, 0, True


class Layout(Record):
    """Where the elements of a tensor are.

    Attributes:
        shape, stride, dtype: of the tensor.
        order: its axes by descending stride.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    order: tuple[int, ...]

    @property
    def is_row_major(self) -> bool:
        """Whether the axes are in order."""
        return self.order == tuple(range(len(self.shape)))

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The lengths of the axes in the order of memory."""
        return tuple([self.shape[d] for d in self.order])

    @property
    def nbytes(self) -> int:
        """The size of the elements."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


def layout_of(shape: Sequence[int], stride: Sequence[int], dtype: Any) -> Layout:
    """Return the layout of a tensor; row-major for one that is not dense."""
    order = memory_order(shape, stride)
    if order is None:
        order = list(range(len(shape)))
        stride = [math.prod([max(1, n) for n in shape[d + 1:]]) for d in order]
    return Layout(tuple(shape), tuple(stride), dtype, tuple(order))


def check_device(x: Any, what: str) -> None:
    """Raise unless a tensor is dense host memory.

    Raises:
        ArgumentError: it is elsewhere, or sparse.
    """
    if x.device.type != "cpu" or x.layout != torch.strided:
        raise ArgumentError(f"expected {what} on the CPU, got one on {x.device} ({x.layout})",
                            hint="use backend='inductor' there, or move it with x.cpu()")


class Specialized:
    """A graph compiled for tensors of fixed sizes and layouts, and numbers.

    Args:
        module: the GraphModule.
        inputs: tensors and numbers like those of all calls.
        settings: of ``fnx.config``, while it is compiled; without ``check_index=False`` an index
            out of bounds raises.

    Raises:
        TensorIndexError: at a call with an index out of bounds.
    """

    def __init__(self, module: Any, inputs: Sequence[Any], settings: Mapping[str, Any]) -> None:
        for i, x in enumerate(inputs):
            if isinstance(x, torch.Tensor):
                check_device(x, f"tensor {i} of a compiled graph")
        self.tensors = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        self.layouts = [layout_of(inputs[i].shape, inputs[i].stride(), inputs[i].dtype)
                        for i in self.tensors]
        self.is_random = graphs.is_random(module.graph)
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        output = next(n for n in module.graph.nodes if n.op == "output")
        nodes = torch.utils._pytree.tree_leaves(output.args[0])
        self.passed = {i: placeholders.index(n) for i, n in enumerate(nodes) if n in placeholders}
        self.constants: dict[int, Any] = {}  # outputs that are no tensors
        self.out_layouts: list[Layout] = []
        self.out_numbers: list[int] = []
        self.settings = {"check_index": True, **settings}
        self.ranges: list[tuple[Any, Range]] = []
        self._compile(module, list(inputs), nodes)

    def _compile(self, module: Any, inputs: list[Any], nodes: Sequence[Any]) -> None:
        def function(*memory: Any) -> list[Any]:
            values = list(inputs)
            for i, layout, x in zip(self.tensors, self.layouts, memory):
                axes = [layout.order.index(d) for d in range(len(layout.order))]
                values[i] = x if layout.is_row_major else x.transpose(axes)
            key = graphs.fresh_keys(random.key(memory[-1])) if self.is_random else None
            ranges: list[tuple[Any, Range]] = []
            results = self._results(nodes, graphs.run_graph(module, values, key, ranges))
            if ranges and self.settings["check_index"]:  # their extremes are one more result
                results.append(jnp.stack([f(r.index).astype("int64") for _, r in ranges
                                          for f in (jnp.min, jnp.max)]))
                self.ranges = [(node, r.replace(index=None)) for node, r in ranges]
            return results

        function.__name__ = "torch_graph"
        avals = [ShapeDtypeStruct(v.memory_shape, dtype_name(v.dtype)) for v in self.layouts]
        if self.is_random:
            avals.append(ShapeDtypeStruct((), "int64"))
        with override(**self.settings | {"x64": True, "device": "cpu", "check_index": False}):
            compiled: Any = jit(function).lower(*avals).compile()
        self.executable = compiled.runtime_executable()
        self.captured = compiled.captured_storages()
        self.submit = self.executable.buffer.submit
        self.free: list[tuple[list[TensorMemory], list[TensorMemory]]] = []
        self.targets = [(layout.shape, layout.stride, layout.dtype) for layout in self.out_layouts]
        if self.ranges:
            self.targets.append(((2 * len(self.ranges),), (1,), torch.int64))

    def _results(self, nodes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Return the results that the program computes, in the order of their memory."""
        results: list[Any] = []
        self.out_layouts, self.out_numbers, self.constants = [], [], {}
        for i, (node, value) in enumerate(zip(nodes, values)):
            if i in self.passed:
                continue
            if not hasattr(value, "dtype"):
                self.constants[i] = value
                continue
            meta = meta_of(node)
            sizes = tuple(value.shape)
            stride = meta.stride() if all(type(s) is int for s in meta.stride()) else \
                [math.prod(sizes[d + 1:]) for d in range(len(sizes))]
            layout = layout_of(sizes, stride, meta.dtype)
            self.out_layouts.append(layout)
            self.out_numbers.append(i)
            results.append(value if layout.is_row_major else
                           jnp.transpose(value, layout.order))
        self.count = len(nodes)
        return results

    def _new_memory(self) -> tuple[list[Any], list[TensorMemory]]:
        extra = [TensorMemory(8)] if self.is_random else []
        ins = [*[TensorMemory(v.nbytes) for v in self.layouts], *extra, *self.captured]
        return ins, [TensorMemory(n) for n in self.executable.sizes]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Run it."""
        ins, outs = self.free.pop() if self.free else self._new_memory()
        held = []  # copies, until the work is done
        for i, layout, memory in zip(self.tensors, self.layouts, ins):
            x = args[i]
            pointer = x.data_ptr()
            if x.stride() != layout.stride or pointer & 63 or x.is_conj() or x.is_neg():
                x = copy_to(x, layout)
                held.append(x)
                pointer = x.data_ptr()
            memory.ptr = pointer or EMPTY_ADDRESS
        if self.is_random:
            seed = torch.randint(1 << 62, (9,))[:1]
            held.append(seed)
            ins[len(self.tensors)].ptr = seed.data_ptr()
        tensors = [new_tensor(*target) for target in self.targets]
        results = self.executable.results
        for tensor, (kind, k) in zip(tensors, results):
            if kind == "out":
                outs[k].ptr = tensor.data_ptr() or EMPTY_ADDRESS
        self.submit(ins, outs)
        if outs and outs[0].timeline:
            storage.finish()
        if self.executable.reorders_results:
            self._copy_shared(tensors, ins, outs)
        self.free.append((ins, outs))
        if self.ranges:
            check_ranges(self.ranges, tensors.pop().tolist())
        if not self.passed and not self.constants:
            return tensors
        return self._with_passed(args, tensors)

    def _copy_shared(self, tensors: Sequence[Any], ins: Sequence[TensorMemory],
                     outs: Sequence[TensorMemory]) -> None:
        """Copy results that share memory with an argument or an earlier result."""
        for tensor, (kind, k) in zip(tensors, self.executable.results):
            source = ins[k].ptr if kind == "in" else outs[k].ptr
            if tensor.numel() and source != tensor.data_ptr():
                ctypes.memmove(tensor.data_ptr(), source, tensor.numel() * tensor.element_size())

    def _with_passed(self, args: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        """Return the results with the outputs that are inputs or numbers."""
        results: list[Any] = [None] * self.count
        for i, tensor in zip(self.out_numbers, tensors):
            results[i] = tensor
        for i, value in self.constants.items():
            results[i] = value
        for i, number in self.passed.items():
            results[i] = args[number]
        return results


def check_ranges(ranges: Sequence[tuple[Any, Range]], extremes: Sequence[int]) -> None:
    """Raise if an index is out of bounds.

    Raises:
        TensorIndexError: with the user's line.
    """
    for i, (node, r) in enumerate(ranges):
        low, high = extremes[2 * i:2 * i + 2]
        if r.first <= low and high < r.end:
            continue
        of = "" if r.axis is None else f" for dimension {r.axis}"
        message = r.message or f"index {low if low < r.first else high} is out of bounds{of} " \
            f"with size {r.end}"
        raise TensorIndexError(
            f"{node.target._opname}: {message}", loc=graphs.location_of(node),
            hint="" if r.message else f"expected {r.first} <= index < {r.end}")


def copy_to(x: Any, layout: Layout) -> Any:
    """Return a copy of a tensor in a layout, at an aligned address."""
    return new_tensor(layout.shape, layout.stride, layout.dtype).copy_(x.detach())


Compile = Callable[[Any, Sequence[Any]], Callable[[Sequence[Any]], list[Any]]]


class GraphProgram:
    """A graph that is compiled at its first call with other numbers (sizes) among its inputs."""

    def __init__(self, module: Any, compile: Compile) -> None:
        self.module, self.compile = module, compile
        self.numbers = [i for i, n in enumerate(
            [n for n in module.graph.nodes if n.op == "placeholder"])
            if not isinstance(n.meta.get("val"), torch.Tensor)]
        self.programs: dict[tuple[Any, ...], Callable[[Sequence[Any]], list[Any]]] = {}

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Run the graph on tensors and numbers."""
        key = tuple([args[i] for i in self.numbers])
        program = self.programs.get(key)
        if program is None:
            program = self.programs[key] = self.compile(self.module, args)
        return program(args)
