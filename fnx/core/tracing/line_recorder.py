"""Record which lines of the user's a trace executes, and which nodes their variables hold.

    h = x @ w          visit 1:  the nodes of the product; the last is "h"
    y = jnp.tanh(h)    visit 2:  TANH, "y"

The recorder is a tracer of Python (``sys.settrace``) while a function is traced by fnx. It opens a
``LineVisit`` for each statement that a frame of the user's executes, which becomes the location of
the nodes made there; when the statement ends, it names the nodes that changed variables hold.
Files of installed libraries are not the user's: what they make belongs to the line that calls them.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import linecache
import operator
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.ir import build, ops
from fnx.core.ir.cache import Cache
from fnx.core.ir.derivations import new_forms
from fnx.core.ir.uop import CallLocation, DerivativeLocation, UOp, interned_nodes
from fnx.core.levels.line_plans import Closing, derivation
from fnx.core.levels.visit import Visit
from fnx.core.scope import scope
from fnx.core.support.errors import Location, is_command, is_internal
from fnx.core.support.line_visits import LineVisit, recording
from fnx.core.support.record import Record

MAX_LEAVES = 64  # of a variable that are shown
MAX_REPR = 40
_INTERACTIVE = "<stdin>", "<python-input", "<ipython", "<doctest"
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep
                    for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _functions_in(answer: Any) -> list[UOp]:
    """Return the FUNCTIONs in a result of a derivation."""
    if isinstance(answer, UOp):
        return [answer] if answer.op is ops.FUNCTION else []
    if isinstance(answer, tuple | list | Record):
        return [fn for part in answer for fn in _functions_in(part)]
    return []


class LineRecorder:
    """A context manager that records the lines that its thread executes.

    Attributes:
        visits: all executions of lines, by number.
        closings: FUNCTION -> each time that a trace was closed to it or that it was derived.
        visits_of: node -> the executions that made it or named it, once the recording has ended.
        holders: node of a trace -> the executions after which variables held it, with their names.
    """

    def __init__(self) -> None:
        self.visits: dict[int, Visit] = {}
        self.closings: dict[UOp, list[Closing]] = {}
        self.visits_of: dict[UOp, tuple[LineVisit, ...]] = {}
        self.holders: dict[UOp, list[tuple[Visit, str]]] = {}
        self._statements: dict[str, dict[int, int]] = {}
        self._open_closing = Closing(0)
        self._derived_from: UOp | None = None
        self._owner = 0
        self._body: _Body | None = None
        self._owners: dict[tuple[UOp, Any], int] = {}
        self._counter = itertools.count(1)
        self._frames: dict[FrameType, _Frame] = {}
        self._forms: dict[UOp, Cache[Any, Any]] = {}
        self._derived: dict[tuple[int, int], int] = {}
        self._walks: list[Any] = []

    def __enter__(self) -> LineRecorder:
        self._outer = sys.gettrace()
        recording.recorder = self
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._outer)
        recording.recorder = None
        self._sort_derivatives()
        self.visits_of = _take_visits(self.visits)
        self._frames.clear()
        self._forms.clear()
        self._walks.clear()
        self._owners.clear()

    # ---- Python's events

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_name in _COMPREHENSIONS or not (
                is_users(code.co_filename) or is_command(frame)):
            return None
        outer = self._recorded_frame(frame)
        self._frames[frame] = _Frame(next(self._counter), outer)
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> Any:
        state = self._frames.get(frame)
        if state is None:
            return None
        if event == "line":
            line, before = self._statement_line(frame), state.line
            state.line = frame.f_lineno
            # from a later line of a statement Python returns to its first one to end it
            if state.visit is None or state.visit.loc[1] != line or before == line == state.line:
                self._end_line(frame, state)
                self._start_line(frame, state, line)
        elif event == "return":
            self._end_line(frame, state)
            if arg is not None and state.visit is not None:
                self._name_leaves(state.visit, "return", arg)
            if frame.f_code.co_flags & _GENERATOR == 0:
                del self._frames[frame]
        return self._on_event

    def _statement_line(self, frame: FrameType) -> int:
        file = frame.f_code.co_filename
        if file not in self._statements:
            self._statements[file] = statement_lines(file)
        return self._statements[file].get(frame.f_lineno, frame.f_lineno)

    def _start_line(self, frame: FrameType, state: _Frame, line: int) -> None:
        scopes = scope.open_scopes()
        visit = Visit((frame.f_code.co_filename, line), next(self._counter), frame.f_code.co_name,
                      state.number, state.depth, scopes[-1].start_number if scopes else 0,
                      state.caller, is_first=state.visit is None)
        code = frame.f_code
        visit.names = code.co_varnames + code.co_cellvars + code.co_freevars
        visit.module = frame.f_globals
        self.visits[visit.number] = visit
        if state.visit is None:  # the arguments
            self._name_changes(frame, state, visit, at_start=True)
        elif not state.visit.shapes:  # the head of a loop: i = 2
            visit.constants.update(state.visit.constants)
        state.visit, state.loc = visit, LineVisit(visit.loc, visit.number)

    def _end_line(self, frame: FrameType, state: _Frame) -> None:
        if state.visit is not None:
            state.visit.end = next(self._counter)
            self._name_changes(frame, state, state.visit)

    # ---- variables

    def _name_changes(self, frame: FrameType, state: _Frame, visit: Visit, *,
                      at_start: bool = False) -> None:
        for name, value in frame.f_locals.items():
            if type(value) in (list, dict) and len(value) <= MAX_LEAVES:
                value = copy.copy(value)  # as it is now
            if name not in state.variables or not _is_same(state.variables[name], value):
                state.variables[name] = value
                if not name.startswith("."):
                    (visit.held_before if at_start else visit.held)[name] = value
                    self._name_leaves(visit, name, value, at_start)

    def _name_leaves(self, visit: Visit, name: str, value: Any, at_start: bool = False) -> None:
        if type(value) is Array:
            self._name_array(visit, name, value, at_start)
        elif isinstance(value, bool | int | float | complex | str):
            if len(repr(value)) <= MAX_REPR:
                visit.constants[name] = value
        elif isinstance(value, list | tuple | dict) or hasattr(value, "__dataclass_fields__"):
            leaves, structure = tree.flatten(value)
            if len(leaves) <= MAX_LEAVES and any(type(x) is Array for x in leaves):
                for path, x in zip(tree.paths(structure), leaves):
                    if type(x) is Array:
                        self._name_array(visit, name + tree.keystr(path), x, at_start)

    def _name_array(self, visit: Visit, name: str, x: Array, at_start: bool) -> None:
        if x._uop is None:
            return
        *_, node = nodes = _in_open_traces(x._uop)
        visit.shapes[name] = x.shape
        for held in nodes:
            self.holders.setdefault(held, []).append((visit, name))
        if node.src:
            node.locs += (LineVisit(visit.loc, visit.number, name, at_start=at_start),)
        if node.op is ops.LEAF or node.number < visit.trace:  # a capture of the trace
            visit.sources.append((name, node, at_start))

    # ---- what transforms ask (line_visits.Recorder)

    def _recorded_frame(self, frame: FrameType | None) -> _Frame | None:
        while frame is not None:
            state = self._frames.get(frame)
            if state is not None:
                return state
            frame = frame.f_back
        return None

    def location(self, frame: FrameType | None) -> Location | None:
        state = self._recorded_frame(frame)
        return None if state is None else state.loc

    def derived_location(self, locs: tuple[Location, ...], walk: Any) -> Location | None:
        visit = next(iter(self._visits_in(locs, self._derived_from)), None)
        if visit is None:
            return None
        number = visit.number if walk is None else self._derivative(self.visits[visit.number], walk)
        return LineVisit(visit, number, owner=self._owner, function=visit.function)

    def _derivative(self, of: Visit, walk: Any) -> int:
        """Return the number of the execution of a line's derivative by a walk."""
        if walk not in self._walks:
            self._walks.append(walk)
        key = of.number, self._walks.index(walk)
        if key not in self._derived:
            visit = of.derivative(next(self._counter), walk.kind)
            self.visits[visit.number], self._derived[key] = visit, visit.number
        return self._derived[key]

    def _sort_derivatives(self) -> None:
        """Let the derivatives of each walk end in the order of the lines, or in reverse.

        A walk comes to the nodes of a line one by one, between those of other lines.
        """
        for k, walk in enumerate(self._walks):
            pairs = [(self.visits[of], self.visits[n])
                     for (of, at), n in self._derived.items() if at == k]
            ends = sorted([visit.end for _, visit in pairs])
            pairs.sort(key=lambda pair: pair[0].end, reverse=walk.kind == "derivative")
            for end, (_, visit) in zip(ends, pairs):
                visit.end = end

    def name_derivative(self, node: UOp, of: UOp, walk: Any) -> None:
        at = self.derived_location(of.locs, walk)
        if type(at) is LineVisit and node.src:
            here = self.visits[at.number]
            names = [v.name for v in self._visits_in(of.locs, self._derived_from) if v.name and (
                (by := self.visits[v.number]).frame == here.frame or by.depth < here.depth)]
            node.locs += tuple([LineVisit(at, at.number, f"{walk.kind} of {name}", at.owner)
                                for name in names if not name.startswith("return")])

    def source_location(self, readers: Sequence[UOp], walk: Any) -> Location | None:
        """The derivative of an input is complete when that of the first line that reads it is."""
        visits = [visit for node in readers
                  for visit in self._visits_in(node.locs, self._derived_from)[:1]]
        first = min(visits, key=lambda v: self.visits[v.number].end, default=None)
        return None if first is None else self.derived_location((first,), walk)

    def name_source_derivative(self, node: UOp, source: UOp, at: Location | None, walk: Any
                               ) -> None:
        if type(at) is LineVisit and node.src and (name := self._name_at(source, at)):
            node.locs += (LineVisit(at, at.number, f"{walk.kind} of {name}", self._owner),)

    def _name_at(self, source: UOp, at: LineVisit) -> str:
        """Return the variable that holds an input of a trace, or of the FUNCTION that is derived
        from, at a line: the latest of its function, or else the first that held it."""
        closings = self.closings.get(self._derived_from) if self._derived_from is not None else None
        if source.op is ops.PARAM and closings and source.arg.slot < len(closings[-1].sources):
            source = closings[-1].sources[source.arg.slot]
        visit = self.visits[at.number]
        held = self.holders.get(source, ())
        here = [name for by, name in held if by.frame == visit.frame
                and by.number <= (visit.of or visit).number]
        return next(iter([*here[::-1], *[name for _, name in held]]), "")

    def copy_names(self, new: UOp, old: UOp) -> None:
        new.locs += tuple([v.moved_to(self._owner)
                           for v in self._visits_in(old.locs, self._derived_from) if v.name])

    # ---- FUNCTIONs: equal nodes of several ones are one, so visits say whose they are

    def _visits_in(self, locs: Sequence[Location], function: UOp | None) -> list[LineVisit]:
        """Return the visits among locations that hold in a FUNCTION, or in an open graph."""
        visits = [loc for loc in locs if type(loc) is LineVisit]
        owners = [0] if function is None else []
        for _, closings in derivation(function, self.closings):
            owners += [closing.owner for closing in reversed(closings)]
        for owner in owners:
            held = [v for v in visits if v.owner == owner]
            if held:
                return held
        return visits

    def closing(self, sources: Sequence[UOp]) -> Any:
        self._open_closing = Closing(next(self._counter), sources)
        return functools.partial(self._move, None, self._open_closing.owner)

    def closing_again(self, function: UOp, slots: Sequence[int]) -> Any:
        closings = self.closings.get(function)
        moved = dict(zip(slots, closings[-1].sources)) if closings else {}
        sources = [moved.get(i, function) for i in range(max(moved, default=-1) + 1)]
        self._open_closing = Closing(next(self._counter), sources)
        return functools.partial(self._move, function, self._open_closing.owner)

    def close(self, function: UOp) -> None:
        self.closings.setdefault(function, []).append(self._open_closing)

    def inlining(self, function: UOp, known: Mapping[UOp, UOp]) -> Any:
        closings = self.closings.get(function)
        if closings and self._body is not None:
            closing = closings[-1]
            self._body.is_backward |= closing.is_backward
            for slot, param in build.params(function).items():
                node = known.get(param)
                if slot < len(closing.sources) and node is not None and node.op is ops.PARAM:
                    self._body.sources.setdefault(node.arg.slot, closing.sources[slot])
        if closings and self._body is None:
            for slot, param in build.params(function).items():
                if slot < len(closings[-1].sources) and param in known:
                    self._name_operand(known[param], closings[-1].sources[slot])
        return functools.partial(self._move, function, self._owner)

    def _name_operand(self, node: UOp, source: UOp) -> None:
        """Name what is in the place of an input of a trace that is inlined by its variables."""
        for visit, name in tuple(self.holders.get(source, ())) if node is not source else ():
            if node.src:
                node.locs += (LineVisit(visit.loc, visit.number, name, self._owner, at_start=True),)
            elif node.op is ops.LEAF:
                visit.sources.append((name, node, True))
                self.holders.setdefault(node, []).append((visit, name))

    def enter_body(self) -> Any:
        outer = self._body, self._owner
        self._body = _Body()
        self._owner = next(self._counter)
        return outer

    def leave_body(self, outer: Any, function: UOp) -> None:
        body, owner = self._body, self._owner
        self._body, self._owner = outer
        assert body is not None
        if self._body is not None:
            self._body.is_backward |= body.is_backward
        sources = [body.sources.get(i, function) for i in range(max(body.sources, default=-1) + 1)]
        self.closings.setdefault(function, []).append(
            Closing(owner, sources, None, body.is_backward))

    def derived(self, function: UOp, of: UOp, slots: Mapping[int, int] | None, rule: str) -> None:
        if function is not of and any(at is function for at, _ in derivation(of, self.closings)):
            return  # equal graphs are one FUNCTION, which may be made of what was made of it
        closings = self.closings.get(of)
        sources = closings[-1].sources if closings else ()
        if slots is not None:
            moved = {slots[i]: source for i, source in enumerate(sources) if i in slots}
            sources = [moved.get(i, function) for i in range(max(moved, default=-1) + 1)]
        if function is not of:
            closing = Closing(next(self._counter), sources, of, rule=rule)
        elif closings:
            closing = closings[-1].replace(rule=rule)
        else:
            return
        self.closings.setdefault(function, []).append(closing)

    def _move(self, function: UOp | None, owner: int, node: UOp, src: tuple[UOp, ...]) -> UOp:
        """Return a node with other operands; what holds for it in a FUNCTION holds in another."""
        moved = node.with_operands(src)
        visits = [v.moved_to(owner, function is None and node.number < self.visits[v.number].trace)
                  for v in self._visits_in(node.locs, function)]
        locs = [*moved.locs, *visits]
        if owner and moved is not node:  # else a constant, which open graphs read, too
            locs = [loc for loc in locs if type(loc) is not LineVisit or loc.owner]
        moved.locs = tuple(dict.fromkeys(locs))
        return moved

    def with_operands(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        moved = node.with_operands(src)
        if moved.locs != node.locs:
            moved.locs += tuple([loc for loc in node.locs if type(loc) is LineVisit
                                 and loc not in moved.locs])
        return moved

    def enter_derivation(self, request: tuple[UOp, Any] | None) -> None:
        if request is not None and request not in self._owners:
            self._owners[request] = next(self._counter)
        self._derived_from = None if request is None else request[0]
        self._owner = 0 if request is None else self._owners[request]

    def end_derivation(self, request: tuple[UOp, Any], answer: Any) -> None:
        closings = self.closings.get(request[0])
        backward = getattr(answer, "backward", None)
        for function in _functions_in(answer):
            sources = closings[-1].sources if closings and function is not backward else ()
            self.closings.setdefault(function, []).append(
                Closing(self._owners[request], sources, request[0], function is backward))

    def forms_of(self, function: UOp) -> Cache[Any, Any]:
        if function not in self._forms:
            self._forms[function] = new_forms()
        return self._forms[function]


def _take_visits(visits: Mapping[int, Visit]) -> dict[UOp, tuple[LineVisit, ...]]:
    """Return the executions that all nodes carry, and leave the nodes with the lines alone."""
    visits_of: dict[UOp, tuple[LineVisit, ...]] = {}
    for node in interned_nodes():
        held = tuple([loc for loc in node.locs if type(loc) is LineVisit])
        if held:
            visits_of[node] = held
            unnamed = [loc for loc in node.locs if type(loc) is not LineVisit or not loc.name]
            node.locs = tuple(dict.fromkeys([
                loc if type(loc) is not LineVisit else _plain(loc, visits[loc.number])
                for loc in unnamed or node.locs]))
    return visits_of


def _plain(loc: LineVisit, visit: Visit) -> CallLocation:
    """Return the location of a node without a recording."""
    plain = CallLocation(loc)
    plain.function = loc.function
    return DerivativeLocation(plain) if visit.kind else plain


_GENERATOR = 0x20  # a flag of code objects (inspect.CO_GENERATOR): its frame runs on after "return"


def _in_open_traces(node: UOp) -> list[UOp]:
    """Return what a node is in each open trace that it has a value in, the outermost last."""
    nodes = [node]
    while node.op is ops.LEAF and (value := scope.thread_state.values.get(node)) is not None:
        node = value
        nodes.append(node)
    return nodes


def _is_same(before: Any, now: Any) -> bool:
    """Return whether a variable holds the same object, or a list or dict of the same objects."""
    if type(now) is not type(before) or type(now) not in (list, dict):
        return before is now
    if type(now) is dict:
        return before.keys() == now.keys() and all(before[key] is now[key] for key in now)
    return len(before) == len(now) and all(map(operator.is_, before, now))


class _Body:
    """A FUNCTION that is being built of others: the inputs of traces that its PARAMs stand for, and
    whether it holds a backward pass."""

    def __init__(self) -> None:
        self.sources: dict[int, UOp] = {}
        self.is_backward = False


class _Frame:
    """The state of one of the user's frames: its number and depth, the line that called it, the
    line it is at, its variables."""

    def __init__(self, number: int, outer: _Frame | None) -> None:
        self.number = number
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.caller = None if outer is None else outer.visit
        self.visit: Visit | None = None
        self.line = 0  # that Python is at, in the statement of the visit
        self.loc: LineVisit | None = None
        self.variables: dict[str, Any] = {}


def is_users(file: str) -> bool:
    """Return whether a file is neither of fnx nor of an installed library."""
    return file.startswith(_INTERACTIVE) or \
        not is_internal(file) and not file.startswith(_LIBRARIES)


# ---- statements ---------------------------------------------------------------------------------


def statement_lines(file: str) -> dict[int, int]:
    """Return the line at which the statement around each line of a file begins.

    Of a compound statement (``for``, ``with``) only the head counts, and a decorated function
    begins at its ``def``.
    """
    try:
        module = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    lines: dict[int, int] = {}
    for node in ast.walk(module):  # outer statements come before inner ones
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            body = getattr(node, "body", None)
            end = node.end_lineno if not body else max(node.lineno, body[0].lineno - 1)
            lines.update(dict.fromkeys(range(node.lineno, end + 1), node.lineno))
    return lines
