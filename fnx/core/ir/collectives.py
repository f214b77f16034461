"""Collectives between processes: COLLECTIVE nodes, and their meaning in NumPy.

Processes form a grid, whose axes are those axes of a mesh that span processes. A process is in one
group for each choice of axes: those that differ from it along these only. Each operand is the block
of a process, and has its local shape.

    routine          each process gets
    all_reduce       the sum (or another monoid) of the blocks of its group, of each operand
    all_gather       the blocks of its group, concatenated along an axis
    reduce_scatter   its part along an axis of the sum of the blocks
    all_to_all       its parts along an axis of all blocks, concatenated along another
    permute          the block of the process that sends to it, or zeros
    process_index    its position in its group, an int32

>>> grid = ProcessGrid(("a", "b"), (2, 3))
>>> group(grid, 4, ("a",)), group(grid, 4, ("b",)), position(grid, 4, ("b",))
((1, 4), (3, 4, 5), 1)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.op_args import Collective, ProcessGrid
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError

__all__ = ["Collective", "Names", "ProcessGrid", "bytes_sent", "collective", "group", "is_legal",
           "position", "results"]

Names = tuple[Hashable, ...]

ROUTINES = {"all_reduce": None, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1,
            "permute": 1, "process_index": 0}  # -> the number of operands


def position(grid: ProcessGrid, rank: int, names: Names) -> int:
    """Return the position of a process in its group; the last name goes fastest."""
    at = dict(zip(grid.names, np.unravel_index(rank, grid.sizes))) if grid.sizes else {}
    return reduce(lambda i, name: i * grid.count((name,)) + int(at[name]), names, 0)


def group(grid: ProcessGrid, rank: int, names: Names) -> tuple[int, ...]:
    """Return the ranks of the group of a process, by their positions."""
    rest = tuple([name for name in grid.names if name not in names])
    members = [r for r in range(math.prod(grid.sizes))
               if position(grid, r, rest) == position(grid, rank, rest)]
    return tuple(sorted(members, key=lambda r: position(grid, r, names)))


def collective(routine: str, grid: ProcessGrid, names: Names, operands: Sequence[UOp] = (),
               **options: Any) -> tuple[UOp, ...]:
    """Return the results of a routine over groups of processes (op_args.Collective).

    Raises:
        ArgumentError: operands that do not fit the routine and the number of processes.
    """
    arg = Collective(routine, grid, names, tuple([(x.shape, x.dtype) for x in operands]), **options)
    if not is_legal(arg):
        raise ArgumentError(f"{routine}: expected operands that fit the processes, got {arg}")
    return build.results(UOp(ops.COLLECTIVE, dtypes.void, tuple(operands), arg))


def is_legal(arg: Collective) -> bool:
    """Return whether the operands fit the routine."""
    n_operands, n = ROUTINES.get(arg.name, -1), len(arg.grid.names)
    if n_operands not in (None, len(arg.ins)) or len(set(arg.names)) != len(arg.names) or \
            not set(arg.names) <= set(arg.grid.names) or n != len(arg.grid.sizes):
        return False
    axes = (arg.axis, arg.to_axis) if arg.name == "all_to_all" else \
        (arg.axis,) if arg.name in ("all_gather", "reduce_scatter") else ()
    is_scattered, monoid = arg.name in ("reduce_scatter", "all_to_all"), arg.monoid
    is_reduced = arg.name in ("all_reduce", "reduce_scatter")
    return all(
        not dtype.is_complex and all(0 <= axis < len(shape) for axis in axes)
        and not (is_scattered and shape[arg.axis] % arg.count)
        and (not is_reduced or monoid in ops.MONOIDS and monoid.accepts_dtype(dtype))
        for shape, dtype in arg.ins) and all(
        len({pair[i] for pair in arg.pairs}) == len(arg.pairs)
        and all(0 <= pair[i] < arg.count for pair in arg.pairs) for i in (0, 1))


def results(arg: Collective, position: int, blocks: Sequence[Sequence[NDArray]]) -> list[NDArray]:
    """Return the results of the process at a position from the operands of its group."""
    if arg.name == "process_index":
        return [np.array(position, np.int32)]
    if arg.name == "permute":
        source = next((a for a, b in arg.pairs if b == position), None)
        return [np.zeros_like(blocks[0][0]) if source is None else blocks[source][0]]
    if arg.name == "all_gather":
        return [np.concatenate([x for x, in blocks], arg.axis)]
    if arg.name == "all_to_all":
        return [np.concatenate([np.split(x, arg.count, arg.axis)[position] for x, in blocks],
                               arg.to_axis)]
    assert arg.monoid is not None and arg.monoid.ufunc is not None
    totals = [np.asarray(reduce(arg.monoid.ufunc, parts)) for parts in zip(*blocks)]
    if arg.name == "reduce_scatter":
        return [np.split(totals[0], arg.count, arg.axis)[position]]
    return totals


def bytes_sent(arg: Collective) -> int:
    """Return the bytes that a process sends: to each other one, in a ring."""
    n = arg.count
    total = sum([math.prod(shape) * dtype.itemsize for shape, dtype in arg.ins])
    if arg.name == "all_gather":
        return total * (n - 1)
    if arg.name == "permute":
        return total * any(a != b for a, b in arg.pairs)
    return total * (1 + (arg.name == "all_reduce")) * (n - 1) // n
