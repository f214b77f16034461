"""Stages: what ``jit(f).lower(*args)`` shows of a signature, each printable."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fnx.core import build, ops
from fnx.core.levels import show
from fnx.core.uop import UOp, toposort
from fnx.transforms.replay.executable import Device, Lowered


class KernelInfo(NamedTuple):
    """One command: its kernel's name, bytes of its buffers, arithmetic operations, node."""

    name: str
    bytes: int
    flops: int
    node: UOp


class Stages:
    """The stages of one signature.

    Attributes:
        graph: the FUNCTION as traced.
        simplified: the FUNCTION after the tensor passes.
        commands: the COMMANDS node.
        kernels: a KernelInfo per command, in the order they run.
        arena: bytes of intermediate buffers.
        milliseconds: of the trace, of each pass (``code`` holds ``print``), of LLVM (it runs
            beside the passes) and of linking.
    """

    def __init__(self, graph: UOp, lowered: Lowered, device: Device, trace: float) -> None:
        self.graph, self.simplified = graph, lowered.function
        self.commands, self.arena = lowered.block.commands, lowered.block.arena
        self.milliseconds = {"trace": trace, **lowered.milliseconds}
        self.kernels = tuple(_info(e) for e in self.commands.src)
        self._code, self._device = lowered.code, device

    def __repr__(self) -> str:
        kernels = len(self.kernels)
        total = sum(k.bytes for k in self.kernels)
        return f"<stages: {kernels} kernels, {total} bytes read and written, " \
               f"{self.arena} bytes of arena>"

    def text(self, level: str = "graph") -> str:
        """A level as text: "graph", "simplified", "kernels", "program", "commands" or
        "llvm"."""
        if level == "kernels":
            return "\n\n".join(show.pretty(k.node) for k in self._distinct())
        if level == "program":
            return "\n\n".join(show.pretty(self._code[k.node].program())
                               for k in self._distinct() if k.node in self._code)
        if level == "llvm":
            return self.llvm()
        return show.pretty(getattr(self, level), scopes=level != "commands")

    def llvm(self) -> str:
        """LLVM IR of the distinct kernels."""
        return "\n".join(self._code[k.node].text() for k in self._distinct()
                         if k.node in self._code)

    def assembly(self) -> str:
        """Machine code of the distinct kernels, as text."""
        return "\n".join(self._device.assembly(self._code[k.node].text())
                         for k in self._distinct() if k.node in self._code)

    def _distinct(self) -> list[KernelInfo]:
        return list({k.node: k for k in self.kernels}.values())


def _info(execution: UOp) -> KernelInfo:
    kernel, *operands = execution.src
    scalars = [build.const_of(s) for s in operands if s.op is ops.CONST]
    nbytes = sum(s.arg.nbytes for s in operands if s.op is ops.SLOT)
    return KernelInfo(execution.arg.name, nbytes, _flops(kernel, scalars), kernel)


def _flops(kernel: UOp, scalars: list[Any]) -> int:
    """Arithmetic of all iterations: each float op once per iteration of its free ranges."""
    total = 0
    for node in toposort([kernel]):
        if node.op.kind == "elementwise" and node.dtype.is_float:
            total += (2 if node.op is ops.MULACC else 1) * _iterations(node, scalars)
        elif node.op is ops.REDUCE and node.dtype.is_float:
            total += _iterations(node.src[0], scalars)
    return total


def _iterations(node: UOp, scalars: list[Any]) -> int:
    extents = [r.src[0] for r in node.ranges]
    return math.prod(scalars[e.arg.slot] if e.op is ops.VAR else
                     build.const_of(e) if e.op is ops.CONST else 1 for e in extents)
