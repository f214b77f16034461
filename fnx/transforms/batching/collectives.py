"""Collectives over a named axis: batching over that axis resolves them.

    ALL_GATHER(x), axis 'i'    over 'i':  x itself, with its batch axis as the gathered one
                               over another axis:  ALL_GATHER of the batched x, batch axis in front
    AXIS_INDEX, axis 'i'       over 'i':  0, 1, ... size - 1
    PVARY_LIKE(x, y), axis 'i' over 'i':  x, broadcast if y is batched and x is not
    PSUM_LIKE(x, y), axis 'i'  over 'i':  x, summed over its batch axis if x is batched and y is not
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core.ir import build, build_named_axes, ops
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.transforms.batching.patterns import BatchAxis, BatchedValue
from fnx.transforms.batching.rules import broadcast_batch

CollectiveRule = Callable[[UOp, Sequence[BatchedValue], BatchAxis], BatchedValue]


def _all_gather(node: UOp, src: Sequence[BatchedValue], batch: BatchAxis) -> BatchedValue:
    (x, batched), = src
    if node.arg == batch.axis:
        return BatchedValue(broadcast_batch(x, batched, batch.size), False)
    gathered = build_named_axes.all_gather(x, node.arg)
    order = (1, 0, *range(2, len(gathered.shape)))
    return BatchedValue(build.permute(gathered, order) if batched else gathered, batched)


def _axis_index(node: UOp, src: Sequence[BatchedValue], batch: BatchAxis) -> BatchedValue:
    is_batched = node.arg == batch.axis
    return BatchedValue(build.iota(batch.size) if is_batched else node, is_batched)


def _like(node: UOp, src: Sequence[BatchedValue], batch: BatchAxis) -> BatchedValue:
    (x, batched), (like, like_batched) = src
    if node.arg != batch.axis:
        return BatchedValue(node.with_operands((x, like)), batched)
    if node.op is ops.PVARY_LIKE and like_batched and not batched:
        return BatchedValue(broadcast_batch(x, False, batch.size), True)
    if node.op is ops.PSUM_LIKE and batched and not like_batched:
        monoid = ops.OR if x.dtype.is_bool else ops.ADD
        return BatchedValue(build.reduce(x, monoid, (0,)), False)
    return BatchedValue(x, batched)


COLLECTIVES: dict[Op, CollectiveRule] = {
    ops.ALL_GATHER: _all_gather, ops.AXIS_INDEX: _axis_index,
    ops.PVARY_LIKE: _like, ops.PSUM_LIKE: _like}
