"""Tile frame: the loops of reductions over the same axes of a product, and their expressions.

    s[i, j] = sum over k of q[i, k] * key[j, k]      o[i, c] = sum over j of f(s[i, j]) * v[j, c]

    i: a row    j: traversed by blocks    c: lanes    k: of the product
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, kernel_args, ops
from fnx.core.ir.uop import UOp, copy_locs, rebuild, toposort
from fnx.core.support.record import Record
from fnx.lower.analysis.workload import two_factors
from fnx.lower.attention import algebra
from fnx.lower.attention.expression import Expressions
from fnx.lower.attention.region import AttentionRegion, RegionReduce
from fnx.lower.fusion.index_tokens import ZERO, Token
from fnx.lower.loops.scalarize import NotFusable


class RegionTerm(Record):
    """A RegionReduce as an expression over loops.

    Attributes:
        reduction: the RegionReduce.
        value: the reduced value, for one element of the product.
        weights: for a contraction, the factor that has the axes of the product; else the value.
        other: the other factor.
        exp_form: the weights as an exponential and factors, if they are summed in that form.
    """

    reduction: RegionReduce
    value: UOp
    weights: UOp
    other: UOp | None
    exp_form: algebra.ExpLinearForm | None = None

    @property
    def monoid(self) -> ops.Op:
        monoid: ops.Op = self.reduction.node.arg.monoid
        return monoid

    @property
    def identity(self) -> float:
        """The identity of its monoid."""
        first = self.monoid.identity
        assert first is not None
        return float(first(self.value.dtype))


class TileFrame:
    """The loops of reductions over the same axes of a product.

    Attributes:
        along: the axis that is traversed by blocks.
        extra_reduced: other reduced axes.
        row: of the remaining axes, the tiled one.
        outer: the others.
    """

    def __init__(self, region: AttentionRegion, reduction: RegionReduce,
                 families: Sequence[frozenset[int]]
                 ) -> None:
        shape = reduction.product.shape
        self.region, self.product = region, reduction.product
        self.reduced_axes = reduction.reduced_axes
        self.along = max(reduction.reduced_axes, key=shape.__getitem__)
        family = next((f for f in families if self.along in f), frozenset())
        others = [a for f in families if f is not family
                  for a in f if a not in reduction.reduced_axes]
        if not family or not others:
            raise NotFusable("it is not folded along one of two sides")
        self.row = max(others, key=shape.__getitem__)
        self.extra_reduced = sorted(reduction.reduced_axes - {self.along})
        self.outer = [a for a, n in enumerate(shape)
                      if n != 1 and a not in reduction.reduced_axes and a != self.row]
        self.shape = shape
        self.loops: dict[Token, UOp] = {}
        for a in self.outer:
            self.add(a, shape[a], f"h{a}")
        self.add(self.row, shape[self.row], "i")
        for a in self.extra_reduced:
            self.add(a, shape[a], f"g{a}")
        self.add(self.along, shape[self.along], "j")
        self.slots: dict[UOp, int] = {}
        for product in region.products:
            for token in region.walk.summed.get(product, {}).values():
                if token != ZERO:
                    self.add(token, region.walk.lengths[token], f"k{token}")
        self.values = Expressions(region.walk, self.loops, self.slots)

    @property
    def j(self) -> UOp:
        return self.loops[self.along]

    def add(self, token: Token, length: int, name: str) -> UOp:
        """Return the RANGE of a token; create it on first use."""
        if token not in self.loops:
            self.loops[token] = build.range_(length, len(self.loops) + 1, name=name)
        return self.loops[token]

    def term(self, reduction: RegionReduce) -> RegionTerm:
        """Express a reduction over these loops, along the blocks or along the rows (across)."""
        for number, (token, n) in enumerate(reduction.lanes):
            if number:
                raise NotFusable("the other factor has more than one axis of its own")
            self.add(token, n, "c")
        value = self.values.value(reduction.node.src[0], reduction.inner)
        if not reduction.lanes:
            return RegionTerm(reduction, value, value, None)
        reduce_range = self.j if self.along in reduction.reduced_axes else self.loops[self.row]
        reduce_node = build.reduce_ranges(value, ops.ADD, [reduce_range])
        match = two_factors(reduce_node, lambda n: n.ranges, frozenset({reduce_range}))
        c = self.loops[reduction.lanes[0][0]]
        if reduction.node.arg.monoid is not ops.ADD or match is None:
            raise NotFusable("a fold with another axis that is no product")
        weights, other = match if c in match[1].ranges else match[::-1]
        if c in weights.ranges or any(n.op is ops.REDUCE for n in toposort([other])):
            raise NotFusable("both factors have the same axes")
        return RegionTerm(reduction, value, weights, other)


    def stores(self, results: Sequence[tuple[RegionReduce, UOp]]
               ) -> tuple[list[UOp], tuple[UOp, ...]]:
        """Return STOREs of reductions, and the nodes that they read.

        Raises:
            Unfit: a reduction needs a value that is computed here.
        """
        values, operands = self.renumber_slots([value for _, value in results])
        written_nodes = {node for fold, _ in results for node in (fold.node, fold.result)}
        if not written_nodes.isdisjoint(operands):
            raise NotFusable("a fold is read where it is not known")
        stores: list[UOp] = []
        for (fold, _), value in zip(results, values):
            node = fold.result
            ref = build.ref(len(operands) + len(stores), node.dtype, node.shape)
            target = build.index_into(ref, *map(self.values.index, fold.index))
            stores.append(copy_locs(build.store(target, build.cast(value, node.dtype)), node))
        return stores, operands

    def renumber_slots(self, values: Sequence[UOp]) -> tuple[list[UOp], tuple[UOp, ...]]:
        """Renumber the slots that values read as 0, 1, ...; return the values and their nodes."""
        memory = {slot: node for node, slot in self.slots.items()}
        operands: dict[int, int] = {}

        def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is not ops.REF:
                return None
            slot = operands.setdefault(node.arg.slot, len(operands))
            return node.replace(src=src, arg=kernel_args.Ref(slot, ""))

        return rebuild(values, visit), tuple([memory[slot] for slot in operands])
