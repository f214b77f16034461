"""Contractions with the standard basis: a sum of products with a one-hot vector is an index.

    sum(k: w[j, k] * unit[i, k])          ->   w[j, i]
    sum(k: w[j, k] * unit[i, k, c])       ->   w[j, k of i] where c is that of i, else 0

A basis vector is symbolically zero except at its one (rules.py), so the other terms vanish, even
if w is infinite. So the first matrix product of a Jacobian is a transposition. The basis is
tracked through movement ops, and into calls.

Row i of the basis of an array of n elements is 1 at element i. An axis of a view of the basis
is the rows, a digit of the flat index (``i // stride % length``), or neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, rebuild
from fnx.core.support.record import Record
from fnx.core.tracing.trace import inline_function

MAX_CALLS = 8  # nesting depth of calls that are inlined


class IndexDigit(Record):
    """``i // stride % length``, a digit of the flat index i."""

    stride: int
    length: int


BASIS_ROW = "lane"
BasisView = tuple[IndexDigit | str | None, ...]  # None: an axis that is broadcast


def contract_basis(outs: Sequence[UOp], units: UOp) -> list[UOp]:
    """Return the outs, with contractions with ``units`` (a one in each row) turned into indexing.

    >>> from fnx.core.ir import dtypes
    >>> w, u = (build.param(i, dtypes.float32, (3, 3)) for i in range(2))
    >>> both = [build.expand(build.reshape(x, shape), (3, 3, 3))
    ...         for x, shape in ((w, (1, 3, 3)), (u, (3, 1, 3)))]
    >>> from fnx.core.levels import show
    >>> print(show.pretty(contract_basis([build.reduce(build.mul(*both), ops.ADD, (2,))], u)[0]))
    t0[i, j] = x0[j, i]  # float32[3, 3]
    """
    results = list(outs)
    if len(units.shape) < 2 or units.shape[0] < 2:
        return results
    for _ in range(MAX_CALLS):
        walk = _BasisWalk(units)
        results = rebuild(results, walk.visit)
        if not walk.inlined_calls:
            break
    return results


