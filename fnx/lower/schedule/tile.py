"""tile: a KERNEL and a schedule -> the KERNEL with those loops. Check legality, then rewrite.

    before  STORE(o[m, n], REDUCE(x[m, k] * w[k, n], k, ADD))               order m n k
            split("m", 14, "io", "i"), split("n", 16, "jr", "l"), order("io", "jr", "k", "i", "l"),
            parallel("io"), unroll("i"), vectorize("l"), stage("w", at="jr")
    after   W = STAGE(w[k', 16*jr + l'], k', l')                    filled in loop jr: a panel
            a = x[min(14*io + i, M - 1), k]
            STORE(o[14*io + i, 16*jr + l], REDUCE(a * W[k, l], k, ADD),
                  valid = 14*io + i < M and 16*jr + l < N)          order io jr k i l k' l'

Splits round up. If a range's value is out of bounds, STOREs do not write, LOADs do not read (they
give 0), and a REDUCE over it takes the monoid's identity. A range of the result that is neither a
lane nor a thread needs no condition on loads: they read the last element again, and the value is
discarded (above: x[min(14*io + i, M - 1), k]). A lane or thread does need it: another one may write
that element if the result aliases its operand. Lanes of a LOOP that end individually become
inactive there. Loops of extent 1 are dropped. Stages are placed after all loops are known, wherever
they stand in the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import (
    bound_ranges,
    buffer,
    index_dims,
    index_node,
    indices,
    stop_condition,
)
from fnx.core.ir.tiling import Collect, StageOperand, Transform
from fnx.core.ir.uop import UOp, copy_locs, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.analysis.loops import Loops, ScheduledLoop
from fnx.lower.analysis.workload import is_zero_unless, stride
from fnx.lower.schedule.legality import check_loops, has_data_index
from fnx.lower.schedule.matrix_units import lower_to_mma
from fnx.lower.schedule.rolled_epilogue import roll_epilogue
from fnx.lower.schedule.staging import place_stages


def tile(kernel: UOp, schedule: Sequence[Transform]) -> UOp:
    """Apply a schedule to an untiled KERNEL.

    Raises:
        KernelError: the schedule names something that does not exist, or would change the meaning.

    >>> from fnx.core.ir import tiling
    >>> r = build.range_(100, 0, name="i")
    >>> x, o = (build.index_into(build.ref(s, dtypes.float32, (100,)), r) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy")
    >>> tiled = tile(copy, [tiling.split("i", 16), tiling.vectorize("ii")])
    >>> sorted((r.arg.name, r.arg.kind) for r in tiled.src[0].ranges)
    [('ii', 'VEC'), ('io', 'SEQ')]
    """
    loops = Loops(kernel)
    loops.apply(schedule)
    order = loops.make_ranges()
    stages = [step for step in schedule if isinstance(step, StageOperand)]
    stores = _Rewriter(loops, kernel.src, _vector_filled_ranges(kernel, stages)).stores
    check_loops(kernel, loops, stores, order)
    arg = kernel.arg
    tiled = copy_locs(build.kernel(stores, arg.name, order, arg.stores_disjoint,
                                   arg.index_fits_int32), kernel)
    tiled = place_stages(tiled, stages, list(loops.leaves))
    for step in schedule:
        if isinstance(step, Collect):
            tiled = roll_epilogue(tiled, step)
    return canonicalize(tiled)


_CONCURRENT_KINDS = frozenset({"VEC", "THREAD"})  # iterations that run at once with the last one


class _Rewriter:
    """One traversal: replace ranges by their values, and add validity where it is needed."""

    def __init__(self, loops: Loops, stores: Sequence[UOp], vector_filled: frozenset[UOp]) -> None:
        self.loops = loops
        self.range_guards: dict[UOp, UOp] = {}
        # the unclamped value of a range that is clamped in loads
        self.unclamped: dict[UOp, UOp] = {}
        self.always_valid: set[UOp] = set()  # ranges that are always in bounds in loads
        values = {r: loop.value() for r, loop in loops.of.items()}
        clampable = _clampable_ranges(stores) - vector_filled
        shares_loads = any(leaf.kind == "UNROLL" for n in toposort(stores) if n.op is ops.REDUCE
                           for r in bound_ranges(n) for leaf in loops.of[r].leaves())
        for r, loop in loops.of.items():
            conditions = list(loop.guards())
            if conditions:
                self.range_guards[r] = _conjunction(conditions)
                if r not in clampable or \
                        any(leaf.kind in _CONCURRENT_KINDS for leaf in loop.leaves()):
                    continue
                self.always_valid.add(r)
                shifted_tail = loop.shift_tail() if shares_loads else None
                if shifted_tail is not None:
                    values[r], self.range_guards[r] = shifted_tail
                else:
                    self.unclamped[r], values[r] = values[r], loop.clamped()
        self.values = values
        self.stores = rebuild(stores, self.visit, values)

    def visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        handler = _HANDLERS.get(node.op)
        return None if handler is None else handler(self, node, src)

    def conditions(self, ranges: Iterable[UOp]) -> list[UOp]:
        return sorted([self.range_guards[r] for r in ranges if r in self.range_guards],
                      key=lambda c: c.sort_key)

    def comparison(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        """Simplify a comparison of indices: its operands were rebuilt unsimplified."""
        return symbolic.simplify(node.with_operands(src)) if src[0].dtype is dtypes.index else None

    def index(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        simple = [symbolic.simplify(i) for i in src[1:]]
        if buffer(node).op is ops.STAGE:
            simple = [digit for r, i in zip(bound_ranges(buffer(node)), simple)
                      for digit in self.loops.of[r].digits(i)]
        return node.with_operands((src[0], *simple))

    def load(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        at, *valid = src
        if buffer(at).op not in (ops.REF, ops.STAGE):
            return buffer(at)  # a stage of one element is replaced by that element
        conditions = self.conditions(index_node(node).ranges.difference(self.always_valid))
        if conditions and _is_in_bounds(at):
            conditions = []
        return build.load(at, _combined_validity([*conditions, *valid]))

    def store(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        at, value, *valid = src
        if self.unclamped:
            exact = substitute(indices(node), {r: self.unclamped.get(r, v)
                                               for r, v in self.values.items()})
            at = build.index_into(buffer(at), *map(symbolic.simplify, exact))
        valid = [*self.conditions(node.ranges), *valid]
        return build.store(at, value, _combined_validity(valid), node.arg)

    def reduce(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        reduced = src[0]
        conditions = self.conditions(bound_ranges(node))
        identity = node.arg.monoid.identity(node.dtype)
        if conditions and reduced.op is ops.ARG_PAIR:
            neutral = node.arg.monoid.identity(reduced.src[0].dtype), reduced.dtype.limits[1]
            reduced = _mask_pair(_conjunction(conditions), reduced, neutral)
            conditions = []
        in_bounds = _conjunction(conditions) if conditions and not (
            identity == 0 and is_zero_unless(reduced, conditions)) else None
        word = self.word_loop(node)
        if word is None:
            if in_bounds is not None:
                reduced = build.where(in_bounds, reduced, build.const(identity, reduced.dtype))
            return self.reduce_levels(node, reduced)
        unit, inner_terms = self.loops.units[word]
        term_loops = [loop.final_range for loop in (word, inner_terms)
                      if loop is not None and
                      loop.final_range is not None]
        products = lower_to_mma(reduced, unit, term_loops, in_bounds)
        if products is None:
            raise KernelError(
                f"tensorize({word.name!r}, {unit.name!r}): expected a sum of products of "
                f"{unit.left} and {unit.right} in {unit.result}", loc=node.loc)
        total, correction = (None if p is None else self.reduce_levels(node, p, term_loops)
                             for p in products)
        assert total is not None
        return total if correction is None else build.sub(total, correction)

    def word_loop(self, node: UOp) -> ScheduledLoop | None:
        """Return the loop of a sum whose iterations are the terms of a register word."""
        leaves = (leaf for r in bound_ranges(node) for leaf in self.loops.of[r].leaves())
        return next((leaf for leaf in leaves if leaf in self.loops.units), None)

    def reduce_levels(self, node: UOp, reduced: UOp, excluded: Sequence[UOp] = ()) -> UOp:
        """Return a REDUCE over the loops that its ranges became, except those inside its terms."""
        levels = [[leaf for r in bound_ranges(node) for leaf in self.loops.of[r].ranges()]]
        if self.loops.blocked_sums and node.arg.monoid is ops.ADD and reduced.dtype.is_float:
            levels = self.loops.levels(bound_ranges(node))
        for ranges in levels:
            remaining = [r for r in ranges if r not in excluded]
            reduced = node.with_operands((reduced, *remaining)) if remaining else \
                build.drop_key(reduced)
        return reduced

    def iterate(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        """End a loop also where the ranges that its stop condition depends on are out of bounds."""
        end_condition = stop_condition(node)
        conditions = [] if end_condition is None \
            else self.conditions(end_condition.ranges.difference(self.always_valid))
        if not conditions:
            return None
        stopped = build.or_(src[-1], build.logical_not(_conjunction(conditions)))
        return node.with_operands((*src[:-1], stopped))

    def stage(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        """Return a STAGE over the loops that its ranges became."""
        ranges = [leaf for r in bound_ranges(node) for leaf in self.loops.of[r].ranges()]
        return node.with_operands((src[0], *ranges)) if ranges else build.drop_key(src[0])


_HANDLERS: dict[ops.Op, Callable[[_Rewriter, UOp, tuple[UOp, ...]], UOp | None]] = {
    ops.INDEX: _Rewriter.index, ops.LOAD: _Rewriter.load, ops.STORE: _Rewriter.store,
    ops.REDUCE: _Rewriter.reduce, ops.STAGE: _Rewriter.stage, ops.LOOP: _Rewriter.iterate,
    **dict.fromkeys(ops.COMPARISONS, _Rewriter.comparison),
}


def _clampable_ranges(stores: Sequence[UOp]) -> frozenset[UOp]:
    """Return the ranges of the result that no reduction closes; none if a buffer is read and
    written, or if indices are data."""
    nodes = toposort(stores)
    written = set(map(buffer, stores))
    if any(map(has_data_index, stores)) or any(n.op is ops.LOAD and buffer(n) in written
                                               for n in nodes):
        return frozenset()
    closed_ranges = [r for n in nodes if n.op in (ops.REDUCE, ops.STAGE, ops.LOOP)
                     for r in bound_ranges(n)]
    return frozenset().union(*[s.ranges for s in stores]).difference(closed_ranges)


def _vector_filled_ranges(kernel: UOp, stages: Sequence[StageOperand]) -> frozenset[UOp]:
    """Return the ranges of a map along which a staged operand is contiguous: vectors fill its
    stage, and their lanes are validated individually."""
    nodes = toposort(kernel.src)
    if not stages or any(n.op in (ops.REDUCE, ops.STAGE, ops.LOOP) for n in nodes):
        return frozenset()
    staged = {step.operand for step in stages}
    return frozenset([r for n in nodes if n.op is ops.LOAD for r in n.ranges
                      if abs(stride(n, r)) == 1
                      and not staged.isdisjoint((buffer(n).arg.slot, buffer(n).arg.name))])


def _mask_pair(condition: UOp, pair: UOp, neutral: tuple[Any, int]) -> UOp:
    """Return a pair, replaced by a key and an index that no reduction selects where a condition
    fails."""
    return build.arg_pair(*[build.where(condition, s, build.const(number, s.dtype))
                            for s, number in zip(pair.src, neutral)])


def _conjunction(conditions: Sequence[UOp]) -> UOp:
    return reduce(build.and_, conditions)


def _combined_validity(conditions: Sequence[UOp]) -> UOp | None:
    """Return the validity of an access under all conditions; None if they always hold."""
    if not conditions:
        return None
    combined = symbolic.simplify(_conjunction(conditions))
    return None if combined.op is ops.CONST and combined.arg else combined


def _is_in_bounds(at: UOp) -> bool:
    """Return whether every index is provably in bounds."""
    return all(symbolic.bounds(i)[0] >= 0 and symbolic.prove(build.lt(i, d)) is True
               for i, d in index_dims(at))
