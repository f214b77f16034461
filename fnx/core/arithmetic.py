"""FLOP counts of kernels, for profiles.

>>> from fnx.core import dtypes
>>> r = build.range_(8, 0)
>>> x, y = [build.at(build.ref(i, dtypes.float32, (8,)), r) for i in (0, 1)]
>>> double = build.kernel([build.store(y, build.mul(build.load(x), build.load(x)))], "double", [0])
>>> flops(double, [])
8
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fnx.core import build, ops, parts
from fnx.core.units import UNITS
from fnx.core.uop import UOp, toposort


def flops(kernel: UOp, scalars: Sequence[Any]) -> int:
    """Count the float ops of a kernel, each once per iteration of its free ranges."""
    if kernel.op is ops.LINKED:
        found: int = kernel.arg.flops
        return found
    if kernel.op is ops.LOOP:
        return (kernel.arg.trips or 1) * sum([_of_command(c) for s in kernel.src for c in s.src])
    total = 0
    for node in toposort([kernel]):
        if node.op.kind == "elementwise" and node.dtype.is_float:
            total += (2 if node.op is ops.MULACC else 1) * _iterations(node, scalars)
        elif node.op is ops.MMA and node.dtype.is_float:
            unit = UNITS[node.arg.unit]
            words = unit.words if node.arg.words else 1
            total += 2 * unit.in_word * words * _iterations(node, scalars)
        elif node.op is ops.REDUCE and node.dtype.is_float and node.src[0].op is not ops.MMA:
            total += _iterations(parts.value(node), scalars)
    return total


def _of_command(command: UOp) -> int:
    """Count the float ops of a command in a LOOP; of a BRANCH those of the costliest branch."""
    if command.op is ops.BRANCH:
        return max([sum(map(_of_command, s.src)) for s in command.src[1:]])
    kernel, *rest = (command, *command.src) if command.op is ops.LOOP else command.src
    return flops(kernel, [build.const_of(s) for s in rest if s.op is ops.CONST])


def _iterations(node: UOp, scalars: Sequence[Any]) -> int:
    extents = map(parts.extent, node.ranges)
    return math.prod(scalars[e.arg.slot] if e.op is ops.VAR else
                     build.const_of(e) if e.op is ops.CONST else 1 for e in extents)
