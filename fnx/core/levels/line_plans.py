"""The lines of FUNCTIONs, in order: which nodes each of them computes, and what it shows.

    nodes with visits 1, 2, 2    ->    Line(visit 1, nodes, values), Line(visit 2, nodes, values)

The nodes of a FUNCTION carry the executions of lines that made them (core/support/line_visits.py).
Equal nodes of several FUNCTIONs are one: how each FUNCTION was made says which executions hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fnx.core.ir import accessors, build, build_calls, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.visit import Visit
from fnx.core.support.line_visits import LineVisit
from fnx.core.support.record import Record

ENTERED = frozenset({ops.CALL, ops.SCAN, ops.WHILE, ops.COND, ops.CUSTOM})
Arguments = tuple[tuple[str, NDArray], ...]
_NEVER = 1 << 62  # the end of what no line reads


class Closing(Record):
    """How a FUNCTION was made.

    Attributes:
        owner: the owner of its visits.
        sources: the nodes that its parameters stand for.
        derived_from: the FUNCTION that it was derived from.
        is_backward: whether it is a backward pass: what it does of the forward pass is done again.
        rule: "jvp" or "bwd" of a derivative rule of the user's: its lines are no forward pass.
    """

    owner: int
    sources: Sequence[UOp] = ()
    derived_from: UOp | None = None
    is_backward: bool = False
    rule: str = ""


def derivation(function: UOp | None, closings: Mapping[UOp, Sequence[Closing]]
               ) -> Iterator[tuple[UOp, Sequence[Closing]]]:
    """Yield a FUNCTION and how it was made, the one that it was derived from, and so on."""
    while function is not None:
        records = closings.get(function, ())
        yield function, records
        function = records[-1].derived_from if records else None


class LinePlans:
    """The plans of FUNCTIONs whose nodes carry executions of lines.

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
        self._plans: dict[UOp, Plan] = {}
        self._forward = self._forward_visits(function)
        self._rule_lines = self._lines_of_rules(visits_of)

    def closing_of(self, function: UOp) -> Closing | None:
        """Return how a FUNCTION was made, the last time if several."""
        closings = self.closings.get(function)
        return closings[-1] if closings else None

    def origin_of(self, function: UOp) -> str:
        """Return "backward" of a backward pass, "rule" of a derivative rule of the user's, else "";
        of what is derived from these, too."""
        for _, closings in derivation(function, self.closings):
            if closings and (closings[-1].is_backward or closings[-1].rule):
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

    def plan_of(self, function: UOp) -> Plan:
        """Return the plan of a FUNCTION and, first, of those inside."""
        if function not in self._plans:
            for fn in toposort([function], into_functions=True, stop=self._plans.__contains__):
                if fn.op is ops.FUNCTION and fn not in self._plans:
                    self._plans[fn] = Plan(fn, self)
        return self._plans[function]

    def _forward_visits(self, function: UOp) -> set[int]:
        """Return the lines that run outside of backward passes."""
        visits, pending, seen = set[int](), [function], set[UOp]()
        while pending:
            fn = pending.pop()
            plan = self.plan_of(fn)
            if fn not in seen and not plan.is_backward:
                visits.update([line.visit for line in plan.lines])
                pending += [body for n in plan.order if n.op in ENTERED
                            for op in [OpBodies(n)] for body in (*op.conditions, *op.steps)
                            if body.op is ops.FUNCTION]
            seen.add(fn)
        return visits

    def _lines_of_rules(self, visits_of: Mapping[UOp, Sequence[LineVisit]]) -> set[int]:
        """Return the lines of derivative rules of the user's; of a jvp rule those of the rule
        itself, since it also calls functions for their values."""
        lines = set[int]()
        for fn, closings in self.closings.items():
            rule = next((c.rule for c in closings if c.rule), "")
            numbers = {v.number for n in toposort(fn.src) if rule
                       for v in self.visits_in(fn, visits_of.get(n, ()))}
            outer = min([self.visits[n].depth for n in numbers], default=0)
            lines |= {n for n in numbers if rule == "bwd" or self.visits[n].depth == outer}
        return lines

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


class Line(Record):
    """What is computed at a line, and what is shown."""

    visit: int
    nodes: tuple[UOp, ...]
    values: tuple[tuple[str, UOp], ...]


class Plan:
    """The lines of one FUNCTION, in order."""

    def __init__(self, function: UOp, steps: LinePlans) -> None:
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
        self.lines: list[Line] = []
        for visit in sorted(nodes, key=steps.end_of):
            values, kind = named.get(visit, {}), steps.visits[visit].kind
            if not values or kind:
                values = values | self._unnamed(kind, [
                    n for n in nodes[visit] if visit_of.get(n) == visit and n in varies
                    and n not in forward and n not in values.values()], name_of)
            if values or any(build_calls.is_token(n) or n in forward for n in nodes[visit]):
                self.lines.append(Line(visit, (*nodes[visit], *values.values()),
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

    def arguments(self, visit: int, env: Mapping[UOp, NDArray]) -> Arguments:
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
                    n.op in ENTERED and self.steps.is_forward(n)):
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


def _varying(function: UOp, order: Iterable[UOp]) -> set[UOp]:
    """Return the nodes that depend on a parameter."""
    varies = set(build.params(function).values())
    for n in order:
        if any(s in varies for s in n.src):
            varies.add(n)
    return varies
