"""One-hot factors: turn a sum of products with a one-hot factor into a gather or a scatter-add.

    before  sum(k: (i[n] == k) * w[k, j])                         n K J products
    after   w[i[n], j] where 0 <= i[n] < K, else 0                n J reads

    before  sum(n: (i[n] == k) * g[n, j])
    after   zeros, and for each n: out[i[n], j] += g[n, j]

This matches ``one_hot(i, K) @ w`` and its gradient, alone or as parts of a CONCAT, whose other
parts remain a product. Values are unchanged: the sum is NaN if any other row of ``w`` is not
finite, so non-finite rows are counted per column. Likewise a column of the scatter-add is NaN if
any of its updates is not finite.

>>> from fnx.core import dtypes
>>> i, w = build.param(0, dtypes.int32, (500,)), build.param(1, dtypes.int32, (64, 16))
>>> hot = build.cast(build.elementwise(ops.CMPEQ, *[build.expand(build.reshape(x, shape), (500, 64))
...     for x, shape in ((i, (500, 1)), (build.iota(64, dtypes.int32), (1, 64)))]), dtypes.int32)
>>> sides = build.reshape(hot, (500, 1, 64)), build.reshape(build.permute(w, (1, 0)), (1, 16, 64))
>>> both = build.mul(*[build.expand(s, (500, 16, 64)) for s in sides])
>>> made, = one_hots(build.function([build.reduce(both, ops.ADD, [2])], 2), Target("cpu")).src
>>> any(n.op is ops.REDUCE for n in toposort([made]))
False
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from fnx.core import build, dtypes, ops
from fnx.core.ops import Shape
from fnx.core.record import Record
from fnx.core.rewriting.pattern import constant_of
from fnx.core.target import Target
from fnx.core.uop import UOp, rebuild, toposort
from fnx.lower.factors import is_zero

_START = 4       # cycles of overhead per indexed row
_CHAIN = 1 << 10  # approximate terms per accumulator
PlacedAxes = tuple[int | None, ...]


class Located(Record):
    """A value below its movements, and for each of its axes the axis of the outer shape that it
    maps to.

    None: the axis has length 1 there, or is repeated.
    """

    base: UOp
    axes: PlacedAxes

    def at(self, axis: int) -> int:
        return self.axes.index(axis)

    @property
    def varies(self) -> set[int]:
        return {a for a in self.axes if a is not None}

    def within(self, outer: PlacedAxes) -> Located:
        """Return the same value in the shape whose axes are ``outer``."""
        return Located(self.base, tuple([None if a is None else outer[a] for a in self.axes]))


class Hot(Record):
    """Rows first <= k < first + length of a factor, and the index they are compared with if they
    are one-hot."""

    value: UOp
    first: int
    length: int
    index: Located | None


def one_hots(fn: UOp, target: Target) -> UOp:
    """Return a FUNCTION whose products with one-hot factors are gathers and scatters, where those
    are predicted to be faster."""
    if target.threads > 1:
        return fn

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REDUCE or node.arg.monoid is not ops.ADD or \
                src[0].op is not ops.MUL or not (node.dtype.is_float or node.dtype.is_integer):
            return None
        found = [_located(s) for s in src[0].src]
        for hot, other in (found, found[::-1]):
            for axis in _hot_axes(hot):
                product = _Product(src[0].shape, node.arg.axes, axis, hot, other, target)
                made = product.read() if axis in node.arg.axes else product.added()
                if made is not None:
                    return made
        return None

    kernels = {n: n for n in toposort(fn.src) if n.op is ops.KERNEL}
    return fn.over(tuple(rebuild(fn.src, visit, kernels)))


# ---- matching one-hot factors


def _located(node: UOp) -> Located:
    """Return the value below a node's movements, with the node's axis for each of its axes."""
    axes: list[int | None] = [*range(len(node.shape))]
    while True:
        if node.op is ops.EXPAND:
            axes = [None if n == 1 else a for a, n in zip(axes, node.src[0].shape)]
        elif node.op is ops.PERMUTE:
            axes = [axes[node.arg.index(a)] for a in range(len(axes))]
        elif node.op is ops.RESHAPE and _long(node.shape) == _long(node.src[0].shape):
            left = iter([a for a, n in zip(axes, node.shape) if n != 1])
            axes = [None if n == 1 else next(left) for n in node.src[0].shape]
        else:
            return Located(node, tuple([None if n == 1 else a for a, n in zip(axes, node.shape)]))
        node = node.src[0]


def _long(shape: Shape) -> list[int]:
    return [n for n in shape if n != 1]


def _hot_axes(factor: Located) -> list[int]:
    """Return the axes of the product along which a factor, or a part of a CONCAT, may be
    one-hot."""
    base = factor.base
    if base.op is ops.CONCAT:
        here = [base.arg] if any(_index(_located(s).base, _located(s).at(base.arg)) is not None
                                 for s in base.src if base.arg in _located(s).varies) else []
    else:
        here = [a for a in range(len(base.shape)) if _index(base, a) is not None]
    return [axis for a in here if (axis := factor.axes[a]) is not None]


def _index(value: UOp, axis: int) -> Located | None:
    """Match a value that is 1 where an index equals the position along an axis, else 0; return the
    index."""
    while value.op is ops.CAST and not value.src[0].dtype.is_bool:
        value = value.src[0]
    equal = value.src[0] if value.op is ops.CAST or value.op is ops.WHERE and is_zero(
        value.src[2]) and _is_one(value.src[1]) else value
    if equal.op is not ops.CMPEQ or not equal.src[0].dtype.is_integer:
        return None
    left, right = map(_located, equal.src)
    for places, index in ((left, right), (right, left)):
        if places.base.op is ops.IOTA and places.axes == (axis,) and axis not in index.varies \
                and places.base.arg <= places.base.dtype.limits[1]:
            return index
    return None


def _is_one(node: UOp) -> bool:
    constant = constant_of(node)
    return constant is not None and build.const_of(constant) == 1


# ---- sums of products with one-hot factors


class _Product:
    """A sum over axes of ``shape`` of a factor that is one-hot along an axis, times another
    factor."""

    def __init__(self, shape: Shape, axes: Sequence[int], axis: int, hot: Located, other: Located,
                 target: Target) -> None:
        self.shape, self.axes, self.axis, self.hot, self.other = shape, axes, axis, hot, other
        self.lanes = target.lanes(other.base.dtype.itemsize)

    def parts(self) -> list[Hot]:
        """Return the rows of the one-hot factor along the axis: the parts of a CONCAT, or all of
        them."""
        base, out, first = self.hot.base, list[Hot](), 0
        at = self.hot.at(self.axis)
        if base.op is not ops.CONCAT or base.arg != at:
            return [Hot(base, 0, base.shape[at], self._index(base, at))]
        for s in base.src:
            out.append(Hot(s, first, s.shape[at], self._index(s, at)))
            first += s.shape[at]
        return out

    def _index(self, part: UOp, at: int) -> Located | None:
        inner = _located(part)
        if at not in inner.varies:
            return None
        found = _index(inner.base, inner.at(at))
        return None if found is None else found.within(inner.within(self.hot.axes).axes)

    def rest(self, parts: Sequence[Hot]) -> UOp:
        """Return the product of the parts that are not one-hot."""
        at = self.hot.at(self.axis)
        values = [p.value for p in parts]
        hot = build.concat(values, at) if len(values) > 1 else values[0]
        shape = list(self.shape)
        shape[self.axis] = hot.shape[at]
        other = self.other
        if self.axis in other.varies:
            along = other.at(self.axis)
            runs = [build.shrink(other.base, [(first, end) if a == along else (0, n)
                                              for a, n in enumerate(other.base.shape)])
                    for first, end in _runs(parts)]
            other = other.replace(base=build.concat(runs, along) if len(runs) > 1 else runs[0])
        sides = [_placed(x.base, x.axes, tuple(shape)) for x in (
            self.hot.replace(base=hot), other)]
        return build.reduce(build.mul(*sides), ops.ADD, self.axes)

    # ---- gathering

    def read(self) -> UOp | None:
        """Gather the rows that one-hot parts select, and add the product of the remaining parts."""
        if tuple(self.axes) != (self.axis,) or self.axis not in self.other.varies:
            return None
        picked = [p for p in self.parts() if self._reads(p)]
        if not picked:
            return None
        left = [p for p in self.parts() if p not in picked]
        terms = [self.rest(left)] if left else []
        return functools.reduce(build.add, [*terms, *[self._row(p) for p in picked]])

    def _reads(self, part: Hot) -> bool:
        """Return whether a gather is predicted to be faster than the product."""
        index, other = part.index, self.other
        if index is None or not index.varies.isdisjoint(other.varies):
            return False
        rows = math.prod(index.base.shape)
        vectors = math.prod(other.base.shape) // self.shape[self.axis] / self.lanes
        return _is_quicker(rows * (2 * vectors + _START) + 3 * part.length * vectors,
                           rows * part.length * vectors / 2)

    def _row(self, part: Hot) -> UOp:
        """Return the rows that one part selects."""
        index, other = part.index, self.other
        assert index is not None
        along, i = other.at(self.axis), _squeezed(index)
        row = _gathered(other.base, _plus(i, part.first), along)
        rank = len(i.shape)
        inside = _spread(_inside(i, part.length), row.shape, range(rank))
        zero = build.like(row, 0)
        value = build.where(inside, row, zero)
        if row.dtype.is_float:
            rows = build.shrink(other.base, [
                (part.first, part.first + part.length) if a == along else (0, n)
                for a, n in enumerate(other.base.shape)])
            count = build.reduce(build.cast(_not_finite(rows), dtypes.int32), ops.ADD, [along])
            own = build.and_(inside, _not_finite(row))
            alone = build.elementwise(ops.CMPEQ, build.cast(own, dtypes.int32), _spread(
                count, row.shape, range(rank, len(row.shape))))
            value = build.where(alone, build.add(value, zero), build.like(row, math.nan))
        axes = (*[a for a in index.axes if a is not None],
                *[a for a in other.axes if a != self.axis])
        moved = [None if a is None else a - (a > self.axis) for a in axes]
        return _placed(value, tuple(moved), _without(self.shape, self.axis))

    # ---- scattering

    def added(self) -> UOp | None:
        """Scatter-add the rows of one-hot parts, and concatenate the product of the remaining
        parts."""
        parts = self.parts()
        picked = [p for p in parts if self._adds(p)]
        if not picked:
            return None
        left = [p for p in parts if p not in picked]
        whole = self.rest(left) if left else None
        at = self.axis - sum(a < self.axis for a in self.axes)
        out, first = list[UOp](), 0
        for p in parts:
            if p in picked:
                out.append(self._sums(p, at))
                continue
            assert whole is not None
            ends = [(first, first + p.length) if a == at else (0, n)
                    for a, n in enumerate(whole.shape)]
            out.append(build.shrink(whole, ends))
            first += p.length
        return build.concat(out, at) if len(out) > 1 else out[0]

    def _adds(self, part: Hot) -> bool:
        """Return whether a scatter-add is predicted to be faster than the product, with sums of
        about the same length."""
        index, other = part.index, self.other
        if index is None or index.varies != {*self.axes} or self.axis in other.varies or \
                not index.varies <= other.varies:
            return False
        rows = math.prod(index.base.shape)
        vectors = math.prod(other.base.shape) / rows / self.lanes
        return rows <= part.length * _CHAIN and _is_quicker(
            rows * (4 * vectors + 2 * _START), rows * part.length * vectors / 2)

    def _sums(self, part: Hot, at: int) -> UOp:
        index, other = part.index, self.other
        assert index is not None
        i = _squeezed(index)
        first = [a for a in index.axes if a is not None]
        last = [a for a in range(len(self.shape)) if a not in self.axes and a != self.axis]
        order = [*first, *last]
        shape = tuple([self.shape[a] for a in order])
        updates = _placed(other.base, tuple([None if a is None else order.index(a)
                                             for a in other.axes]), shape)
        rest = shape[len(first):]
        zeros = build.expand(build.const(0, updates.dtype), (part.length, *rest))
        sums = build.scatter(zeros, [i], updates, ops.ADD, axes=(0,))
        if updates.dtype.is_float:  # 0, or NaN if an update is not finite
            none = build.reduce(build.mul(updates, build.like(updates, 0)), ops.ADD,
                                [*range(len(first))])
            sums = build.add(sums, _spread(none, sums.shape, range(1, len(sums.shape))))
        back = [a + 1 for a in range(at)] + [0] + [a + 1 for a in range(at, len(rest))]
        return build.permute(sums, tuple(back))


def _is_quicker(cycles: float, product: float) -> bool:
    return cycles < product


def _runs(parts: Sequence[Hot]) -> list[tuple[int, int]]:
    """Return (first, end) of each run of adjacent parts."""
    ends = [(p.first, p.first + p.length) for p in parts]
    starts = [ends[0][0], *[b[0] for a, b in itertools.pairwise(ends) if a[1] != b[0]]]
    stops = [*[a[1] for a, b in itertools.pairwise(ends) if a[1] != b[0]], ends[-1][1]]
    return list(zip(starts, stops))


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1:])


def _squeezed(x: Located) -> UOp:
    """Return an index without the axes that it does not vary along, as signed integers."""
    shape = tuple([n for n, a in zip(x.base.shape, x.axes) if a is not None])
    flat = build.reshape(x.base, shape)
    return flat if flat.dtype.kind == "int" and flat.dtype.itemsize >= 4 or \
        flat.dtype.itemsize >= 8 else build.cast(flat, dtypes.int32)


def _gathered(x: UOp, i: UOp, axis: int) -> UOp:
    """Gather before conversion, so that only the selected rows are converted."""
    if x.op is ops.CAST:
        return build.cast(_gathered(x.src[0], i, axis), x.dtype)
    return build.gather(x, i, axes=(axis,))


def _plus(i: UOp, number: int) -> UOp:
    return build.add(i, build.like(i, number)) if number else i


def _inside(i: UOp, length: int) -> UOp:
    return build.and_(build.le(build.like(i, 0), i), build.lt(i, build.like(i, length)))


def _not_finite(x: UOp) -> UOp:
    return build.elementwise(ops.CMPNE, build.sub(x, x), build.like(x, 0))


def _spread(x: UOp, shape: Shape, axes: Sequence[int]) -> UOp:
    """Broadcast a value along some axes of a shape to that shape."""
    return build.expand(build.reshape(x, tuple([n if a in axes else 1
                                                for a, n in enumerate(shape)])), shape)


def _placed(x: UOp, axes: PlacedAxes, shape: Shape) -> UOp:
    """Transpose and broadcast a value, whose axes are these of a shape, to that shape."""
    kept = [a for a in axes if a is not None]
    flat = build.reshape(x, tuple([n for n, a in zip(x.shape, axes) if a is not None]))
    ordered = build.permute(flat, tuple([kept.index(a) for a in sorted(kept)]))
    return _spread(ordered, shape, kept)
