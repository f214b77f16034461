"""Schedules that differ from one in a single step: what a search tries next.

    split("m", 14) -> 7, 28      unroll, parallel, stage: removed      order: two loops swapped
    a loop -> split by 4, with the inner part unrolled inside of the others

The association of float sums is preserved: loops reduced by a float REDUCE keep their splits, lanes
and order. So all schedules a search may choose give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator

from fnx.core import ops, tiling
from fnx.core.parts import closed
from fnx.core.tiling import Schedule
from fnx.core.uop import UOp, toposort
from fnx.lower.schedule.loops import name_of, ranges_of
from fnx.lower.schedule.workload import extent

_LARGEST = 1024  # largest split factor
_REPEATS = 4     # unroll factor of a loop that becomes innermost


def neighbours(kernel: UOp, schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules that differ from one in a single step; they may be illegal.

    >>> from fnx.core import build, dtypes
    >>> i = build.range_(1000, 0, name="i")
    >>> x, o = (build.at(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", [0])
    >>> [len(schedule) for schedule in neighbours(copy, (tiling.split("i", 16),))]
    [1, 1]
    """
    fixed = _fixed(kernel, schedule)
    for at, step in enumerate(schedule):
        before, after = schedule[:at], schedule[at + 1:]
        if isinstance(step, tiling.Split) and step.range not in fixed:
            for factor in (step.factor * 2, step.factor // 2):
                if 1 < factor <= _LARGEST:
                    yield (*before, step.replace(factor=factor), *after)
        elif isinstance(step, tiling.Order):
            yield from ((*before, order, *after) for order in _swapped(step, fixed))
        elif isinstance(step, tiling.Unroll) and step.range not in fixed or \
                isinstance(step, tiling.Parallel | tiling.StageOperand | tiling.Collect):
            yield (*before, *after)
    yield from _unrolled(kernel, schedule, fixed)


def _fixed(kernel: UOp, schedule: Schedule) -> set[str]:
    """Return the names of the loops that float sums and products run over."""
    nodes = toposort(kernel.src)
    out = {name_of(r) for n in nodes if n.op is ops.REDUCE and n.dtype.is_float
           and n.arg.monoid in (ops.ADD, ops.MUL) for r in closed(n)}
    for step in schedule:
        if isinstance(step, tiling.Split) and step.range in out:
            out |= {step.outer, step.inner}
    return out


def _swapped(order: tiling.Order, fixed: set[str]) -> Iterator[tiling.Order]:
    names = order.names
    for i, (a, b) in enumerate(zip(names, names[1:])):
        if a not in fixed or b not in fixed:
            yield tiling.order(*names[:i], b, a, *names[i + 2:])


def _unrolled(kernel: UOp, schedule: Schedule, fixed: set[str]) -> Iterator[Schedule]:
    """Split a loop in two and unroll the inner part inside of all loops."""
    split = {step.range for step in schedule if isinstance(step, tiling.Split)}
    named = {step.range for step in schedule
             if isinstance(step, tiling.Vectorize | tiling.Unroll | tiling.Parallel)}
    for r in ranges_of(kernel):
        name = name_of(r)
        if name in split | named | fixed or extent(r) < 2 * _REPEATS:
            continue
        outer, inner = f"{name}_s", f"{name}_i"
        order = [_with(step, name, outer, inner, named) if isinstance(step, tiling.Order)
                 else step for step in schedule]
        at = next((i for i, step in enumerate(order) if isinstance(step, tiling.Order)),
                  len(order))
        yield (*order[:at], tiling.split(name, _REPEATS, outer, inner), *order[at:],
               tiling.unroll(inner))


def _with(step: tiling.Order, name: str, outer: str, inner: str, named: set[str]) -> tiling.Order:
    loops = [outer if n == name else n for n in step.names]
    at = len(loops)
    while at and loops[at - 1] in named:
        at -= 1
    return tiling.order(*loops[:at], inner, *loops[at:])
