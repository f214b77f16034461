"""Loop-carried values of a LOOP, one for each instance.

    FOR t                        LOOP(t, x0, x + CARRY * dt)        i UNROLL 2
      x0 = PHI .., x1 = PHI ..     enter      the CARRYs of this iteration
      BREAK stop                   enter      if the loop has a stop condition
      y0 = .., y1 = ..             step       the values for the next iteration
    ENDFOR y0, y1                  nexts, leave
                                   finish     the values of its GETTUPLEs

A stop condition that varies by lane or instance ends the loop when it holds in all of them;
legalize/mask_finished_lanes.py makes inactive lanes keep their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import carries, init_values, next_values, stop_condition
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import KernelError
from fnx.lower.emit.expansion import Instance
from fnx.lower.emit.loop_nest import Statement, is_statement
from fnx.lower.emit.values import Values


class CarriedValues:
    """The carried values of each open LOOP, ordered by CARRY, then by instance."""

    def __init__(self, values: Values, nodes: Sequence[UOp]) -> None:
        self.values, self.lines = values, values.lines
        self.held: dict[Statement, list[UOp]] = {}
        self.carries = {n: carries(n, nodes) for n in nodes if n.op is ops.LOOP}

    def places(self, s: Statement) -> list[tuple[int, UOp, Instance]]:
        """Return (position, CARRY, instance) of each carried value."""
        return [(i, carry, at) for i, carry in enumerate(self.carries[s.node])
                for at in self.values.expansions[carry.ranges].instances()]

    def broadcast(self, carry: UOp, value: UOp) -> UOp:
        return self.lines.widen(value, self.values.expansions[carry.ranges].lanes)

    def start(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            initial = init_values(s.node)
            self.held[s] = [self.broadcast(c, self.values.value(initial[i], at))
                            for i, c, at in self.places(s)]

    def enter(self, statements: Sequence[Statement], loop: UOp) -> None:
        """Begin an iteration of the FOR ``loop``."""
        values = self.values
        for s in statements:
            depth = len(values.keys) - 1
            for (_, carry, at), value in zip(self.places(s), self.held[s]):
                values.remember(carry, at, self.lines.phi(value), depth)
        for condition in dict.fromkeys([stop_condition(s.node) for s in statements]):
            if condition is not None:
                self.lines.put(ops.BREAK, dtypes.void, (loop, self._all_stopped(condition)))

    def _all_stopped(self, condition: UOp) -> UOp:
        """Emit whether a stop condition holds in all instances and lanes."""
        if any(is_statement(n) for n in toposort([condition], stop=is_statement)
               if n.ranges & condition.ranges):
            raise KernelError("expected the condition of a loop to be made of its carried values; "
                              "got one with a fold over a loop inside",
                              hint="carry the folded value, and compare it")
        lines, all_stopped = self.lines, None
        for at in self.values.expansions[condition.ranges].instances():
            value = self.values.value(condition, at)
            if value.dtype.lanes > 1:
                value = lines.add(ops.ALL_LANES, dtypes.bool_, (value,))
            all_stopped = lines.both(all_stopped, value)
        assert all_stopped is not None
        return all_stopped

    def step(self, s: Statement) -> None:
        """Compute the values for the next iteration."""
        updates = next_values(s.node)
        self.held[s] = [self.broadcast(c, self.values.value(updates[i], at))
                        for i, c, at in self.places(s)]

    def nexts(self, statements: Sequence[Statement]) -> list[UOp]:
        return [v for s in statements for v in self.held[s]]

    def leave(self, statements: Sequence[Statement], finals: Iterator[UOp]) -> None:
        """Leave the loop; ``finals`` has the final values of those in ``nexts``."""
        for s in statements:
            self.held[s] = [next(finals) for _ in self.held[s]]

    def finish(self, statements: Sequence[Statement]) -> None:
        """Record the values of the GETTUPLEs."""
        values = self.values
        for s in statements:
            finals: dict[tuple[int, tuple[int, ...]], UOp] = {}
            unrolled: dict[int, tuple[UOp, ...]] = {}
            for (i, carry, at), value in zip(self.places(s), self.held.pop(s)):
                unrolled[i] = values.expansions[carry.ranges].unrolled
                finals[i, tuple([at[r] for r in unrolled[i]])] = value
            for i, get in enumerate(build.results(s.node)):
                for at in values.expansions[get.ranges].instances():
                    value_of_get = finals[i, tuple([at[r] for r in unrolled[i]])]
                    values.remember(get, at, value_of_get, s.own)
