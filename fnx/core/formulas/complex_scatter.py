"""Scatters that combine complex numbers by products, or by their order: a loop over the updates.

>>> from fnx.core.ir import dtypes
>>> z, i = build.param(0, dtypes.complex64, (4,)), build.param(1, dtypes.int32, (3,))
>>> scatter(z, [i], build.param(2, dtypes.complex64, (3,)), ops.MUL).shape
(4,)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.formulas.complex_functions import FORMULAS
from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.build_calls import Nodes
from fnx.core.ir.expr import Expr
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp

_COMBINE = {ops.MUL: FORMULAS["multiply"], ops.MAX: FORMULAS["maximum"],
            ops.MIN: FORMULAS["minimum"]}


def combine(monoid: Op, x: UOp, y: UOp) -> UOp:
    """Combine two arrays of any dtype by a monoid."""
    if monoid in _COMBINE and x.dtype.is_complex:
        return _COMBINE[monoid](Expr(x), Expr(y)).node
    return build.elementwise(monoid, x, y)


def scatter(x: UOp, index: Sequence[UOp], updates: UOp, monoid: Op | None = None,
            axes: Sequence[int] | None = None) -> UOp:
    """Write or combine ``updates`` as ``build.scatter`` does, of any dtype."""
    if monoid not in _COMBINE or not x.dtype.is_complex:
        return build.scatter(x, index, updates, monoid, axes)
    shape = index[0].shape
    n = math.prod(shape)
    rows = build.reshape(updates, (n, *updates.shape[len(shape):]))

    def step(_: Nodes, carries: Nodes, elements: Nodes) -> tuple[Nodes, Nodes]:
        (total,), (*at, row) = carries, elements
        new = combine(monoid, build.gather(total, *at, axes=axes), row)
        return [build.scatter(total, at, new, None, axes)], []

    indices = [build.reshape(i, (n,)) for i in index]
    (total,), _ = build_calls.build_scan(step, n, [], [x], [*indices, rows], name="scatter")
    return total
