"""Accumulators: partial results of a REDUCE over loops, one for each instance and lane.

    FOR k                        REDUCE(x[i, k], k, ADD)      i UNROLL 2
      a0 = PHI 0, a1 = PHI 0       start          the identity in each
      b0 = a0 + x[0, k]            enter          an iteration of each loop it reduces over
      b1 = a1 + x[1, k]            step           adds the values of this iteration
    ENDFOR b0, b1                  nexts, leave   to the next iteration, or out of the loop
                                   finish         reduces the closed instances

REDUCE(ADD, MUL) of floats is MULACC; a matrix unit accumulates by itself. A conditional value is
excluded by a WHERE on the accumulator.
A reduction of PAIRs (argmax) has two accumulators, a key and its index. If indices increase from
one iteration to the next, the first of equal keys wins without a test of the indices. The initial
index is then that of the first iteration, since a key may equal the identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fnx.core import build, dtypes, ops
from fnx.core.parts import value
from fnx.core.range_kinds import LOOPS
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, substitute
from fnx.lower.program import tiles, warps
from fnx.lower.program.conditions import masked
from fnx.lower.program.loop_nest import Statement
from fnx.lower.program.roles import Instance
from fnx.lower.program.values import Values, columns

_CHAINS = 4  # results computed at once from which on one accumulator each suffices


class Accumulators:
    """The accumulators of each open REDUCE, ordered by free instance, then closed instance."""

    def __init__(self, values: Values) -> None:
        self.values, self.lines = values, values.lines
        self.held: dict[Statement, list[UOp]] = {}  # of PAIRs: all keys, then all indices
        self.growing: dict[Statement, bool] = {}

    def free(self, s: Statement) -> list[Instance]:
        return self.values.replication[s.node.ranges].instances()

    def instances(self, s: Statement) -> list[Instance]:
        closed = self.values.replication[frozenset(s.closed)]
        return [i for outer in self.free(s) for i in closed.instances(outer)]

    def chains(self, s: Statement) -> list[list[Instance]]:
        """Return the instances that each accumulator adds, in order.

        With few results, each instance has its own accumulator. With enough results to hide the
        latency of additions, the instances of a result share one.
        """
        free = self.free(s)
        plain = value(s.node).op not in (ops.PAIR, ops.MMA)
        if len(free) < _CHAINS or not plain or tiles.is_of_tiles(value(s.node)):
            return [[i] for i in self.instances(s)]
        closed = self.values.replication[frozenset(s.closed)]
        return [closed.instances(outer) for outer in free]

    def start(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            if tiles.is_of_tiles(value(s.node)):
                self.held[s] = tiles.zeros(self.values, value(s.node), self.instances(s))
                continue
            first = columns(s.node)[0].dtype
            lanes = self.values.replication[value(s.node).ranges.union(s.closed)].lanes
            identity = build.const(s.node.arg.monoid.identity(first), first)
            self.held[s] = [self.lines.widen(identity, lanes)] * len(self.chains(s))
            if value(s.node).op is ops.PAIR:
                self.held[s] += [self.lines.widen(p, lanes) for p in self._first_places(s)]

    def _first_places(self, s: Statement) -> list[UOp]:
        """Return the initial indices."""
        dtype = s.node.dtype
        if not self._grows(s):
            return [build.const(dtype.limits[1], dtype)] * len(self.instances(s))
        loops = {r: build.index_const(0) for r in s.closed if r.arg.kind in LOOPS}
        first, = substitute([_place(s)], loops)
        return [self.values.value(first, i) for i in self.instances(s)]

    def _grows(self, s: Statement) -> bool:
        """Return whether indices increase with the iterations of the reduction's one loop."""
        if s not in self.growing:
            place, loops = _place(s), [r for r in s.closed if r.arg.kind in LOOPS]
            while place.op is ops.CAST and place.dtype.is_integer:
                place = place.src[0]
            terms, _ = symbolic.linear(place) if place.dtype is dtypes.index else ({}, 0)
            self.growing[s] = len(loops) == 1 and terms.get((loops[0],), 0) > 0 and all(
                len(m) == 1 and m[0].op is ops.RANGE for m in terms)
        return self.growing[s]

    def enter(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            self.held[s] = [self.lines.phi(a) for a in self.held[s]]

    def nexts(self, statements: Sequence[Statement]) -> list[UOp]:
        return [a for s in statements for a in self.held[s]]

    def leave(self, statements: Sequence[Statement], last: Iterator[UOp]) -> None:
        for s in statements:
            self.held[s] = [next(last) for _ in self.held[s]]

    def step(self, s: Statement) -> None:
        """Combine each accumulator with the value of its instance."""
        instances = self.instances(s)
        of = tiles if tiles.is_of_tiles(value(s.node)) else warps if warps.is_of_warp(
            value(s.node)) else None
        if of is not None:
            self.held[s] = of.multiplied(self.values, value(s.node), instances, self.held[s])
        elif value(s.node).op is ops.PAIR:
            held, n = self.held[s], len(instances)
            pairs = [self._better(s, *of) for of in zip(held[:n], held[n:], instances)]
            self.held[s] = [side for column in zip(*pairs) for side in column]
        else:
            for n, chain in enumerate(self.chains(s)):
                for i in chain:
                    self.held[s][n] = self._taken_in(s.node, self.held[s][n], i)

    def _better(self, s: Statement, key: UOp, place: UOp, instance: Instance) -> tuple[UOp, UOp]:
        """Return the better of (key, index) and those of this iteration."""
        lines, monoid = self.lines, s.node.arg.monoid
        condition, folded = masked(s.node) or (None, value(s.node))
        key_now, place_now = [lines.widen(self.values.value(x, instance), key.dtype.lanes)
                              for x in folded.src]
        take = lines.is_better(monoid, key_now, key)
        if not self._grows(s):
            tie = lines.across(ops.CMPEQ, dtypes.bool_, (key_now, key))
            if key.dtype.is_float:
                both = lines.both(lines.is_nan(key_now), lines.is_nan(key))
                assert both is not None
                tie = lines.across(ops.OR, dtypes.bool_, (tie, both))
            less = lines.across(ops.CMPLT, dtypes.bool_, (place_now, place))
            take = lines.across(ops.OR, dtypes.bool_, (
                take, lines.across(ops.AND, dtypes.bool_, (tie, less))))
        if condition is not None and not self.values.truth(condition, instance):
            mask = self.values.value(condition, instance)
            take = lines.across(ops.AND, dtypes.bool_, (
                lines.widen(mask, key.dtype.lanes), take))
        return (lines.across(ops.WHERE, key.dtype.scalar, (take, key_now, key)),
                lines.across(ops.WHERE, place.dtype.scalar, (take, place_now, place)))

    def _taken_in(self, node: UOp, accumulator: UOp, instance: Instance) -> UOp:
        lines, dtype, monoid = self.lines, accumulator.dtype, node.arg.monoid
        condition, folded = masked(node) or (None, value(node))
        truth = condition is None or self.values.truth(condition, instance)
        if truth is False:
            return accumulator
        multiply = lines.fma and monoid is ops.ADD and folded.op is ops.MUL and dtype.is_float
        unit = folded.op is ops.MMA and monoid is ops.ADD
        operands = [lines.widen(self.values.value(v, instance), dtype.lanes)
                    for v in (folded.src if multiply or unit else (folded,))]
        out = lines.add(ops.MULACC, dtype, (*operands, accumulator)) if multiply else \
            lines.add(ops.MMA, dtype, (*operands, accumulator), folded.arg) if unit else \
            lines.combined(monoid, accumulator, operands[0])
        if condition is None or truth:
            return out
        mask = self.values.value(condition, instance)
        return lines.across(ops.WHERE, dtype.scalar, (mask, out, accumulator))

    def finish(self, statements: Sequence[Statement]) -> None:
        """Reduce the accumulators of each free instance to the value of its REDUCE."""
        for s in statements:
            held, free = self.held.pop(s), self.free(s)
            n = len(self.chains(s))
            if tiles.is_of_tiles(value(s.node)):
                held = tiles.rows(self.values, value(s.node), self.instances(s), held)
            each = n // len(free)
            for i, instance in enumerate(free):
                total = self.values.reduced(s.node, [
                    a for first in range(0, len(held), n)
                    for a in held[first + i * each:first + (i + 1) * each]])
                self.values.remember(s.node, instance, total, s.own)


def _place(s: Statement) -> UOp:
    """Return the indices of a reduction of PAIRs, without their mask."""
    _, pair = masked(s.node) or (None, value(s.node))
    place: UOp = pair.src[1]
    return place
