"""What is read back of a program on disk: data only, and commands that stay in their memory.

    SLOT arena 0..4096 of an arena of 64    ->    as if nothing were there: it is made anew

Entries are read only where nobody else may write (backends/private_files.py), and the code of
kernels is taken as it is; this keeps a file that was damaged, or made by somebody who was careless,
from being more than a miss.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from typing import Any

from fnx.core import op_args, ops, parts
from fnx.core.record import Record
from fnx.core.uop import UOp

_LINE = 64
_FUNCTIONS = frozenset({("fnx.core.uop", "_restored"), ("fnx.core.op", "named"),
                        ("fnx.core.dtypes", "named"), ("builtins", "tuple")})


class _DataUnpickler(pickle.Unpickler):
    """Makes nodes, and what they carry; calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _FUNCTIONS or module == op_args.__name__ and \
                isinstance(getattr(op_args, name, None), type):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"expected data, got {module}.{name}")


def read(data: bytes) -> Any:
    """What was stored.

    Raises:
        Exception: it is no such thing, or more than data.
    """
    return _DataUnpickler(io.BytesIO(data)).load()


def is_inside(commands: UOp, arena: int, ins: Mapping[int, int], outs: list[int]) -> bool:
    """Whether all memory of commands lies in the arena, the arguments and the results.

    Args:
        commands: COMMANDS.
        arena: bytes of it.
        ins, outs: bytes of each argument and result.
    """
    left: list[tuple[UOp, tuple[int, ...]]] = [(commands, ())]
    while left:
        node, trips = left.pop()
        for s in node.src:
            if s.op in (ops.SLOT, ops.SWAP):
                if not all(_holds(slot, trips, arena, ins, outs) for slot in parts.slots(s)):
                    return False
            elif s.op in (ops.EXEC, ops.LOOP, ops.BRANCH, ops.COMMANDS):
                inside = node.op is ops.LOOP and s.op is ops.COMMANDS
                left.append((s, (*trips, node.arg.trips or 0) if inside else trips))
    return commands.op is ops.COMMANDS


def _holds(slot: op_args.Slot, trips: tuple[int, ...], arena: int, ins: Mapping[int, int],
           outs: list[int]) -> bool:
    """Whether a SLOT lies inside in every iteration of the loops around it."""
    size = arena if slot.kind == "arena" else ins.get(slot.index, -1) if slot.kind == "in" else \
        outs[slot.index] if slot.kind == "out" and 0 <= slot.index < len(outs) else -1
    moves = [s * max(n - 1, 0) for s, n in zip(slot.strides, trips)]
    first = slot.offset + sum(min(m, 0) for m in moves)
    last = slot.offset + slot.nbytes + sum(max(m, 0) for m in moves)
    return len(slot.strides) <= len(trips) and slot.nbytes >= 0 and 0 <= first and last <= size


def nbytes(node: UOp) -> int:
    """Of the memory of an array that a PARAM stands for: whole cache lines."""
    return -(-math.prod(node.shape) * node.dtype.itemsize // _LINE) * _LINE


def is_block(block: Record, commands: UOp, params: Mapping[int, UOp]) -> bool:
    """Whether what was read are the commands of a FUNCTION of these PARAMs, and their memory."""
    _, arena, outs, results, over = block
    typed = type(arena) is int and arena >= 0 and all(
        type(n) is UOp and n.op is ops.PARAM for n in outs) and all(
        type(pair) is tuple and len(pair) == 2 for pair in (*results, *over))
    return typed and all(i in (params if kind == "in" else range(len(outs)))
                         for kind, i in results) and is_inside(
        commands, arena, {i: nbytes(p) for i, p in params.items()}, [nbytes(n) for n in outs])
