"""Accumulators: partial results of a REDUCE over loops, one for each instance and lane.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import value
from fnx.core.ir.uop import UOp, substitute
from fnx.core.rewriting import symbolic
from fnx.core.support.range_kinds import LOOP_KINDS
from fnx.lower.analysis.conditions import match_masked_reduce
from fnx.lower.emit import tile_mma, warp_mma
from fnx.lower.emit.expansion import Instance
from fnx.lower.emit.loop_nest import Statement
from fnx.lower.emit.values import Values, reduced_values

_MIN_RESULTS = 4  # results computed at once from which on one accumulator each suffices


class Accumulators:
    """The accumulators of each open REDUCE, ordered by free instance, then closed instance."""

    def __init__(self, values: Values) -> None:
        self.values, self.lines = values, values.lines
        self.held: dict[Statement, list[UOp]] = {}  # of ARG_PAIRs: all keys, then all indices
        self.index_increases: dict[Statement, bool] = {}

    def free(self, s: Statement) -> list[Instance]:
        return self.values.expansions[s.node.ranges].instances()

    def instances(self, s: Statement) -> list[Instance]:
        closed = self.values.expansions[frozenset(s.closed)]
        return [i for outer in self.free(s) for i in closed.instances(outer)]

    def chains(self, s: Statement) -> list[list[Instance]]:
        """Return the instances that each accumulator adds, in order.

        With few results, each instance has its own accumulator. With enough results to hide the
        latency of additions, the instances of a result share one.
        """
        free = self.free(s)
        plain = value(s.node).op not in (ops.ARG_PAIR, ops.MMA)
        if len(free) < _MIN_RESULTS or not plain or tile_mma.is_tile_mma(value(s.node)):
            return [[i] for i in self.instances(s)]
        closed = self.values.expansions[frozenset(s.closed)]
        return [closed.instances(outer) for outer in free]

    def start(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            if tile_mma.is_tile_mma(value(s.node)):
                self.held[s] = tile_mma.zeros(self.values, value(s.node), self.instances(s))
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

    def nexts(self, statements: Sequence[Statement]) -> list[UOp]:
        return [a for s in statements for a in self.held[s]]

    def leave(self, statements: Sequence[Statement], finals: Iterator[UOp]) -> None:
        for s in statements:
            self.held[s] = [next(finals) for _ in self.held[s]]

    def step(self, s: Statement) -> None:
        """Combine each accumulator with the value of its instance."""
        instances = self.instances(s)
        mma = tile_mma if tile_mma.is_tile_mma(value(s.node)) else warp_mma if warp_mma.is_warp_mma(
            value(s.node)) else None
        if mma is not None:
            self.held[s] = mma.multiplied(self.values, value(s.node), instances, self.held[s])
        elif value(s.node).op is ops.ARG_PAIR:
            partials, n = self.held[s], len(instances)
            pairs = [self._select(s, *of) for of in zip(partials[:n], partials[n:], instances)]
            self.held[s] = [side for column in zip(*pairs) for side in column]
        else:
            for n, chain in enumerate(self.chains(s)):
                for i in chain:
                    self.held[s][n] = self._accumulate(s.node, self.held[s][n], i)

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

    def _accumulate(self, node: UOp, accumulator: UOp, instance: Instance) -> UOp:
        lines, dtype, monoid = self.lines, accumulator.dtype, node.arg.monoid
        condition, reduced = match_masked_reduce(node) or (None, value(node))
        truth = condition is None or self.values.truth(condition, instance)
        if truth is False:
            return accumulator
        is_mul_add = lines.fma and monoid is ops.ADD and reduced.op is ops.MUL and dtype.is_float
        is_mma = reduced.op is ops.MMA and monoid is ops.ADD
        operands = [lines.widen(self.values.value(v, instance), dtype.lanes)
                    for v in (reduced.src if is_mul_add or is_mma else (reduced,))]
        combined = lines.add(ops.MULACC, dtype, (*operands, accumulator)) if is_mul_add else \
            lines.add(ops.MMA, dtype, (*operands, accumulator), reduced.arg) if is_mma else \
            lines.apply_monoid(monoid, accumulator, operands[0])
        if condition is None or truth:
            return combined
        mask = self.values.value(condition, instance)
        return lines.across(ops.WHERE, dtype.scalar, (mask, combined, accumulator))

    def finish(self, statements: Sequence[Statement]) -> None:
        """Reduce the accumulators of each free instance to the value of its REDUCE."""
        for s in statements:
            partials, free_instances = self.held.pop(s), self.free(s)
            n = len(self.chains(s))
            if tile_mma.is_tile_mma(value(s.node)):
                partials = tile_mma.rows(self.values, value(s.node), self.instances(s), partials)
            per_instance = n // len(free_instances)
            for i, instance in enumerate(free_instances):
                total = self.values.reduced(s.node, [
                    a for start in range(0, len(partials), n)
                    for a in partials[start + i * per_instance:start + (i + 1) * per_instance]])
                self.values.remember(s.node, instance, total, s.own)


def _pair_index(s: Statement) -> UOp:
    """Return the indices of a reduction of ARG_PAIRs, without their mask."""
    _, pair = match_masked_reduce(s.node) or (None, value(s.node))
    index: UOp = pair.src[1]
    return index
