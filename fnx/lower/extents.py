"""Extents: loop lengths and constants become scalar arguments, so shapes share a kernel.

    before  STORE(out[r0], LOAD(x[r0]) * 0.1)       r0 < 24
    after   STORE(out[r0], LOAD(x[r0]) * v1)        r0 < v0      with (24, 0.1)

Only where a length is nothing but a length: an index that is shifted, split or compared keeps
its number. Contractions keep theirs, since tiles are chosen from them.
"""

from __future__ import annotations

import math

from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp, toposort

_KEPT = (0.0, 1.0, -1.0)  # constants that simplify, or that mean something in themselves


def generalize(kernel: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """The KERNEL over VARs and the CONST of each VAR slot."""
    nodes = toposort([kernel])
    if any(n.op is ops.STORE and n.arg is not None for n in nodes):
        return kernel, ()
    new: dict[UOp, UOp] = {}
    scalars: list[UOp] = []
    _lift_ranges(nodes, new, scalars)
    for node in nodes:
        if node in new:
            continue
        if node.op is ops.REF:
            new[node] = node  # its dimensions follow the ranges: see _index
        elif node.op is ops.INDEX and node.src[0].op is ops.REF:
            new[node] = _index(node, new)
        elif _is_lifted(node):
            new[node] = build.var(len(scalars), node.dtype)
            scalars.append(node)
        else:
            src = tuple([new[s] for s in node.src])
            new[node] = node if src == node.src else node.replace(src=src)
    return new[kernel], tuple(scalars)


def _lift_ranges(nodes: list[UOp], new: dict[UOp, UOp], scalars: list[UOp]) -> None:
    """A VAR for the extent of each range that is used as a plain index only."""
    fixed: set[UOp] = set()
    for node in nodes:
        if node.op is ops.INDEX:
            dims = node.src[0].src if node.src[0].op is ops.REF else \
                [r.src[0] for r in node.src[0].src[1:]]
            fixed.update(i for i, d in zip(node.src[1:], dims)
                         if i.op is ops.RANGE and i.src[0] is not d)
        elif node.op is ops.REDUCE or node.op is ops.STAGE:
            fixed.update(s for s in node.src[:1] if s.op is ops.RANGE)
        elif node.op is not ops.CAST:
            fixed.update(s for s in node.src if s.op is ops.RANGE)
    for node in nodes:
        if node.op is ops.RANGE and node not in fixed:
            extent = build.var(len(scalars), dtypes.index, low=1)
            scalars.append(node.src[0])
            new[node] = build.range_(extent, node.arg.id, node.arg.kind, node.arg.name)


def _index(node: UOp, new: dict[UOp, UOp]) -> UOp:
    buffer, *index = node.src
    dims = [new[i].src[0] if i.op is ops.RANGE and i.src[0] is d else d
            for i, d in zip(index, buffer.src)]
    return node.replace(src=(buffer.replace(src=tuple(dims)), *[new[i] for i in index]))


def _is_lifted(node: UOp) -> bool:
    if node.op is not ops.CONST or not node.dtype.is_float:
        return False
    value = build.const_of(node)
    return math.isfinite(value) and value not in _KEPT
