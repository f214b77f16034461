"""Schedules that differ from one in a single step: what a search tries next.

    split("m", 14) -> 7, 28      unroll, parallel, stage: removed      order: two loops swapped
    a loop -> split by 4, with the inner part unrolled inside of the others

The association of float sums is preserved: loops reduced by a float REDUCE keep their splits, lanes
and order. So all schedules a search may choose give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator

from fnx.core.ir import ops, tiling
from fnx.core.ir.accessors import bound_ranges
from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp, toposort
from fnx.lower.analysis.loops import name_of, ranges_of
from fnx.lower.analysis.workload import extent

_MAX_FACTOR = 1024  # largest split factor
_UNROLL_FACTOR = 4     # unroll factor of a loop that becomes innermost


def neighbors(kernel: UOp, schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules that differ from one in a single step; they may be illegal.

    >>> from fnx.core.ir import build, dtypes
    >>> i = build.range_(1000, 0, name="i")
    >>> x, o = (build.index_into(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> [len(schedule) for schedule in neighbors(copy, (tiling.split("i", 16),))]
    [1, 1]
    """
    fixed_loops = _float_sum_loops(kernel, schedule)
    for position, step in enumerate(schedule):
        before, after = schedule[:position], schedule[position + 1:]
        if isinstance(step, tiling.Split) and step.range not in fixed_loops:
            for factor in (step.factor * 2, step.factor // 2):
                if 1 < factor <= _MAX_FACTOR:
                    yield (*before, step.replace(factor=factor), *after)
        elif isinstance(step, tiling.Order):
            yield from ((*before, order, *after) for order in _swap_loops(step, fixed_loops))
        elif isinstance(step, tiling.Unroll) and step.range not in fixed_loops or \
                isinstance(step, tiling.Parallel | tiling.StageOperand | tiling.Collect):
            yield (*before, *after)
    yield from _unroll_inner(kernel, schedule, fixed_loops)


def _float_sum_loops(kernel: UOp, schedule: Schedule) -> set[str]:
    """Return the names of the loops that float sums and products run over."""
    nodes = toposort(kernel.src)
    loops = {name_of(r) for n in nodes if n.op is ops.REDUCE and n.dtype.is_float
             and n.arg.monoid in (ops.ADD, ops.MUL) for r in bound_ranges(n)}
    for step in schedule:
        if isinstance(step, tiling.Split) and step.range in loops:
            loops |= {step.outer, step.inner}
    return loops


def _swap_loops(order: tiling.Order, fixed_loops: set[str]) -> Iterator[tiling.Order]:
    names = order.names
    for i, (a, b) in enumerate(zip(names, names[1:])):
        if a not in fixed_loops or b not in fixed_loops:
            yield tiling.order(*names[:i], b, a, *names[i + 2:])


def _unroll_inner(kernel: UOp, schedule: Schedule, fixed_loops: set[str]) -> Iterator[Schedule]:
    """Split a loop in two and unroll the inner part inside of all loops."""
    split_loops = {step.range for step in schedule if isinstance(step, tiling.Split)}
    mapped_loops = {step.range for step in schedule
                    if isinstance(step, tiling.Vectorize | tiling.Unroll | tiling.Parallel)}
    for r in ranges_of(kernel):
        name = name_of(r)
        if name in split_loops | mapped_loops | fixed_loops or extent(r) < 2 * _UNROLL_FACTOR:
            continue
        outer, inner = f"{name}_s", f"{name}_i"
        order = [_split_in_order(step, name, outer, inner, mapped_loops)
                 if isinstance(step, tiling.Order) else step for step in schedule]
        position = next((i for i, step in enumerate(order) if isinstance(step, tiling.Order)),
                        len(order))
        yield (*order[:position], tiling.split(name, _UNROLL_FACTOR, outer, inner),
               *order[position:], tiling.unroll(inner))


def _split_in_order(step: tiling.Order, name: str, outer: str, inner: str,
                    mapped_loops: set[str]) -> tiling.Order:
    loops = [outer if n == name else n for n in step.names]
    position = len(loops)
    while position and loops[position - 1] in mapped_loops:
        position -= 1
    return tiling.order(*loops[:position], inner, *loops[position:])
