"""Scalarized values: represent values of a loop body as scalars, one per element of small axes.

    x (1000, 3), axis 0 lanes l            cells  [[x[l, 0], x[l, 1], x[l, 2]]]
    SHRINK(x, column 1)                           [[x[l, 1]]]
    REDUCE(x * w, axis 1)                         [x[l, 0]*w[0] + x[l, 1]*w[1] + x[l, 2]*w[2]]

An array of cells has extent 1 along lanes. Movement ops are NumPy's, applied to such arrays;
constants are folded: a comparison of constants, a select by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core import build, dtypes, narrow, ops
from fnx.core.dtypes import DType
from fnx.core.expr import Expr, clamped
from fnx.core.levels.interp_kernel import computed
from fnx.core.ops import Op
from fnx.core.record import Record
from fnx.core.row_parts import interleaved, others
from fnx.core.uop import UOp, inherit
from fnx.lower.loops.axes import Axes, NodeAxis

Cells = np.ndarray[Any, Any]  # of nodes

MAX_CELLS = 1 << 12   # of all values of a body
MAX_CHOICES = 1 << 6  # alternatives for a data-dependent index
MAX_AXES = 32         # supported by all versions of NumPy


class Unfit(Exception):
    """A loop that cannot become one kernel, and why."""


class Memory(Record):
    """A buffer that cells are loaded from: its REF, and the indices of its leading dimensions."""

    ref: UOp
    prefix: tuple[UOp, ...] = ()


class BodyCells:
    """The cells of the nodes of a body.

    Args:
        axes: the equivalence classes of axes.
        lanes: the RANGE of each class of axes that are lanes.
        given: cells, or memory, of the nodes that are inputs.
    """

    def __init__(self, axes: Axes, lanes: Mapping[NodeAxis, UOp],
                 given: Mapping[UOp, Cells | Memory]) -> None:
        self.axes, self.lanes = axes, lanes
        self.memory = {n: m for n, m in given.items() if isinstance(m, Memory)}
        self.cells = {n: c for n, c in given.items() if not isinstance(c, Memory)}
        self.count = 0

    def lane(self, node: UOp, axis: int) -> UOp | None:
        """Return the RANGE of an axis that is lanes, else None."""
        return self.lanes.get(self.axes.find((node, axis)))

    def shape(self, node: UOp) -> tuple[int, ...]:
        """Return the shape of its array of cells."""
        if len(node.shape) > MAX_AXES:
            raise Unfit(f"more than {MAX_AXES} axes")
        return tuple([1 if n == 1 or self.lane(node, a) is not None else n
                      for a, n in enumerate(node.shape)])

    def take(self, nodes: Sequence[UOp]) -> None:
        """Compute the cells of nodes, operands first."""
        for node in nodes:
            if node in self.cells or node in self.memory:
                continue
            made = self._make(node)
            self.count += made.size
            if self.count > MAX_CELLS:
                raise Unfit(f"more than {MAX_CELLS} scalars")
            for cell in made.ravel().tolist():
                inherit(cell, node)
            self.cells[node] = made

    def of(self, node: UOp) -> Cells:
        """Return the cells of a computed node."""
        found = self.cells.get(node)
        if found is None:
            found = self.cells[node] = self._loaded(node)
        return found

    def _make(self, node: UOp) -> Cells:
        if node.op in _RULES:
            return _RULES[node.op](self, node)
        if node.op.kind == "elementwise":
            return self._each(node.op, node.dtype, [self.of(s) for s in node.src], node.arg)
        if node.op.batching == "first":
            return self.of(node.src[0])
        raise Unfit(f"{node.op} inside")

    def _each(self, op: Op, dtype: DType, src: Sequence[Cells], arg: Any = None) -> Cells:
        full = np.broadcast_arrays(*src)
        out = np.empty(full[0].shape, object)
        for at in np.ndindex(out.shape):
            out[at] = scalar(op, dtype, tuple([s.item(at) for s in full]), arg)
        return out

    # ---- memory

    def place(self, node: UOp, memory: Memory, at: Sequence[int]) -> UOp:
        """Return the address of the cell ``at`` of a node that is in memory."""
        found = [self.lane(node, a) for a in range(len(at))]
        index = [build.index_const(i) if lane is None else lane for i, lane in zip(at, found)]
        return build.at(memory.ref, *memory.prefix, *index)

    def _loaded(self, node: UOp) -> Cells:
        memory = self.memory[node]
        out = np.empty(self.shape(node), object)
        self.count += out.size
        if self.count > MAX_CELLS:
            raise Unfit(f"more than {MAX_CELLS} scalars")
        for at in np.ndindex(out.shape):
            out[at] = build.load(self.place(node, memory, at))
        return out

    # ---- sources and movements

    def _const(self, node: UOp) -> Cells:
        return _filled((), node)

    def _iota(self, node: UOp) -> Cells:
        lane = self.lane(node, 0)
        if lane is not None:
            return _filled((1,), build.cast(lane, node.dtype))
        return _array([build.const(i, node.dtype) for i in range(node.arg)])

    def _reshape(self, node: UOp) -> Cells:
        return self.of(node.src[0]).reshape(self.shape(node))

    def _permute(self, node: UOp) -> Cells:
        return np.transpose(self.of(node.src[0]), node.arg)

    def _expand(self, node: UOp) -> Cells:
        return np.broadcast_to(self.of(node.src[0]), self.shape(node))

    def _pad(self, node: UOp) -> Cells:
        out = _filled(self.shape(node), self.of(node.src[1]).item(()))
        out[tuple([slice(lo, lo + n) for (lo, _), n in
                   zip(node.arg, self.of(node.src[0]).shape)])] = self.of(node.src[0])
        return out

    def _shrink(self, node: UOp) -> Cells:
        return self.of(node.src[0])[tuple([
            slice(None) if self.lane(node, a) is not None else slice(lo, hi)
            for a, (lo, hi) in enumerate(node.arg)])]

    def _flip(self, node: UOp) -> Cells:
        return np.flip(self.of(node.src[0]), node.arg)

    def _concat(self, node: UOp) -> Cells:
        return np.concatenate([self.of(s) for s in node.src], node.arg)

    # ---- reductions and indexing

    def _reduce(self, node: UOp) -> Cells:
        x, axes, monoid = self.of(node.src[0]), node.arg.axes, node.arg.monoid
        kept = [a for a in range(x.ndim) if a not in axes]
        rows = np.transpose(x, (*kept, *axes)).reshape(*[x.shape[a] for a in kept], -1)
        out = np.empty(rows.shape[:-1], object)
        for at in np.ndindex(out.shape):
            out[at] = folded(monoid, list(rows[at]), node.dtype)
        return out

    def _gather(self, node: UOp) -> Cells:
        x, *index = node.src
        found = np.broadcast_arrays(*[self.of(i) for i in index])
        if x in self.memory:
            return self._gathered(node, self.memory[x], found)
        values = np.moveaxis(self.of(x), node.arg.axes, range(len(index)))
        out = np.empty((*found[0].shape, *values.shape[len(index):]), object)
        for at in np.ndindex(found[0].shape):
            chosen = values
            for i in found:
                chosen = _chosen(chosen, i.item(at))
            out[at] = chosen if chosen.ndim else chosen[()]
        return out

    def _gathered(self, node: UOp, memory: Memory, index: Sequence[Cells]) -> Cells:
        x, axes = node.src[0], node.arg.axes
        windows = others(axes, len(x.shape))
        lanes = [self.lane(x, a) for a in windows]
        tail = [self.shape(x)[a] for a in windows]
        out = np.empty((*index[0].shape, *tail), object)
        for at in np.ndindex(index[0].shape):
            first = [_clamped(i.item(at), x.shape[a]) for a, i in zip(axes, index)]
            for rest in np.ndindex(*tail):
                found = [build.index_const(i) if lane is None else lane
                         for i, lane in zip(rest, lanes)]
                place = build.at(memory.ref, *memory.prefix, *interleaved(axes, first, found))
                out[(*at, *rest)] = build.load(place)
        return out

    def _scatter(self, node: UOp) -> Cells:
        x, *index, updates = node.src
        whole, new, monoid = self.of(x).copy(), self.of(updates), node.arg.monoid
        out = np.moveaxis(whole, node.arg.axes, range(len(index)))
        found = np.broadcast_arrays(*[self.of(i) for i in index])
        for at in np.ndindex(found[0].shape):
            for place in np.ndindex(out.shape[:len(index)]):
                hit = TRUE
                for i, n in zip(found, place):
                    hit = scalar(ops.AND, dtypes.bool_, (hit, scalar(
                        ops.CMPEQ, dtypes.bool_, (i.item(at), _index_like(i.item(at), n)))))
                for rest in np.ndindex(out.shape[len(index):]):
                    old, value = out[(*place, *rest)], new[(*at, *rest)]
                    if monoid is not None:
                        value = scalar(monoid, node.dtype, (old, value))
                    out[(*place, *rest)] = scalar(ops.WHERE, node.dtype, (hit, value, old))
        return whole


_RULES: dict[Op, Callable[[BodyCells, UOp], Cells]] = {
    ops.CONST: BodyCells._const, ops.IOTA: BodyCells._iota, ops.RESHAPE: BodyCells._reshape,
    ops.PERMUTE: BodyCells._permute, ops.EXPAND: BodyCells._expand, ops.PAD: BodyCells._pad,
    ops.SHRINK: BodyCells._shrink, ops.FLIP: BodyCells._flip, ops.CONCAT: BodyCells._concat,
    ops.REDUCE: BodyCells._reduce, ops.GATHER: BodyCells._gather, ops.SCATTER: BodyCells._scatter,
}
TRUE = build.const(True, dtypes.bool_)


# ---- one cell -----------------------------------------------------------------------------------


def scalar(op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any = None) -> UOp:
    """Build an elementwise node; fold constants."""
    if op is ops.WHERE and src[0].op is ops.CONST:
        return src[1] if src[0].arg else src[2]
    if dtype is dtypes.bool_ and op in (ops.AND, ops.OR):
        for known, other in (src, src[::-1]):
            if known.op is ops.CONST:
                return other if bool(known.arg) is (op is ops.AND) else known
    if op.exact and all(s.op is ops.CONST for s in src):
        node = UOp(op, dtype, src, arg)
        values = {s: computed(s, {}) for s in src}
        with np.errstate(all="ignore"):
            held = np.asarray(computed(node, values))
            return build.const(narrow.decoded(held, dtype)[()], dtype)
    return UOp(op, dtype, src, arg)


def folded(monoid: Op, cells: list[UOp], dtype: DType) -> UOp:
    """Reduce cells in a tree of neighbors; a float sum takes in each product by a MULACC."""
    if not cells:
        assert monoid.identity is not None
        return build.const(monoid.identity(dtype), dtype)
    while len(cells) > 1:
        pairs = [_combined(monoid, a, b) for a, b in zip(cells[::2], cells[1::2])]
        cells = [*pairs, *cells[len(pairs) * 2:]]
    return cells[0]


def _combined(monoid: Op, a: UOp, b: UOp) -> UOp:
    if monoid is ops.ADD and a.dtype.is_float:
        for product, other in ((b, a), (a, b)):
            if product.op is ops.MUL:
                x, y = product.src
                return build.mulacc(x, y, other)
    return scalar(monoid, a.dtype, (a, b))


def _filled(shape: tuple[int, ...], cell: UOp) -> Cells:
    out = np.empty(shape, object)
    out[...] = cell
    return out


def _array(cells: Sequence[UOp]) -> Cells:
    out = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        out[i] = cell
    return out


def _index_like(i: UOp, n: int) -> UOp:
    """Return n as a constant of the index's dtype; 0 if it does not fit."""
    return build.const(n, i.dtype) if n <= i.dtype.limits[1] else build.const(0, i.dtype)


def _chosen(values: Cells, i: UOp) -> Cells:
    """Select the values at an index of the first axis, clamped."""
    n = values.shape[0]
    if i.op is ops.CONST:
        return _row(values, min(max(int(build.const_of(i)), 0), n - 1))
    if n > MAX_CHOICES:
        raise Unfit(f"an index that is data, into {n} scalars")
    out = _row(values, n - 1).copy()
    for k in range(n - 2, -1, -1):
        below = scalar(ops.CMPLE, dtypes.bool_, (i, _index_like(i, k)))
        rows = _row(values, k)
        for at in np.ndindex(out.shape):
            here: UOp = out.item(at)
            out[at] = scalar(ops.WHERE, here.dtype, (below, rows.item(at), here))
    return out


def _row(values: Cells, i: int) -> Cells:
    """Return a row as an array, even if it is one cell."""
    return values[i:i + 1].reshape(values.shape[1:])


def _clamped(i: UOp, n: int) -> UOp:
    at = build.cast(i, dtypes.index)
    if at.op is ops.CAST and i.op is ops.CONST:
        return build.index_const(min(max(int(build.const_of(i)), 0), n - 1))
    return clamped(Expr(at), 0, n - 1).node


