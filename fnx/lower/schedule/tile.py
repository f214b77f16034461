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
that element if the result aliases its operand. Lanes of an ITER that end individually become
inactive there. Loops of extent 1 are dropped. Stages are placed after all loops are known, wherever
they stand in the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from fnx.core import build, dtypes, ops
from fnx.core.errors import KernelError
from fnx.core.parts import buffer, closed, dims, indices, place, stop
from fnx.core.rewriting import symbolic
from fnx.core.tiling import Collect, StageOperand, Transform
from fnx.core.uop import UOp, inherit, rebuild, substitute, toposort
from fnx.lower.factors import vanishes
from fnx.lower.kernel.canonical import canonical
from fnx.lower.schedule.collecting import collected
from fnx.lower.schedule.legality import check, is_data
from fnx.lower.schedule.loops import Loops, ScheduledLoop
from fnx.lower.schedule.staging import place_stages
from fnx.lower.schedule.units import multiplied
from fnx.lower.schedule.workload import stride


def tile(kernel: UOp, schedule: Sequence[Transform]) -> UOp:
    """Apply a schedule to an untiled KERNEL.

    Raises:
        KernelError: the schedule names something that does not exist, or would change the meaning.

    >>> from fnx.core import tiling
    >>> r = build.range_(100, 0, name="i")
    >>> x, o = (build.at(build.ref(s, dtypes.float32, (100,)), r) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy")
    >>> tiled = tile(copy, [tiling.split("i", 16), tiling.vectorize("ii")])
    >>> sorted((r.arg.name, r.arg.kind) for r in tiled.src[0].ranges)
    [('ii', 'VEC'), ('io', 'SEQ')]
    """
    loops = Loops(kernel)
    loops.apply(schedule)
    order = loops.finish()
    stages = [step for step in schedule if isinstance(step, StageOperand)]
    stores = _Rewriter(loops, kernel.src, _filled_along(kernel, stages)).stores
    check(kernel, loops, stores, order)
    arg = kernel.arg
    tiled = inherit(build.kernel(stores, arg.name, order, arg.apart, arg.near), kernel)
    tiled = place_stages(tiled, stages, list(loops.leaves))
    for step in schedule:
        if isinstance(step, Collect):
            tiled = collected(tiled, step)
    return canonical(tiled)


_BESIDE = frozenset({"VEC", "THREAD"})  # iterations that run at once with the last one


