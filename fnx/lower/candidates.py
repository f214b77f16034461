"""Candidates: the schedules of a kernel that are worth timing, the heuristic schedule first.

    candidates(kernel, target)    ->    the heuristic, then those that differ in one knob
    near(candidate)               ->    those that differ from it in one knob or one step
    further(candidate)            ->    those that differ from it in two knobs

Knobs (schedule/knobs.py) are lanes, tiles, blocks, what is packed and where, unrolling, chunks,
units and workers; a step is a split factor or a loop order (schedule/neighbors.py). The heuristic
schedule comes first, the others follow by predicted cycles (schedule/cost_model.py), and a search
(transforms/dispatch/schedule_search.py) times them in that order. Candidates with other knob values
may associate a float sum differently; ``same_bits`` keeps only those that associate it the same
way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.schedule.cost_model import predict_cycles
from fnx.lower.schedule.knobs import HEURISTIC, KnobValues, TuningKnobs
from fnx.lower.schedule.neighbors import neighbors
from fnx.lower.target_lowerings import TARGET_LOWERINGS


class Candidate(Record):
    """A schedule and the knob values it was made with; ``plan`` is None if one of its steps was
    changed."""

    schedule: Schedule
    plan: KnobValues | None = None


def first(kernel: UOp, target: Target) -> tuple[UOp, Candidate]:
    """Return the canonical kernel, whose range names schedules use, and its heuristic schedule.

    >>> from fnx.core.ir import build, dtypes
    >>> i = build.range_(1000, 7, name="i")
    >>> x, o = (build.index_into(build.ref(s, dtypes.float32, (1000,)), i) for s in (0, 1))
    >>> copy, model = first(build.kernel([build.store(o, build.load(x))], "copy", [7]),
    ...                     Target("cpu"))
    >>> model.plan == HEURISTIC, len(list(near(copy, Target("cpu"), model))) > 3
    (True, True)
    """
    canonical_kernel = canonicalize(kernel)
    return canonical_kernel, next(candidates(canonical_kernel, target))


def candidates(kernel: UOp, target: Target) -> Iterator[Candidate]:
    """Yield the heuristic schedule, then those that differ from it in one knob."""
    return _vary_one_knob(kernel, target, HEURISTIC)


def further(kernel: UOp, target: Target, base: Candidate) -> Iterator[Candidate]:
    """Yield candidates that differ from one in two knobs."""
    for variant in _vary_one_knob(kernel, target, base.plan) if base.plan is not None else ():
        if variant.plan is not None:
            yield from _vary_one_knob(kernel, target, variant.plan)


def _vary_one_knob(kernel: UOp, target: Target, values: KnobValues) -> Iterator[Candidate]:
    make_schedule, knobs = TARGET_LOWERINGS[target.kind].schedule_for_knobs, TuningKnobs(values)
    yield Candidate(make_schedule(kernel, target, knobs), values)
    yield from _sort_by_cycles(kernel, target, [
        Candidate(make_schedule(kernel, target, TuningKnobs(other)), other)
        for other in knobs.alternatives()])


def _sort_by_cycles(kernel: UOp, target: Target,
                    candidates_: Iterable[Candidate]) -> list[Candidate]:
    """Sort candidates by predicted cycles; the sort is stable."""
    return sorted(candidates_, key=lambda c: predict_cycles(kernel, c.schedule, target))


def near(kernel: UOp, target: Target, base: Candidate, same_bits: bool = False
         ) -> Iterator[Candidate]:
    """Yield candidates that differ from one in one knob or one step; they may be illegal. With
    ``same_bits``, only those that associate sums in the same way."""
    if not same_bits and base.plan is not None:
        variants = _vary_one_knob(kernel, target, base.plan)
        next(variants)
        yield from variants
    yield from _sort_by_cycles(kernel, target, map(Candidate, neighbors(kernel, base.schedule)))
