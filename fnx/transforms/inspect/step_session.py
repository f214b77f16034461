"""``debug.step``: trace a function with its lines, then go through them with values.

A ``StepSession`` is what the user holds: it stops after each line, knows the variables, and runs on
to breakpoints. How a stop prints is in ``step_views``, the prompt in ``step_prompt``.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import to_concrete
from fnx.core.ir.dtypes import NDArray
from fnx.core.levels import interp
from fnx.core.levels.line_steps import Caller, LineSteps, Visit
from fnx.core.levels.nan_debugger import decode_values
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError
from fnx.core.tracing.line_recorder import LineRecorder
from fnx.core.tracing.trace import ClosedFunction, function_name, trace
from fnx.transforms.dispatch.signature import ArgFlattener
from fnx.transforms.inspect import step_views
from fnx.transforms.inspect.step_views import Step

Condition = str | Callable[[Step], Any] | None
Numbers = tuple[int | None, ...]  # of the iterations around a line

KINDS = "derivative of ", "tangent of "
MAX_KEPT = 256 << 20  # bytes of values that stay for derivatives


class Breakpoint:
    """Where to stop, and when.

    Attributes:
        location: "" for any line, a line number, "file.py:12" or the name of a function.
        condition: "nan", "inf", a Python expression over variables, or a function of the step.
        error: what the expression raised at the last stop, as text; "" if nothing.
        unknown: the name without a value, as text, if no line had one so far.
    """

    def __init__(self, location: int | str = "", condition: Condition = None) -> None:
        self.location, self.condition, self.error = str(location), condition, ""
        self.unknown, self._was_evaluated = "", False
        self.code: CodeType | None = None
        if isinstance(condition, str) and condition not in ("nan", "inf"):
            try:
                self.code = compile(condition, "<condition>", "eval")
            except (SyntaxError, ValueError) as error:
                raise ArgumentError(
                    f"expected an expression after 'if', got {condition!r}: {error}",
                    hint="write an expression over variables, such as h.max() > 10") from None

    def __repr__(self) -> str:
        when = "" if self.condition is None else f" if {self.condition}"
        return f"{self.location or 'any line'}{when}"

    def is_at(self, file: str, line: int, function: str) -> bool:
        """Whether a line of a function is where to stop."""
        name, _, number = self.location.rpartition(":")
        return not self.location or self.location == function or \
            number == str(line) and file.endswith(name)

    def holds(self, step: Step, names: Callable[[], dict[str, Any]]) -> bool:
        """Whether to stop at a step, by the names that an expression may use there.

        As in Python's debugger, an expression that raises stops, and ``error`` says what it raised.
        It does not stop where a variable of the expression has no value yet.
        """
        if not self.is_at(step.file, step.line, step.function):
            return False
        if self.condition is None:
            return True
        if isinstance(self.condition, str) and self.code is None:
            return step.has(self.condition)
        if self.code is None:
            assert callable(self.condition)
            return bool(np.any(self.condition(step)))
        try:
            holds = bool(np.any(eval(self.code, names() | {"step": step})))
        except Exception as error:  # of the user's expression
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, NameError):
                self.unknown = "" if self._was_evaluated else text
                return False
            self.error = text
            return True
        self.unknown, self._was_evaluated = "", True
        return holds


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


class FrameValues:
    """The values of a function's variables in one of its calls and one iteration of the loops.

    Attributes:
        iteration: counts the iterations of all loops; 0 outside of loops.
        values: variable -> value.
        visits: the lines that have run, by number.
        n_bytes: of the values.
        missing: why values of lines before their derivative are not there; "" if they are.
    """

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self.values: dict[str, Any] = {}
        self.visits: set[int] = set()
        self.n_bytes = 0
        self.missing = ""

    def add(self, step: Step) -> int:
        """Add the values of a line; return how many bytes they have."""
        n_bytes = sum([x.nbytes for x in step.values.values()])
        self.visits.add(step.visit.number)
        self.values |= step.values | step.constants
        self.n_bytes += n_bytes
        return n_bytes


class ForwardValues:
    """The values of functions and iterations, for the derivatives of their lines.

    A derivative comes when its function has returned, in loops when all iterations have run. An
    iteration is known by the numbers of the user's loops around it, so the values of a function
    that runs several times in one are none's. Values beyond MAX_KEPT bytes are let go, those of the
    first iterations first: derivatives begin with the last.
    """

    def __init__(self, visits: Iterable[Visit], runs_of: Mapping[int, int]) -> None:
        kinds = [visit for visit in visits if visit.kind and runs_of.get(visit.number)]
        self._frames = {visit.frame for visit in kinds}
        self._repeated = {visit.frame for visit in kinds if runs_of[visit.number] > 1}
        self._values: dict[tuple[int, Numbers], FrameValues] = {}
        self._n_bytes = 0
        self._was_full = False

    def add(self, frame: int, numbers: Numbers, values: FrameValues) -> None:
        """Add the values of a function that begins."""
        if frame not in self._frames or None in numbers:
            return
        if (frame, numbers) in self._values:
            self._repeated.add(frame)
        self._values[frame, numbers] = values

    def added(self, n_bytes: int) -> None:
        """Count bytes of values, and let the first ones go if there are too many."""
        self._n_bytes += n_bytes
        while self._n_bytes > MAX_KEPT and len(self._values) > 1:
            self._n_bytes -= self._values.pop(next(iter(self._values))).n_bytes
            self._was_full = True

    def at(self, frame: int, numbers: Numbers, iteration: int) -> FrameValues:
        """Return the values of a function at the derivative of a line, in an iteration."""
        values, before = FrameValues(iteration), self._values.get((frame, numbers))
        if frame in self._repeated:
            values.missing = "its function runs several times, this derivative is of one"
        elif None in numbers:
            values.missing = "the examples of a batch are at different iterations here"
        elif before is not None:
            values.values |= before.values
        elif self._was_full:
            values.missing = f"only the last {MAX_KEPT >> 20} MiB of values before derivatives stay"
        return values


class StepSession:
    """A function that is gone through line by line.

    It starts before the first line. ``step`` goes to the next line, ``next`` to the next one of
    the same function, ``out`` to the function's caller, ``run`` to a breakpoint or the end; each
    returns the ``Step`` that it stopped at, or None at the end. Iterating yields all remaining
    steps.

    Attributes:
        current: the step at which it stopped; None before the first and after the last.
        steps: all steps so far, without their values.
        breakpoints: where ``run`` stops.
        done: whether the function has returned.
        stop_soon: set while it goes on, it stops at the next line.
        is_broken: whether Ctrl-C ended a line in the middle, so that it cannot go on.
    """

    def __init__(self, name: str, recorder: LineRecorder, closed: ClosedFunction,
                 args: Sequence[NDArray]) -> None:
        self.name, self._closed = name, closed
        self._visits = recorder.visits
        lines = LineSteps(
            closed.function, recorder.visits_of, recorder.visits, recorder.closings)
        self._stops = lines.run(closed.function, args)
        self._count = 0
        self._variables: dict[tuple[int, int], FrameValues] = {}
        self._forward = ForwardValues(recorder.visits.values(), lines.runs_of(closed.function))
        self._outs: Sequence[NDArray] | None = None
        self._frame = 0, 0
        self.current: Step | None = None
        self._notes: list[str] = []
        self.breakpoints: list[Breakpoint] = []
        self.stop_soon = self.is_broken = False
        self._lines_of: dict[int, list[Visit]] = {}
        for visit in recorder.visits.values():
            if not visit.kind:
                self._lines_of.setdefault(visit.frame, []).append(visit)

    # ---- going on

    @property
    def done(self) -> bool:
        return self._outs is not None

    def step(self) -> Step | None:
        """Go to the next line, also into functions and loops."""
        if self.done:
            return None
        try:
            stop = next(self._stops)
        except KeyboardInterrupt:
            self.is_broken = True
            raise
        except StopIteration as end:
            self._outs, self.current = end.value, None
            return None
        self._count += 1
        step = self.current = Step(stop, self._count)
        self._frame = step.depth, stop.visit.frame
        for key in [key for key in self._variables if key[0] > step.depth]:
            del self._variables[key]
        variables = self._variables.get(self._frame)
        if variables is None or variables.iteration != stop.iteration or \
                stop.visit.number in variables.visits:  # those of another iteration hold no more
            numbers = tuple([i.number for i in step.loops])
            if step.kind:
                variables = self._forward.at(stop.visit.frame, numbers, stop.iteration)
            else:
                variables = FrameValues(stop.iteration)
                self._forward.add(stop.visit.frame, numbers, variables)
            self._variables[self._frame] = variables
        n_bytes = variables.add(step)
        if not step.kind:
            self._forward.added(n_bytes)
        return step

    def next(self) -> Step | None:
        """Go to the next line of this function or of its caller, over calls and loops."""
        depth = self.current.depth if self.current else 0
        return self._run_to(lambda step: step.depth <= depth)

    def out(self) -> Step | None:
        """Go to the line of the caller at which this function returns."""
        depth = self.current.depth if self.current else 0
        return self._run_to(lambda step: step.depth < depth)

    def run(self, location: int | str | None = None, condition: Condition = None) -> Step | None:
        """Go on to a breakpoint, to a location if one is given, or to the end.

        Args:
            location: a line number, "file.py:12" or the name of a function.
            condition: "nan", "inf", an expression such as ``"h.max() > 10"``, or a function of
                the step.
        """
        extra = [] if location is None and condition is None else [
            self._breakpoint(location or "", condition)]
        active = [*extra, *self.breakpoints]
        for b in active:
            b.error = ""
        step = self._run_to(lambda step: any(b.holds(step, self.names) for b in active))
        errors = [(b.condition, b.error if step else b.unknown) for b in active]
        notes = [f"condition {condition!r}: {error}" for condition, error in errors if error]
        if step is not None:
            step.notes = tuple(notes)
        self._notes = notes
        return step

    def break_at(self, location: int | str = "", condition: Condition = None) -> Breakpoint:
        """Add a breakpoint, for ``run``; arguments as there.

        Raises:
            ArgumentError: no line of the function is there, or the condition is no expression.
        """
        self.breakpoints.append(self._breakpoint(location, condition))
        return self.breakpoints[-1]

    def _breakpoint(self, location: int | str, condition: Condition) -> Breakpoint:
        added = Breakpoint(location, condition)
        if not any(added.is_at(*v.loc, v.function) for v in self._visits.values()):
            functions = dict.fromkeys([v.function for v in self._visits.values()])
            raise ArgumentError(
                f"{self.name}: expected a line that it executes, as 12 or 'file.py:12', or one of "
                f"its functions, {', '.join(functions)}; got {added.location}",
                hint="a line without a statement is not executed, nor is one of a branch that "
                "tracing did not take")
        if added.code is not None:
            visits = [v for v in self._visits.values() if added.is_at(*v.loc, v.function)]
            known = {"np", "step", *dir(builtins)}.union(
                *[(*v.names, *v.held, *v.held_before) for v in visits],
                *{id(v.module): v.module for v in visits}.values())
            if unknown := [name for name in names_in(str(condition)) if name not in known]:
                raise ArgumentError(
                    f"{self.name}: expected a condition over variables of {location or 'a line'}, "
                    f"got {condition!r}: no line there knows the name {unknown[0]}",
                    hint="besides variables and names of the module there are np and step, such as "
                    "step.loops[-1].number, the number of the iteration")
        return added

    def clear(self, location: int | str | None = None) -> list[Breakpoint]:
        """Remove the breakpoints at a location, or all, and return them."""
        removed = [b for b in self.breakpoints if location is None or b.location == str(location)]
        self.breakpoints = [b for b in self.breakpoints if b not in removed]
        return removed

    def first_nan(self) -> Step | None:
        """Go to the next line whose values have a NaN, or whose derivative is infinite, over
        breakpoints: an infinite derivative, of sqrt at 0 for example, becomes a NaN elsewhere."""
        return self._run_to(lambda step: step.has("inf" if step.kind else "nan"))

    def _run_to(self, holds: Callable[[Step], bool]) -> Step | None:
        self.stop_soon = False
        while (step := self.step()) is not None:
            if holds(step) or self.stop_soon:
                return step
        return None

    def __iter__(self) -> Iterator[Step]:
        while (step := self.step()) is not None:
            yield step

    # ---- looking

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of the function at the current step: NumPy arrays, and the Python numbers
        and strings of the trace."""
        return self.frames[-1][1] if self.current is not None else {}

    @property
    def frames(self) -> list[tuple[str, dict[str, Any]]]:
        """The functions around the current step, its own last, each with its variables."""
        step = self.current
        if step is None:
            return []
        frames = []
        for caller in step.callers:
            visit, values = caller.visit, dict(caller.arguments)
            if step.kind or not visit.is_first:  # else its lines have not run
                values |= self._values_of(caller).values
            frames.append((visit.function, values))
        return [*frames, (step.function, dict(self._variables[self._frame].values))]

    def _values_of(self, caller: Caller) -> FrameValues:
        """Return the variables of a function whose call has not ended."""
        visit, step = caller.visit, self.current
        assert step is not None
        variables = self._variables.get((visit.depth, visit.frame))
        if variables is not None and variables.iteration == caller.iteration:
            return variables
        if not step.kind:
            return FrameValues(caller.iteration)
        numbers = tuple([i.number for i in step.loops[:caller.n_loops]])
        return self._forward.at(visit.frame, numbers, caller.iteration)

    def names(self, n_up: int = 0) -> dict[str, Any]:
        """The names that an expression may use in the current function, or in one of its callers:
        those of its variables, with arrays as NumPy arrays, and of its module."""
        if self.current is None:
            return {"np": np}
        visit = self._visit_of(n_up)
        module = {name: x for name, x in visit.module.items() if name not in visit.names}
        return {"np": np} | module | self.known_variables(n_up)

    def known_variables(self, n_up: int = 0) -> dict[str, Any]:
        """The variables of the current function or of one of its callers, also those that hold no
        value of the graph: objects, and containers with the arrays that have a value."""
        shown = {name: decode_values(x) for name, x in self.frames[-1 - n_up][1].items()}
        known = {name: x for name, x in [(name, step_views.with_values(name, x, shown))
                                         for name, x in self._held(n_up).items()]
                 if x is not step_views.NO_VALUE}
        return known | shown

    def why_no_value(self, name: str, n_up: int = 0) -> str:
        """Say why a variable, or a name such as "derivative of h", has no value at the current
        step; "" if it has one, or if it is a name that is no variable."""
        step, kind, variable = self.current, "", name
        if step is None:
            return f"{name} has no value: no line has run" if " " in name else ""
        while variable.startswith(KINDS):
            kind, _, variable = variable.partition(" of ")
        base = re.split(r"[\[.]", variable)[0]
        if base not in self._visit_of(n_up).names and not base.startswith(("part of ", "return")):
            return kind and f"{variable} is no variable of this function; vars lists these"
        if name in self.known_variables(n_up):
            return ""
        if kind:
            return f"{name} has no value here: it is a constant, the result does not need it, or " \
                f"the {kind} of its line has not run"
        values = self._values_of(step.callers[-n_up]) if n_up else self._variables[self._frame]
        return f"{name} has no value here: " + (
            values.missing or "the result does not need it, or its line has not run")

    def _visit_of(self, n_up: int) -> Visit:
        assert self.current is not None
        return self.current.callers[-n_up].visit if n_up else self.current.visit

    def _held(self, n_up: int) -> dict[str, Any]:
        """Return what tracing saw in the variables of a function, up to its current line; at a
        derivative, when the function returned."""
        visit, held = self._visit_of(n_up), dict[str, Any]()
        for line in self._lines_of.get(visit.frame, ()):
            if not visit.kind and line.number > visit.number:
                break
            held |= line.held_before
            if not n_up or line.number < visit.number:  # a line that calls has not ended
                held |= line.held
        return held

    @property
    def result(self) -> Any:
        """The result of the function; runs the remaining lines."""
        for _ in self:
            pass
        assert self._outs is not None
        return self._closed.out_tree.unflatten(
            [to_concrete(np.asarray(x)) for x in self._outs[:len(self._closed.outs)]])

    def __repr__(self) -> str:
        if self.current is not None:
            return repr(self.current)
        if self._outs is None:
            how = ".step() goes to the first line, .run() to a breakpoint" if self._visits else \
                "none of its lines is in a file of yours (outside of installed libraries)"
            return f"{self.name}: not started; {how}"
        paths = tree.paths(self._closed.out_tree)
        return "\n".join([f"{self.name}: returned after {self._count} steps",
                          *[f"   {note}" for note in self._notes]] + [
            f"   result{tree.keystr(path)} = {step_views.summarize(x)}"
            for path, x in zip(paths, self._outs)])

    def _repr_html_(self) -> str:
        return step_views.preformatted(repr(self)) if self.current is None else \
            self.current._repr_html_()


def start(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
          static_argnums: tuple[int, ...], static_argnames: tuple[str, ...]) -> StepSession:
    """Trace a function while its lines are recorded, and return a session before the first line."""
    name = function_name(f)
    if scope.is_open():
        raise ArgumentError(f"debug.step of {name}: expected a call outside of all transforms, got "
                            "one in a function that is traced",
                            hint="step through the outer function: debug.step goes into all that "
                            "it calls")
    arguments = ArgFlattener(f, name, static_argnums, static_argnames)
    arrays, key = arguments.key(args, kwargs, concrete=True)
    with LineRecorder() as recorder:
        closed = trace(arguments.of_dynamic(args, kwargs), key.avals, key.in_tree,
                       transform="debug.step", name=name).close()
    values = [x._numpy() for x in arrays]
    captures = interp.evaluate(closed.captures, {})
    token = [np.zeros((0,), bool)] if closed.effects else []
    return StepSession(name, recorder, closed, [*values, *captures, *token])
