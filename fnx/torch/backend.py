"""The backend of ``torch.compile``: ``torch.compile(module, backend="fnx")``.

Dynamo finds graphs, AOTAutograd makes forward and backward graphs of ATen ops, and fnx compiles
each of them. Ops that fnx lacks are computed by PyTorch, with one warning for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from fnx.core.support.errors import ArgumentError
from fnx.torch.entry import UnsupportedOpError
from fnx.torch.graphs import OpFailure, line_of
from fnx.torch.programs import GraphProgram, Specialized
from fnx.torch.table import decompositions, is_computed

OPTIONS = ("check_index", "check_spec", "cpu", "disable_most_optimizations", "hoist_bytes",
           "search", "strip_bytes", "unfused")
warned: set[str] = set()  # ops that a warning named


def warn_of(node: Any, reason: str) -> None:
    """Warn once that PyTorch computes an op."""
    name = str(node.target)
    if name in warned:
        return
    warned.add(name)
    warnings.warn(f"fnx: PyTorch computes {name}{line_of(node)}: {reason}", stacklevel=2)


class _Support(OperatorSupportBase):  # type: ignore[misc]
    """Which nodes fnx computes: all but those of ops that it lacks, and those that failed."""

    def __init__(self, failed: set[Any]) -> None:
        self.failed = failed

    def is_node_supported(self, submodules: Any, node: Any) -> bool:
        """Whether fnx computes a node."""
        return node.op == "call_function" and node.name not in self.failed and \
            is_computed(node.target)


class _Part(torch.nn.Module):  # type: ignore[misc]
    """A part of a graph that fnx computes."""

    def __init__(self, program: GraphProgram, single: bool) -> None:
        super().__init__()
        self.program, self.single = program, single

    def forward(self, *args: Any) -> Any:
        """Compute it."""
        results = self.program(args)
        return results[0] if self.single else tuple(results)


def split_graph(module: Any, failed: set[Any], settings: Mapping[str, Any]
                ) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a graph whose nodes PyTorch computes, with parts that fnx computes."""
    compile = partial(compile_part, settings=settings)
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    copy = torch.fx.GraphModule(module, graph)
    partitioner = CapabilityBasedPartitioner(copy, _Support(failed),
                                             allows_single_node_partition=True)
    fused = partitioner.partition_and_fuse()
    for node in fused.graph.nodes:
        if node.op == "call_module":
            part = getattr(fused, node.target)
            outputs = next(n for n in part.graph.nodes if n.op == "output").args[0]
            setattr(fused, node.target, _Part(GraphProgram(part, compile),
                                              not isinstance(outputs, list | tuple)))
    fused.recompile()

    def run(args: Sequence[Any]) -> list[Any]:
        result = fused(*args)
        return list(result) if isinstance(result, list | tuple) else [result]
    return run


def compile_part(module: Any, inputs: Sequence[Any], settings: Mapping[str, Any]
                 ) -> Callable[[Sequence[Any]], list[Any]]:
    """Compile a graph for inputs of these sizes; what fnx cannot compute, PyTorch does."""
    failed = set()
    for node in module.graph.nodes:
        if node.op == "call_function" and not is_computed(node.target):
            warn_of(node, "fnx lacks this op")
            failed.add(node.name)
    if failed:
        return split_graph(module, failed, settings)
    try:
        return Specialized(module, inputs, settings)
    except OpFailure as failure:
        if getattr(failure.node.target, "_opname", "") == "as_strided":
            raise UnsupportedOpError(  # PyTorch would read memory that is laid out otherwise here
                str(failure), hint="write views by slices and permute") from failure
        warn_of(failure.node, failure.reason)
        return split_graph(module, {failure.node.name}, settings)


def compile_graph(module: Any, inputs: Sequence[Any], settings: Mapping[str, Any]) -> Any:
    """Compile a graph of ATen ops, as AOTAutograd asks: its arguments come in one list, which the
    callee empties, so that their memory is free as early as possible."""
    program = GraphProgram(module, partial(compile_part, settings=settings))

    def run(args: list[Any]) -> list[Any]:
        results = program(args)
        args.clear()
        return results

    vars(run)["_boxed_call"] = True
    return run


def backend(module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
            mode: str | None = None) -> Any:
    """Compile a graph that Dynamo found: ``torch.compile(f, backend="fnx")`` calls this.

    Args:
        module, inputs: the graph, and tensors like its inputs.
        options: settings of ``fnx.config`` while it compiles, those of ``OPTIONS``.
        mode: "default".

    Raises:
        ArgumentError: another mode, or unknown options.
    """
    settings = dict(options or {})
    if mode not in (None, "default"):
        raise ArgumentError(f"expected mode='default' with backend='fnx', got {mode!r}", hint=
                            "options={'search': seconds} searches schedules by timing"
                            if "autotune" in str(mode) else "a call of a program is one call into "
                            "native code in every mode: leave mode= out")
    if unknown := settings.keys() - set(OPTIONS):
        raise ArgumentError(f"expected options of {', '.join(OPTIONS)}, got "
                            f"{', '.join(sorted(unknown))}", hint="print(fnx.config) tells what "
                            "they are; options of 'inductor' mean nothing here")
    forward = partial(compile_graph, settings=settings)
    backward = settings | {"check_index": False}  # its indices are those of the forward graph
    compiler = aot_autograd(fw_compiler=forward,
                            bw_compiler=partial(compile_graph, settings=backward),
                            inference_compiler=forward, decompositions=decompositions(),
                            partition_fn=min_cut_rematerialization_partition)
    return compiler(module, inputs)
