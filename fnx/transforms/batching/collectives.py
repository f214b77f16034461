"""Collectives over a named axis: batching over that axis resolves them.

    ALL_GATHER(x), axis 'i'    over 'i':  x itself, with its batch axis as the gathered one
                               over another axis:  ALL_GATHER of the batched x, batch axis in front
    AXIS_INDEX, axis 'i'       over 'i':  0, 1, ... size - 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core import build, ops
from fnx.core.ops import Op
from fnx.core.uop import UOp
from fnx.transforms.batching.rules import spread
from fnx.transforms.batching.values import Lanes, Lifted

CollectiveRule = Callable[[UOp, Sequence[Lifted], Lanes], Lifted]


def _all_gather(node: UOp, src: Sequence[Lifted], lanes: Lanes) -> Lifted:
    (x, batched), = src
    if node.arg == lanes.axis:
        return Lifted(spread(x, batched, lanes.size), False)
    made = build.all_gather(x, node.arg)
    order = (1, 0, *range(2, len(made.shape)))
    return Lifted(build.permute(made, order) if batched else made, batched)


def _axis_index(node: UOp, src: Sequence[Lifted], lanes: Lanes) -> Lifted:
    own = node.arg == lanes.axis
    return Lifted(build.iota(lanes.size) if own else node, own)


COLLECTIVES: dict[Op, CollectiveRule] = {ops.ALL_GATHER: _all_gather, ops.AXIS_INDEX: _axis_index}
