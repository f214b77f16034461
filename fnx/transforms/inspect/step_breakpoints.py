"""Breakpoints of ``debug.step``: where to stop, and when."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from fnx.core.support.errors import ArgumentError
from fnx.transforms.inspect.step_views import OutsideLoopError, Step

Condition = str | Callable[[Step], Any] | None
Evaluate = Callable[[CodeType], Any]


class Breakpoint:
    """Where to stop, and when.

    >>> Breakpoint(12, "'nan'")  # at the prompt some write quotes
    12 if nan

    Attributes:
        location: "" for any line, a line number, "file.py:12" or the name of a function.
        condition: "nan", "inf", a Python expression over variables, or a function of the step.
        once: whether it is removed when it has stopped.
        error: what the condition raised at the last stop, as text; "" if nothing.
        unknown: the name or the loop that no line had so far, as text.
        n_reached: how often its line has run.
        n_stops: how often it has stopped.
    """

    def __init__(self, location: int | str = "", condition: Condition = None, *,
                 once: bool = False) -> None:
        if isinstance(condition, str) and (word := condition.strip("\"' ")) in ("nan", "inf"):
            condition = word
        self.location, self.condition, self.error = str(location), condition, ""
        self.once, self.n_reached, self.n_stops = once, 0, 0
        self.unknown, self._n_evaluated = "", 0
        self.code: CodeType | None = None
        if isinstance(condition, str) and condition not in ("nan", "inf"):
            try:
                self.code = compile(condition, "<condition>", "eval")
            except (SyntaxError, ValueError) as error:
                raise ArgumentError(
                    f"expected an expression after 'if', got {condition!r}: {error}",
                    hint="write an expression over variables, such as h.max() > 10") from None

    def __repr__(self) -> str:
        when = "" if self.condition is None else f" if {self.condition_text}"
        return f"{self.location or 'any line'}{when}"

    @property
    def condition_text(self) -> str:
        """The condition, or the name of a function."""
        return str(getattr(self.condition, "__name__", self.condition))

    def is_at(self, file: str, line: int, function: str) -> bool:
        """Whether a line of a function is where to stop."""
        name, _, number = self.location.rpartition(":")
        return not self.location or self.location == function or \
            number == str(line) and file.endswith(name)

    def is_at_step(self, step: Step) -> bool:
        """Whether a step is where to stop."""
        return self.is_at(step.file, step.line, step.function)

    def stops(self, step: Step, evaluate: Evaluate) -> bool:
        """Whether to stop at a step; ``evaluate`` knows the names that an expression may use there.

        As in Python's debugger, a condition that raises stops, and ``error`` says what it raised.
        It does not stop where a variable of an expression has no value yet, nor outside of the loop
        that it asks for.
        """
        stops = self.is_at_step(step) and self._holds(step, evaluate)
        self.n_stops += stops
        return stops

    def _holds(self, step: Step, evaluate: Evaluate) -> bool:
        if self.condition is None:
            return True
        self._n_evaluated += 1
        if isinstance(self.condition, str) and self.code is None:
            return step.has(self.condition)
        try:
            holds = bool(np.any(evaluate(self.code) if self.code is not None else
                                self.condition(step) if callable(self.condition) else None))
        except Exception as error:  # of the user's condition
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, OutsideLoopError) or \
                    isinstance(error, NameError) and self.code is not None:
                self._n_evaluated -= 1
                self.unknown = "" if self._n_evaluated else text
                return False
            self.error = text
            return True
        self.unknown = ""
        return holds

    def why_never(self) -> str:
        """Say why it never stopped, at the end; "" if it did, or if nothing asked it to."""
        if self.n_stops:
            return ""
        if not self.n_reached:
            return f"breakpoint {self}: never reached; its line ran before, or has no value in " \
                "the graph"
        if self.unknown:
            return f"condition {self.condition_text!r}: {self.unknown}"
        times = f"{self._n_evaluated} time{'s' * (self._n_evaluated != 1)}"
        return f"breakpoint {self}: its condition was checked {times} and never held" \
            if self._n_evaluated else ""


def names_in(expression: str) -> list[str]:
    """Return the names that an expression reads and does not bind itself.

    >>> names_in("h.max() > 1 and all(x > low for x in h)")
    ['all', 'h', 'low']
    """
    nodes = [*ast.walk(ast.parse(expression.strip(), mode="eval"))]
    names = [n for n in nodes if isinstance(n, ast.Name)]
    bound = {n.id for n in names if not isinstance(n.ctx, ast.Load)} | {
        n.arg for n in nodes if isinstance(n, ast.arg)}
    return list(dict.fromkeys([n.id for n in names if n.id not in bound]))
