"""``debug.step``: trace a function with its lines, then go through them with values.

A ``StepSession`` is what the user holds: it stops after each line, knows the variables, and runs on
to breakpoints. How a stop prints is in ``step_views``, the prompt in ``step_prompt``.
"""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, NoReturn

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import to_concrete
from fnx.core.array.array import Array
from fnx.core.ir.dtypes import NDArray
from fnx.core.levels import interp
from fnx.core.levels.bad_elements import decode_values, is_bad
from fnx.core.levels.line_steps import Caller, LineSteps
from fnx.core.levels.visit import Visit
from fnx.core.scope import scope
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError
from fnx.core.support.name_hints import suggestion
from fnx.core.tracing.line_recorder import LineRecorder
from fnx.core.tracing.trace import ClosedFunction, function_name, trace
from fnx.transforms.dispatch.signature import ArgFlattener
from fnx.transforms.inspect import step_views
from fnx.transforms.inspect.step_breakpoints import Breakpoint, Condition, names_in
from fnx.transforms.inspect.step_values import ForwardValues, FrameValues, TracedArrays
from fnx.transforms.inspect.step_views import Step

KINDS = "derivative of ", "tangent of "


class Variables(dict[str, Any]):
    """Variables by name; for another name, the error says which there are."""

    def __missing__(self, name: str) -> NoReturn:
        cure = suggestion(name, self) or f"there are {', '.join(self) or 'none'}"
        raise KeyError(f"no variable {name!r} has a value at this line: {cure}")

    def __repr__(self) -> str:
        return f"{{{', '.join([f'{n}: {step_views.summarize(x)}' for n, x in self.items()])}}}"


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
        self._traced = TracedArrays(recorder.holders, recorder.visits_of, dict(zip(
            recorder.closings[closed.function][-1].sources, args)))
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
        for b in self.breakpoints:
            b.n_reached += b.is_at_step(step)
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
        self.breakpoints += extra
        for b in self.breakpoints:
            b.error = ""
        try:
            step = self._run_to(lambda step: any(
                b.stops(step, self.evaluate) for b in self.breakpoints))
            if step is not None:
                step.notes += tuple([f"condition {b.condition_text!r}: {b.error}"
                                     for b in self.breakpoints if b.error])
        finally:
            for b in self.breakpoints[:]:
                if b in extra and not self.done or b.once and b.n_stops:
                    self.breakpoints.remove(b)
        return step

    def break_at(self, location: int | str = "", condition: Condition = None, *,
                 once: bool = False) -> Breakpoint:
        """Add a breakpoint, for ``run``; arguments as there. ``once``: only for its first stop.

        Raises:
            ArgumentError: no line of the function is there, or the condition is no expression.
        """
        self.breakpoints.append(self._breakpoint(location, condition, once))
        return self.breakpoints[-1]

    def _breakpoint(self, location: int | str, condition: Condition, once: bool = False
                    ) -> Breakpoint:
        added = Breakpoint(location, condition, once=once)
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
        breakpoints: an infinite derivative, of sqrt at 0 for example, becomes a NaN elsewhere.

        A NaN inside of a line counts, even if no variable has it: the step says which op made it.
        """
        start = self._count
        step = self._run_to(lambda step: step.origin is not None or step.has(
            "inf" if step.kind else "nan"))
        if step is None:
            since = f" after step {start}" if start else ""
            self._notes = [f"no NaN and no infinite derivative{since}"]
        return step

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
        return Variables(self.frames[-1][1] if self.current is not None else {})

    @property
    def frames(self) -> list[tuple[str, dict[str, Any]]]:
        """The functions around the current step, its own last, each with its variables."""
        step = self.current
        if step is None:
            return []
        frames: list[tuple[str, dict[str, Any]]] = []
        for caller in step.callers:
            visit, values = caller.visit, dict(caller.arguments)
            if step.kind or not visit.is_first:  # else its lines have not run
                values |= self._values_of(caller).values
            frames.append((visit.function, Variables(values)))
        return [*frames, (step.function, Variables(self._variables[self._frame].values))]

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
        step = {} if "step" in visit.names else {"step": self.current}
        return {"np": np} | module | step | self.known_variables(n_up)

    def evaluate(self, expression: str | CodeType, n_up: int = 0) -> Any:
        """Evaluate an expression with the names that it may use; an array is a NumPy array."""
        with self.having_values(n_up) as names:
            value = eval(expression, names)
            return np.asarray(value) if type(value) is Array else value

    @contextlib.contextmanager
    def having_values(self, n_up: int = 0) -> Iterator[dict[str, Any]]:
        """Return the names that an expression may use; traced arrays that these reach have their
        values at this line meanwhile. Transformed functions run as Python, since compiled code
        would remember the values."""
        names, step = self.names(n_up), self.current
        if step is None:
            yield names
            return
        assigned = dict(self._variables[self._frame].assigned)
        for caller in step.callers:
            assigned |= self._values_of(caller).assigned | {
                (caller.visit.number, name): x for name, x in caller.arguments}
        roots = [x for name, x in names.items() if name in self._visit_of(n_up).names]
        with self._traced.having_values(roots, assigned, step), override(disable_jit=True):
            yield names

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

    def shapes(self, n_up: int = 0) -> dict[str, tuple[Any, ...]]:
        """The shapes of variables as their function sees them, without the batch of vmap."""
        visit = self._visit_of(n_up)
        lines = [v for v in self._lines_of.get(visit.frame, ())
                 if visit.kind or v.number <= visit.number]
        return {name: shape for line in lines for name, shape in line.shapes.items()}

    def arguments(self, n_up: int = 0) -> list[str]:
        """The names of the arguments of the current function, or of one of its callers."""
        lines = self._lines_of.get(self._visit_of(n_up).frame, ())
        return [*lines[0].held_before] if lines else []

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
        notes = [*self._notes, *filter(None, [b.why_never() for b in self.breakpoints])]
        if not self._notes and any(is_bad(x, "nan").any() for x in self._outs):
            notes.append("a result has a NaN: call debug.step again, and nan or .first_nan() stops "
                         "at the line that makes it")
        return "\n".join([f"{self.name}: returned after {self._count} steps",
                          *[f"   {note}" for note in notes]] + [
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
