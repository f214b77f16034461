"""Executed lines as locations of nodes, while a function is traced to be stepped through.

A node keeps the lines that it was made from. For ``debug.step`` a line alone does not tell which of
its executions made the node, nor which variable holds it. So while a recorder is active a
``LineVisit`` takes the place of the line: a location that also numbers the execution. All that
carries lines from node to node, through every transform, thus carries the executions as well.

>>> visit = LineVisit(("model.py", 12), 3)
>>> file, line = visit
>>> (file, line), visit == ("model.py", 12), visit == LineVisit(("model.py", 12), 3)
(('model.py', 12), False, True)
"""

from __future__ import annotations

import threading
from types import FrameType
from typing import Any, Protocol


class LineVisit(tuple[str, int]):
    """One execution of a line.

    Attributes:
        number: of the execution, in the order in which lines start.
        name: of the variable that holds the node after the line; "" for nodes made in the line.
        owner: the FUNCTION for which this holds, as equal nodes of several ones are one; 0 in a
            graph that is not closed.
        at_start: whether the variable is an argument, which holds the node before the line, too.
        borrowed: whether the node is of a trace around that of the line.
        function: the name of the public function that the line called for the node.
    """

    number: int
    name: str
    owner: int
    at_start: bool
    borrowed: bool
    function: str

    def __new__(cls, loc: tuple[str, int], number: int, name: str = "", owner: int = 0,
                at_start: bool = False, borrowed: bool = False, function: str = "") -> LineVisit:
        visit = super().__new__(cls, loc)
        visit.number, visit.name, visit.owner, visit.at_start = number, name, owner, at_start
        visit.borrowed, visit.function = borrowed, function
        return visit

    def moved_to(self, owner: int, borrowed: bool = False) -> LineVisit:
        """Return what holds for a node in another FUNCTION."""
        return LineVisit(self, self.number, self.name, owner, self.at_start,
                         self.borrowed or borrowed, self.function)

    def calling(self, function: str) -> LineVisit:
        """Return this execution as the location of what a public function makes in it."""
        return LineVisit(self, self.number, function=function)

    def __eq__(self, other: object) -> bool:
        return type(other) is LineVisit and self._key() == other._key()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, str, int, bool]:
        return self.number, self.name, self.owner, self.at_start

    def __reduce__(self) -> Any:
        """Pickle as a plain line."""
        return tuple, (tuple(self),)


class Recorder(Protocol):
    """What records the executed lines of one thread."""

    def location(self, frame: FrameType | None) -> tuple[str, int] | None:
        """Return the location of nodes made by a frame, if the user's line is recorded."""

    def derived_location(self, locs: tuple[tuple[str, int], ...], walk: Any
                         ) -> tuple[str, int] | None:
        """Return the location of nodes that a walk over derivatives makes from a node."""

    def name_derivative(self, node: Any, of: Any, walk: Any) -> None:
        """Name the derivative of a node that a walk computed."""

    def source_location(self, readers: Any, walk: Any) -> tuple[str, int] | None:
        """Return the location of the sum that is the derivative of an input, by its readers."""

    def name_source_derivative(self, node: Any, source: Any, at: Any, walk: Any) -> None:
        """Name the derivative of an input at the line that completed it."""

    def copy_names(self, new: Any, old: Any) -> None:
        """Name a node by the variables that hold the one it replaces."""

    def closing(self, sources: Any) -> Any:
        """Return the visit that rebuilds nodes over the parameters of a FUNCTION, which stand for
        the sources."""

    def closing_again(self, function: Any, slots: Any) -> Any:
        """Return the visit that rebuilds nodes of a FUNCTION, whose parameters move to slots."""

    def with_operands(self, node: Any, src: Any) -> Any:
        """Return a node with other operands; it keeps its visits, also if there is such a node."""

    def close(self, function: Any) -> None:
        """Note the FUNCTION that was closed."""

    def inlining(self, function: Any, known: Any) -> Any:
        """Return the visit that rebuilds nodes of a FUNCTION over ``known`` for its PARAMs."""

    def enter_body(self) -> Any:
        """Note that a FUNCTION is built of others; return what ``leave_body`` takes."""

    def leave_body(self, outer: Any, function: Any) -> None:
        """Note the FUNCTION that was built."""

    def derived(self, function: Any, of: Any, slots: Any, rule: str) -> None:
        """Note a FUNCTION of the parameters of another, perhaps in other slots, and of its nodes;
        whether it is a derivative rule of the user's: "jvp" or "bwd"."""

    def enter_derivation(self, request: Any) -> None:
        """Note the FUNCTION and the key that nodes are derived for, or None."""

    def end_derivation(self, request: Any, answer: Any) -> None:
        """Note what was derived."""

    def forms_of(self, function: Any) -> Any:
        """Return the cache of what is derived from a FUNCTION in this recording."""


class _Recording(threading.local):
    recorder: Recorder | None = None


recording = _Recording()
