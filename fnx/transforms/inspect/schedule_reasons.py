"""Where the schedule of a kernel comes from, and why it has these loops."""

from __future__ import annotations

import itertools
from typing import Any

from fnx.transforms.dispatch.schedule_search import outcome_of

# The kind of a kernel, by the first word of its name, and the consequences for its loops.
_KIND_REASONS = {
    "contract": "a sum of products: a tile of the result stays in registers during the sum",
    "rows": "rows that are read again: each stays in the cache, with lanes along it",
    "reduce": "a fold: lanes go where reads are contiguous, each with an accumulator of its own",
    "map": "an element at a time: lanes go along what is contiguous",
    "scan": "a loop with carried values, in registers: each lane has one of its own",
    "while": "a loop with carried values, in registers: each lane ends with its own condition",
    "scatter": "places that are data: in order, with lanes only along an index of its own",
}


def origin(schedule_input: Any) -> str:
    """Return the origin of a schedule: "search", "user" or "model"."""
    outcome = outcome_of(schedule_input.kernel.arg.name, schedule_input.schedule)
    return "search" if outcome is not None else "user" if schedule_input.schedule else "model"


def explain(schedule_input: Any, scheduled: Any) -> str:
    """Describe a schedule and its origin: the user, a search, or the heuristic for its kind of
    kernel."""
    name = schedule_input.kernel.arg.name
    outcome = outcome_of(name, schedule_input.schedule)
    why = str(outcome) if outcome is not None else \
        "as the user wrote it" if schedule_input.schedule else \
        "the model's choice: " + _KIND_REASONS.get(name.partition("_")[0], "loops as they are")
    steps = list(scheduled.schedule)
    kinds = {type(step).__name__ for step in steps}
    if "Parallel" not in kinds and not schedule_input.schedule:
        why += "; one thread: there is little work, or an order to keep"
    lines = [f"{name}: {why}"]
    for _, group in itertools.groupby(steps, key=lambda step: type(step).__name__):
        lines.append("  " + ", ".join(map(repr, group)))
    return "\n".join(lines)
