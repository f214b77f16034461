"""Kernels that compute the reductions of an attention region block by block (online softmax).

    before  m[i] = max over j of s[i, j]              s[i, j] = sum over k of q[i, k] * key[j, k]
            l[i] = sum over j of exp(s[i, j] - m[i])
            o[i, c] = sum over j of exp(s[i, j] - m[i]) / l[i] * v[j, c]
    after   a loop over blocks of j carries top[i], total[i] and out[i, c]:
              s of the block; larger = max(top, max of it); e = STAGE(exp(s - larger))
              total * exp(top - larger) + sum of e;  out * exp(top - larger) + e @ v of the block
            m = top, l = total, o = out / total

So all sums of exponentials of one score, and its maximum, are computed in one pass, whatever is
subtracted from the score: ``exp(node - g) = exp(node - top) * exp(top - g)``. Reductions of known
values (of sums that are in memory) only carry their sums.

If a condition implies that from some block on all terms are exactly 0, the loop stops there: the
masked score must be so far below ``top`` that its exponential is 0, and the factors that the
exponential is multiplied with must be finite.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

from fnx.core.ir import build, build_kernel_loops, ops
from fnx.core.ir.accessors import buffer, indices
from fnx.core.ir.expr import Expr
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.conditions import INEQUALITIES, as_positive
from fnx.lower.analysis.loops import name_of
from fnx.lower.attention import algebra
from fnx.lower.attention.loop_bounds import LoopBound, is_minus_inf, loop_bound
from fnx.lower.attention.region import RegionReduce
from fnx.lower.attention.row_tiles import RowTile
from fnx.lower.attention.tile_frame import RegionTerm, TileFrame
from fnx.lower.attention.tile_sizes import TileSizes, parallel_loop


class ReduceKernel(Record):
    """A KERNEL with its schedule, the nodes it reads, the reductions it writes, and whether its
    loop may stop early."""

    kernel: UOp
    operands: tuple[UOp, ...]
    reductions: tuple[RegionReduce, ...]
    schedule: tuple[Transform, ...]
    ends_early: bool


class RegionKernel:
    """The kernel of the reductions over one frame."""

    def __init__(self, frame: TileFrame, target: Target, dependencies: Mapping[UOp, frozenset[UOp]]
                 ) -> None:
        self.frame, self.target, self.depends = frame, target, dependencies
        self.terms: list[RegionTerm] = []
        # reductions over the rows, to which each row tile adds
        self.row_terms: list[RegionTerm] = []
        self.length = frame.shape[frame.along]

    @property
    def tiles(self) -> TileSizes:
        return TileSizes(self.frame.shape[self.frame.row], self.length,
                         [n for t in self.terms for _, n in t.reduction.lanes],
                         max([t.value.dtype.compute.itemsize for t in self.terms]), self.target,
                         self.online)

    @property
    def reductions(self) -> list[RegionReduce]:
        """The reductions computed here."""
        return [t.reduction for t in (*self.terms, *self.row_terms)]

    @property
    def block(self) -> int:
        return self.tiles.block

    @property
    def has_single_row_tile(self) -> bool:
        """Whether a tile has one row only, though there are many."""
        return self.tiles.rows == 1 < self.frame.shape[self.frame.row]

    # ---- which reductions

    def add_reduction(self, reduction: RegionReduce, depends_on_kernel: bool) -> bool:
        """Add a reduction to this kernel if possible; ``depends_on_kernel``: it depends on those in
        it."""
        frame = self.frame
        if reduction.product is not frame.product or reduction.reduced_axes != frame.reduced_axes:
            return False
        if any(reduction.lanes and t.reduction.lanes and t.reduction.lanes != reduction.lanes
               for t in self.terms):
            return False  # a single loop over lanes
        term = frame.term(reduction)
        exp_form_match = algebra.match_exp_linear(term.weights, frame.j) \
            if term.monoid is ops.ADD else None
        score = self.score
        if depends_on_kernel or self.online:
            if term.monoid is ops.MAX and term.other is None and not depends_on_kernel and \
                    not frame.extra_reduced:
                fits = score is None or score is term.value
            else:
                fits = exp_form_match is not None \
                    and score in (None, exp_form_match.score) and not frame.extra_reduced \
                    and self._is_known([exp_form_match.score,
                                        *[x for _, x, _ in exp_form_match.inner
                                          if x is not None], term.other])
            if not fits:
                return False
            self.terms.append(term if term.monoid is ops.MAX
                              else term.replace(exp_form=exp_form_match))
            return True
        if term.monoid is ops.MAX and term.other is None and not self.terms and \
                not frame.extra_reduced:
            self.terms.append(term)
            return True
        if any(t.monoid is ops.MAX for t in self.terms):
            return False
        self.terms.append(term)
        return True

    def merge_rows(self, other: RegionKernel) -> bool:
        """Add the reduction over the rows of another kernel, if it has the weights of one here."""
        frame = self.frame
        if self.online or len(other.terms) != 1 or other.row_terms or frame.extra_reduced \
                or other.frame.extra_reduced \
                or (other.frame.row, other.frame.along) != (frame.along, frame.row):
            return False
        reduction = other.terms[0].reduction
        index_ranges = {frame.values.index(t) for t in reduction.index}
        if reduction.product is not frame.product or not reduction.lanes \
                or reduction.node.dtype.storage \
                or any(t.reduction.lanes != reduction.lanes for t in self.terms) \
                or parallel_loop({a: frame.shape[a] for a in frame.outer}) is None \
                or not index_ranges.issuperset([frame.loops[a] for a in frame.outer]):
            return False
        term = frame.term(reduction)
        if all(t.weights is not term.weights for t in self.terms):
            return False
        self.row_terms.append(term)
        return True

    def _is_known(self, values: Iterable[UOp | None]) -> bool:
        """Whether values need nothing that is reduced here."""
        reduced_here = {t.reduction.node for t in self.terms}
        memory = {slot: node for node, slot in self.frame.slots.items()}
        loaded = [memory[n.arg.slot] for n in toposort([v for v in values if v is not None])
                  if n.op is ops.REF]
        return all(n not in reduced_here and reduced_here.isdisjoint(self.depends[n])
                   for n in loaded)

    @property
    def online(self) -> bool:
        """Whether the maximum of the score is computed online."""
        return any(t.monoid is ops.MAX or t.exp_form is not None for t in self.terms)

    @property
    def score(self) -> UOp | None:
        for term in self.terms:
            if term.exp_form is not None:
                return term.exp_form.score
            if term.monoid is ops.MAX:
                return term.value
        return None

    # ---- the kernel

    def build(self, unused: Container[UOp] = ()) -> ReduceKernel:
        """Return the kernel; reductions in ``unused`` are not written.

        Raises:
            NotFusable: it would need a value that it computes.
        """
        frame, length = self.frame, self.length
        next_id = 1 + max(r.arg.id for r in frame.loops.values())
        self.rows: RowTile | None = None
        if self.row_terms:
            row = frame.loops[frame.row]
            self.rows = RowTile(row, frame.shape[frame.row], self.tiles.rows, next_id)
            next_id = self.rows.reduced.arg.id + 1
        self.t = build.range_(-(-length // self.block), next_id, name="b")
        self.jl, self.jm, self.jx = (build.range_(self.block, next_id + 1 + i, name=name)
                                     for i, name in enumerate(("jl", "jm", "jx")))
        self.jq = build.range_(self.block, next_id + 4 + len(self.terms), name="jq")
        self.stages: dict[UOp, UOp] = {}
        bound = loop_bound(frame, [*self.terms, *self.row_terms], self.score)
        last = build.index_const(-(-length // self.block) - 1)
        block_index = build.sub(last, self.t) \
            if bound is not None and bound.direction > 0 else self.t
        self.start = (Expr(block_index) * self.block).node
        nexts = self._next_values(bound)
        stop = None if bound is None else self._stop_condition(bound)
        loop = build_kernel_loops.loop(0, self.t, [init for init, _ in self.carried], nexts, stop)
        results = zip(self.terms, self._results(build.results(loop)))
        row_results = [(t.reduction, self.rows.step(self._tile_row_sum(t, self.rows), self.t, stop))
                       for t in self.row_terms if self.rows is not None and
                       t.reduction.result not in unused]
        skips = bound is not None and not bound.data  # that it stops early is known statically
        return self._kernel([(t.reduction, self._reduce_lanes(t, value)) for t, value in results
                             if t.reduction.result not in unused], row_results, skips)

    def _reduce_lanes(self, term: RegionTerm, value: UOp) -> UOp:
        """Reduce a value that is the same for all lanes: one loop carries all values."""
        lanes = [self.frame.loops[token] for t in self.terms for token, _ in t.reduction.lanes][:1]
        return value if term.reduction.lanes else build.reduce_ranges(value, ops.MAX, lanes)

    def _at_block(self, value: UOp, r: UOp) -> UOp:
        """Evaluate a value for the current block, in a loop over it."""
        along, j = self.frame.j, build.add(self.start, r)
        inside = self._in_bounds(r)

        def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node is along:
                return j
            if node.op is ops.LOAD and inside is not None and along in node.ranges:
                return build.load(src[0], inside)
            return None
        return rebuild([value], visit)[0]

    def _in_bounds(self, r: UOp) -> UOp | None:
        """Return the condition that a column of a block is in bounds; None if it always is."""
        if not self.length % self.block:
            return None
        return build.lt(build.add(self.start, r), build.index_const(self.length))

    def _stage(self, value: UOp, fill_range: UOp, r: UOp) -> UOp:
        """Stage a value of the block: it is computed in one loop over the block and read in
        another."""
        rows = [] if self.rows is None or fill_range is not self.jx else [self.rows.inner]
        stage = self.stages.setdefault(value,
                                       build.stage(value, [*rows, fill_range], len(self.stages)))
        return build.load(build.index_into(stage, *rows, r))

    def _tile_row_sum(self, term: RegionTerm, rows: RowTile) -> UOp:
        """Return what a tile of rows adds to a reduction over all of them, for a column of the
        block."""
        weights = self._mask_bounds(self._stage_products(term.weights), term.identity, self.jx)
        stage = buffer(self._stage(weights, self.jx, self.jq))
        term_value, = substitute([term.value], {
            term.weights: build.load(build.index_into(stage, rows.reduced, self.jq)),
            rows.row: rows.at(rows.reduced)})
        return rows.reduce(self._at_block(term_value, self.jq))

    def _stage_products(self, value: UOp) -> UOp:
        """Evaluate a value of the block whose products are computed before, a tile at a time."""
        products = [n for n in toposort([value], stop=lambda n: n.op is ops.REDUCE)
                    if n.op is ops.REDUCE and self.frame.j in n.ranges]
        staged = [self._stage(self._at_block(n, self.jl), self.jl, self.jx) for n in products]
        inlined, = substitute([self._at_block(value, self.jx)], dict(zip(
            [self._at_block(n, self.jx) for n in products], staged)))
        return algebra.use_reciprocals(inlined)

    def _mask_bounds(self, value: UOp, otherwise: float, r: UOp) -> UOp:
        """Replace a value out of bounds of the axis by ``otherwise``."""
        inside = self._in_bounds(r)
        return value if inside is None else \
            build.where(inside, value, build.const_like(value, otherwise))

    def _carry(self, init: float, like: UOp, ranges_in: Iterable[UOp]) -> UOp:
        """Add a carried value."""
        ranges = sorted(ranges_in, key=lambda r: r.arg.id)
        carry = build_kernel_loops.carry(0, len(self.carried), like.dtype, (self.t, *ranges))
        self.carried.append((build.const(init, like.dtype), carry))
        return carry

    def _next_values(self, bound: LoopBound | None) -> list[UOp]:
        """Return the values that a block passes to the next one."""
        self.carried: list[tuple[UOp, UOp]] = []
        along, score = self.frame.j, self.score
        nexts: list[UOp] = []
        scale = power = None
        if self.online:
            assert score is not None
            top = self._carry(-math.inf, score, score.ranges - {along})
            block_score = self._mask_bounds(self._at_block(score, self.jl), -math.inf, self.jl)
            new_top = build.maximum(top, build.reduce_ranges(
                self._stage(block_score, self.jl, self.jm), ops.MAX, [self.jm]))
            scale = build.exp(build.sub(top, _finite_max(new_top)))
            power = build.sub(self._stage(block_score, self.jl, self.jx), _finite_max(new_top))
            nexts.append(new_top)
        for number, term in enumerate(self.terms):
            if scale is not None and term.exp_form is None:
                continue  # the maximum of the score
            if term.exp_form is not None:
                assert power is not None
                inner = tuple([(op, other if other is None else self._stage_products(other),
                                original)
                               for op, other, original in term.exp_form.inner])
                weights = algebra.apply_steps(inner, build.exp(power))
            else:
                weights = self._stage_products(term.weights)
            term_value, reduce_range = self._mask_bounds(weights, term.identity, self.jx), self.jx
            if term.other is not None:
                reduce_range = build.range_(self.block, self.jx.arg.id + 1 + number,
                                            name=f"jj{number}")
                # the last columns contribute
                is_reversed = bound is not None and bound.direction > 0
                column = build.sub(build.index_const(self.block - 1), reduce_range) \
                    if is_reversed else reduce_range
                term_value, = substitute([term.value],
                                         {term.weights: self._stage(term_value, self.jx, column)})
                term_value = self._at_block(term_value, column)
                if term.other.op is not ops.LOAD:  # out of bounds it may be NaN
                    term_value = self._mask_bounds(term_value, 0, column)
                contributes = None if bound is None else self._contributes(bound, column)
                if contributes is not None:
                    term_value = build.where(contributes, term_value,
                                             build.const_like(term_value, 0))
            partial = build.reduce_ranges(term_value, term.monoid, [reduce_range])
            previous = self._carry(term.identity, term_value, term.value.ranges - {along})
            if scale is not None:
                previous = build.mul(previous, scale)
            nexts.append(build.elementwise(term.monoid, previous, partial))
        return nexts

    def _results(self, gets: Sequence[UOp]) -> list[UOp]:
        """Return the reductions, computed from the values after the last block."""
        frame = self.frame
        if not self.online:
            more = [frame.loops[a] for a in frame.extra_reduced]
            return [build.reduce_ranges(get, t.monoid, more)
                    for t, get in zip(self.terms, gets)]
        top, *sums = gets
        sum_iter = iter(sums)
        known_loads: dict[UOp, UOp] = {}
        out = []
        for term in self.terms:
            if term.exp_form is None:
                value = top
            else:
                shift, *others = substitute([term.exp_form.shift, *[
                    original if other is None else other
                    for _, other, original in term.exp_form.outer]], known_loads)
                outer = tuple([(op, None if other is None else others[i], original)
                               for i, (op, other, original) in enumerate(term.exp_form.outer)])
                factor = build.exp(build.sub(_finite_max(top), shift))
                value = algebra.apply_steps(outer, build.mul(next(sum_iter), factor))
            out.append(value)
            known_loads |= dict.fromkeys(self._reads(term.reduction), value)
        return out

    def _reads(self, fold: RegionReduce) -> list[UOp]:
        """Return the loads of a reduction computed here, at its own index."""
        slot, own_index = self.frame.slots.get(fold.result), self._index_of(fold)
        return [n for n in self.frame.values.done.values() if n.op is ops.LOAD
                and buffer(n).arg.slot == slot and _varying_indices(indices(n)) == own_index]

    def _index_of(self, fold: RegionReduce) -> list[UOp]:
        return _varying_indices(map(self.frame.values.index, fold.index))

    def _kernel(self, results: Sequence[tuple[RegionReduce, UOp]],
                across: Sequence[tuple[RegionReduce, UOp]], skips: bool) -> ReduceKernel:
        frame = self.frame
        stores, operands = frame.stores([*results, *across])
        if self.rows is not None:
            column, inside = build.add(self.start, self.jq), self._in_bounds(self.jq)
            stores = [*map(self.rows.store, stores[:len(results)]), *[
                new for store in stores[len(results):]
                for new in self.rows.accumulate(store, frame.j, column, inside)]]
        names = {a: name_of(r) for a, r in frame.loops.items()}
        inner = [name for name in names.values() if name.startswith("k")]
        lengths = {names[a]: frame.shape[a] for a in frame.outer}
        schedule = self.tiles.schedule(list(lengths), [names[a] for a in frame.extra_reduced],
                                       inner, lengths, stores)
        loop_rank = {"b": 1, "k": 2, "jl": 3, "jm": 3, "jx": 3, "jj": 4, "jq": 4, "ir": 4,
                     "c": 5}
        loop_ranges = [n for n in toposort(stores) if n.op is ops.RANGE]
        loop_ranges.sort(key=lambda r: (loop_rank.get(name_of(r).rstrip("0123456789"), 0),
                                        r.arg.id))
        kinds = dict.fromkeys(n.op.name.lower() for n in toposort(stores)
                              if n.op in (ops.EXP, ops.WHERE, ops.DIV))
        name = "_".join(["online" if self.online else "blocks", *kinds])
        kernel = build.kernel(stores, name, [r.arg.id for r in loop_ranges])
        folds = tuple([fold for fold, _ in (*results, *across)])
        return ReduceKernel(kernel, operands, folds, schedule, skips)

    # ---- where the loop may stop

    def _stop_condition(self, bound: LoopBound) -> UOp:
        """Return the condition that neither this block nor later ones contribute."""
        edge_column = self.start
        if bound.direction > 0:
            edge_column = build.add(edge_column, build.index_const(self.block - 1))
        condition, = substitute([bound.condition], {self.frame.j: edge_column})
        stop = build.logical_not(condition)
        tests = list(bound.tests)
        if bound.masked is not None and not is_minus_inf(bound.masked):
            top = self.carried[0][1]
            masked_exp = build.exp(build.sub(bound.masked, top))
            tests.append(build.eq(masked_exp, build.const_like(masked_exp, 0)))
        for test in tests:
            stop = build.and_(stop, test)
        return stop if self.rows is None else self.rows.all(stop)

    def _contributes(self, bound: LoopBound, r: UOp) -> UOp | None:
        """Return the condition that a column of a block contributes to some row of a tile; None if
        that is not known to be the same for all rows."""
        frame, rows = self.frame, self.tiles.rows
        row, outer = frame.loops[frame.row], frozenset([frame.loops[a] for a in frame.outer])
        if bound.data:
            return None
        terms, _ = as_positive(bound.condition)
        row_terms = [m for m in terms if any(row in a.ranges for a in m)]
        if bound.masked is not None and not is_minus_inf(bound.masked) \
                or row_terms not in ([], [(row,)]) \
                or not bound.condition.ranges <= outer | {row, frame.j} \
                or any(not test.ranges <= outer for test in bound.tests):
            return None
        first = Expr(row) // rows * rows if self.rows is None else Expr(self.rows.first)
        edge_row = first + (rows - 1 if row_terms and terms[row,] > 0 else 0)
        low, high = bound.condition.src
        slack = Expr(high) - Expr(low) + INEQUALITIES[bound.condition.op]
        min_slack, _ = symbolic.bounds(slack.node)
        always_true = 1 - min_slack + (self.block + rows) * sum(map(abs, terms.values()))
        total, = substitute([slack.node], {row: edge_row.node, frame.j: build.add(self.start, r)})
        for test in bound.tests:
            total = build.add(total, build.where(
                test, build.index_const(0), build.index_const(always_true)))
        return build.lt(build.index_const(0), total)


def _finite_max(top: UOp) -> UOp:
    """Return what is subtracted from scores: their maximum, 0 while that is not finite."""
    finite = build.lt(UOp(ops.ABS, top.dtype, (top,)), build.const_like(top, math.inf))
    return build.where(finite, top, build.const_like(top, 0))


def _varying_indices(index: Iterable[UOp]) -> list[UOp]:
    """Return the indices without those of axes of length 1."""
    return [i for i in index if i.op is not ops.CONST]
