"""What a loop in registers pays for indices that are data, and what its commands would move.

    x: (16, 20000), in 16 scalars of each lane    step: x[k] = where(i == k, v, x[k]), k = 0 .. 15
    x: (16, 20000), in memory                     step: x[i] = v

A scalar has no address, so a read or an update at data selects among all of them, in each lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.tuning import (
    CACHE_BYTES_PER_CYCLE,
    CHOICE_INSTRUCTIONS,
    KERNEL_CYCLES,
    LAUNCH_CYCLES,
    LINE_BYTES,
    VECTOR_BYTES,
)
from fnx.lower.loops.strip_mine import is_constant


def selecting_costs_more(nodes: Iterable[UOp], outs: Iterable[UOp],
                         is_memory: Callable[[UOp], bool],
                         is_lane: Callable[[UOp, int], bool]) -> bool:
    """Whether the selections of a step take longer than commands that move what it computes.

    Args:
        nodes: the nodes of the body.
        outs: the next values of the carries.
        is_memory: whether a node is loaded from a buffer.
        is_lane: whether an axis of a node is lanes of the kernel.
    """
    selected = moved = kernels = 0
    for node in nodes:
        if node.op is ops.SCATTER or node.op is ops.GATHER and not is_memory(node.src[0]):
            x, first = node.src[0], node.src[1]
            scalars = math.prod([x.shape[a] for a in node.arg.axes if not is_lane(x, a)])
            part = node.src[-1] if node.op is ops.SCATTER else node
            if not all(map(is_constant, node.src[1:1 + len(node.arg.axes)])):
                selected += scalars * _nbytes(part)
            is_strided = len(x.shape) - 1 in node.arg.axes or any(
                is_lane(first, a) for a in range(len(first.shape)))
            moved += 3 * (LINE_BYTES * math.prod(part.shape) if is_strided else _nbytes(part))
            if node.op is ops.SCATTER and x.op not in (ops.PARAM, ops.SCATTER):
                moved += 2 * _nbytes(node)  # a new array
            kernels += node.op is ops.SCATTER
        elif node.op is ops.REDUCE:
            moved += _nbytes(node.src[0]) + _nbytes(node)
            kernels += 1
        elif is_memory(node):
            moved += _nbytes(node)
    for out in outs:
        if out.op is not ops.SCATTER:
            moved += 2 * _nbytes(out)
            kernels += 1
    return CHOICE_INSTRUCTIONS * selected / VECTOR_BYTES > \
        moved / CACHE_BYTES_PER_CYCLE + kernels * (LAUNCH_CYCLES + KERNEL_CYCLES)


def _nbytes(node: UOp) -> int:
    return math.prod(node.shape) * node.dtype.itemsize
