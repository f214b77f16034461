"""Kernels that compute the reductions of an attention region block by block (online softmax).

    before  m[i] = max over j of s[i, j]              s[i, j] = sum over k of q[i, k] * key[j, k]
            l[i] = sum over j of exp(s[i, j] - m[i])
            o[i, c] = sum over j of exp(s[i, j] - m[i]) / l[i] * v[j, c]
    after   a loop over blocks of j carries top[i], total[i] and out[i, c]:
              s of the block; larger = max(top, max of it); e = STAGE(exp(s - larger))
              total * exp(top - larger) + sum of e;  out * exp(top - larger) + e @ v of the block
            m = top, l = total, o = out / total

So all sums of exponentials of one score, and its maximum, are computed in one pass, whatever is
subtracted from the score: ``exp(s - g) = exp(s - top) * exp(top - g)``. Reductions of known values
(of sums that are in memory) only carry their sums.

If a condition implies that from some block on all terms are exactly 0, the loop stops there: the
masked score must be so far below ``top`` that its exponential is 0, and the factors that the
exponential is multiplied with must be finite.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

from fnx.core import build, ops
from fnx.core.expr import Expr
from fnx.core.parts import buffer, indices
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.tiling import Transform
from fnx.core.uop import UOp, rebuild, substitute, toposort
from fnx.lower.blockwise import algebra
from fnx.lower.blockwise.ends import End, end_of, is_nothing
from fnx.lower.blockwise.frame import Frame, Term
from fnx.lower.blockwise.region import RegionReduce
from fnx.lower.blockwise.rows import Rows
from fnx.lower.blockwise.tiles import Tiles, shared_loop
from fnx.lower.program.conditions import INEQUALITIES, positive_form
from fnx.lower.schedule.loops import name_of


class ReduceKernel(Record):
    """A KERNEL with its schedule, the nodes it reads, the reductions it writes, and whether its
    loop may stop early."""

    kernel: UOp
    operands: tuple[UOp, ...]
    folds: tuple[RegionReduce, ...]
    schedule: tuple[Transform, ...]
    skips: bool


class RegionKernel:
    """The kernel of the reductions over one frame."""

    def __init__(self, frame: Frame, target: Target, depends: Mapping[UOp, frozenset[UOp]]
                 ) -> None:
        self.frame, self.target, self.depends = frame, target, depends
        self.terms: list[Term] = []
        self.across: list[Term] = []  # reductions over the rows, to which each row tile adds
        self.length = frame.shape[frame.along]

    @property
    def tiles(self) -> Tiles:
        return Tiles(self.frame.shape[self.frame.row], self.length,
                     [n for t in self.terms for _, n in t.fold.lanes],
                     max([t.value.dtype.compute.itemsize for t in self.terms]), self.target,
                     self.online)

    @property
    def folds(self) -> list[RegionReduce]:
        """The reductions computed here."""
        return [t.fold for t in (*self.terms, *self.across)]

    @property
    def block(self) -> int:
        return self.tiles.block

    @property
    def shares_nothing(self) -> bool:
        """Whether a tile has one row only, though there are many."""
        return self.tiles.rows == 1 < self.frame.shape[self.frame.row]

    # ---- which reductions

    def takes(self, fold: RegionReduce, waits: bool) -> bool:
        """Add a reduction to this kernel if possible; ``waits``: it depends on those in it."""
        frame = self.frame
        if fold.product is not frame.product or fold.summed != frame.summed:
            return False
        if any(fold.lanes and t.fold.lanes and t.fold.lanes != fold.lanes for t in self.terms):
            return False  # a single loop over lanes
        term = frame.term(fold)
        found = algebra.weighed(term.weights, frame.j) if term.monoid is ops.ADD else None
        score = self.score
        if waits or self.online:
            if term.monoid is ops.MAX and term.other is None and not waits and not frame.more:
                fits = score is None or score is term.value
            else:
                fits = found is not None and score in (None, found.score) and not frame.more \
                    and self._is_known([found.score, *[x for _, x, _ in found.inner
                                                       if x is not None], term.other])
            if not fits:
                return False
            self.terms.append(term if term.monoid is ops.MAX else term.replace(weighed=found))
            return True
        if term.monoid is ops.MAX and term.other is None and not self.terms and not frame.more:
            self.terms.append(term)
            return True
        if any(t.monoid is ops.MAX for t in self.terms):
            return False
        self.terms.append(term)
        return True

    def takes_across(self, other: RegionKernel) -> bool:
        """Add the reduction over the rows of another kernel, if it has the weights of one here."""
        frame = self.frame
        if self.online or len(other.terms) != 1 or other.across or frame.more or other.frame.more \
                or (other.frame.row, other.frame.along) != (frame.along, frame.row):
            return False
        fold = other.terms[0].fold
        apart = {frame.values.index(t) for t in fold.index}
        if fold.product is not frame.product or not fold.lanes or fold.node.dtype.storage \
                or any(t.fold.lanes != fold.lanes for t in self.terms) \
                or shared_loop({a: frame.shape[a] for a in frame.outer}) is None \
                or not apart.issuperset([frame.loops[a] for a in frame.outer]):
            return False
        term = frame.term(fold)
        if all(t.weights is not term.weights for t in self.terms):
            return False
        self.across.append(term)
        return True

    def _is_known(self, values: Iterable[UOp | None]) -> bool:
        """Whether values need nothing that is reduced here."""
        here = {t.fold.node for t in self.terms}
        memory = {slot: node for node, slot in self.frame.slots.items()}
        read = [memory[n.arg.slot] for n in toposort([v for v in values if v is not None])
                if n.op is ops.REF]
        return all(n not in here and here.isdisjoint(self.depends[n]) for n in read)

    @property
    def online(self) -> bool:
        """Whether the maximum of the score is computed online."""
        return any(t.monoid is ops.MAX or t.weighed is not None for t in self.terms)

    @property
    def score(self) -> UOp | None:
        for term in self.terms:
            if term.weighed is not None:
                return term.weighed.score
            if term.monoid is ops.MAX:
                return term.value
        return None

    # ---- the kernel

    def made(self, unread: Container[UOp] = ()) -> ReduceKernel:
        """Return the kernel; reductions in ``unread`` are not written.

        Raises:
            Unfit: it would need a value that it computes.
        """
        frame, length = self.frame, self.length
        first = 1 + max(r.arg.id for r in frame.loops.values())
        self.rows: Rows | None = None
        if self.across:
            row = frame.loops[frame.row]
            self.rows = Rows(row, frame.shape[frame.row], self.tiles.rows, first)
            first = self.rows.folded.arg.id + 1
        self.t = build.range_(-(-length // self.block), first, name="b")
        self.jl, self.jm, self.jx = (build.range_(self.block, first + 1 + i, name=name)
                                     for i, name in enumerate(("jl", "jm", "jx")))
        self.jq = build.range_(self.block, first + 4 + len(self.terms), name="jq")
        self.kept: dict[UOp, UOp] = {}
        ends = end_of(frame, [*self.terms, *self.across], self.score)
        last = build.index_const(-(-length // self.block) - 1)
        at = build.sub(last, self.t) if ends is not None and ends.way > 0 else self.t
        self.start = (Expr(at) * self.block).node
        nexts = self._nexts(ends)
        stop = None if ends is None else self._stop(ends)
        loop = build.iterate(0, self.t, [init for init, _ in self.carried], nexts, stop)
        results = zip(self.terms, self._results(build.results(loop)))
        across = [(t.fold, self.rows.step(self._of_tile(t, self.rows), self.t, stop))
                  for t in self.across if self.rows is not None and t.fold.result not in unread]
        skips = ends is not None and not ends.data  # that it stops early is known statically
        return self._kernel([(t.fold, self._apart(t, value)) for t, value in results
                             if t.fold.result not in unread], across, skips)

    def _apart(self, term: Term, value: UOp) -> UOp:
        """Reduce a value that is the same for all lanes: one loop carries all values."""
        lanes = [self.frame.loops[token] for t in self.terms for token, _ in t.fold.lanes][:1]
        return value if term.fold.lanes else build.reduce_ranges(value, ops.MAX, lanes)

    def _placed(self, value: UOp, r: UOp) -> UOp:
        """Evaluate a value for the current block, in a loop over it."""
        along, j = self.frame.j, build.add(self.start, r)
        inside = self._inside(r)

        def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node is along:
                return j
            if node.op is ops.LOAD and inside is not None and along in node.ranges:
                return build.load(src[0], inside)
            return None
        return rebuild([value], visit)[0]

    def _inside(self, r: UOp) -> UOp | None:
        """Return the condition that a column of a block is in bounds; None if it always is."""
        if not self.length % self.block:
            return None
        return build.lt(build.add(self.start, r), build.index_const(self.length))

    def _kept(self, value: UOp, over: UOp, r: UOp) -> UOp:
        """Stage a value of the block: it is computed in one loop over the block and read in
        another."""
        rows = [] if self.rows is None or over is not self.jx else [self.rows.inner]
        kept = self.kept.setdefault(value, build.stage(value, [*rows, over], len(self.kept)))
        return build.load(build.at(kept, *rows, r))

    def _of_tile(self, term: Term, rows: Rows) -> UOp:
        """Return what a tile of rows adds to a reduction over all of them, for a column of the
        block."""
        weights = self._within(self._of_products(term.weights), term.identity, self.jx)
        stage = buffer(self._kept(weights, self.jx, self.jq))
        fold, = substitute([term.value], {
            term.weights: build.load(build.at(stage, rows.folded, self.jq)),
            rows.row: rows.at(rows.folded)})
        return rows.fold(self._placed(fold, self.jq))

    def _of_products(self, value: UOp) -> UOp:
        """Evaluate a value of the block whose products are computed before, a tile at a time."""
        found = [n for n in toposort([value], stop=lambda n: n.op is ops.REDUCE)
                 if n.op is ops.REDUCE and self.frame.j in n.ranges]
        kept = [self._kept(self._placed(n, self.jl), self.jl, self.jx) for n in found]
        whole, = substitute([self._placed(value, self.jx)], dict(zip(
            [self._placed(n, self.jx) for n in found], kept)))
        return algebra.by_reciprocals(whole)

    def _within(self, value: UOp, otherwise: float, r: UOp) -> UOp:
        """Replace a value out of bounds of the axis by ``otherwise``."""
        inside = self._inside(r)
        return value if inside is None else build.where(inside, value, build.like(value, otherwise))

    def _carry(self, init: float, like: UOp, over: Iterable[UOp]) -> UOp:
        """Add a carried value."""
        ranges = sorted(over, key=lambda r: r.arg.id)
        made = build.carry(0, len(self.carried), like.dtype, (self.t, *ranges))
        self.carried.append((build.const(init, like.dtype), made))
        return made

    def _nexts(self, ends: End | None) -> list[UOp]:
        """Return the values that a block passes to the next one."""
        self.carried: list[tuple[UOp, UOp]] = []
        along, score = self.frame.j, self.score
        nexts: list[UOp] = []
        scale = power = None
        if self.online:
            assert score is not None
            top = self._carry(-math.inf, score, score.ranges - {along})
            here = self._within(self._placed(score, self.jl), -math.inf, self.jl)
            most = build.maximum(top, build.reduce_ranges(
                self._kept(here, self.jl, self.jm), ops.MAX, [self.jm]))
            scale = build.exp(build.sub(top, _base(most)))
            power = build.sub(self._kept(here, self.jl, self.jx), _base(most))
            nexts.append(most)
        for number, term in enumerate(self.terms):
            if scale is not None and term.weighed is None:
                continue  # the maximum of the score
            if term.weighed is not None:
                assert power is not None
                inner = tuple([(op, other if other is None else self._of_products(other), made)
                               for op, other, made in term.weighed.inner])
                weights = algebra.applied(inner, build.exp(power))
            else:
                weights = self._of_products(term.weights)
            fold, over = self._within(weights, term.identity, self.jx), self.jx
            if term.other is not None:
                over = build.range_(self.block, self.jx.arg.id + 1 + number, name=f"jj{number}")
                falling = ends is not None and ends.way > 0  # the last columns contribute
                at = build.sub(build.index_const(self.block - 1), over) if falling else over
                fold, = substitute([term.value], {term.weights: self._kept(fold, self.jx, at)})
                fold = self._placed(fold, at)
                if term.other.op is not ops.LOAD:  # out of bounds it may be NaN
                    fold = self._within(fold, 0, at)
                some = None if ends is None else self._some(ends, at)
                if some is not None:
                    fold = build.where(some, fold, build.like(fold, 0))
            found = build.reduce_ranges(fold, term.monoid, [over])
            before = self._carry(term.identity, fold, term.value.ranges - {along})
            if scale is not None:
                before = build.mul(before, scale)
            nexts.append(build.elementwise(term.monoid, before, found))
        return nexts

    def _results(self, gets: Sequence[UOp]) -> list[UOp]:
        """Return the reductions, computed from the values after the last block."""
        frame = self.frame
        if not self.online:
            more = [frame.loops[a] for a in frame.more]
            return [build.reduce_ranges(get, t.monoid, more)
                    for t, get in zip(self.terms, gets)]
        top, *sums = gets
        left = iter(sums)
        known: dict[UOp, UOp] = {}
        out = []
        for term in self.terms:
            if term.weighed is None:
                value = top
            else:
                shift, *others = substitute([term.weighed.shift, *[
                    made if other is None else other for _, other, made in term.weighed.outer]],
                    known)
                outer = tuple([(op, None if other is None else others[i], made)
                               for i, (op, other, made) in enumerate(term.weighed.outer)])
                factor = build.exp(build.sub(_base(top), shift))
                value = algebra.applied(outer, build.mul(next(left), factor))
            out.append(value)
            known |= dict.fromkeys(self._reads(term.fold), value)
        return out

    def _reads(self, fold: RegionReduce) -> list[UOp]:
        """Return the loads of a reduction computed here, at its own index."""
        slot, place = self.frame.slots.get(fold.result), self._place(fold)
        return [n for n in self.frame.values.done.values() if n.op is ops.LOAD
                and buffer(n).arg.slot == slot and _moving(indices(n)) == place]

    def _place(self, fold: RegionReduce) -> list[UOp]:
        return _moving(map(self.frame.values.index, fold.index))

    def _kernel(self, results: Sequence[tuple[RegionReduce, UOp]],
                across: Sequence[tuple[RegionReduce, UOp]], skips: bool) -> ReduceKernel:
        frame = self.frame
        stores, operands = frame.stores([*results, *across])
        if self.rows is not None:
            at, inside = build.add(self.start, self.jq), self._inside(self.jq)
            stores = [*map(self.rows.store, stores[:len(results)]), *[
                new for store in stores[len(results):]
                for new in self.rows.adding(store, frame.j, at, inside)]]
        names = {a: name_of(r) for a, r in frame.loops.items()}
        inner = [name for name in names.values() if name.startswith("k")]
        lengths = {names[a]: frame.shape[a] for a in frame.outer}
        schedule = self.tiles.schedule(list(lengths), [names[a] for a in frame.more], inner,
                                       lengths, stores)
        position = {"b": 1, "k": 2, "jl": 3, "jm": 3, "jx": 3, "jj": 4, "jq": 4, "ir": 4,
                    "c": 5}
        found = [n for n in toposort(stores) if n.op is ops.RANGE]
        found.sort(key=lambda r: (position.get(name_of(r).rstrip("0123456789"), 0), r.arg.id))
        kinds = dict.fromkeys(n.op.name.lower() for n in toposort(stores)
                              if n.op in (ops.EXP, ops.WHERE, ops.DIV))
        name = "_".join(["online" if self.online else "blocks", *kinds])
        kernel = build.kernel(stores, name, [r.arg.id for r in found])
        folds = tuple([fold for fold, _ in (*results, *across)])
        return ReduceKernel(kernel, operands, folds, schedule, skips)

    # ---- where the loop may stop

    def _stop(self, ends: End) -> UOp:
        """Return the condition that neither this block nor later ones contribute."""
        edge = self.start
        if ends.way > 0:
            edge = build.add(edge, build.index_const(self.block - 1))
        condition, = substitute([ends.condition], {self.frame.j: edge})
        stop = build.logical_not(condition)
        tests = list(ends.tests)
        if ends.masked is not None and not is_nothing(ends.masked):
            top = self.carried[0][1]
            rest = build.exp(build.sub(ends.masked, top))
            tests.append(build.eq(rest, build.like(rest, 0)))
        for test in tests:
            stop = build.and_(stop, test)
        return stop if self.rows is None else self.rows.all(stop)

    def _some(self, ends: End, r: UOp) -> UOp | None:
        """Return the condition that a column of a block contributes to some row of a tile; None if
        that is not known to be the same for all rows."""
        frame, rows = self.frame, self.tiles.rows
        row, outer = frame.loops[frame.row], frozenset([frame.loops[a] for a in frame.outer])
        if ends.data:
            return None
        terms, _ = positive_form(ends.condition)
        along = [m for m in terms if any(row in a.ranges for a in m)]
        if ends.masked is not None and not is_nothing(ends.masked) \
                or along not in ([], [(row,)]) \
                or not ends.condition.ranges <= outer | {row, frame.j} \
                or any(not test.ranges <= outer for test in ends.tests):
            return None
        first = Expr(row) // rows * rows if self.rows is None else Expr(self.rows.first)
        edge = first + (rows - 1 if along and terms[row,] > 0 else 0)
        low, high = ends.condition.src
        room = Expr(high) - Expr(low) + INEQUALITIES[ends.condition.op]
        least, _ = symbolic.bounds(room.node)
        enough = 1 - least + (self.block + rows) * sum(map(abs, terms.values()))
        whole, = substitute([room.node], {row: edge.node, frame.j: build.add(self.start, r)})
        for test in ends.tests:
            whole = build.add(whole, build.where(
                test, build.index_const(0), build.index_const(enough)))
        return build.lt(build.index_const(0), whole)


def _base(top: UOp) -> UOp:
    """Return what is subtracted from scores: their maximum, 0 while that is not finite."""
    finite = build.lt(UOp(ops.ABS, top.dtype, (top,)), build.like(top, math.inf))
    return build.where(finite, top, build.like(top, 0))


def _moving(places: Iterable[UOp]) -> list[UOp]:
    """Return the indices without those of axes of length 1."""
    return [i for i in places if i.op is not ops.CONST]
