"""Masks: the conditions of selections, without what only broadcasts or negates them.

>>> from fnx.core.ir import build, dtypes
>>> active = build.param(0, dtypes.bool_, (8,))
>>> rows = build.expand(build.reshape(build.logical_not(active), (8, 1)), (8, 3))
>>> mask_of(rows) == (active, False)
True
"""

from __future__ import annotations

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp


def mask_of(condition: UOp) -> tuple[UOp, bool]:
    """Return the mask of a condition without its broadcast along further axes, and whether the
    condition holds where the mask does, or where it does not."""
    value = True
    while True:
        if condition.op is ops.NOT and condition.dtype.is_bool:
            condition, value = condition.src[0], not value
        elif condition.op is ops.EXPAND and condition.src[0].op is ops.RESHAPE:
            narrow = condition.src[0].src[0]
            rank = len(narrow.shape)
            if condition.shape[:rank] != narrow.shape or \
                    condition.src[0].shape[:rank] != narrow.shape:
                return condition, value
            condition = narrow
        else:
            return condition, value
