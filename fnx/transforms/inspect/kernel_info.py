"""What is shown of one command: its name and line, its loops, its bytes and operations."""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.peak_rates import count_bytes, count_flops
from fnx.core.support.record import Record
from fnx.transforms.inspect.timeline import known_runs


class KernelInfo(Record):
    """One command: its kernel's name, bytes of its buffers, arithmetic operations, node, scalar
    operands, the number of runs, and the loop that repeats these until a condition ends it."""

    name: str
    bytes: int
    flops: int
    node: UOp
    scalars: tuple[int, ...] = ()
    runs: int = 1
    loop: str = ""


def name_and_line(name: str) -> tuple[str, str]:
    kernel, _, line = name.partition(" (")
    return kernel, line.rstrip(")")


def format_loops(kernel: UOp) -> str:
    """Format the loops of a kernel, outermost first: ``par(7) seq(300) vec(16)``."""
    if kernel.op is not ops.KERNEL:
        return kernel.op.name.lower()
    ranges = sorted((n for n in toposort([kernel]) if n.op is ops.RANGE),
                    key=accessors.LoopOrder(kernel.arg.order))
    return " ".join(f"{r.arg.kind.lower()}({_format_extent(accessors.extent(r))})" for r in ranges)


def _format_extent(node: UOp) -> str:
    return str(build.const_of(node)) if node.op is ops.CONST else \
        getattr(node.arg, "name", "") or "n"


def kernel_info(execution: UOp, loops: Sequence[UOp]) -> KernelInfo:
    kernel, *operands = execution.src
    scalars = [build.const_of(s) for s in operands if s.op is ops.CONST]
    sizes = [accessors.possible_slots(s)[0].nbytes for s in operands if s.op is not ops.CONST]
    nbytes = count_bytes(kernel, scalars, sizes)
    open_loops = [loop.arg.label for loop in loops if loop.arg.trips is None]
    return KernelInfo(execution.arg.label, nbytes, count_flops(kernel, scalars), kernel,
                      tuple(scalars), known_runs(loops), "".join(open_loops[:1]))
