"""Candidate products for attention regions: a cheap test before that compiler part is loaded.

>>> from fnx.core.ir import build, dtypes
>>> x = build.param(0, dtypes.float32, (1024, 1024, 8))
>>> may_have_products(build.function([build.reduce(x, ops.ADD, [2])], 1))
True
>>> may_have_products(build.function([build.reduce(x, ops.ADD, [1])], 1))
False
"""

from __future__ import annotations

import math

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, toposort

MIN_MATRIX = 1 << 16   # smallest matrix, in elements, for which it pays: 256 rows and columns
MAX_SUMMED = 256  # terms of a product that is recomputed


def may_be_product(sum_: UOp, least: int) -> bool:
    """Whether a sum has at least ``least`` elements, of few terms each."""
    count = math.prod(sum_.shape)
    return count >= least and math.prod(sum_.src[0].shape) <= MAX_SUMMED * count


def may_have_products(fn: UOp) -> bool:
    """Whether a FUNCTION contains a sum that may be a candidate product."""
    return any(n.op is ops.REDUCE and n.arg.monoid is ops.ADD and may_be_product(n, MIN_MATRIX)
               for n in toposort(fn.src))
