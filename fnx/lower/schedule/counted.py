"""The cost of one statement of a kernel with lanes along a range.

A statement is a STORE, a STAGE, a REDUCE or an ITER, with the nodes that are computed for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core import ops, parts
from fnx.core.uop import UOp, toposort
from fnx.lower.program.interleaved import MOST
from fnx.lower.program.transpose import can_transpose
from fnx.lower.schedule.short_rows import crosses, short_fold
from fnx.lower.schedule.workload import extent, is_known, product, run_over, stride

CHUNK = 1 << 14  # additions (or equivalent work) that one parallel iteration should have
BLOCK = 16  # side of a transposed block: a cache line of float32
UNROLL = 4
_LANE_OF_PAIRS = 6  # instructions to reduce lanes of (key, index) pairs with their other half
_TURNED = 0.3  # cost of an element of a block that is transposed in registers
_STRIDED = {ops.LOAD: 0.8, ops.STORE: 1.2}  # cost of a gather or scatter lane, in scalar accesses


class Counted:
    """A STORE, STAGE, REDUCE or ITER: the nodes computed for it, and its own ranges. One shuffle
    instruction permutes lanes of elements of at least ``permuted`` bytes."""

    __slots__ = ("nodes", "own", "counted", "is_large_map", "folded", "pairs", "permuted")

    def __init__(self, node: UOp, own: Iterable[UOp], permuted: int = 1) -> None:
        self.permuted = permuted
        roots = node.src if node.op in (ops.STORE, ops.ITER) else node.src[:1]
        below = toposort(roots, stop=lambda n: n.op in (ops.REDUCE, ops.LOAD, ops.ITER))
        self.nodes, self.own = [*below, node], list(own)
        counted = [n for n in below if n.op in ops.ELEMENTWISE or n.op is ops.LOAD]
        if node.op is not ops.STAGE and node.op is not ops.ITER:
            counted.append(node)
        self.counted = [(n, product(run_over(n))) for n in counted]
        self.is_large_map = node.op is ops.STORE and node.arg is None and not any(
            n.op in (ops.REDUCE, ops.STAGE, ops.ITER, ops.MMA) for n in self.nodes) \
            and all(map(is_known, self.own)) and product(self.own) >= CHUNK
        self.folded = short_fold(node)
        is_pair = node.op is ops.REDUCE and node.src[0].op is ops.PAIR
        self.pairs = product(node.ranges) if is_pair else 0

    def cost(self, lane: UOp | None, lanes: int) -> float:
        """Return the approximate number of instructions with lanes along ``lane``."""
        total = 0.0
        if self.pairs and lane in self.own:  # a horizontal reduction ends each result
            total += self.pairs * _LANE_OF_PAIRS * (lanes.bit_length() - 1)
        for n, count in self.counted:
            if lane is None or lane not in run_over(n):
                total += count
            elif between(n, lane, self.permuted) is not None or n.op is ops.LOAD \
                    and 2 <= stride(n, lane) <= MOST and n.dtype.itemsize >= self.permuted:
                total += count * min(stride(n, lane) / lanes, _STRIDED[n.op])
            elif n.op is ops.STORE and abs(stride(n, lane)) > 1 and self.turns(n, lane, lanes) \
                    or self.reads_turned(n, lane, lanes):
                total += count * _TURNED
            elif n.op in _STRIDED and abs(stride(n, lane)) > 1:
                total += count * _STRIDED[n.op]
            else:
                total += count * (-(-extent(lane) // lanes) / extent(lane))
        return total

    def turns(self, store: UOp, lane: UOp, lanes: int) -> bool:
        """Return whether blocks are transposed in registers before they are stored: for a map of
        little work that reads along the lanes."""
        return can_transpose(lanes) and store.arg is None and len(self.counted) <= UNROLL \
            and parts.value(store).dtype.itemsize >= 4 \
            and all(stride(n, lane) in (0, 1) for n, _ in self.counted if n.op is ops.LOAD) \
            and any(stride(store, r) == 1 and extent(r) > BLOCK for r in self.own)

    def reads_turned(self, load: UOp, lane: UOp, lanes: int) -> bool:
        """Return whether blocks of a load are transposed in a stage before they are read."""
        if crosses(load, lane, self.folded, lanes):
            return True
        return load.op is ops.LOAD and self.is_large_map and can_transpose(lanes) \
            and abs(stride(load, lane)) > MOST and load.dtype.itemsize >= 4 \
            and parts.buffer(load).op is ops.REF and extent(lane) >= lanes \
            and any(stride(load, r) == 1 and extent(r) > BLOCK for r in self.own)


def between(access: UOp, lane: UOp, permuted: int = 1) -> UOp | None:
    """Return the short range whose elements fill the gaps between the lanes of a LOAD or STORE."""
    if access.op not in (ops.LOAD, ops.STORE) or lane not in access.ranges:
        return None
    step = stride(access, lane)
    if not 2 <= step <= MOST or parts.place(access).dtype.itemsize < permuted:
        return None
    return next((r for r in access.ranges if r is not lane and is_known(r) and extent(r) == step
                 and stride(access, r) == 1), None)
