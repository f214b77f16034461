"""Transpose loop-invariant operands of products once, ahead of a SCAN.

    before  SCAN  c' = sum over k of c[i, k] * w[j, k]         w is packed in each step
    after   SCAN  c' = sum over k of c[i, k] * v[k, j]         v = w transposed, once

The backward pass of c @ w contracts the other axis of w. The lanes of a vector would then read with
a stride, so each step would first pack w into another order. Lanes go along the last axis of the
result: a factor without that axis is read an element at a time, in the order in which it lies. A
few rows are multiplied by dot products along the rows of the matrix, which nobody packs
(core/formulas/dot_products.py), unless the sums are so short that to add the lanes of each product
takes longer than to read the rows.

>>> from fnx.core.ir import dtypes
>>> c, w = build.param(1, dtypes.float32, (16, 64)), build.param(0, dtypes.float32, (128, 64))
>>> product = build.mul(*[build.expand(build.reshape(x, s), (16, 128, 64)) for x, s in
...                       ((c, (16, 1, 64)), (w, (1, 128, 64)))])
>>> [(reads.param is w, reads.order)
...  for reads in strided_operands([build.reduce(product, ops.ADD, (2,))], {w})]
[(True, (1, 0))]
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from fnx.core.formulas.dot_products import takes_dots
from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record

MIN_SIZE = 4096  # elements of an array that is worth transposing
_LANES = 16  # of the widest vectors of float32


class StridedOperand(Record):
    """An operand of a sum of products that reads ``param`` with a stride.

    ``order`` is the axis order that would make the reads contiguous.
    """

    operand: UOp
    param: UOp
    order: tuple[int, ...]

    def over(self, other: UOp) -> UOp:
        """Return a replacement of the PARAM, given ``other`` with its axes in that order."""
        return build.permute(other, sorted(range(len(self.order)), key=self.order.__getitem__))


def strided_operands(outs: Sequence[UOp], consts: Container[UOp]) -> list[StridedOperand]:
    """Return the operands of sums of products that read PARAMs with a stride."""
    strided = []
    for n in toposort(outs):
        if n.op is ops.REDUCE and n.arg.monoid is ops.ADD and n.src[0].op is ops.MUL:
            terms = math.prod([n.src[0].shape[a] for a in n.arg.axes])
            results = [a for a, m in enumerate(n.src[0].shape) if m > 1 and a not in n.arg.axes]
            for operand in n.src[0].src:
                param, axes = _below_movements(operand)
                varying = [axes[a] is not None for a in results]
                rows = math.prod([n.src[0].shape[a] for a in results if axes[a] is None])
                if param in consts and math.prod(param.shape) >= MIN_SIZE and varying \
                        and varying[-1] and not takes_dots(rows, terms, _LANES):
                    summed = [axes[a] for a in n.arg.axes if axes[a] is not None]
                    free = [a for a in range(len(param.shape)) if a not in summed]
                    if free and len(param.shape) - 1 in summed:
                        summed_axes = [a for a in range(len(param.shape)) if a in summed]
                        strided.append(StridedOperand(operand, param, (*summed_axes, *free)))
    return strided


def _below_movements(node: UOp) -> tuple[UOp, Sequence[int | None]]:
    """Return the node below movement ops, and its axis for each axis of ``node``."""
    chain = []
    while node.op in (ops.EXPAND, ops.PERMUTE, ops.RESHAPE):
        chain.append(node)
        node = node.src[0]
    axes: list[int | None] = list(range(len(node.shape)))
    for n in reversed(chain):
        if n.op is ops.PERMUTE:
            axes = [axes[a] for a in n.arg]
        elif n.op is ops.EXPAND:
            axes = [None if m != k else a for a, m, k in zip(axes, n.src[0].shape, n.shape)]
        else:
            nontrivial = [a for a, m in zip(axes, n.src[0].shape) if m != 1]
            if [m for m in n.shape if m != 1] != [m for m in n.src[0].shape if m != 1]:
                return chain[0], range(len(chain[0].shape))  # axes are merged or split
            remaining = iter(nontrivial)
            axes = [None if m == 1 else next(remaining) for m in n.shape]
    return node, axes
