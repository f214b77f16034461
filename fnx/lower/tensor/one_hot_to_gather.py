"""One-hot factors: turn a sum of products with a one-hot factor into a gather or a scatter-add.

    before  sum(k: (i[n] == k) * w[k, j])                         n K J products
    after   w[i[n], j] where 0 <= i[n] < K, else 0                n J reads

    before  sum(n: (i[n] == k) * g[n, j])
    after   zeros, and for each n: out[i[n], j] += g[n, j]

This matches ``one_hot(i, K) @ w`` and its gradient, alone or as parts of a CONCAT, whose other
parts remain a product. Values are unchanged: the sum is NaN if any other row of ``w`` is not
finite, so non-finite rows are counted per column. Likewise a column of the scatter-add is NaN if
any of its updates is not finite.

>>> from fnx.core.ir import dtypes
>>> i, w = build.param(0, dtypes.int32, (500,)), build.param(1, dtypes.int32, (64, 16))
>>> hot = build.cast(build.elementwise(ops.CMPEQ, *[build.expand(build.reshape(x, shape), (500, 64))
...     for x, shape in ((i, (500, 1)), (build.iota(64, dtypes.int32), (1, 64)))]), dtypes.int32)
>>> sides = build.reshape(hot, (500, 1, 64)), build.reshape(build.permute(w, (1, 0)), (1, 16, 64))
>>> both = build.mul(*[build.expand(s, (500, 16, 64)) for s in sides])
>>> product = build.function([build.reduce(both, ops.ADD, [2])], 2)
>>> made, = one_hot_to_gather(product, Target("cpu")).src
>>> any(n.op is ops.REDUCE for n in toposort([made]))
False
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, rebuild_results, toposort
from fnx.core.rewriting.rewrite import underlying_const
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.workload import is_zero

_ROW_OVERHEAD = 4       # cycles of overhead per indexed row
_CHAIN_TERMS = 1 << 10  # approximate terms per accumulator
AxisMap = tuple[int | None, ...]


class AxisView(Record):
    """A value below its movements, and for each of its axes the axis of the outer shape that it
    maps to.

    None: the axis has length 1 there, or is repeated.
    """

    base: UOp
    axes: AxisMap

    def at(self, axis: int) -> int:
        return self.axes.index(axis)

    @property
    def mapped_axes(self) -> set[int]:
        return {a for a in self.axes if a is not None}

    def compose(self, outer: AxisMap) -> AxisView:
        """Return the same value in the shape whose axes are ``outer``."""
        return AxisView(self.base, tuple([None if a is None else outer[a] for a in self.axes]))


class OneHotRows(Record):
    """Rows first <= k < first + length of a factor, and the index they are compared with if they
    are one-hot."""

    value: UOp
    first: int
    length: int
    index: AxisView | None


def one_hot_to_gather(fn: UOp, target: Target) -> UOp:
    """Return a FUNCTION whose products with one-hot factors are gathers and scatters, where those
    are predicted to be faster."""
    if target.threads > 1:
        return fn

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REDUCE or node.arg.monoid is not ops.ADD or \
                src[0].op is not ops.MUL or not (node.dtype.is_float or node.dtype.is_integer):
            return None
        factors = [_strip_movements(s) for s in src[0].src]
        for one_hot, other in (factors, factors[::-1]):
            for axis in _one_hot_axes(one_hot):
                product = _OneHotProduct(src[0].shape, node.arg.axes, axis, one_hot, other, target)
                replacement = product.to_gather() if axis in node.arg.axes else product.to_scatter()
                if replacement is not None:
                    return replacement
        return None

    kernels = {n: n for n in toposort(fn.src) if n.op is ops.KERNEL}
    return rebuild_results(fn, visit, kernels)


# ---- matching one-hot factors


def _strip_movements(node: UOp) -> AxisView:
    """Return the value below a node's movements, with the node's axis for each of its axes."""
    axes: list[int | None] = [*range(len(node.shape))]
    while True:
        if node.op is ops.EXPAND:
            axes = [None if n == 1 else a for a, n in zip(axes, node.src[0].shape)]
        elif node.op is ops.PERMUTE:
            axes = [axes[node.arg.index(a)] for a in range(len(axes))]
        elif node.op is ops.RESHAPE and \
                _non_unit_lengths(node.shape) == _non_unit_lengths(node.src[0].shape):
            remaining = iter([a for a, n in zip(axes, node.shape) if n != 1])
            axes = [None if n == 1 else next(remaining) for n in node.src[0].shape]
        else:
            return AxisView(node, tuple([None if n == 1 else a for a, n in zip(axes, node.shape)]))
        node = node.src[0]


def _non_unit_lengths(shape: Shape) -> list[int]:
    return [n for n in shape if n != 1]


def _one_hot_axes(factor: AxisView) -> list[int]:
    """Return the axes of the product along which a factor, or a part of a CONCAT, may be
    one-hot."""
    base = factor.base
    if base.op is ops.CONCAT:
        base_axes = [base.arg] if any(
            _one_hot_index(_strip_movements(s).base, _strip_movements(s).at(base.arg)) is not None
            for s in base.src if base.arg in _strip_movements(s).mapped_axes) else []
    else:
        base_axes = [a for a in range(len(base.shape)) if _one_hot_index(base, a) is not None]
    return [axis for a in base_axes if (axis := factor.axes[a]) is not None]


def _one_hot_index(value: UOp, axis: int) -> AxisView | None:
    """Match a value that is 1 where an index equals the position along an axis, else 0; return the
    index."""
    while value.op is ops.CAST and not value.src[0].dtype.is_bool:
        value = value.src[0]
    comparison = value.src[0] if value.op is ops.CAST or value.op is ops.WHERE and is_zero(
        value.src[2]) and _is_one(value.src[1]) else value
    if comparison.op is not ops.CMPEQ or not comparison.src[0].dtype.is_integer:
        return None
    left, right = map(_strip_movements, comparison.src)
    for positions, index in ((left, right), (right, left)):
        if positions.base.op is ops.IOTA and positions.axes == (axis,) \
                and axis not in index.mapped_axes \
                and positions.base.arg <= positions.base.dtype.limits[1]:
            return index
    return None


def _is_one(node: UOp) -> bool:
    constant = underlying_const(node)
    return constant is not None and build.const_of(constant) == 1


# ---- sums of products with one-hot factors


class _OneHotProduct:
    """A sum over axes of ``shape`` of a factor that is one-hot along an axis, times another
    factor."""

    def __init__(self, shape: Shape, axes: Sequence[int], axis: int, one_hot: AxisView,
                 other: AxisView, target: Target) -> None:
        self.shape, self.axes, self.axis = shape, axes, axis
        self.one_hot, self.other = one_hot, other
        self.lanes = target.vector_lanes(other.base.dtype.itemsize)

    def row_groups(self) -> list[OneHotRows]:
        """Return the rows of the one-hot factor along the axis: the parts of a CONCAT, or all of
        them."""
        base, rows, start = self.one_hot.base, list[OneHotRows](), 0
        base_axis = self.one_hot.at(self.axis)
        if base.op is not ops.CONCAT or base.arg != base_axis:
            return [OneHotRows(base, 0, base.shape[base_axis], self._part_index(base, base_axis))]
        for s in base.src:
            rows.append(OneHotRows(s, start, s.shape[base_axis], self._part_index(s, base_axis)))
            start += s.shape[base_axis]
        return rows

    def _part_index(self, part: UOp, base_axis: int) -> AxisView | None:
        inner = _strip_movements(part)
        if base_axis not in inner.mapped_axes:
            return None
        index = _one_hot_index(inner.base, inner.at(base_axis))
        return None if index is None else index.compose(inner.compose(self.one_hot.axes).axes)

    def dense_product(self, parts: Sequence[OneHotRows]) -> UOp:
        """Return the product of the parts that are not one-hot."""
        base_axis = self.one_hot.at(self.axis)
        values = [p.value for p in parts]
        dense_rows = build.concat(values, base_axis) if len(values) > 1 else values[0]
        shape = list(self.shape)
        shape[self.axis] = dense_rows.shape[base_axis]
        other = self.other
        if self.axis in other.mapped_axes:
            other_axis = other.at(self.axis)
            slices = [build.shrink(other.base, [(first, end) if a == other_axis else (0, n)
                                                for a, n in enumerate(other.base.shape)])
                      for first, end in _adjacent_runs(parts)]
            other = other.replace(base=build.concat(slices, other_axis) if len(slices) > 1
                                  else slices[0])
        sides = [_broadcast_to(x.base, x.axes, tuple(shape)) for x in (
            self.one_hot.replace(base=dense_rows), other)]
        return build.reduce(build.mul(*sides), ops.ADD, self.axes)

    # ---- gathering

    def to_gather(self) -> UOp | None:
        """Gather the rows that one-hot parts select, and add the product of the remaining parts."""
        if tuple(self.axes) != (self.axis,) or self.axis not in self.other.mapped_axes:
            return None
        gathered = [p for p in self.row_groups() if self._gather_pays(p)]
        if not gathered:
            return None
        dense = [p for p in self.row_groups() if p not in gathered]
        terms = [self.dense_product(dense)] if dense else []
        return functools.reduce(build.add, [*terms, *[self._gather_part(p) for p in gathered]])

    def _gather_pays(self, part: OneHotRows) -> bool:
        """Return whether a gather is predicted to be faster than the product."""
        index, other = part.index, self.other
        if index is None or not index.mapped_axes.isdisjoint(other.mapped_axes):
            return False
        rows = math.prod(index.base.shape)
        vectors = math.prod(other.base.shape) // self.shape[self.axis] / self.lanes
        return _is_faster(rows * (2 * vectors + _ROW_OVERHEAD) + 3 * part.length * vectors,
                          rows * part.length * vectors / 2)

    def _gather_part(self, part: OneHotRows) -> UOp:
        """Return the rows that one part selects."""
        index, other = part.index, self.other
        assert index is not None
        other_axis, indices = other.at(self.axis), _squeeze_index(index)
        at = _add_offset(indices, part.first)
        row = _gather_before_cast(other.base, at, other_axis, self._reads_across(index))
        rank = len(indices.shape)
        in_bounds = _broadcast_axes(_in_bounds(indices, part.length), row.shape, range(rank))
        zero = build.const_like(row, 0)
        value = build.where(in_bounds, row, zero)
        if row.dtype.is_float:
            rows = build.shrink(other.base, [
                (part.first, part.first + part.length) if a == other_axis else (0, n)
                for a, n in enumerate(other.base.shape)])
            nonfinite_count = build.reduce(build.cast(_not_finite(rows), dtypes.int32), ops.ADD,
                                           [other_axis])
            selected_nonfinite = build.and_(in_bounds, _not_finite(row))
            only_selected = build.elementwise(
                ops.CMPEQ, build.cast(selected_nonfinite, dtypes.int32),
                _broadcast_axes(nonfinite_count, row.shape, range(rank, len(row.shape))))
            value = build.where(only_selected, build.add(value, zero),
                                build.const_like(row, math.nan))
        axes = (*[a for a in index.axes if a is not None],
                *[a for a in other.axes if a != self.axis])
        result_axes = [None if a is None else a - (a > self.axis) for a in axes]
        return _broadcast_to(value, tuple(result_axes), _drop_axis(self.shape, self.axis))

    def _reads_across(self, index: AxisView) -> bool:
        """Return whether adjacent elements of the result, in a row that is selected, would be
        strided: the axis of rows is the last of the factor."""
        other = self.other
        innermost = [a for a in other.axes if a is not None][-1]
        return innermost == self.axis and max(other.mapped_axes - {self.axis}, default=-1) > max(
            index.mapped_axes, default=-1)

    # ---- scattering

    def to_scatter(self) -> UOp | None:
        """Scatter-add the rows of one-hot parts, and concatenate the product of the remaining
        parts."""
        parts = self.row_groups()
        scattered = [p for p in parts if self._scatter_pays(p)]
        if not scattered:
            return None
        dense = [p for p in parts if p not in scattered]
        dense_sums = self.dense_product(dense) if dense else None
        result_axis = self.axis - sum(a < self.axis for a in self.axes)
        pieces, start = list[UOp](), 0
        for p in parts:
            if p in scattered:
                pieces.append(self._scatter_part(p, result_axis))
                continue
            assert dense_sums is not None
            bounds = [(start, start + p.length) if a == result_axis else (0, n)
                      for a, n in enumerate(dense_sums.shape)]
            pieces.append(build.shrink(dense_sums, bounds))
            start += p.length
        return build.concat(pieces, result_axis) if len(pieces) > 1 else pieces[0]

    def _scatter_pays(self, part: OneHotRows) -> bool:
        """Return whether a scatter-add is predicted to be faster than the product, with sums of
        about the same length."""
        index, other = part.index, self.other
        if index is None or index.mapped_axes != {*self.axes} or self.axis in other.mapped_axes or \
                not index.mapped_axes <= other.mapped_axes:
            return False
        rows = math.prod(index.base.shape)
        vectors = math.prod(other.base.shape) / rows / self.lanes
        return rows <= part.length * _CHAIN_TERMS and _is_faster(
            rows * (4 * vectors + 2 * _ROW_OVERHEAD), rows * part.length * vectors / 2)

    def _scatter_part(self, part: OneHotRows, result_axis: int) -> UOp:
        index, other = part.index, self.other
        assert index is not None
        indices = _squeeze_index(index)
        index_axes = [a for a in index.axes if a is not None]
        other_axes = [a for a in range(len(self.shape)) if a not in self.axes and a != self.axis]
        order = [*index_axes, *other_axes]
        shape = tuple([self.shape[a] for a in order])
        updates = _broadcast_to(other.base, tuple([None if a is None else order.index(a)
                                                   for a in other.axes]), shape)
        row_shape = shape[len(index_axes):]
        zeros = build.expand(build.const(0, updates.dtype), (part.length, *row_shape))
        sums = build.scatter(zeros, [indices], updates, ops.ADD, axes=(0,))
        if updates.dtype.is_float:  # 0, or NaN if an update is not finite
            nan_or_zero = build.reduce(build.mul(updates, build.const_like(updates, 0)), ops.ADD,
                                       [*range(len(index_axes))])
            sums = build.add(sums,
                             _broadcast_axes(nan_or_zero, sums.shape, range(1, len(sums.shape))))
        inverse = [a + 1 for a in range(result_axis)] + [0] + \
            [a + 1 for a in range(result_axis, len(row_shape))]
        return build.permute(sums, tuple(inverse))


def _is_faster(cycles: float, product: float) -> bool:
    return cycles < product


def _adjacent_runs(parts: Sequence[OneHotRows]) -> list[tuple[int, int]]:
    """Return (first, end) of each run of adjacent parts."""
    bounds = [(p.first, p.first + p.length) for p in parts]
    starts = [bounds[0][0], *[b[0] for a, b in itertools.pairwise(bounds) if a[1] != b[0]]]
    stops = [*[a[1] for a, b in itertools.pairwise(bounds) if a[1] != b[0]], bounds[-1][1]]
    return list(zip(starts, stops))


def _drop_axis(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1:])


def _squeeze_index(x: AxisView) -> UOp:
    """Return an index without the axes that it does not vary along, as signed integers."""
    shape = tuple([n for n, a in zip(x.base.shape, x.axes) if a is not None])
    flat = build.reshape(x.base, shape)
    return flat if flat.dtype.kind == "int" and flat.dtype.itemsize >= 4 or \
        flat.dtype.itemsize >= 8 else build.cast(flat, dtypes.int32)


def _gather_before_cast(x: UOp, i: UOp, axis: int, transposes: bool) -> UOp:
    """Gather before conversion, so that only the selected rows are converted; from a transposed
    array if rows are columns of x."""
    if x.op is ops.CAST:
        return build.cast(_gather_before_cast(x.src[0], i, axis, transposes), x.dtype)
    if transposes:
        rest = [a for a in range(len(x.shape)) if a != axis]
        return build.gather(build.permute(x, (axis, *rest)), i)
    return build.gather(x, i, axes=(axis,))


def _add_offset(i: UOp, number: int) -> UOp:
    return build.add(i, build.const_like(i, number)) if number else i


def _in_bounds(i: UOp, length: int) -> UOp:
    return build.and_(build.le(build.const_like(i, 0), i), build.lt(i, build.const_like(i, length)))


def _not_finite(x: UOp) -> UOp:
    return build.elementwise(ops.CMPNE, build.sub(x, x), build.const_like(x, 0))


def _broadcast_axes(x: UOp, shape: Shape, axes: Sequence[int]) -> UOp:
    """Broadcast a value along some axes of a shape to that shape."""
    return build.expand(build.reshape(x, tuple([n if a in axes else 1
                                                for a, n in enumerate(shape)])), shape)


def _broadcast_to(x: UOp, axes: AxisMap, shape: Shape) -> UOp:
    """Transpose and broadcast a value, whose axes are these of a shape, to that shape."""
    mapped = [a for a in axes if a is not None]
    flat = build.reshape(x, tuple([n for n, a in zip(x.shape, axes) if a is not None]))
    ordered = build.permute(flat, tuple([mapped.index(a) for a in sorted(mapped)]))
    return _broadcast_axes(ordered, shape, mapped)
