"""Values that open loops pass on: partial results of REDUCEs, and the values that LOOPs carry.

There is one accumulator for each instance and lane of a REDUCE:

    FOR k                        REDUCE(x[i, k], k, ADD)      i UNROLL 2
      a0 = PHI 0, a1 = PHI 0       start          the identity in each
      b0 = a0 + x[0, k]            enter          an iteration of each loop it reduces over
      b1 = a1 + x[1, k]            step           adds the values of this iteration
    ENDFOR b0, b1                  nexts, leave   to the next iteration, or out of the loop
                                   finish         reduces the closed instances

REDUCE(ADD, MUL) of floats is MULACC; a matrix unit accumulates by itself. A conditional value is
excluded by a WHERE on the accumulator.
A reduction of ARG_PAIRs (argmax) has two accumulators, a key and its index. If indices increase
from one iteration to the next, the first of equal keys wins without a test of the indices. The
initial index is then that of the first iteration, since a key may equal the identity.

A LOOP has one carried value for each CARRY and instance:

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
from fnx.core.ir.accessors import carries, init_values, next_values, stop_condition, value
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import LOOP_KINDS
from fnx.lower.analysis.conditions import match_masked_reduce
from fnx.lower.analysis.workload import is_chain
from fnx.lower.emit import mma
from fnx.lower.emit.expansion import Instance
from fnx.lower.emit.loop_nest import Statement, is_statement
from fnx.lower.emit.values import Values, reduced_values

_MIN_RESULTS = 4  # results computed at once from which on one accumulator each suffices


class _LoopValues:
    """Values of statements that open loops pass from one iteration to the next."""

    def __init__(self, values: Values) -> None:
        self.values, self.lines = values, values.lines
        self.held: dict[Statement, list[UOp]] = {}

    def nexts(self, statements: Sequence[Statement]) -> list[UOp]:
        return [v for s in statements for v in self.held[s]]

    def leave(self, statements: Sequence[Statement], finals: Iterator[UOp]) -> None:
        """Leave the loop; ``finals`` has the final values of those in ``nexts``."""
        for s in statements:
            self.held[s] = [next(finals) for _ in self.held[s]]


class Accumulators(_LoopValues):
    """The accumulators of each open REDUCE, ordered by free instance, then closed instance.

    Of ARG_PAIRs, ``held`` has all keys, then all indices.
    """

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self.index_increases: dict[Statement, bool] = {}

    def free(self, s: Statement) -> list[Instance]:
        return self.values.expansions[s.node.ranges].instances()

    def instances(self, s: Statement) -> list[Instance]:
        closed = self.values.expansions[frozenset(s.closed)]
        return [i for outer in self.free(s) for i in closed.instances(outer)]

    def chains(self, s: Statement) -> list[list[Instance]]:
        """Return the instances that each accumulator adds, in order.

        With few results, each instance has its own accumulator. With enough results to hide the
        latency of additions, the instances of a result share one; those of a short sum, too.
        """
        free = self.free(s)
        plain = value(s.node).op not in (ops.ARG_PAIR, ops.MMA)
        is_shared = is_chain(s.node) or plain and len(free) >= _MIN_RESULTS
        if not is_shared or mma.is_tile_mma(value(s.node)):
            return [[i] for i in self.instances(s)]
        closed = self.values.expansions[frozenset(s.closed)]
        return [closed.instances(outer) for outer in free]

    def start(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            if mma.is_tile_mma(value(s.node)):
                self.held[s] = mma.zero_tiles(self.values, value(s.node), self.instances(s))
                continue
            dtype = reduced_values(s.node)[0].dtype
            lanes = self.values.expansions[value(s.node).ranges.union(s.closed)].lanes
            identity = build.const(s.node.arg.monoid.identity(dtype), dtype)
            self.held[s] = [self.lines.widen(identity, lanes)] * len(self.chains(s))
            if value(s.node).op is ops.ARG_PAIR:
                self.held[s] += [self.lines.widen(p, lanes) for p in self._initial_indices(s)]

    def _initial_indices(self, s: Statement) -> list[UOp]:
        """Return the initial indices."""
        dtype = s.node.dtype
        if not self._index_increases(s):
            return [build.const(dtype.limits[1], dtype)] * len(self.instances(s))
        loops = {r: build.index_const(0) for r in s.closed if r.arg.kind in LOOP_KINDS}
        initial, = substitute([_pair_index(s)], loops)
        return [self.values.value(initial, i) for i in self.instances(s)]

    def _index_increases(self, s: Statement) -> bool:
        """Return whether indices increase with the iterations of the reduction's one loop."""
        if s not in self.index_increases:
            index, loops = _pair_index(s), [r for r in s.closed if r.arg.kind in LOOP_KINDS]
            while index.op is ops.CAST and index.dtype.is_integer:
                index = index.src[0]
            terms, _ = symbolic.linear_terms(index) if index.dtype is dtypes.index else ({}, 0)
            self.index_increases[s] = len(loops) == 1 and terms.get((loops[0],), 0) > 0 and all(
                len(m) == 1 and m[0].op is ops.RANGE for m in terms)
        return self.index_increases[s]

    def enter(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            self.held[s] = [self.lines.phi(a) for a in self.held[s]]

    def step(self, s: Statement) -> None:
        """Combine each accumulator with the value of its instance."""
        instances = self.instances(s)
        if mma.is_tile_mma(value(s.node)) or mma.is_warp_mma(value(s.node)):
            multiply = mma.multiply_tiles if mma.is_tile_mma(value(s.node)) \
                else mma.multiply_fragments
            self.held[s] = multiply(self.values, value(s.node), instances, self.held[s])
        elif value(s.node).op is ops.ARG_PAIR:
            partials, n = self.held[s], len(instances)
            pairs = [self._select(s, *of) for of in zip(partials[:n], partials[n:], instances)]
            self.held[s] = [side for column in zip(*pairs) for side in column]
        else:
            for n, chain in enumerate(self.chains(s)):
                for i in chain:
                    self.held[s][n] = self.values.accumulate(s.node, self.held[s][n], i)

    def _select(self, s: Statement, key: UOp, index: UOp, instance: Instance) -> tuple[UOp, UOp]:
        """Return the better of (key, index) and those of this iteration."""
        lines, monoid = self.lines, s.node.arg.monoid
        condition, reduced = match_masked_reduce(s.node) or (None, value(s.node))
        key_now, index_now = [lines.widen(self.values.value(x, instance), key.dtype.lanes)
                              for x in reduced.src]
        take = lines.is_better(monoid, key_now, key)
        if not self._index_increases(s):
            is_tie = lines.across(ops.CMPEQ, dtypes.bool_, (key_now, key))
            if key.dtype.is_float:
                both = lines.both(lines.is_nan(key_now), lines.is_nan(key))
                assert both is not None
                is_tie = lines.across(ops.OR, dtypes.bool_, (is_tie, both))
            is_lower = lines.across(ops.CMPLT, dtypes.bool_, (index_now, index))
            take = lines.across(ops.OR, dtypes.bool_, (
                take, lines.across(ops.AND, dtypes.bool_, (is_tie, is_lower))))
        if condition is not None and not self.values.truth(condition, instance):
            mask = self.values.value(condition, instance)
            take = lines.across(ops.AND, dtypes.bool_, (
                lines.widen(mask, key.dtype.lanes), take))
        return (lines.across(ops.WHERE, key.dtype.scalar, (take, key_now, key)),
                lines.across(ops.WHERE, index.dtype.scalar, (take, index_now, index)))

    def finish(self, statements: Sequence[Statement]) -> None:
        """Reduce the accumulators of each free instance to the value of its REDUCE."""
        for s in statements:
            partials, free_instances = self.held.pop(s), self.free(s)
            n = len(self.chains(s))
            if mma.is_tile_mma(value(s.node)):
                partials = mma.tile_rows(self.values, value(s.node), self.instances(s), partials)
            per_instance = n // len(free_instances)
            for i, instance in enumerate(free_instances):
                total = self.values.reduced(s.node, [
                    a for start in range(0, len(partials), n)
                    for a in partials[start + i * per_instance:start + (i + 1) * per_instance]])
                self.values.remember(s.node, instance, total, s.outer_depth)


def _pair_index(s: Statement) -> UOp:
    """Return the indices of a reduction of ARG_PAIRs, without their mask."""
    _, pair = match_masked_reduce(s.node) or (None, value(s.node))
    index: UOp = pair.src[1]
    return index


# ---- values that a LOOP carries -----------------------------------------------------------------


class CarriedValues(_LoopValues):
    """The carried values of each open LOOP, ordered by CARRY, then by instance."""

    def __init__(self, values: Values, nodes: Sequence[UOp]) -> None:
        super().__init__(values)
        self.carries = {n: carries(n, nodes) for n in nodes if n.op is ops.LOOP}

    def entries(self, s: Statement) -> list[tuple[int, UOp, Instance]]:
        """Return (position, CARRY, instance) of each carried value."""
        return [(i, carry, at) for i, carry in enumerate(self.carries[s.node])
                for at in self.values.expansions[carry.ranges].instances()]

    def _pass_on(self, s: Statement, nodes: Sequence[UOp]) -> None:
        """Compute the value of each CARRY from its node, in all lanes of the CARRY."""
        values = self.values
        self.held[s] = [self.lines.widen(values.value(nodes[i], at),
                                         values.expansions[carry.ranges].lanes)
                        for i, carry, at in self.entries(s)]

    def start(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            self._pass_on(s, init_values(s.node))

    def enter(self, statements: Sequence[Statement], loop: UOp) -> None:
        """Begin an iteration of the FOR ``loop``."""
        values = self.values
        for s in statements:
            depth = len(values.keys) - 1
            for (_, carry, at), held in zip(self.entries(s), self.held[s]):
                values.remember(carry, at, self.lines.phi(held), depth)
        for condition in dict.fromkeys([stop_condition(s.node) for s in statements]):
            if condition is not None:
                self.lines.put(ops.BREAK, dtypes.void, (loop, self._all_stopped(condition)))

    def _all_stopped(self, condition: UOp) -> UOp:
        """Emit whether a stop condition holds in all instances and lanes."""
        if any(is_statement(n) for n in toposort([condition], stop=is_statement)
               if n.ranges & condition.ranges):
            raise KernelError("expected the condition of a loop to be made of its carried values; "
                              "got one with a fold over a loop inside",
                              hint="carry the reduced value and compare it")
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
        self._pass_on(s, next_values(s.node))

    def finish(self, statements: Sequence[Statement]) -> None:
        """Record the values of the GETTUPLEs."""
        values = self.values
        for s in statements:
            finals: dict[tuple[int, tuple[int, ...]], UOp] = {}
            unrolled: dict[int, tuple[UOp, ...]] = {}
            for (i, carry, at), final in zip(self.entries(s), self.held.pop(s)):
                unrolled[i] = values.expansions[carry.ranges].unrolled
                finals[i, tuple([at[r] for r in unrolled[i]])] = final
            for i, get in enumerate(build.results(s.node)):
                for at in values.expansions[get.ranges].instances():
                    value_of_get = finals[i, tuple([at[r] for r in unrolled[i]])]
                    values.remember(get, at, value_of_get, s.outer_depth)
