"""Candidates: the schedules of a kernel that are worth timing, the heuristic schedule first.

    candidates(kernel, target)    ->    the heuristic, then those that differ in one knob
    near(candidate)               ->    those that differ from it in one knob or one step
    further(candidate)            ->    those that differ from it in two knobs

Knobs (plan.py) are lanes, tiles, blocks, what is packed and where, unrolling, chunks, units and
workers; a step is a split factor or a loop order (neighbours.py). The heuristic schedule comes
first, the others follow by predicted cycles (cost.py), and a search (transforms/replay/search.py)
times them in that order. Candidates with other knob values may associate a float sum differently;
``same_bits`` keeps only those that associate it the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fnx.core.record import Record
from fnx.core.target import Target
from fnx.core.tiling import Schedule
from fnx.core.uop import UOp
from fnx.lower.kernel.canonical import canonical
from fnx.lower.machines import MACHINES
from fnx.lower.schedule.cost import predicted
from fnx.lower.schedule.neighbours import neighbours
from fnx.lower.schedule.plan import MODEL, Decisions, Plan


class Candidate(Record):
    """A schedule and the knob values it was made with; ``plan`` is None if one of its steps was
    changed."""

    schedule: Schedule
    plan: Plan | None = None


def first(kernel: UOp, target: Target) -> tuple[UOp, Candidate]:
    """Return the canonical kernel, whose range names schedules use, and its heuristic schedule.

    >>> from fnx.core import build, dtypes
    >>> i = build.range_(1000, 7, name="i")
    >>> x, o = (build.at(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy, model = first(build.kernel([build.store(o, build.load(x))], "copy", [7]),
    ...                     Target("cpu"))
    >>> model.plan == MODEL, len(list(near(copy, Target("cpu"), model))) > 3
    (True, True)
    """
    made = canonical(kernel)
    return made, next(candidates(made, target))


def candidates(kernel: UOp, target: Target) -> Iterator[Candidate]:
    """Yield the heuristic schedule, then those that differ from it in one knob."""
    return _around(kernel, target, MODEL)


def further(kernel: UOp, target: Target, found: Candidate) -> Iterator[Candidate]:
    """Yield candidates that differ from one in two knobs."""
    for one in _around(kernel, target, found.plan) if found.plan is not None else ():
        if one.plan is not None:
            yield from _around(kernel, target, one.plan)


def _around(kernel: UOp, target: Target, plan: Plan) -> Iterator[Candidate]:
    decided, decisions = MACHINES[target.kind].decided, Decisions(plan)
    yield Candidate(decided(kernel, target, decisions), plan)
    yield from _by_cost(kernel, target, [
        Candidate(decided(kernel, target, Decisions(other)), other)
        for other in decisions.others()])


def _by_cost(kernel: UOp, target: Target, found: Iterable[Candidate]) -> list[Candidate]:
    """Sort candidates by predicted cycles; the sort is stable."""
    return sorted(found, key=lambda c: predicted(kernel, c.schedule, target))


def near(kernel: UOp, target: Target, found: Candidate, same_bits: bool = False
         ) -> Iterator[Candidate]:
    """Yield candidates that differ from one in one knob or one step; they may be illegal. With
    ``same_bits``, only those that associate sums in the same way."""
    if not same_bits and found.plan is not None:
        after = _around(kernel, target, found.plan)
        next(after)
        yield from after
    yield from _by_cost(kernel, target, map(Candidate, neighbours(kernel, found.schedule)))
