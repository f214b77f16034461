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
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.levels.bad_elements import is_bad
from fnx.core.levels.interp_kernel import LIMIT
from fnx.core.levels.line_plans import ENTERED, Arguments, Closing, Line, LinePlans, Plan
from fnx.core.levels.loop_iterations import Iteration, Running, is_over_blocks, iterations
from fnx.core.levels.nan_debugger import Origin, origin_at, origin_in_line
from fnx.core.levels.visit import Visit
from fnx.core.support.errors import format_location
from fnx.core.support.line_visits import LineVisit
from fnx.core.support.record import Record

Values = Sequence[NDArray]


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
        origin: what made a NaN in it, or an infinity if it is of a derivative.
    """

    visit: Visit
    values: tuple[tuple[str, NDArray], ...]
    loops: tuple[Iteration, ...]
    callers: tuple[Caller, ...]
    iteration: int
    origin: Origin | None = None


Stops = Generator[Stop, None, Values]


class _Inside(Record):
    """Around a FUNCTION: the loops that run, and the count of their iterations; whether it is in a
    backward pass; the lines that called it; the arguments of functions by their first line."""

    loops: tuple[Running, ...] = ()
    iteration: int = 0
    backward: bool = False
    callers: tuple[Caller, ...] = ()
    arguments: dict[int, Arguments] = {}


class LineSteps(LinePlans):
    """Runs FUNCTIONs whose nodes carry executions of lines."""

    def __init__(self, function: UOp, visits_of: Mapping[UOp, Sequence[LineVisit]],
                 visits: Mapping[int, Visit], closings: Mapping[UOp, Sequence[Closing]]) -> None:
        super().__init__(function, visits_of, visits, closings)
        self._iterations = itertools.count(1)

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
            origin = yield from self._compute(plan, line, env, inside)
            visit = self.visits[line.visit]
            if visit.kind or not inside.backward or line.visit not in self._forward:
                yield Stop(visit, tuple([(name, env[node]) for name, node in line.values]),
                           tuple([i for _, i in iterations(inside.loops)]),
                           self._callers(plan, visit, env, inside), inside.iteration,
                           origin)
        yield from self._compute(plan, Line(0, function.src, ()), env, inside)
        return [env[r] for r in function.src]

    def _callers(self, plan: Plan, visit: Visit, env: Mapping[UOp, NDArray], inside: _Inside
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

    def _compute(self, plan: Plan, line: Line, env: dict[UOp, Any], inside: _Inside
                 ) -> Generator[Stop, None, Origin | None]:
        """Add the values of a line's nodes to those that are known; return the first NaN."""
        nodes = [n for n in line.nodes if n not in env]
        if not nodes:
            return None
        for n in toposort(nodes, stop=lambda n: n in env or n.op is ops.KERNEL):
            if n.op in ENTERED and self._has_lines(n) and \
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
        origin = self._origin(line, inner, values, env) if line.visit else None
        env.update({n: values[n] for n in missing})
        return origin

    def _origin(self, line: Line, inner: Sequence[UOp], values: Mapping[UOp, NDArray],
                env: Mapping[UOp, NDArray]) -> Origin | None:
        """Return what made a NaN in a line, or an infinity in a derivative."""
        visit, shown = self.visits[line.visit], [n for _, n in line.values if n not in env]
        check = "inf" if visit.kind or line.visit in self._rule_lines else "nan"
        origin = None
        if any(is_bad(values[n], check).any() for n in shown):
            origin = origin_in_line(shown, {**env, **values}, env, check)
        bad = {n for n, x in values.items()
               if n.op is not ops.CONST and is_bad(x, "nan").any()}
        if origin is None and bad and not visit.kind:
            origin = _first_nan([n for n in inner if n in bad], {**env, **values})
        return origin

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
