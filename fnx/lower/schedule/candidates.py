"""Candidates: the schedules of a kernel that are worth a look, the model's choice first.

    candidates(kernel, target)    ->    the model's, then those that differ from it in a decision
    near(candidate)               ->    those that differ from another one in a decision or a step
    further(candidate)            ->    those that differ from it in two decisions

Decisions (plan.py) are lanes, tiles, blocks, what is packed and where, unrolling, chunks, units,
workers; a step is a factor or an order of loops (neighbours.py). The model's choice is the first of
the list, the others follow by the cycles that they are predicted to take (cost.py), and a search
(transforms/replay/search.py) times them in that order. How a float sum associates
differs between candidates of other decisions; ``same_bits`` leaves those alone that are the same.
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
    """A schedule, and the decisions that it was made by; None: a step of it was changed."""

    schedule: Schedule
    plan: Plan | None = None


def first(kernel: UOp, target: Target) -> tuple[UOp, Candidate]:
    """The kernel as schedules name its ranges, and the model's choice.

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
    """The model's choice, then those that differ from it in one decision."""
    return _around(kernel, target, MODEL)


def further(kernel: UOp, target: Target, found: Candidate) -> Iterator[Candidate]:
    """Candidates that differ from one in two decisions."""
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
    """The least predicted first; of equal ones in the order in which they were thought of."""
    return sorted(found, key=lambda c: predicted(kernel, c.schedule, target))


def near(kernel: UOp, target: Target, found: Candidate, same_bits: bool = False
         ) -> Iterator[Candidate]:
    """Candidates that are like one but for a decision, or for a step; they may turn out not to be
    legal. ``same_bits``: those only that associate sums in the same way."""
    if not same_bits and found.plan is not None:
        after = _around(kernel, target, found.plan)
        next(after)
        yield from after
    yield from _by_cost(kernel, target, map(Candidate, neighbours(kernel, found.schedule)))
