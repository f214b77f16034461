"""The cost of one statement of a kernel with lanes along a range.

A statement is a STORE, a STAGE, a REDUCE or a LOOP, with the nodes that are computed for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fnx.core.ir import accessors, dtypes, ops
from fnx.core.ir.accessors import bound_ranges
from fnx.core.ir.uop import UOp, toposort
from fnx.lower.analysis.tuning import (
    CHUNK_WORK,
    PAIR_LANE_COST,
    STRIDED_COST,
    STRIDED_LANE_CYCLES,
    TRANSPOSED_COST,
)
from fnx.lower.analysis.workload import (
    UNKNOWN_STRIDE,
    extent,
    is_static,
    iteration_ranges,
    stride,
    volume,
)
from fnx.lower.emit.shuffles import MAX_STRIDE, can_transpose
from fnx.lower.schedule.footprint import footprint
from fnx.lower.schedule.small_inner_dim import crosses_rows, small_reduction_range

BLOCK_SIDE = 16  # side of a transposed block: a cache line of float32
UNROLL = 4


class StatementCost:
    """A STORE, STAGE, REDUCE or LOOP: the nodes computed for it, and its own ranges. One shuffle
    instruction permutes lanes of elements of at least ``permuted`` bytes; ``cache``: the bytes of
    the nearest cache. ``is_alone``: its kernel has no other; ``shares_loops``: all others are in
    the same loops, so that they may read one transposed block."""

    __slots__ = ("nodes", "own_ranges", "loops", "node_counts", "is_large_map", "folded",
                 "pair_results", "permuted", "cache", "is_alone", "shares_loops")

    def __init__(self, node: UOp, own_ranges: Iterable[UOp], permuted: int, cache: int) -> None:
        self.is_alone = self.shares_loops = True
        self.permuted, self.cache = permuted, cache
        roots = node.src if node.op in (ops.STORE, ops.LOOP) else node.src[:1]
        below = toposort(roots, stop=lambda n: n.op in (ops.REDUCE, ops.LOAD, ops.LOOP))
        self.nodes, self.own_ranges = [*below, node], list(own_ranges)
        costed = [n for n in [*below, *_index_nodes(below)]
                  if n.op in ops.ELEMENTWISE or n.op is ops.LOAD]
        if node.op is not ops.STAGE and node.op is not ops.LOOP:
            costed.append(node)
        self.loops = {n: _loops_around(n, node) for n in costed}
        self.node_counts = [(n, volume(self.loops[n]) * instructions(n)) for n in costed]
        self.is_large_map = node.op is ops.STORE and node.arg is None and not any(
            n.op in (ops.REDUCE, ops.STAGE, ops.LOOP, ops.MMA) for n in self.nodes) \
            and all(map(is_static, self.own_ranges)) and volume(self.own_ranges) >= CHUNK_WORK
        self.folded = small_reduction_range(node)
        is_pair = node.op is ops.REDUCE and node.src[0].op is ops.ARG_PAIR
        self.pair_results = volume(node.ranges) if is_pair else 0

    def cost(self, lane: UOp | None, lanes: int) -> float:
        """Return the approximate number of instructions with lanes along ``lane``."""
        total = 0.0
        if self.pair_results and lane in self.own_ranges:  # a horizontal reduction ends each result
            total += self.pair_results * PAIR_LANE_COST * (lanes.bit_length() - 1)
        return total + sum([self._node_cost(n, count, lane, lanes)
                            for n, count in self.node_counts])

    def cost_by_row(self, row: UOp, lane: UOp, lanes: int) -> tuple[float, float]:
        """Return the instructions of nodes that vary with a row, and of those along the lanes that
        do not: each row has these again, unless several rows are computed at once."""
        varying = shared = 0.0
        for n, count in self.node_counts:
            cost = self._node_cost(n, count, lane, lanes)
            if row in iteration_ranges(n):
                varying += cost
            elif lane in iteration_ranges(n):
                shared += cost if row in self.loops[n] else cost * extent(row)
        return varying, shared

    def _node_cost(self, n: UOp, count: float, lane: UOp | None, lanes: int) -> float:
        if lane is None or lane not in self.loops[n]:
            return count
        if lane not in iteration_ranges(n):
            return count * (-(-extent(lane) // lanes) / extent(lane))
        step = stride(n, lane) if n.op in STRIDED_COST else 0
        if abs(step) <= 1:
            return count * (-(-extent(lane) // lanes) / extent(lane))
        if find_gap_range(n, lane, self.permuted) is not None or n.op is ops.LOAD \
                and 2 <= abs(step) <= MAX_STRIDE and n.dtype.itemsize >= self.permuted:
            return count * min(abs(step) / lanes, STRIDED_COST[n.op])
        if n.op is ops.STORE and self.transposes_store(n, lane, lanes) \
                or self.stages_blocks(n, lane, lanes) \
                or crosses_rows(n, lane, self.folded, lanes):  # transposed in registers
            return count * TRANSPOSED_COST * self._block_padding(n)
        waits = STRIDED_LANE_CYCLES if self._loses_lines(n, lane, lanes) else 0
        padding = -(-extent(lane) // lanes) * lanes / extent(lane)  # idle lanes take time, too
        return count * (STRIDED_COST[n.op] * padding + waits)

    def loses_lines(self, lane: UOp, lanes: int) -> bool:
        """Return whether so many lanes are more than the lines of an access that a cache keeps."""
        return any(self._loses_lines(n, lane, lanes) for n, _ in self.node_counts
                   if n.op in STRIDED_COST and lane in n.ranges)

    def _loses_lines(self, access: UOp, lane: UOp, lanes: int) -> bool:
        """Return whether the lines of strided lanes, of which a loop reads neighboring elements
        next, leave the cache before: rows a power of two apart share a few places."""
        step, size = abs(stride(access, lane)), accessors.index_node(access).dtype.itemsize
        if step < 2 or step % UNKNOWN_STRIDE == 0 or not is_static(lane):
            return False
        touched = footprint([(step * size, min(extent(lane), lanes))], size)
        return touched.occupied(self.cache) > self.cache and any(
            abs(stride(access, r)) == 1 for r in access.ranges if r is not lane)

    def _block_padding(self, access: UOp) -> float:
        """Return how many times its elements the blocks of an access have, along the contiguous
        range."""
        lengths = [extent(r) for r in access.ranges if abs(stride(access, r)) == 1]
        return max([-(-n // BLOCK_SIDE) * BLOCK_SIDE / n for n in lengths], default=1.0)

    def transposes_store(self, store: UOp, lane: UOp, lanes: int) -> bool:
        """Return whether blocks are transposed in registers before they are stored: for a map of
        little work that reads along the lanes."""
        return self.is_alone and can_transpose(lanes) and store.arg is None \
            and len(self.node_counts) <= UNROLL \
            and accessors.value(store).dtype.itemsize >= 4 \
            and all(abs(stride(n, lane)) <= 1 for n, _ in self.node_counts if n.op is ops.LOAD) \
            and any(stride(store, r) == 1 and extent(r) > MAX_STRIDE for r in self.own_ranges)

    def stages_blocks(self, load: UOp, lane: UOp, lanes: int) -> bool:
        """Return whether blocks of a load are transposed in a stage before they are read."""
        return load.op is ops.LOAD and self.is_large_map and self.shares_loops \
            and can_transpose(lanes) \
            and abs(stride(load, lane)) > MAX_STRIDE and load.dtype.itemsize >= 4 \
            and accessors.buffer(load).op is ops.REF and extent(lane) >= lanes \
            and any(abs(stride(load, r)) == 1 and extent(r) > MAX_STRIDE for r in self.own_ranges)


def _index_nodes(nodes: Sequence[UOp]) -> list[UOp]:
    """Return what the index of a gather is computed from for each of its elements: x[i[r, k]], not
    x[i[r], k], where it takes little time beside the row."""
    seen, out = set(nodes), dict[UOp, None]()
    for gather in nodes:
        if gather.op is ops.LOAD and any(i.op in ops.ELEMENTWISE or i.op is ops.LOAD
                                         for i in accessors.indices(gather)):
            out.update(dict.fromkeys([
                n for n in toposort(accessors.indices(gather))
                if n not in seen and n.dtype is not dtypes.index and n.ranges == gather.ranges]))
    return [*out]


def _loops_around(n: UOp, statement: UOp) -> Collection[UOp]:
    """Return the loops in which a node of a statement is computed: what varies in a reduction is
    computed again for each result, also if it does not depend on that."""
    varying = iteration_ranges(n)
    if statement.op is not ops.REDUCE or varying.isdisjoint(bound_ranges(statement)):
        return varying
    return varying | statement.ranges


def instructions(node: UOp) -> int:
    """Return the instructions of a node: one, or those of a polynomial."""
    return node.op.cost if node.op.cost > ops.DIV.cost else 1


def find_gap_range(access: UOp, lane: UOp, permuted: int = 1) -> UOp | None:
    """Return the short range whose elements fill the gaps between the lanes of a LOAD or STORE."""
    if access.op not in (ops.LOAD, ops.STORE) or lane not in access.ranges:
        return None
    step = stride(access, lane)
    if not 2 <= abs(step) <= MAX_STRIDE or accessors.index_node(access).dtype.itemsize < permuted:
        return None
    return next((r for r in access.ranges if r is not lane and is_static(r) and
                 extent(r) == abs(step) and stride(access, r) == 1), None)