class _BasisWalk:
    def __init__(self, units: UOp) -> None:
        self.n, *lengths = units.shape
        digits = [None if n == 1 else IndexDigit(math.prod(lengths[i + 1:]), n)
                  for i, n in enumerate(lengths)]
        self.views: dict[UOp, BasisView] = {units: (BASIS_ROW, *digits)}
        # calls that take units -> their inlined results
        self.inlined_calls: dict[UOp, list[UOp]] = {}

    def visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.GETTUPLE and src[0] in self.inlined_calls:
            result: UOp = self.inlined_calls[src[0]][node.arg]
            return result
        if node.op is ops.REDUCE and node.arg.monoid is ops.ADD and src[0].op is ops.MUL:
            a, b = src[0].src
            contracted = self._index_contraction(a, b, node)
            return self._index_contraction(b, a, node) if contracted is None else contracted
        if any(s in self.views for s in src):
            rebuilt = node.with_operands(src)
            if node.op is ops.CALL and src[0].op is ops.FUNCTION:
                self.inlined_calls[rebuilt] = inline_function(src[0], src[1:])
            elif (view := _view_of_movement(node, src[0], self.views.get(src[0]))) is not None:
                self.views[rebuilt] = view
            return rebuilt
        return None

    def _index_contraction(self, x: UOp, units: UOp, node: UOp) -> UOp | None:
        """Return the sum of x * units, if x does not depend on the rows."""
        view, axes = self.views.get(units, ()), node.arg.axes
        if x.op is not ops.EXPAND or BASIS_ROW not in view:
            return None
        row_axis = view.index(BASIS_ROW)
        digits = {i: v for i, v in enumerate(view) if isinstance(v, IndexDigit)}
        picked = sorted([i for i in digits if i in axes], key=lambda i: -digits[i].stride)
        if not picked or row_axis in axes or x.src[0].shape[row_axis] != 1:
            return None
        shape = tuple([1 if i == row_axis else n for i, n in enumerate(x.shape)])
        others = [i for i in axes if i not in picked]
        summed = build.reduce(build.expand(x.src[0], shape), ops.ADD, others) if others else \
            build.expand(x.src[0], shape)
        remaining = [i for i in range(len(shape)) if i not in others]  # the axes of ``summed``
        out_axes = [i for i in remaining if i not in picked and i != row_axis]
        rows = build.permute(summed, [remaining.index(i) for i in (row_axis, *picked, *out_axes)])
        lengths = tuple([shape[i] for i in out_axes])
        result = build.reshape(self._expand_rows(rows, [digits[i] for i in picked], lengths),
                               (self.n, *lengths))
        at = sum(i < row_axis for i in out_axes)
        order = [*range(1, at + 1), 0, *range(at + 1, len(out_axes) + 1)]
        result = build.permute(result, order)
        for i in out_axes:
            if i in digits:
                axis = out_axes.index(i) + (i > row_axis)
                result = build.where(self._has_digit(digits[i], at, axis, result.shape), result,
                                     build.const(0, result.dtype, result.shape))
        return build.reshape(result, node.shape)

    def _expand_rows(self, rows: UOp, digits: Sequence[IndexDigit], lengths: Shape) -> UOp:
        """Expand ``rows`` (1, the digits, more axes) to one entry per row, in front, which has
        these digits."""
        source_shape: list[int] = []
        full_shape: list[int] = []
        above = self.n
        for d in digits:
            between = above // (d.stride * d.length)
            source_shape += [1, d.length]
            full_shape += [between, d.length]
            above = d.stride
        reshaped = build.reshape(rows, (*source_shape, 1, *lengths))
        return build.expand(reshaped, (*full_shape, above, *lengths))

    def _has_digit(self, digit: IndexDigit, lane: int, axis: int, shape: Shape) -> UOp:
        """Whether the flat index of a row has the digit that equals the index of an axis."""
        above = self.n // (digit.stride * digit.length)
        index = build.iota(digit.length)
        digits = build.expand(build.reshape(index, (1, digit.length, 1)),
                              (above, digit.length, digit.stride))
        rows = build.reshape(digits, tuple([self.n if i == lane else 1 for i in range(len(shape))]))
        indices = build.reshape(index, tuple([digit.length if i == axis else 1
                                              for i in range(len(shape))]))
        return build.eq(build.expand(rows, shape), build.expand(indices, shape))


def _view_of_movement(node: UOp, x: UOp, view: BasisView | None) -> BasisView | None:
    """Return the view of a movement op of something with a view."""
    if view is None:
        return None
    if node.op is ops.PERMUTE:
        return tuple([view[i] for i in node.arg])
    if node.op is ops.EXPAND:
        return view
    return _view_of_reshape(view, x.shape, node.shape) if node.op is ops.RESHAPE else None


def _view_of_reshape(view: BasisView, before: Shape, after: Shape) -> BasisView | None:
    """Return the view of a RESHAPE that splits or joins digits and leaves other axes unchanged."""
    pending = [(n, v) for n, v in zip(before, view) if n != 1]
    out: list[IndexDigit | str | None] = []
    for n in after:
        if n == 1:
            out.append(None)
            continue
        if not pending:
            return None
        length, v = pending.pop(0)
        while length < n and pending and isinstance(v, IndexDigit):
            next_length, low = pending.pop(0)
            if not isinstance(low, IndexDigit) or v.stride != low.stride * low.length:
                return None
            length, v = length * next_length, IndexDigit(low.stride, v.length * low.length)
        if length > n and length % n == 0 and isinstance(v, IndexDigit):
            rest = length // n
            pending.insert(0, (rest, IndexDigit(v.stride, rest)))
            v = IndexDigit(v.stride * rest, n)
        elif length != n:
            return None
        out.append(v)
    return tuple(out)
