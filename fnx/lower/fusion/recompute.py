"""Recompute values that are far larger than their inputs wherever they are read.

    before  d = p[i] - p[j]: (n, n, 3), made of p: (n, 3)       written once, read twice: 3 n^2
            sum(f(d), 0) - sum(f(d), 1)
    after   the same without a buffer for f(d): each sum computes the terms that it adds

A sum of a few elements (a squared distance) counts as elementwise work here; so do indices of
windows at data-dependent offsets, start[i] + j. The criterion is time: bytes that go to memory, or
to a cache, and back, compared with vector instructions that are executed again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.lower.fusion.group import MEMORY, Group, are_full, is_misaligned, overlaps
from fnx.lower.fusion.index_tokens import Tokens

# elements that a reduction may have to count as elementwise work
MAX_REDUCE_TERMS = 4
MIN_EXPANSION = 16                  # times as many bytes as the inputs of a value
UNCACHED_BYTES = 4 << 20           # bytes that fit in no cache
DRAM_BYTES_PER_CYCLE = 5         # between a core and memory
CACHE_BYTES_PER_CYCLE = 32  # between a core and a cache
VECTOR_BYTES = 64         # that one instruction computes, roughly
MAX_NODES = 64                 # nodes that are examined

_VIEW_OPS = frozenset({ops.EXPAND, ops.PERMUTE, ops.SHRINK, ops.FLIP, ops.RESHAPE})


class RecomputeSet(Record):
    """How to recompute a value: the nodes to recompute, and instructions per element of it."""

    nodes: frozenset[UOp]
    weight: int


def is_small_reduce(node: UOp) -> bool:
    """Whether a REDUCE has no more terms than an elementwise formula would have operands."""
    return node.op is ops.REDUCE and node.src[0].op is not ops.ARG_PAIR and \
        math.prod([node.src[0].shape[a] for a in node.arg.axes]) <= MAX_REDUCE_TERMS


def find_recompute_set(node: UOp) -> RecomputeSet | None:
    """Return how to recompute a value, if its inputs are far smaller than it."""
    nbytes = _nbytes(node)
    copies_of, stack, inputs = {node: 1}, [node], set[UOp]()
    while stack:
        n = stack.pop()
        if len(copies_of) > MAX_NODES:
            return None
        factor = copies_of[n]
        if is_small_reduce(n):
            factor *= math.prod([n.src[0].shape[a] for a in n.arg.axes])
        for s in n.src:
            if s.op is ops.CONST or s.op is ops.IOTA:
                continue
            # computed once, whoever reads it
            if _nbytes(s) * MIN_EXPANSION * MAX_REDUCE_TERMS <= nbytes:
                inputs.add(s)
            elif s.op.kind == "elementwise" or s.op in _VIEW_OPS or is_small_reduce(s):
                if copies_of.get(s, 0) < factor:
                    copies_of[s] = factor
                    stack.append(s)
            else:
                inputs.add(s)
    if not inputs or sum(map(_nbytes, inputs)) * MIN_EXPANSION > nbytes:
        return None
    weight = sum(n.op.cost * k * _needed_fraction(n, node) for n, k in copies_of.items())
    return RecomputeSet(frozenset(copies_of), math.ceil(weight))


def is_profitable(node: UOp, recompute_set: RecomputeSet, copies: int) -> bool:
    """Whether recomputing it ``copies`` times is faster than writing a buffer and reading it as
    often."""
    elements = math.prod(node.shape)
    rate = DRAM_BYTES_PER_CYCLE if _nbytes(node) >= UNCACHED_BYTES else CACHE_BYTES_PER_CYCLE
    memory_cycles = elements * node.dtype.itemsize * (2 + copies) / rate
    recompute_cycles = elements * recompute_set.weight * (copies - 1) * \
        node.dtype.itemsize / VECTOR_BYTES
    return recompute_cycles < memory_cycles


class RecomputedValues:
    """The values that are recomputed in one FUNCTION."""

    def __init__(self) -> None:
        self.nodes: set[UOp] = set()

    def recomputes(self, node: UOp, uses: Mapping[Group, Sequence[Tokens]], copies: int) -> bool:
        """Whether a node is recomputed wherever it is read, together with its recomputed
        operands."""
        if node not in self.nodes:
            if copies == 1 or node.op.kind != "elementwise":
                return False
            recompute_set = find_recompute_set(node)
            if recompute_set is None or not is_profitable(node, recompute_set, copies) or \
                    not _can_recompute(recompute_set.nodes, uses):
                return False
            self.nodes |= recompute_set.nodes
        return _can_recompute((node,), uses)


def _can_recompute(nodes: Collection[UOp], uses: Mapping[Group, Sequence[Tokens]]) -> bool:
    """Whether all groups may compute the nodes at all their indices."""
    work = sum([n.op.cost for n in nodes])
    return not any(
        g.contraction is not None or g.is_fixed or are_full((g,), work * len(i)) or MEMORY in i
        or any(overlaps(index) or is_misaligned(index) for index in i) for g, i in uses.items())


def _needed_fraction(n: UOp, node: UOp) -> float:
    """Return how many elements of ``n`` one element of the value needs: small operands are
    shared."""
    return min(1.0, math.prod(n.shape) / math.prod(node.shape)) if not is_small_reduce(n) else 1.0


def _nbytes(node: UOp) -> int:
    return math.prod(node.shape) * node.dtype.itemsize
