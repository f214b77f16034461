"""Reject a PROGRAM whose threads may exceed the target's iteration limit.

    FOR i = 0 .. 300
      FOR j = 0 .. 300          90,601 iterations in all: too many for a target of 65,535
      ENDFOR
    ENDFOR

Some drivers end all loops of a thread after that many iterations, and the results are silently
wrong. Upper bounds of extents are counted, so a loop that a condition ends counts its maximum.

>>> from fnx.core.ir import dtypes, kernel_args
>>> i = UOp(ops.FOR, dtypes.index, (build.index_const(0), build.index_const(900)), 1)
>>> end = UOp(ops.ENDFOR, dtypes.void, (i,))
>>> max_iterations(UOp(ops.PROGRAM, dtypes.void, (i, end), kernel_args.ThreadGroup(0, 0, 64, 0, 0)))
901
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.legalize.narrow_indices import bounds_of


def check_iteration_limit(program: UOp, target: Target) -> UOp:
    """Return the PROGRAM unchanged.

    Raises:
        KernelError: a thread may exceed the iteration limit of the target.
    """
    if target.max_steps and (total := max_iterations(program)) > target.max_steps:
        locs = [node.loc for node in program.src if node.loc is not None]
        raise KernelError(
            f"{target.name}: expected loops of at most {target.max_steps:,} iterations in a "
            "thread, "
            f"after which this driver ends them, got up to {total:,}", loc=next(iter(locs), None),
            hint="split the computation, or use another device")
    return program


def max_iterations(program: UOp) -> int:
    """Return the maximum iterations of a thread, including nested loops."""
    bounds = bounds_of(program)
    trip_counts, total = [1], 0
    for node in program.src:
        if node.op is ops.FOR:
            start, stop = node.src
            count = 1
            if start.op is not ops.ID:  # otherwise a thread runs one iteration or none
                count = max(0, _upper_bound(stop, bounds) - _lower_bound(start, bounds))
                total += trip_counts[-1] * (count + 1)  # the exit test counts, too
            trip_counts.append(trip_counts[-1] * count)
        elif node.op is ops.ENDFOR:
            trip_counts.pop()
    return total


def _upper_bound(node: UOp, bounds: dict[UOp, tuple[int, int]]) -> int:
    return build.const_of(node) if node.op is ops.CONST else bounds[node][1]


def _lower_bound(node: UOp, bounds: dict[UOp, tuple[int, int]]) -> int:
    return build.const_of(node) if node.op is ops.CONST else bounds[node][0]
