"""One execution of a line of the user's, as it was recorded while tracing.

Which nodes it made is in core/support/line_visits.py, what they are in core/levels/line_steps.py.
"""

from __future__ import annotations

from typing import Any

from fnx.core.ir.uop import UOp


class Visit:
    """One execution of a statement.

    Attributes:
        loc: file and line.
        number: in the order in which statements start.
        end: in the order in which they end: a call ends after the lines of its function.
        function: the name of the function.
        frame: the number of the function's call.
        depth: the number of the user's frames around it.
        trace: the number of the trace in which it ran.
        caller: the visit of the line that called the function, in the trace that was recorded.
        of: the visit whose derivative it is, of any order.
        kind: "derivative" or "tangent" of a line, or "".
        is_first: whether it is the first of its function's call.
        constants: Python numbers and strings that it assigned.
        sources: variables that hold an input of a trace: (name, LEAF, whether an argument).
        shapes: of the arrays that variables hold since, as the function sees them.
        held: variables that hold something else since this line, or since before it: objects and
            arrays of the trace; ``held_before`` are those of the latter.
        names: of all variables of its function.
        module: the names of its module.
    """

    def __init__(self, loc: tuple[str, int], number: int, function: str, frame: int, depth: int,
                 trace: int, caller: Visit | None, *, is_first: bool = False) -> None:
        self.loc, self.number, self.end = loc, number, number
        self.function, self.frame, self.depth, self.trace = function, frame, depth, trace
        self.caller, self.is_first = caller, is_first
        self.of: Visit | None = None
        self.kind = ""
        self.constants: dict[str, Any] = {}
        self.sources: list[tuple[str, UOp, bool]] = []
        self.shapes: dict[str, tuple[Any, ...]] = {}
        self.held: dict[str, Any] = {}
        self.held_before: dict[str, Any] = {}
        self.names: tuple[str, ...] = ()
        self.module: dict[str, Any] = {}

    def derivative(self, number: int, kind: str) -> Visit:
        """Return the execution of this line's derivative."""
        visit = Visit(self.loc, number, self.function, self.frame, self.depth, self.trace,
                      self.caller)
        visit.of, visit.kind = self.of or self, f"{kind} of {self.kind}" if self.kind else kind
        visit.names, visit.module = self.names, self.module
        return visit

    def shape_of(self, name: str) -> tuple[Any, ...] | None:
        """Return the shape of a variable or of its derivative, which is without the batch of vmap;
        None if the line does not know it."""
        return (self.of or self).shapes.get(name.rpartition(" of ")[2])

    def callers(self) -> list[Visit]:
        """Return the lines that called the function, the innermost first."""
        lines, at = [], self.caller
        while at is not None:
            lines.append(at)
            at = at.caller
        return lines
