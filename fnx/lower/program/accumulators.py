"""Accumulators: what a REDUCE over loops has folded so far, one for each instance and lane.

    FOR k                        REDUCE(x[i, k], k, ADD)      i UNROLL 2
      a0 = PHI 0, a1 = PHI 0       start          the identity in each
      b0 = a0 + x[0, k]            enter          an iteration of each loop it folds over
      b1 = a1 + x[1, k]            step           takes in this iteration's values
    ENDFOR b0, b1                  nexts, leave   it, for the next one or out of the loop
                                   finish         combines what is closed; the values are known

REDUCE(ADD, MUL) of floats is MULACC. What a condition excludes is left out by a selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fnx.core import build, ops
from fnx.core.parts import value
from fnx.core.uop import UOp
from fnx.lower.program.conditions import masked
from fnx.lower.program.loop_nest import Statement
from fnx.lower.program.roles import Instance
from fnx.lower.program.values import Values


class Accumulators:
    """The accumulators of each REDUCE whose loops are open: by free instance, then by closed."""

    def __init__(self, values: Values) -> None:
        self.values, self.lines = values, values.lines
        self.held: dict[Statement, list[UOp]] = {}

    def free(self, s: Statement) -> list[Instance]:
        return self.values.replication[s.node.ranges].instances()

    def instances(self, s: Statement) -> list[Instance]:
        closed = self.values.replication[frozenset(s.closed)]
        return [i for outer in self.free(s) for i in closed.instances(outer)]

    def start(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            dtype = s.node.dtype
            lanes = self.values.replication[value(s.node).ranges.union(s.closed)].lanes
            identity = build.const(s.node.arg.monoid.identity(dtype), dtype)
            self.held[s] = [self.lines.widen(identity, lanes)] * len(self.instances(s))

    def enter(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            self.held[s] = [self.lines.phi(a) for a in self.held[s]]

    def nexts(self, statements: Sequence[Statement]) -> list[UOp]:
        return [a for s in statements for a in self.held[s]]

    def leave(self, statements: Sequence[Statement], last: Iterator[UOp]) -> None:
        for s in statements:
            self.held[s] = [next(last) for _ in self.held[s]]

    def step(self, s: Statement) -> None:
        """Each accumulator takes in its instance's value."""
        self.held[s] = [self._taken_in(s.node, a, i)
                        for a, i in zip(self.held[s], self.instances(s))]

    def _taken_in(self, node: UOp, accumulator: UOp, instance: Instance) -> UOp:
        lines, dtype, monoid = self.lines, accumulator.dtype, node.arg.monoid
        condition, folded = masked(node) or (None, value(node))
        multiply = lines.fma and monoid is ops.ADD and folded.op is ops.MUL and dtype.is_float
        operands = [lines.widen(self.values.value(v, instance), dtype.lanes)
                    for v in (folded.src if multiply else (folded,))]
        out = lines.add(ops.MULACC, dtype, (*operands, accumulator)) if multiply else \
            lines.combined(monoid, accumulator, operands[0])
        if condition is None or self.values.conditions.truth(condition):
            return out
        mask = self.values.value(condition, instance)
        return lines.across(ops.WHERE, dtype.scalar, (mask, out, accumulator))

    def finish(self, statements: Sequence[Statement]) -> None:
        """Combine the accumulators of each free instance: the values of the REDUCEs."""
        for s in statements:
            held, free = self.held.pop(s), self.free(s)
            each = len(held) // len(free)
            for i, instance in enumerate(free):
                total = self.values.reduced(s.node, held[i * each:(i + 1) * each])
                self.values.remember(s.node, instance, total, s.own)
