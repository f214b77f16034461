"""FX graphs of ATen ops as functions on fnx's arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

import fnx.numpy as jnp
from fnx import random
from fnx.core.array.array import Array
from fnx.core.support.errors import FnxError, Location, format_location
from fnx.dlpack import from_dlpack
from fnx.torch.entry import Range, UnsupportedOpError, dtype_name, promote
from fnx.torch.table import entry_of


class OpFailure(Exception):
    """An op of a graph that fnx could not compute."""

    def __init__(self, node: Any, reason: str) -> None:
        super().__init__(f"{node.target}: {reason}")
        self.node, self.reason = node, reason


def location_of(node: Any) -> Location | None:
    """Return the user's line of a node, if PyTorch recorded it."""
    lines = re.findall(r'^ *File "(.+)", line (\d+), in ', node.stack_trace or "", re.M)
    return (lines[-1][0], int(lines[-1][1])) if lines else None


def line_of(node: Any) -> str:
    """Return the user's line of a node, in brackets; nothing if PyTorch recorded none."""
    location = location_of(node)
    return f" ({format_location(location)})" if location else ""


def is_random(graph: Any) -> bool:
    """Whether a graph draws random numbers."""
    return any((entry := entry_of(node.target)) is not None and entry.is_random
                for node in graph.nodes if node.op == "call_function")


def run_graph(module: Any, inputs: Sequence[Any], key: Callable[[], Any] | None = None,
              ranges: list[tuple[Any, Range]] | None = None) -> list[Any]:
    """Compute a graph on Arrays and numbers; return its outputs, None for those that are none.

    Args:
        module: the GraphModule.
        inputs: a value for each placeholder.
        key: returns a new key at each call, if the graph draws random numbers.
        ranges: takes each index, with its bounds and node.

    Raises:
        OpFailure: an op that the table lacks, or does not take with these arguments.
    """
    values: dict[Any, Any] = {}
    supplied = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(supplied)
        elif node.op == "get_attr":
            values[node] = constant(module, node.target)
        elif node.op == "output":
            return [values[n] if isinstance(n, torch.fx.Node) else n
                    for n in torch.utils._pytree.tree_leaves(node.args[0])]
        else:
            values[node] = compute(node, values, key, ranges)
    return []


def constant(module: Any, name: str) -> Array:
    """Return a tensor that a graph module holds as an Array."""
    value = module
    for part in name.split("."):
        value = getattr(value, part)
    return jnp.asarray(from_dlpack(value.detach().contiguous(), copy=True))


def compute(node: Any, values: dict[Any, Any], key: Callable[[], Any] | None,
            ranges: list[tuple[Any, Range]] | None = None) -> Any:
    """Compute one node."""
    args = list(torch.fx.map_arg(node.args, values.__getitem__))
    named = dict(torch.fx.map_arg(node.kwargs, values.__getitem__))
    entry = entry_of(node.target)
    if entry is None:
        if isinstance(node.target, torch._ops.OperatorBase) or node.op != "call_function":
            raise OpFailure(node, "fnx lacks this op")
        return node.target(*args, **named)
    try:
        if entry.ranges is not None and ranges is not None:
            ranges += [(node, r) for r in entry.ranges(*args, **named) if r.index.size]
        if entry.kind is not None:
            args = promote(entry, node, args)
        if entry.takes_node:
            named["node"] = node
        if entry.is_random:
            if key is None:
                raise UnsupportedOpError("a random op needs a key")
            named["key"] = key()
        return conform(entry.run(*args, **named), node.meta.get("val"))
    except (FnxError, TypeError, ValueError, NotImplementedError) as error:
        raise OpFailure(node, str(error).partition("\n")[0]) from error


def conform(value: Any, meta: Any) -> Any:
    """Return a result in the dtype that PyTorch recorded; its shape must be the recorded one."""
    if isinstance(meta, list | tuple):
        return [conform(v, m) for v, m in zip(value, meta)]
    if not isinstance(meta, torch.Tensor) or value is None:
        return value
    expected = [n if isinstance(n, int) else None for n in meta.shape]
    if len(expected) != value.ndim or any(n is not None and n != m
                                           for n, m in zip(expected, value.shape)):
        raise UnsupportedOpError(f"expected a result of shape {expected}, got {value.shape}")
    dtype = dtype_name(meta.dtype)
    if value.dtype.name == dtype:
        return value
    if jnp.iscomplexobj(value) and not meta.dtype.is_complex:
        raise UnsupportedOpError(f"expected a result of {dtype}, got {value.dtype}")
    return value.astype(dtype)


def fresh_keys(base: Any) -> Callable[[], Any]:
    """Return a function that returns another key at each call, all derived from one."""
    count = iter(range(1 << 30))
    return lambda: random.fold_in(base, next(count))
