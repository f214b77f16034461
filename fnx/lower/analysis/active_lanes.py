"""Which lanes of a mask are active, where that is known when it is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.ir import build, ops
from fnx.core.ir.numpy_semantics import eval_node
from fnx.core.ir.uop import UOp, toposort
from fnx.lower.analysis.tuning import LINE_BYTES


def active_lanes(mask: UOp) -> tuple[int, ...] | None:
    """Return the active lanes of a mask; None if known only at run time.

    >>> from fnx.core.ir import dtypes
    >>> mask = UOp(ops.LANE_MASK, dtypes.bool_.vec(4), (build.index_const(3),))
    >>> active_lanes(mask), active_lanes(UOp(ops.NOT, mask.dtype, (mask,)))
    ((0, 1, 2), (3,))
    """
    values: dict[UOp, Any] = {}
    for node in toposort([mask]):
        if node.op is ops.CONST:
            values[node] = np.asarray(build.const_of(node), node.dtype.np)
        elif node.op is ops.LANES:
            values[node] = np.arange(node.dtype.lanes, dtype=node.dtype.scalar.np)
        elif any(s not in values for s in node.src) or not node.src:
            return None
        elif node.op is ops.LANE_MASK:
            values[node] = np.arange(node.dtype.lanes) < values[node.src[0]]
        elif node.op is ops.SPLAT:
            values[node] = np.broadcast_to(values[node.src[0]], node.dtype.lanes)
        elif node.op is ops.SHUFFLE:
            values[node] = np.concatenate([values[s] for s in node.src])[list(node.arg)]
        elif node.op is ops.CAST and node.dtype.is_integer and not node.src[0].dtype.is_float:
            values[node] = values[node.src[0]].astype(node.dtype.scalar.np)
        elif node.op in ops.ELEMENTWISE:
            values[node] = np.asarray(eval_node(node, *[values[s] for s in node.src]))
        else:
            return None
    active = np.broadcast_to(values[mask], mask.dtype.lanes)
    return tuple([int(lane) for lane in np.flatnonzero(active)])


def may_end_out_of_bounds(address: UOp, mask: UOp) -> bool:
    """Whether a masked load is fast where only its first lane is known to be in bounds: all lanes
    are in one cache line; or the active ones are the first (a number known at run time), so that
    others are past the end of the buffer in its last vector only, and vectors are as long as a
    line, which are those of processors with mask registers: elsewhere LLVM may make a branch for
    each lane."""
    nbytes = address.dtype.itemsize * address.dtype.lanes
    return address.arg >= nbytes or nbytes == LINE_BYTES and \
        mask.op is ops.LANE_MASK and mask.src[0].op is not ops.CONST
