"""Bindings: cut groups whose kernels would have more buffers than the target can bind.

    before  y = a + b + c + d + e          one kernel on 6 buffers; the target binds 4
    after   t = a + b + c; y = t + d + e   t, as any value that is no result, is in one arena

A kernel binds each argument and each result that it accesses, and the arena once. If those are
too many, intermediate values become buffers in the arena: of the operands of a node that needs too
many, always the one that saves most. If several results of a group are too many together, each
is written by a kernel of its own. Then all groups are rebuilt, until none exceeds the limit. The
operands of a single node are never cut: split_concat_by_buffer_limit.py (lower/tensor) does that
for a CONCAT. Groups are also rebuilt for what only shows once they are whole: values that would be
selected, repeated or written beside a product at a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.fusion import concat_in_place, epilogues
from fnx.lower.fusion.disable_fusion import disabled_nodes
from fnx.lower.fusion.group import Group, gather_source, memory_of
from fnx.lower.fusion.kernelize import Fusion
from fnx.lower.fusion.partial_vectors import lane_bytes_of
from fnx.lower.fusion.ranges import written_in_place
from fnx.lower.fusion.repeated_rows import repeated_rows

_ARENA = None  # stands for all nodes that are neither arguments nor results
_BoundBuffers = frozenset[UOp | None]


def limit_bindings(fn: UOp, target: Target) -> Fusion:
    """Group the nodes of a FUNCTION into kernels whose buffers the target can bind, and which do
    not select among expensive parts (concat_in_place.py), write rows beside a contraction
    (epilogues.py), or compute rows again and again (repeated_rows.py)."""
    lane_bytes = lane_bytes_of(target)
    fusion = Fusion(fn, lane_bytes=lane_bytes)
    if target.unfused:
        fusion = Fusion(fn, disabled_nodes(fusion, target.unfused), lane_bytes)
    fusion.run()
    while cuts := _find_cuts(fusion, target):
        fusion = Fusion(fn, fusion.forced_buffers | cuts, lane_bytes).run()
    return fusion


def _find_cuts(fusion: Fusion, target: Target) -> frozenset[UOp]:
    """Return the nodes that must become buffers, which only shows once whole groups are known."""
    cuts = concat_in_place.unsplittable_concats(fusion.groups, fusion.cost) or \
        epilogues.rows_written_beside(fusion.groups) | repeated_rows(
            fusion.groups, fusion.cost, fusion.readers)
    if not cuts and target.max_buffers:
        cuts = _Bindings(fusion, target.max_buffers).cuts()
    return cuts - fusion.forced_buffers


class _Bindings:
    """The buffers that the kernels of a Fusion bind."""

    def __init__(self, fusion: Fusion, limit: int) -> None:
        self.fusion, self.limit = fusion, limit
        self.position = {n: i for i, n in enumerate(fusion.nodes)}
        self.results = {memory_of(n) for n in fusion.fn.src}
        self.part_views = written_in_place(fusion)

    def cuts(self) -> frozenset[UOp]:
        """Return the nodes that must become buffers of their own."""
        return frozenset([n for g in self.fusion.groups if g.call is None and g.concat is None
                          for n in self._group_cuts(g)])

    def _buffer_of(self, node: UOp) -> UOp | None:
        node = memory_of(node)
        if node in self.part_views:
            node = self.part_views[node].node
        return node if node.op is ops.PARAM or node in self.results else _ARENA

    def _group_cuts(self, group: Group) -> Iterator[UOp]:
        """Yield the nodes of a group that must become buffers; none if it is within the limit."""
        roots = [n for n, _ in group.roots]
        written = [x for x in (group.base_of, group.scatter) if x is not None] or roots
        written_buffers = frozenset(map(self._buffer_of, written))
        output_values = roots if group.scatter is None else [*group.scatter.src[1:]]
        computed = sorted(group.inside, key=self.position.__getitem__)
        bound_uncut: dict[UOp, _BoundBuffers] = {}
        for node in computed:
            bound_uncut[node] = self._needed(_value_operands(node), bound_uncut, node)
        if len(written_buffers | self._needed(output_values, bound_uncut)) <= self.limit:
            return
        bound_after_cuts: dict[UOp, _BoundBuffers] = {}
        cut: set[UOp] = set()
        for node in computed:
            # the reader of a pair has a result, too
            out = frozenset((self._buffer_of(node) if node in roots else _ARENA,))
            yield from self._cut(_value_operands(node), bound_after_cuts, out, cut, node)
            bound_after_cuts[node] = self._needed(_value_operands(node), bound_after_cuts, node,
                                                  cut)
        if len(written_buffers | self._needed(
                output_values, bound_after_cuts, None, cut)) > self.limit:
            if len(roots) > 1:
                yield from roots
            else:
                yield from self._cut(output_values, bound_after_cuts, written_buffers, cut)

    def _cut(self, values: Iterable[UOp], bound: dict[UOp, _BoundBuffers], out: _BoundBuffers,
             cut: set[UOp], reader: UOp | None = None) -> Iterator[UOp]:
        """Yield operands to cut, the one that saves most first, until the rest is within the limit.
        If none saves alone, as WHERE(r < x, y, r) needs all of r in two of them, cut the first one,
        which others may read."""
        values = [*values]
        while len(needed := out | self._needed(values, bound, reader, cut)) > self.limit:
            saved = {v: len(needed) - len(out | self._needed(values, bound, reader, cut | {v}))
                     for v in values if v in bound and v not in cut and v.op is not ops.ARG_PAIR}
            best = max(saved, key=saved.__getitem__, default=None)
            if best is None:
                return
            if saved[best] <= 0:  # what one of them needs, another one needs, too
                best = min([v for v in saved if bound[v] - {self._buffer_of(v)}],
                           key=self.position.__getitem__, default=None)
                if best is None:
                    return
                cut.add(best)
                for node in bound:  # their readers need less now
                    bound[node] = self._needed(_value_operands(node), bound, node, cut)
            cut.add(best)
            yield best

    def _needed(self, values: Iterable[UOp], bound: dict[UOp, _BoundBuffers],
                reader: UOp | None = None, cut: Iterable[UOp] = ()) -> _BoundBuffers:
        """Return the buffers to bind to compute some values, and for a GATHER the array it
        reads."""
        buffers: set[UOp | None] = set()
        for value in values:
            if value in cut:
                buffers.add(self._buffer_of(value))
            elif value in bound:
                buffers |= bound[value]
            elif memory_of(value).src or memory_of(value).op is ops.PARAM:
                buffers.add(self._buffer_of(value))
        if reader is not None and reader.op is ops.GATHER:
            buffers.add(self._buffer_of(gather_source(reader)))
        return frozenset(buffers)


def _value_operands(node: UOp) -> tuple[UOp, ...]:
    """Return the operands that are computed together with a node, or read at an index of it."""
    if node.op is ops.GATHER:
        return node.src[1:]
    return node.src[:1] if node.op is ops.BARRIER else node.src
