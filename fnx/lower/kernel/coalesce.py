"""Loop coalescing: merge loops that traverse memory contiguously.

    before  STORE(out[r0, r1], LOAD(x[r0, r1]) + 1)      r0 < 4, r1 < 6
    after   STORE(out[r0], LOAD(x[r0]) + 1)              r0 < 24

Two loops are merged if every index that uses either uses both, adjacently, and nothing else
depends on them. Dimensions of length 1 are dropped first. In the resulting form, kernels of many
shapes are equal.

>>> from fnx.core.ir import dtypes
>>> r, c = build.range_(4, 0), build.range_(6, 1)
>>> x, o = (build.index_into(build.ref(i, dtypes.float32, (4, 6)), r, c) for i in (0, 1))
>>> copy = coalesce(build.kernel([build.store(o, build.load(x))], "copy", (0, 1)))
>>> [build.const_of(r.src[0]) for r in copy.src[0].ranges]
[24]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import bound_ranges, buffer, extent, index_dims, indices
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.lower.analysis.canonicalize import with_stores

_ONE = build.index_const(1)


def coalesce(kernel: UOp) -> UOp:
    """Merge the loops of a KERNEL that traverse the same memory in the same order."""
    nodes = toposort([kernel])
    chains = _chains(_adjacent_pairs(nodes))
    if not chains and not any(n.op is ops.REF and _ONE in n.src for n in nodes):
        return kernel
    merged = {chain[0]: build.range_(math.prod(build.const_of(extent(r)) for r in chain),
                                     chain[0].arg.id) for chain in chains}
    merged_away = {r for chain in chains for r in chain[1:]}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.INDEX and buffer(node).op is ops.REF:
            remaining_dims = [(extent(now) if i in merged else d, now)
                              for (i, d), now in zip(index_dims(node), src[1:])
                              if d is not _ONE and i not in merged_away]
            coalesced_ref = buffer(node).replace(src=tuple([d for d, _ in remaining_dims]))
            return build.index_into(coalesced_ref, *[now for _, now in remaining_dims])
        if merged_away.isdisjoint(node.src):
            return None
        return node.with_operands(tuple([
            now for old, now in zip(node.src, src) if old not in merged_away]))

    return with_stores(kernel, rebuild(kernel.src, visit, merged), kernel.arg.order)


def _adjacent_pairs(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return the (outer, inner) pairs of ranges that are always used adjacently."""
    after: dict[UOp, UOp | None] = {}
    before: dict[UOp, UOp | None] = {}

    def link(sequence: Sequence[UOp | None]) -> None:
        for left, r, right in zip([None, *sequence], sequence, [*sequence[1:], None]):
            if r is not None:
                after[r] = right if after.get(r, right) is right else None
                before[r] = left if before.get(r, left) is left else None

    for node in nodes:
        single_uses = [*node.src]
        if node.op is ops.INDEX:
            sequence: list[UOp | None] = []  # the ranges that run over whole dimensions
            single_uses = []
            for i, d in index_dims(node):
                if d is not _ONE or buffer(node).op is not ops.REF:
                    is_full_range = i.op is ops.RANGE and extent(i) is d
                    sequence.append(i if is_full_range else None)
                    if not is_full_range:
                        single_uses.append(i)
            link(sequence)
        elif node.op in (ops.REDUCE, ops.STAGE):
            link(bound_ranges(node))
            single_uses = [node.src[0]]
        for r in single_uses:
            if r.op is ops.RANGE:
                after[r] = before[r] = None
    return _match_stages(nodes, {a: b for a, b in after.items()
                                 if b is not None and before.get(b) is a})


def _match_stages(nodes: Sequence[UOp], pairs: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """Drop pairs along dimensions of a STAGE that are not paired in all its accesses."""
    walks: dict[UOp, list[Sequence[UOp]]] = {n: [bound_ranges(n)]
                                             for n in nodes if n.op is ops.STAGE}
    for n in nodes:
        if n.op is ops.INDEX and buffer(n).op is ops.STAGE:
            walks[buffer(n)].append(indices(n))
    changed = True
    while changed:
        changed = False
        for ranges in walks.values():
            for sides in zip(*map(itertools.pairwise, ranges)):
                joined = [a for a, b in sides if pairs.get(a) is b]
                if 0 < len(joined) < len(sides):
                    changed = True
                    for a in joined:
                        pairs.pop(a, None)
    return pairs


def _chains(after: dict[UOp, UOp]) -> list[list[UOp]]:
    inner = set(after.values())
    chains = []
    for first in after:
        if first not in inner:
            chain = [first]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(chain)
    return chains
