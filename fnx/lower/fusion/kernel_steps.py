"""The steps of a program after fusion: kernels, and control flow around bodies."""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core.ir import ops
from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import Location
from fnx.core.support.record import Record
from fnx.lower.analysis.memory import LaunchOperand


class KernelStep(Record):
    """One kernel, and the tensor nodes that its buffer slots refer to.

    The kernel may also be the callee of a CALLBACK. ``writes`` are the operands it writes (the last
    ones); ``schedule`` is the user's for a user-written kernel, else None; ``reads_slices``: it
    reads slices of arrays; ``is_generated``: as in its CALL.
    """

    kernel: UOp
    operands: tuple[LaunchOperand, ...]
    writes: tuple[UOp, ...]
    schedule: Schedule | None
    locs: tuple[Location, ...]
    reads_slices: bool = False
    is_generated: bool = False

    @property
    def graphs(self) -> tuple[UOp, ...]:
        return (self.kernel,) if self.kernel.op is ops.KERNEL else ()


def reads_slices(steps: Iterable[KernelStep | ControlFlowStep]) -> bool:
    """Whether any kernel reads slices of arrays."""
    return any(isinstance(step, KernelStep) and step.reads_slices for step in steps)


class ControlFlowStep(Record):
    """A SCAN, WHILE or COND, the nodes whose buffers it reads, and its results."""

    node: UOp
    reads: tuple[UOp, ...]
    writes: tuple[UOp, ...]
    graphs: tuple[UOp, ...] = ()


def lines_of(nodes: Iterable[UOp]) -> tuple[Location, ...]:
    """Return the user's lines of nodes, each once."""
    return tuple(dict.fromkeys(loc for n in nodes for loc in n.locs))
