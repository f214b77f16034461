"""Run a FUNCTION line by line: the values that each executed line of the user's gives.

    visits 1: h = x @ w, 2: y = tanh(h)    ->  Stop(visit 1, h = ...), Stop(visit 2, y = ...)

The nodes of a FUNCTION carry the executions of lines that made them (core/support/line_visits.py).
They are computed by the interpreter in the order of these, each node once, before the first line
that needs it. Bodies of calls, branches and loops are run in the same way, each iteration of a loop
again. A FUNCTION that no line made runs at once.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, build, build_calls, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.levels.bad_elements import is_bad
from fnx.core.levels.interp_kernel import LIMIT
from fnx.core.levels.loop_iterations import Iteration, Running, is_over_blocks, iterations
from fnx.core.levels.nan_debugger import Origin, origin_at
from fnx.core.levels.visit import Visit
from fnx.core.support.errors import format_location
from fnx.core.support.line_visits import LineVisit
from fnx.core.support.record import Record

Values = Sequence[NDArray]
_NEVER = 1 << 62  # the end of what no line reads


class Caller(Record):
    """A line whose call has not ended.

    Attributes:
        visit: its execution.
        arguments: those of its function, if the call is in the first line: (variable, value).
        n_loops: how many loops of the user's are around it.
        iteration: counts the iterations of all loops; 0 outside of loops.
    """

    visit: Visit
    arguments: tuple[tuple[str, NDArray], ...]
    n_loops: int
    iteration: int

    def __repr__(self) -> str:
        return f"{self.visit.function} ({format_location(self.visit.loc)})"


class Stop(Record):
    """A line that was executed.

    Attributes:
        visit: its execution while tracing.
        values: its results: (variable, value). Without a variable the name is that of an op.
        loops: the iterations of the user's loops around it, the innermost last.
        callers: the lines that called its function, the innermost first.
        iteration: counts the iterations of all loops; 0 outside of loops.
        nan: the first op in it that made a NaN.
    """

    visit: Visit
    values: tuple[tuple[str, NDArray], ...]
    loops: tuple[Iteration, ...]
    callers: tuple[Caller, ...]
    iteration: int
    nan: Origin | None = None


class Closing(Record):
    """How a FUNCTION was made.

    Attributes:
        owner: the owner of its visits.
        sources: the nodes that its parameters stand for.
        derived_from: the FUNCTION that it was derived from.
        is_backward: whether it is a backward pass: what it does of the forward pass is done again.
        is_rule: whether it is a derivative rule of the user's: its lines are no forward pass.
    """

    owner: int
    sources: Sequence[UOp] = ()
    derived_from: UOp | None = None
    is_backward: bool = False
    is_rule: bool = False


def derivation(function: UOp | None, closings: Mapping[UOp, Sequence[Closing]]
               ) -> Iterator[tuple[UOp, Sequence[Closing]]]:
    """Yield a FUNCTION and how it was made, the one that it was derived from, and so on."""
    while function is not None:
        records = closings.get(function, ())
        yield function, records
        function = records[-1].derived_from if records else None


Stops = Generator[Stop, None, Values]
_Arguments = tuple[tuple[str, NDArray], ...]


class _Inside(Record):
    """Around a FUNCTION: the loops that run, and the count of their iterations; whether it is in a
    backward pass; the lines that called it; the arguments of functions by their first line."""

    loops: tuple[Running, ...] = ()
    iteration: int = 0
    backward: bool = False
    callers: tuple[Caller, ...] = ()
    arguments: dict[int, _Arguments] = {}


class LineSteps:
    """Runs FUNCTIONs whose nodes carry executions of lines.

    Attributes:
        visits_of: node -> the executions that made it or named it.
        visits: the executions by number.
        closings: FUNCTION -> how it was made.
    """

    def __init__(self, function: UOp, visits_of: Mapping[UOp, Sequence[LineVisit]],
                 visits: Mapping[int, Visit], closings: Mapping[UOp, Sequence[Closing]]) -> None:
        self.visits, self.closings = visits, closings
        self.names_of: dict[UOp, list[tuple[int, str, bool]]] = {}
        for visit in visits.values():
            for name, node, at_start in visit.sources:
                self.names_of.setdefault(node, []).append((visit.number, name, at_start))
        self.visits_of = {n: visits_of[n]
                          for n in toposort([function], into_functions=True) if n in visits_of}
        self._plans: dict[UOp, _Plan] = {}
        self._iterations = itertools.count(1)
        self._forward = self._forward_visits(function)

    def closing_of(self, function: UOp) -> Closing | None:
        """Return how a FUNCTION was made, the last time if several."""
        closings = self.closings.get(function)
        return closings[-1] if closings else None

    def origin_of(self, function: UOp) -> str:
        """Return "backward" of a backward pass, "rule" of a derivative rule of the user's, else "";
        of what is derived from these, too."""
        for _, closings in derivation(function, self.closings):
            if closings and (closings[-1].is_backward or closings[-1].is_rule):
                return "backward" if closings[-1].is_backward else "rule"
        return ""

    def visits_in(self, function: UOp, visits: Sequence[LineVisit]) -> Sequence[LineVisit]:
        """Return those of a node's visits that hold in a FUNCTION."""
        for _, closings in derivation(function, self.closings):
            for closing in reversed(closings):
                held = [v for v in visits if v.owner == closing.owner]
                if held:
                    return held
        return ()

    def plan_of(self, function: UOp) -> _Plan:
        """Return the plan of a FUNCTION and, first, of those inside."""
        if function not in self._plans:
            for fn in toposort([function], into_functions=True, stop=self._plans.__contains__):
                if fn.op is ops.FUNCTION and fn not in self._plans:
                    self._plans[fn] = _Plan(fn, self)
        return self._plans[function]

    def _forward_visits(self, function: UOp) -> set[int]:
        """Return the lines that run outside of backward passes."""
        visits, pending, seen = set[int](), [function], set[UOp]()
        while pending:
            fn = pending.pop()
            plan = self.plan_of(fn)
            if fn not in seen and not plan.is_backward:
                visits.update([line.visit for line in plan.lines])
                pending += [body for n in plan.order if n.op in _ENTERED
                            for op in [OpBodies(n)] for body in (*op.conditions, *op.steps)
                            if body.op is ops.FUNCTION]
            seen.add(fn)
        return visits

    def is_forward(self, node: UOp) -> bool:
        """Whether a call or loop goes through lines, and not only through their derivatives."""
        plans = [self.plan_of(body) for body in accessors.bodies(node)]
        return any(plan.has_lines for plan in plans) and not any(
            plan.is_backward for plan in plans)

    def runs_of(self, function: UOp) -> Counter[int]:
        """Return how often each line runs outside of loops, or in an iteration, by its visit: twice
        if two calls or loops have one FUNCTION."""
        times, runs = Counter({function: 1}), Counter[int]()
        for fn in reversed([n for n in toposort([function], into_functions=True)
                            if n.op is ops.FUNCTION]):
            plan = self.plan_of(fn)
            runs.update({line.visit: times[fn] for line in plan.lines})
            for n in plan.order:
                times.update(dict.fromkeys(accessors.bodies(n), times[fn]))
        return runs

    def end_of(self, visit: int) -> int:
        """Return the place of a line in the order in which lines end."""
        return self.visits[visit].end

    def run(self, function: UOp, args: Values, around: _Inside = _Inside()) -> Stops:
        """Yield the lines of a FUNCTION on values of its parameters; return its results.

        In a backward pass only the derivatives of lines are yielded, and lines that run there only.
        """
        plan = self.plan_of(function)
        if not plan.has_lines:
            return interp.apply(function, args)
        env: dict[UOp, Any] = {p: np.asarray(args[i]) for i, p in build.params(function).items()}
        inside = around.replace(
            backward=not plan.is_rule and (around.backward or plan.is_backward))
        for line in plan.lines:
            nan = yield from self._compute(plan, line, env, inside)
            visit = self.visits[line.visit]
            if visit.kind or not inside.backward or line.visit not in self._forward:
                yield Stop(visit, tuple([(name, env[node]) for name, node in line.values]),
                           tuple([i for _, i in iterations(inside.loops)]),
                           self._callers(plan, visit, env, inside), inside.iteration,
                           None if visit.kind else nan)
        yield from self._compute(plan, _Line(0, function.src, ()), env, inside)
        return [env[r] for r in function.src]

    def _callers(self, plan: _Plan, visit: Visit, env: Mapping[UOp, NDArray], inside: _Inside
                 ) -> tuple[Caller, ...]:
        """Return the lines that called the function of a line.

        A FUNCTION may be called where it was not traced, if it was traced before: then the lines
        around its trace are those that called it now.
        """
        callers, entered = visit.callers(), [c.visit for c in inside.callers]
        if entered and (entered[0].of or entered[0]) not in callers:
            callers = [c for c in callers if c.trace >= plan.trace]
        else:
            callers = callers[:callers.index(entered[0].of or entered[0])] if entered else callers
        n_loops = len(iterations(inside.loops))
        return (*[Caller(c, plan.arguments(c.number, env) or inside.arguments.get(c.number, ()),
                         n_loops, inside.iteration) for c in callers], *inside.callers)

    def _compute(self, plan: _Plan, line: _Line, env: dict[UOp, Any], inside: _Inside
                 ) -> Generator[Stop, None, Origin | None]:
        """Add the values of a line's nodes to those that are known; return the first NaN."""
        nodes = [n for n in line.nodes if n not in env]
        if not nodes:
            return None
        for n in toposort(nodes, stop=lambda n: n in env or n.op is ops.KERNEL):
            if n.op in _ENTERED and self._has_lines(n) and \
                    not all(r in env for r in build.results(n)):
                operands = accessors.operands(n)
                missing = [s for s in operands if s not in env]
                env.update(zip(missing, interp.evaluate(missing, env)))
                body = inside.replace(arguments=inside.arguments | {
                    first: plan.arguments(first, env) for first in plan.arguments_of})
                if (visit := plan.maker_of(n, self.visits.get(line.visit))) is not None:
                    at = Caller(visit, body.arguments.get(visit.number, ()),
                                len(iterations(inside.loops)), inside.iteration)
                    body = body.replace(callers=(at, *self._callers(plan, visit, env, inside)))
                outs = yield from self._enter(n, env, body)
                env.update(zip(build.results(n), outs))
        missing = [n for n in nodes if n not in env]
        inner = _inner(missing, env)
        values = dict(zip(inner, interp.evaluate(inner, env)))
        bad = {n for n, x in values.items() if is_bad(x, "nan").any()}
        if not any(n in bad for _, n in line.values):  # nothing chose a constant that is NaN
            bad -= {n for n in bad if n.op is ops.CONST}
        env.update({n: values[n] for n in missing})
        return _first_nan([n for n in inner if n in bad], {**env, **values}) if bad else None

    def _has_lines(self, node: UOp) -> bool:
        return any(body.op is ops.FUNCTION and self.plan_of(body).has_lines
                   for body in accessors.bodies(node))

    def _enter(self, node: UOp, env: Mapping[UOp, Any], inside: _Inside) -> Stops:
        op = OpBodies(node)
        values = [env[s] for s in op.operands]
        if node.op in (ops.SCAN, ops.WHILE):
            return (yield from self._loop(node, op, values, inside))
        which = 0
        if op.selector:
            which = min(max(int(env[op.selector[0]]), 0), len(op.steps) - 1)
        return (yield from self.run(op.steps[which], values, inside))

    def _loop(self, node: UOp, op: OpBodies, values: Values, around: _Inside) -> Stops:
        arg, (body,) = node.arg, op.steps
        consts, inits, xs = op.split(values)
        carries = inits
        length = None if op.conditions else arg.length
        order = range(1 << 62) if length is None else \
            range(length)[::-1 if arg.reverse else 1]
        ys = [np.empty(shape, dtype.np) for shape, dtype in arg.outs[op.n_carries:]]
        for t in order:
            inside = around.replace(
                loops=(*around.loops, Running(node, consts, inits, carries, t)),
                iteration=next(self._iterations))
            step_args = [*consts, *carries, *[x[t] for x in xs]]
            for condition in op.conditions:
                holds, = yield from self.run(condition, step_args, inside.replace(
                    backward=inside.backward or is_over_blocks(node)))
                if not holds:
                    return carries
            outs = yield from self.run(body, step_args, inside)
            carries = outs[:op.n_carries]
            for y, out in zip(ys, outs[op.n_carries:]):
                y[t] = out
        return [*carries, *ys]


