"""Plan: the decisions that a schedule is made of, each with what it could have been.

    decisions = Decisions(Plan(unroll=2))
    decisions.of("unroll", 4, lambda: (1, 2, 8))   ->   2, as the plan says; the model had said 4

Whoever makes a schedule asks for each decision with the model's choice, the one that is predicted
to be the fastest, and with others that are legal, the most promising first. So the model's schedule
and what a search tries (candidates.py) come from one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fnx.core.record import Record

T = TypeVar("T")


class Plan(Record):
    """What is decided otherwise than by the model; None: as the model does.

    Attributes:
        form: of a contraction: "tile", "dots" or "windows" (contraction_tiling.py).
        unit: whether a matrix unit multiplies.
        tile: rows and vectors of a register tile; of a thread or a warp, rows and columns.
        dots: rows and columns of a tile of dot products.
        block: row tiles that are packed together.
        left, right: where a factor is packed; "": it is read where it lies.
        lanes: which of the ways to lay out lanes, counted from the cheapest.
        side: of a block of a transposition; 0: none.
        beside: whether rows that read the same are computed at once.
        unroll: vectors of an iteration.
        rows: that are folded beside one another.
        terms: of a sum, that one accumulator adds.
        chunk: times the iterations that a worker takes at once.
        shared: whether workers share the work.
        group: threads of a group, along what they share.
        vector: neighbours that a thread takes, at most.
        double: whether blocks that groups share have two buffers.
    """

    form: str | None = None
    unit: bool | None = None
    tile: tuple[int, int] | None = None
    dots: tuple[int, int] | None = None
    block: int | None = None
    left: str | None = None
    right: str | None = None
    lanes: int | None = None
    side: int | None = None
    beside: bool | None = None
    unroll: int | None = None
    rows: int | None = None
    terms: int | None = None
    chunk: float | None = None
    shared: bool | None = None
    group: int | None = None
    vector: int | None = None
    double: bool | None = None


MODEL = Plan()


class Decisions:
    """The decisions of one schedule.

    Attributes:
        plan: what is decided otherwise than by the model.

    >>> decisions = Decisions(MODEL)
    >>> decisions.of("unroll", 4, lambda: (4, 2, 1)), [plan.unroll for plan in decisions.others()]
    (4, [2, 1])
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._options: dict[str, tuple[Any, Callable[[], Iterable[Any]]]] = {}

    def of(self, name: str, model: T, others: Callable[[], Iterable[T]]) -> T:
        """What the plan says; else the model's choice. ``others`` are asked for by a search."""
        said = getattr(self.plan, name)
        found: T = model if said is None else said
        self._options.setdefault(name, (found, lambda: (model, *others())))
        return found

    def others(self) -> Iterable[Plan]:
        """Plans that differ from this one in one decision that was asked for."""
        for name, (found, options) in self._options.items():
            for option in dict.fromkeys(options()):
                if option != found:
                    yield self.plan.replace(**{name: option})
