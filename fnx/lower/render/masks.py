"""Masks that are numbers: where one lane of a vector is stored, a scalar is.

LLVM (22, x86) makes a scalar store of a masked one whose mask is a constant with one lane, and
forgets that it also narrows: of 16 sums of 32 bits that are stored as 16 bits it writes 4 bytes,
two of them behind the array.

>>> from fnx.core import dtypes
>>> mask = UOp(ops.LANESBELOW, dtypes.bool_.vec(8), (build.index_const(1),))
>>> only_lane(mask), only_lane(UOp(ops.NOT, mask.dtype, (mask,)))
(0, None)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core import build, ops
from fnx.core.numpy_semantics import computed
from fnx.core.uop import UOp, toposort


def only_lane(mask: UOp) -> int | None:
    """The lane of a mask that is known to have one."""
    lanes = mask.dtype.lanes
    if lanes == 1:
        return None
    values: dict[UOp, Any] = {}
    for node in toposort([mask]):
        if node.op is ops.CONST:
            values[node] = np.asarray(build.const_of(node), node.dtype.np)
        elif node.op is ops.LANES:
            values[node] = np.arange(node.dtype.lanes, dtype=node.dtype.scalar.np)
        elif any(s not in values for s in node.src) or not node.src:
            return None
        elif node.op is ops.LANESBELOW:
            values[node] = np.arange(lanes) < values[node.src[0]]
        elif node.op is ops.SPLAT:
            values[node] = np.broadcast_to(values[node.src[0]], node.dtype.lanes)
        elif node.op in ops.ELEMENTWISE:
            values[node] = np.asarray(computed(node, *[values[s] for s in node.src]))
        else:
            return None
    on = np.flatnonzero(values[mask])
    return int(on[0]) if on.size == 1 else None
