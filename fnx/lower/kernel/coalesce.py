"""Collapse: loops that walk memory as one become one loop.

    before  STORE(out[r0, r1], LOAD(x[r0, r1]) + 1)      r0 < 4, r1 < 6
    after   STORE(out[r0], LOAD(x[r0]) + 1)              r0 < 24

Two loops are one when every place that uses either uses both, side by side, and nothing else
looks at them. Dimensions of length 1 go away first. What remains is the form in which kernels
of many shapes are equal.
"""

from __future__ import annotations

import math

from fnx.core import build, ops
from fnx.core.uop import UOp, toposort


def coalesce(kernel: UOp) -> UOp:
    """A KERNEL over as few loops as walk the same memory in the same order."""
    kernel = _drop_unit_dimensions(kernel)
    nodes = toposort([kernel])
    after = _successors(nodes)
    if not after:
        return kernel
    chains = _chains(after)
    return _rewrite(kernel, nodes, chains)


def _dims(buffer: UOp) -> tuple[UOp, ...]:
    """Extents of a REF, or of a STAGE (those of the ranges it closes)."""
    return buffer.src if buffer.op is ops.REF else tuple(r.src[0] for r in buffer.src[1:])


def _drop_unit_dimensions(kernel: UOp) -> UOp:
    one = build.index_const(1)
    new: dict[UOp, UOp] = {}
    for node in toposort([kernel]):
        src = tuple([new[s] for s in node.src])
        if node.op is ops.INDEX and node.src[0].op is ops.REF and one in node.src[0].src:
            buffer = node.src[0]
            keep = [i for i, d in enumerate(buffer.src) if d is not one]
            slim = buffer.replace(src=tuple([buffer.src[i] for i in keep]))
            new[node] = node.replace(src=(slim, *[src[1 + i] for i in keep]))
        else:
            new[node] = node if src == node.src else node.replace(src=src)
    return new[kernel]


def _successors(nodes: list[UOp]) -> dict[UOp, UOp]:
    """Pairs (outer, inner) of ranges that are always used side by side."""
    after: dict[UOp, UOp | None] = {}
    before: dict[UOp, UOp | None] = {}

    def link(sequence: list[UOp | None]) -> None:
        for i, r in enumerate(sequence):
            if r is None:
                continue
            right = sequence[i + 1] if i + 1 < len(sequence) else None
            left = sequence[i - 1] if i else None
            after[r] = right if after.get(r, right) is right else None
            before[r] = left if before.get(r, left) is left else None

    for node in nodes:
        if node.op is ops.INDEX:
            link([i if i.op is ops.RANGE and i.src[0] is d else None
                  for i, d in zip(node.src[1:], _dims(node.src[0]))])
            blocked = [i for i, d in zip(node.src[1:], _dims(node.src[0]))
                       if i.op is ops.RANGE and i.src[0] is not d]
        elif node.op in (ops.REDUCE, ops.STAGE):
            link(list(node.src[1:]))
            blocked = [node.src[0]] if node.src[0].op is ops.RANGE else []
        else:
            blocked = [s for s in node.src if s.op is ops.RANGE]
        for r in blocked:
            after[r] = before[r] = None
    return {a: b for a, b in after.items() if b is not None and before.get(b) is a}


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


def _rewrite(kernel: UOp, nodes: list[UOp], chains: list[list[UOp]]) -> UOp:
    merged: dict[UOp, UOp] = {}  # first range of a chain -> the one loop
    gone: set[UOp] = set()
    for chain in chains:
        extent = math.prod(build.const_of(r.src[0]) for r in chain)
        merged[chain[0]] = build.range_(extent, chain[0].arg.id)
        gone.update(chain[1:])
    new: dict[UOp, UOp] = {}
    for node in nodes:
        if node in merged:
            new[node] = merged[node]
        elif node.op is ops.INDEX and node.src[0].op is ops.REF:
            new[node] = _index(node, new, merged, gone)
        else:
            src = tuple([new[s] for s in node.src if s not in gone])
            new[node] = node if src == node.src else node.replace(src=src)
    dropped = {r.arg.id for r in gone}
    order = tuple(i for i in kernel.arg.order if i not in dropped)
    return build.kernel(new[kernel].src, kernel.arg.name, order)


def _index(node: UOp, new: dict[UOp, UOp], merged: dict[UOp, UOp], gone: set[UOp]) -> UOp:
    buffer, *index = node.src
    dims: list[UOp] = []
    for i, d in zip(index, buffer.src):
        if i not in gone:
            dims.append(merged[i].src[0] if i in merged else d)
    slim = buffer.replace(src=tuple(dims))
    return node.replace(src=(slim, *[new[i] for i in index if i not in gone]))
