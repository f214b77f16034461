"""Tuning knobs: the choices that make a schedule, each with its alternatives.

    knobs = TuningKnobs(KnobValues(unroll=2))
    knobs.value("unroll", 4, lambda: (1, 2, 8))    ->   2, as given; the heuristic value is 4

A scheduler asks for each knob with its heuristic value, the one predicted to be the fastest, and
with the legal alternatives, the most promising first. So the heuristic schedule and what a search
tries (lower/candidates.py) come from one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fnx.core.support.record import Record

T = TypeVar("T")


class KnobValues(Record):
    """Knob values that override the heuristics; None means the heuristic value.

    Attributes:
        form: of a contraction: "tile", "dots" or "windows" (contraction_tiling.py).
        unit: whether to use a matrix unit.
        tile: rows and vectors of a register tile; of a thread or a warp, rows and columns.
        dots: rows and columns of a tile of dot products.
        block: row tiles that are packed together.
        along_rows: whether tiles follow each other along rows of the result.
        left, right: where a factor is packed; "": it is read in place.
        lanes: which of the ways to lay out lanes, counted from the cheapest.
        block_side: side of a transposed block; 0: none.
        unroll_and_jam: whether to unroll and jam rows that share loads.
        unroll: vectors per iteration.
        rows: rows that are reduced together.
        terms: terms of a sum per accumulator.
        chunk: factor on the iterations that a worker takes at once.
        parallel: whether workers share the work.
        group: threads of a workgroup, along the range that they share.
        vector: most adjacent elements that a thread takes.
        double_buffer: whether blocks in shared memory are double-buffered.
    """

    form: str | None = None
    unit: bool | None = None
    tile: tuple[int, int] | None = None
    dots: tuple[int, int] | None = None
    block: int | None = None
    along_rows: bool | None = None
    left: str | None = None
    right: str | None = None
    lanes: int | None = None
    block_side: int | None = None
    unroll_and_jam: bool | None = None
    unroll: int | None = None
    rows: int | None = None
    terms: int | None = None
    chunk: float | None = None
    parallel: bool | None = None
    group: int | None = None
    vector: int | None = None
    double_buffer: bool | None = None


HEURISTIC = KnobValues()


class TuningKnobs:
    """The knobs of one schedule.

    Attributes:
        values: the values that override the heuristics.

    >>> decisions = TuningKnobs(HEURISTIC)
    >>> (decisions.value("unroll", 4, lambda: (4, 2, 1)),
    ...  [plan.unroll for plan in decisions.alternatives()])
    (4, [2, 1])
    """

    def __init__(self, values: KnobValues) -> None:
        self.values = values
        self._options: dict[str, tuple[Any, Callable[[], Iterable[Any]]]] = {}

    def value(self, name: str, default: T, alternatives: Callable[[], Iterable[T]]) -> T:
        """Return the plan's value, or else the heuristic one. ``alternatives`` is called by a
        search."""
        override = getattr(self.values, name)
        value: T = default if override is None else override
        self._options.setdefault(name, (value, lambda: (default, *alternatives())))
        return value

    def alternatives(self) -> Iterable[KnobValues]:
        """Yield plans that differ from this one in one knob that was asked for."""
        for name, (value, options) in self._options.items():
            for option in dict.fromkeys(options()):
                if option != value:
                    yield self.values.replace(**{name: option})