class _Rewriter:
    """One traversal: replace ranges by their values, and add validity where it is needed."""

    def __init__(self, loops: Loops, stores: Sequence[UOp], masked: frozenset[UOp]) -> None:
        self.loops = loops
        self.guard: dict[UOp, UOp] = {}
        self.exact: dict[UOp, UOp] = {}  # the unclamped value of a range that is clamped in loads
        self.inside: set[UOp] = set()  # ranges that are always in bounds in loads
        values = {r: loop.value() for r, loop in loops.of.items()}
        clamped = _clampable(stores) - masked
        share = any(leaf.kind == "UNROLL" for n in toposort(stores) if n.op is ops.REDUCE
                    for r in closed(n) for leaf in loops.of[r].leaves())
        for r, loop in loops.of.items():
            conditions = list(loop.guards())
            if conditions:
                self.guard[r] = _all(conditions)
                if r not in clamped or any(leaf.kind in _BESIDE for leaf in loop.leaves()):
                    continue
                self.inside.add(r)
                moved = loop.moved() if share else None
                if moved is not None:
                    values[r], self.guard[r] = moved
                else:
                    self.exact[r], values[r] = values[r], loop.clamped()
        self.values = values
        self.stores = rebuild(stores, self.visit, values)

    def visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        row = _ROWS.get(node.op)
        return None if row is None else row(self, node, src)

    def conditions(self, ranges: Iterable[UOp]) -> list[UOp]:
        return sorted([self.guard[r] for r in ranges if r in self.guard], key=lambda c: c.rank)

    def comparison(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        """Simplify a comparison of indices: its operands were rebuilt unsimplified."""
        return symbolic.simplify(node.over(src)) if src[0].dtype is dtypes.index else None

    def index(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        simple = [symbolic.simplify(i) for i in src[1:]]
        if buffer(node).op is ops.STAGE:
            simple = [digit for r, i in zip(closed(buffer(node)), simple)
                      for digit in self.loops.of[r].digits(i)]
        return node.over((src[0], *simple))

    def load(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        at, *valid = src
        if buffer(at).op not in (ops.REF, ops.STAGE):
            return buffer(at)  # a stage of one element is replaced by that element
        conditions = self.conditions(place(node).ranges.difference(self.inside))
        if conditions and _is_inside(at):
            conditions = []
        return build.load(at, _together([*conditions, *valid]))

    def store(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        at, stored, *valid = src
        if self.exact:
            exact = substitute(indices(node), {r: self.exact.get(r, v)
                                               for r, v in self.values.items()})
            at = build.at(buffer(at), *map(symbolic.simplify, exact))
        valid = [*self.conditions(node.ranges), *valid]
        return build.store(at, stored, _together(valid), node.arg)

    def reduce(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        folded = src[0]
        conditions = self.conditions(closed(node))
        identity = node.arg.monoid.identity(node.dtype)
        if conditions and folded.op is ops.PAIR:
            worst = node.arg.monoid.identity(folded.src[0].dtype), folded.dtype.limits[1]
            folded = _within(_all(conditions), folded, worst)
            conditions = []
        inside = _all(conditions) if conditions and not (
            identity == 0 and vanishes(folded, conditions)) else None
        word = self.word(node)
        if word is None:
            if inside is not None:
                folded = build.where(inside, folded, build.const(identity, folded.dtype))
            return self.summed(node, folded)
        unit, words = self.loops.units[word]
        own = [loop.final for loop in (word, words) if loop is not None and loop.final is not None]
        parts = multiplied(folded, unit, own, inside)
        if parts is None:
            raise KernelError(
                f"tensorize({word.name!r}, {unit.name!r}): expected a sum of products of "
                f"{unit.left} and {unit.right} in {unit.result}", site=node.site)
        taken, away = (None if p is None else self.summed(node, p, own) for p in parts)
        assert taken is not None
        return taken if away is None else build.sub(taken, away)

    def word(self, node: UOp) -> ScheduledLoop | None:
        """Return the loop of a sum whose iterations are the terms of a register word."""
        leaves = (leaf for r in closed(node) for leaf in self.loops.of[r].leaves())
        return next((leaf for leaf in leaves if leaf in self.loops.units), None)

    def summed(self, node: UOp, folded: UOp, without: Sequence[UOp] = ()) -> UOp:
        """Return a REDUCE over the loops that its ranges became, except those inside its terms."""
        levels = [[leaf for r in closed(node) for leaf in self.loops.of[r].ranges()]]
        if self.loops.subtotals and node.arg.monoid is ops.ADD and folded.dtype.is_float:
            levels = self.loops.levels(closed(node))
        for ranges in levels:
            rest = [r for r in ranges if r not in without]
            folded = node.over((folded, *rest)) if rest else build.without_key(folded)
        return folded

    def iterate(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        """End a loop also where the ranges that its stop condition depends on are out of bounds."""
        end = stop(node)
        conditions = [] if end is None else self.conditions(end.ranges.difference(self.inside))
        if not conditions:
            return None
        outside = build.or_(src[-1], build.logical_not(_all(conditions)))
        return node.over((*src[:-1], outside))

    def stage(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        """Return a STAGE over the loops that its ranges became."""
        ranges = [leaf for r in closed(node) for leaf in self.loops.of[r].ranges()]
        return node.over((src[0], *ranges)) if ranges else build.without_key(src[0])


_ROWS: dict[ops.Op, Callable[[_Rewriter, UOp, tuple[UOp, ...]], UOp | None]] = {
    ops.INDEX: _Rewriter.index, ops.LOAD: _Rewriter.load, ops.STORE: _Rewriter.store,
    ops.REDUCE: _Rewriter.reduce, ops.STAGE: _Rewriter.stage, ops.ITER: _Rewriter.iterate,
    **dict.fromkeys(ops.COMPARISONS, _Rewriter.comparison),
}


def _clampable(stores: Sequence[UOp]) -> frozenset[UOp]:
    """Return the ranges of the result that no reduction closes; none if a buffer is read and
    written, or if indices are data."""
    nodes = toposort(stores)
    written = set(map(buffer, stores))
    if any(map(is_data, stores)) or any(n.op is ops.LOAD and buffer(n) in written for n in nodes):
        return frozenset()
    inner = [r for n in nodes if n.op in (ops.REDUCE, ops.STAGE, ops.ITER) for r in closed(n)]
    return frozenset().union(*[s.ranges for s in stores]).difference(inner)


def _filled_along(kernel: UOp, stages: Sequence[StageOperand]) -> frozenset[UOp]:
    """Return the ranges of a map along which a staged operand is contiguous: vectors fill its
    stage, and their lanes are validated individually."""
    nodes = toposort(kernel.src)
    if not stages or any(n.op in (ops.REDUCE, ops.STAGE, ops.ITER) for n in nodes):
        return frozenset()
    staged = {step.operand for step in stages}
    return frozenset([r for n in nodes if n.op is ops.LOAD for r in n.ranges if stride(n, r) == 1
                      and not staged.isdisjoint((buffer(n).arg.slot, buffer(n).arg.name))])


def _within(condition: UOp, pair: UOp, worst: tuple[Any, int]) -> UOp:
    """Return a pair, replaced by a key and an index that no reduction selects where a condition
    fails."""
    return build.pair(*[build.where(condition, s, build.const(number, s.dtype))
                        for s, number in zip(pair.src, worst)])


def _all(conditions: Sequence[UOp]) -> UOp:
    return reduce(build.and_, conditions)


def _together(conditions: Sequence[UOp]) -> UOp | None:
    """Return the validity of an access under all conditions; None if they always hold."""
    if not conditions:
        return None
    together = symbolic.simplify(_all(conditions))
    return None if together.op is ops.CONST and together.arg else together


def _is_inside(at: UOp) -> bool:
    """Return whether every index is provably in bounds."""
    return all(symbolic.bounds(i)[0] >= 0 and symbolic.proves(build.lt(i, d)) is True
               for i, d in zip(indices(at), dims(buffer(at))))