_ENTERED = frozenset({ops.CALL, ops.SCAN, ops.WHILE, ops.COND, ops.CUSTOM})


class _Line(Record):
    """What is computed at a line, and what is shown."""

    visit: int
    nodes: tuple[UOp, ...]
    values: tuple[tuple[str, UOp], ...]


class _Plan:
    """The lines of one FUNCTION, in order."""

    def __init__(self, function: UOp, steps: LineSteps) -> None:
        self.steps = steps
        self.order = [n for n in toposort(function.src, stop=lambda n: n.op is ops.KERNEL)
                      if n.op not in (ops.FUNCTION, ops.KERNEL)]
        named: dict[int, dict[str, UOp]] = {}
        self.arguments_of: dict[int, dict[str, UOp]] = {}
        self._makers: dict[UOp, Visit] = {}
        visit_of = self._own_visits(function, named)
        forward = self._move_forward_passes(function, visit_of)
        first_read, shared = self._first_reads(function, visit_of)
        varies = _varying(function, self.order)
        nodes: dict[int, list[UOp]] = {visit: [] for visit in {*visit_of.values(), *named}}
        by_end = {steps.end_of(visit): visit for visit in nodes}
        for n in self.order:
            if n in shared and first_read[n] in by_end:
                nodes[by_end[first_read[n]]].append(n)
        name_of: dict[UOp, str] = {}
        for visit in sorted(named, key=steps.end_of):
            for name, n in named[visit].items():
                name_of.setdefault(n, name)
        self.lines: list[_Line] = []
        for visit in sorted(nodes, key=steps.end_of):
            values, kind = named.get(visit, {}), steps.visits[visit].kind
            if not values or kind:
                values = values | self._unnamed(kind, [
                    n for n in nodes[visit] if visit_of.get(n) == visit and n in varies
                    and n not in forward and n not in values.values()], name_of)
            if values or any(build_calls.is_token(n) or n in forward for n in nodes[visit]):
                self.lines.append(_Line(visit, (*nodes[visit], *values.values()),
                                        tuple(values.items())))
        self.trace = min([steps.visits[visit].trace for visit in nodes], default=0)
        origin = steps.origin_of(function)
        self.is_backward, self.is_rule = origin == "backward", origin == "rule"
        self.has_lines: bool = bool(self.lines) or any(
            steps._plans[n].has_lines for root in self.order for n in root.src
            if n.op is ops.FUNCTION)

    def maker_of(self, call: UOp, reader: Visit | None) -> Visit | None:
        """Return the line that made a call or loop. A result that no variable holds is read in the
        line that makes it."""
        makers = [self._makers[n] for n in (call, *build.results(call)) if n in self._makers]
        return min(makers, key=lambda visit: visit.end, default=reader)

    def arguments(self, visit: int, env: Mapping[UOp, NDArray]) -> _Arguments:
        """Return the arguments with a value of the function whose first line is given."""
        named = self.arguments_of.get(visit, {})
        return tuple([(name, env[node]) for name, node in named.items() if node in env])

    def _own_visits(self, function: UOp, named: dict[int, dict[str, UOp]]) -> dict[UOp, int]:
        """Return the execution that made each node; add the variables that hold nodes.

        Equal nodes of several FUNCTIONs are one: the visits of this one have its owner, and nodes
        without such visits are taken over from the FUNCTION that it was derived from. A constant
        has the lines of all traces that made it, and a value that a trace borrows from one around
        it has the lines of both: those of traces that made nothing else here are left out.
        """
        steps, params, visit_of = self.steps, build.params(function), {}
        visits_of = {n: steps.visits_of[n] for n in self.order if n in steps.visits_of and n.src}
        closing = steps.closing_of(function)
        varies = _varying(function, self.order)
        held = {n: steps.visits_in(function, visits) for n, visits in visits_of.items()}
        sources = [(params[slot], source, visit, name, at_start)
                   for slot, source in enumerate(closing.sources if closing else ())
                   if slot in params
                   for visit, name, at_start in steps.names_of.get(source, ())]
        def traces_of(nodes: Iterable[UOp]) -> set[int]:
            return {steps.visits[v.number].trace for n in nodes for v in held.get(n, ())
                    if not (v.borrowed or v.at_start)}

        innermost = {steps.visits[visit].trace for _, source, visit, _, _ in sources
               if source.number > steps.visits[visit].trace}
        # one that returns arguments has its own trace, the innermost; another may be constant
        traces = traces_of(varies) or {max(innermost, default=0)} - {0} or traces_of(held)
        for param, _, visit, name, at_start in sources:
            if steps.visits[visit].trace in traces:
                named.setdefault(visit, {})[name] = param
                if at_start:
                    self.arguments_of.setdefault(visit, {})[name] = param
        for n, all_visits in held.items():
            visits = [v for v in all_visits if steps.visits[v.number].trace in traces]
            for v in visits:
                if v.name:
                    named.setdefault(v.number, {})[v.name] = n
                if v.at_start:
                    self.arguments_of.setdefault(v.number, {})[v.name] = n
            if visits:
                self._makers[n] = min([self._maker(v) for v in visits], key=lambda visit: visit.end)
                visit_of[n] = min([v.number for v in visits], key=steps.end_of)
        return visit_of

    def _move_forward_passes(self, function: UOp, visit_of: dict[UOp, int]) -> set[UOp]:
        """Let forward passes of calls and loops run at their lines; return them and their results.

        A derivative walk makes the forward pass of a loop with what its backward pass reads, when
        it comes to the line from behind.
        """
        visits, varies = self.steps.visits, _varying(function, self.order)
        forward, derivatives = set[UOp](), set[UOp]()
        for n in self.order:
            visit = visits.get(visit_of.get(n, 0))
            is_derivative = n in varies and visit is not None and bool(visit.kind)
            of = None if visit is None else visit.of
            if n.op is ops.GETTUPLE and n.src[0] in forward:
                of = self._makers[n.src[0]]
            elif any(s in derivatives for s in n.src) or is_derivative and not (
                    n.op in _ENTERED and self.steps.is_forward(n)):
                derivatives.add(n)
                continue
            elif not is_derivative:
                continue
            assert of is not None
            visit_of[n], self._makers[n] = of.number, of
            forward.add(n)
        return forward

    def _maker(self, at: LineVisit) -> Visit:
        """Return the line that made a node with a visit: an argument was made by the caller."""
        visit = self.steps.visits[at.number]
        return visit.caller if at.at_start and visit.caller is not None else visit

    def _first_reads(self, function: UOp, visit_of: Mapping[UOp, int]
                     ) -> tuple[dict[UOp, int], set[UOp]]:
        """Return the end of the line before which each node is computed, and the nodes that
        several lines read, or the caller."""
        first = {n: self.steps.end_of(visit_of[n]) if n in visit_of else _NEVER for n in self.order}
        shared = set(function.src)
        for n in reversed(self.order):
            for s in n.src:
                if s in first:
                    first[s] = min(first[s], first[n])
        for n in self.order:
            shared.update([s for s in n.src if s in first and (
                first[s] != first[n] or s in visit_of and visit_of[s] != visit_of.get(n))])
        return first, {n for n in shared if n.op not in ops.MULTI_RESULT}

    @staticmethod
    def _unnamed(kind: str, nodes: Sequence[UOp], name_of: Mapping[UOp, str]) -> dict[str, UOp]:
        """Name values without a variable by that of another line, or by their ops."""
        whole = f"the {kind}" if kind else "this line"
        values: dict[str, UOp] = {}
        for n in nodes:
            if build_calls.is_token(n):
                continue
            op = (n.src[0] if n.op is ops.GETTUPLE else n).op.name.lower()
            name = name_of.get(n) or f"part of {whole} ({op})"
            values[name if name not in values else f"{name} {len(values)}"] = n
        return values


def _inner(nodes: Sequence[UOp], env: Mapping[UOp, NDArray]) -> list[UOp]:
    """Return nodes and what they are computed from, but for what the interpreter computes in
    parts."""
    return [n for n in toposort(nodes, stop=lambda n: n in env or n.op is ops.KERNEL)
            if n in nodes or n not in env and n.op.result != "void" and not (
                n.op in ops.ELEMENTWISE and math.prod(n.shape) * n.dtype.itemsize > LIMIT)]


def _first_nan(bad: Sequence[UOp], values: Mapping[UOp, Any]) -> Origin | None:
    """Return the first node that made a NaN of operands without one."""
    for n in bad:
        operands = n.src[0].src if n.op is ops.GETTUPLE else n.src
        if not any(is_bad(values.get(s), "nan").any() for s in operands):
            return origin_at(n, values, "nan")
    return None


def _varying(function: UOp, order: Iterable[UOp]) -> set[UOp]:
    """Return the nodes that depend on a parameter."""
    varies = set(build.params(function).values())
    for n in order:
        if any(s in varies for s in n.src):
            varies.add(n)
    return varies
